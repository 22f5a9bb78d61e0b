//! The nodes that keep checkpoints, according to the log: the log is trimmed only up to a place
//! that two machines keep.
//!
//! A node reports the oldest checkpoint that it would still go back to. The report is an entry of
//! the log. So it is valid only in the history in which it was made, it works on every engine, and
//! all nodes know it.

use std::collections::{BTreeMap, BTreeSet};

use crate::checkpoint::Place;
use crate::codec::{put_bytes, put_number, Damaged, Reader};
use crate::entry::MOST_NAME;

/// Largest number of nodes that are remembered; beyond it the one with the oldest report is
/// dropped.
pub const MOST_KEEPERS: usize = 1024;

/// A statement about a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// Another node remembers this node: its own reports may have been lost.
    Known,
    /// By the node itself: the oldest checkpoint that it keeps, if it has one.
    Keeps(Option<Place>),
    /// By an operator: the node does not come back, and no other node waits for it.
    Gone,
}

impl Report {
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        match self {
            Self::Known => out.push(0),
            Self::Keeps(None) => out.push(1),
            Self::Keeps(Some(place)) => {
                out.push(2);
                place.encode(out);
            }
            Self::Gone => out.push(3),
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(match reader.byte()? {
            0 => Self::Known,
            1 => Self::Keeps(None),
            2 => Self::Keeps(Some(Place::decode(reader)?)),
            3 => Self::Gone,
            _ => return Err(Damaged),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keeper {
    /// Two nodes on one machine count once.
    pub machine: Vec<u8>,
    /// The oldest checkpoint that it keeps.
    pub kept: Option<Place>,
    /// It does not come back.
    pub is_gone: bool,
    /// Position up to which its node had read when it reported. A late report is ignored.
    told: u64,
}

/// All nodes that have ever reported.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Keepers(BTreeMap<Vec<u8>, Keeper>);

impl Keepers {
    pub fn get(&self, node: &[u8]) -> Option<&Keeper> {
        self.0.get(node)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Keeper)> {
        self.0.iter().map(|(node, keeper)| (node.as_slice(), keeper))
    }

    /// Applies a report that was written when its writer had read up to a position.
    pub(crate) fn take(&mut self, node: &[u8], machine: &[u8], report: Report, read: u64) {
        let new = Keeper { machine: machine.to_vec(), kept: None, is_gone: false, told: 0 };
        let keeper = self.0.entry(node.to_vec()).or_insert_with(|| new.clone());
        match report {
            Report::Known => {}
            Report::Keeps(kept) if read >= keeper.told => {
                *keeper = Keeper { kept, told: read, ..new };
            }
            Report::Keeps(_) => {}
            Report::Gone => {
                (keeper.kept, keeper.is_gone) = (None, true);
                keeper.told = keeper.told.max(read);
            }
        }
        if self.0.len() > MOST_KEEPERS {
            let oldest = self.0.iter().min_by_key(|(_, keeper)| keeper.told);
            let oldest = oldest.map(|(node, _)| node.clone());
            self.0.remove(&oldest.unwrap_or_default());
        }
    }

    /// Returns the place before which the log may be trimmed: nodes on two machines keep a
    /// checkpoint at this place or after it. If there has only ever been one node, or one machine,
    /// that is enough.
    ///
    /// # Arguments
    ///
    /// `is_there` returns whether the log has the last entry of a place: a checkpoint of another
    /// history is useless.
    ///
    /// # Returns
    ///
    /// The places of the checkpoints that allow the trim, with the place to trim before at the end;
    /// empty if the log must not be trimmed.
    pub fn cut(&self, two: bool, is_there: impl Fn(&Place) -> bool) -> Vec<Place> {
        let all = || self.0.values().filter(|keeper| !keeper.is_gone);
        let machines: BTreeSet<&[u8]> = all().map(|keeper| keeper.machine.as_slice()).collect();
        let enough = |count: usize| count.min(if two { 2 } else { 1 });
        let (nodes, machines) = (enough(all().count()), enough(machines.len()));
        let kept = all().filter_map(|keeper| Some((keeper.kept?, keeper.machine.as_slice())));
        let mut kept: Vec<_> = kept.filter(|(it, _)| it.id.is_some() && is_there(it)).collect();
        kept.sort_by_key(|(place, _)| std::cmp::Reverse(place.mark.position));
        let (mut places, mut on) = (Vec::new(), BTreeSet::new());
        for (place, machine) in kept {
            places.push(place);
            on.insert(machine);
            if places.len() >= nodes && on.len() >= machines {
                return places;
            }
        }
        Vec::new()
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_number(out, self.0.len() as u64);
        for (node, keeper) in &self.0 {
            put_bytes(out, node);
            put_bytes(out, &keeper.machine);
            let report = if keeper.is_gone { Report::Gone } else { Report::Keeps(keeper.kept) };
            report.encode(out);
            put_number(out, keeper.told);
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, Damaged> {
        let mut keepers = Self::default();
        let count = reader.count(4)?;
        if count > MOST_KEEPERS {
            return Err(Damaged);
        }
        for _ in 0..count {
            let node = reader.bytes(MOST_NAME)?.to_vec();
            let machine = reader.bytes(MOST_NAME)?.to_vec();
            let (kept, is_gone) = match Report::decode(reader)? {
                Report::Keeps(kept) => (kept, false),
                Report::Gone => (None, true),
                Report::Known => return Err(Damaged),
            };
            let told = reader.number()?;
            keepers.0.insert(node, Keeper { machine, kept, is_gone, told });
        }
        Ok(keepers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Mark;

    fn place(position: u64) -> Place {
        let mark = Mark { position, checksum: position };
        Place { mark, id: Some((position, 0)), entry: position }
    }

    /// Takes nodes `MACHINE/NAME` and their checkpoints; returns the position to trim before.
    fn cut(kept: &[(&str, Option<u64>)], lost: &[u64]) -> Option<u64> {
        let mut keepers = Keepers::default();
        for (node, kept) in kept {
            let (machine, name) = node.split_once('/').unwrap();
            let report = Report::Keeps(kept.map(place));
            keepers.take(name.as_bytes(), machine.as_bytes(), report, 1);
        }
        let mut bytes = Vec::new();
        keepers.encode(&mut bytes);
        assert_eq!(Keepers::decode(&mut Reader::new(&bytes)), Ok(keepers.clone()));
        let found = keepers.cut(true, |place| !lost.contains(&place.mark.position));
        found.last().map(|place| place.mark.position)
    }

    #[test]
    fn a_log_is_trimmed_up_to_what_two_machines_keep() {
        assert_eq!(cut(&[], &[]), None);
        assert_eq!(cut(&[("m/a", Some(5))], &[]), Some(5), "it is alone");
        assert_eq!(cut(&[("m/a", Some(5)), ("n/b", None)], &[]), None);
        assert_eq!(cut(&[("m/a", Some(5)), ("n/b", Some(3))], &[]), Some(3));
        assert_eq!(cut(&[("m/a", Some(5)), ("m/b", Some(3))], &[]), Some(3), "one machine only");
        let three = [("m/a", Some(9)), ("m/b", Some(7)), ("n/c", Some(2))];
        assert_eq!(cut(&three, &[]), Some(2), "two of a machine count once");
        let three_machines = [("m/a", Some(9)), ("n/b", Some(7)), ("o/c", Some(2))];
        assert_eq!(cut(&three_machines, &[]), Some(7), "the third takes a snapshot");
        assert_eq!(
            cut(&three_machines, &[9]),
            Some(2),
            "a checkpoint that is not of this log does not count"
        );
        assert_eq!(cut(&three_machines, &[9, 7]), None);
    }

    #[test]
    fn late_reports_are_passed_over_and_who_is_gone_does_not_count() {
        let mut keepers = Keepers::default();
        keepers.take(b"a", b"m", Report::Keeps(Some(place(5))), 10);
        keepers.take(b"b", b"n", Report::Known, 11);
        assert!(keepers.cut(true, |_| true).is_empty());
        keepers.take(b"a", b"m", Report::Keeps(None), 20);
        keepers.take(b"a", b"m", Report::Keeps(Some(place(5))), 10);
        assert_eq!(keepers.get(b"a").and_then(|it| it.kept), None, "its folder was lost since");
        keepers.take(b"a", b"m", Report::Keeps(Some(place(15))), 21);
        keepers.take(b"b", b"", Report::Gone, 22);
        assert_eq!(keepers.cut(true, |_| true), [place(15)]);
        keepers.take(b"b", b"n", Report::Keeps(None), 12);
        assert!(!keepers.cut(true, |_| true).is_empty(), "it was said before it was gone");
        keepers.take(b"b", b"n", Report::Keeps(None), 30);
        assert!(keepers.cut(true, |_| true).is_empty(), "it has come back");
    }
}
