//! The owner's view of a replica: pending answers, checkpoints to keep, and marks that others have
//! seen.

use super::{Batch, Phase, Replica};
use crate::apply::Answer;
use crate::checkpoint::{Checkpoint, Later};
use crate::entry::Mark;
use crate::machine::Machine;
use crate::ring::Ring;

impl<M: Machine, R: Ring> Replica<M, R> {
    /// Answers writes that were not read back by their deadline, given the time since an entry was
    /// last read: it is unknown whether they will be done.
    pub fn leave(&mut self, since_last_read: u64) {
        // Not the current log time, which a node that has gone back may not know.
        let now = self.seen.saturating_add(since_last_read);
        for batch in &mut self.pending {
            for (ticket, command) in batch.tickets.iter_mut().zip(&batch.commands) {
                if let Some(ticket) = ticket.take_if(|_| now > command.deadline) {
                    self.answers.push((ticket, Answer::Unknown));
                }
            }
        }
    }

    /// Returns whether a client waits for an answer.
    pub fn is_awaited(&self) -> bool {
        let waits = |batch: &Batch| batch.tickets.iter().any(Option::is_some);
        !self.gathered.is_empty() || self.pending.iter().any(waits)
    }

    /// Number of rows in which two histories of this data centre were merged because a loss was
    /// deeper than every ring. An older write may have won there, and sums may be wrong.
    pub fn merged(&self) -> u64 {
        self.state.merged
    }

    /// The machine, for code that publishes its contents elsewhere; its behaviour must stay the
    /// same.
    pub fn machine_mut(&mut self) -> Option<&mut M> {
        self.state.machine.as_mut()
    }

    /// Returns whether the current history lacks a mark; false for forgotten places.
    pub fn lacks_mark(&self, mark: Mark) -> bool {
        mark.position > self.place.mark.position
            || self.known_at(mark.position).is_some_and(|known| known.mark != mark)
    }

    /// Returns whether the current history has a mark. `None`: the place is forgotten.
    pub fn has_mark(&self, mark: Mark) -> Option<bool> {
        if mark.position > self.place.mark.position {
            return Some(false);
        }
        self.known_at(mark.position).map(|known| known.mark == mark)
    }

    /// Like `checkpoint`, as a function for another thread to call while the state changes.
    pub fn checkpoint_later(&self) -> Option<Later> {
        self.may_save().then(|| Checkpoint::later(self.place, &self.state))
    }

    pub(super) fn may_save(&self) -> bool {
        let reads =
            matches!(self.phase, Phase::Reads) && self.mine.is_none() && !self.is_repeated_genesis;
        reads && self.state.machine.is_some() && self.place.id.is_some()
    }
}
