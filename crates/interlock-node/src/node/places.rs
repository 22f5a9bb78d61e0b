//! Places in the log: the end of a node's history, and the checkpoints before it.

use interlock_log::checkpoint::{Checkpoint, Place};
use interlock_log::machine::Machine;
use interlock_stores::disk::Disk;
use interlock_stores::StoreError;

use crate::files::{Checkpoints, Point, Report};
use crate::log::{Id, Position};

/// Returns the newest readable checkpoint with a number below `before`: its number, its point and
/// its state.
pub(super) fn older<M: Machine, D: Disk>(
    checkpoints: &Checkpoints<D>,
    mut before: u64,
    reports: &mut Vec<Report>,
) -> Result<Option<(u64, Point, Checkpoint<M>)>, StoreError> {
    while let Some(saved) = checkpoints.newest(before, reports)? {
        before = saved.number;
        if let Ok(found) = Checkpoint::decode(&saved.bytes) {
            return Ok(Some((saved.number, saved.point, found)));
        }
        let path = format!("checkpoint {}", saved.number);
        let text = "it was written by another version of the program, and is skipped".to_owned();
        reports.push(Report { path, text });
    }
    Ok(None)
}

/// Returns the oldest readable checkpoint with a number above `after`.
pub(super) fn newer<M: Machine, D: Disk>(
    checkpoints: &Checkpoints<D>,
    after: u64,
    reports: &mut Vec<Report>,
) -> Result<Option<(u64, Point, Checkpoint<M>)>, StoreError> {
    for (number, _) in checkpoints.kept().filter(|(number, _)| *number > after) {
        let found = older(checkpoints, number + 1, reports)?;
        if let Some(found) = found.filter(|(one, _, _)| *one == number) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

pub(super) fn position(place: Place) -> Option<Position> {
    let from = |(ms, number)| Position { id: Id { ms, number }, mark: Some(place.entry) };
    place.id.map(from)
}
