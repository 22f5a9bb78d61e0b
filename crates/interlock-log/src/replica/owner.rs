//! A replica's owner looks at it: who waits, what may be kept, and what others have seen of it.

use super::{Batch, Phase, Replica};
use crate::apply::Answer;
use crate::checkpoint::{Checkpoint, Later};
use crate::entry::Mark;
use crate::machine::Machine;
use crate::ring::Ring;

impl<M: Machine, R: Ring> Replica<M, R> {
    /// Answers writes whose deadlines are over, by the time since an entry was read, and that were not read
    /// back: nobody can say whether they will be done.
    pub fn leave(&mut self, since_last_read: u64) {
        // Not the log time of now, which a node that has gone back may not know.
        let now = self.seen.saturating_add(since_last_read);
        for batch in &mut self.pending {
            for (ticket, command) in batch.tickets.iter_mut().zip(&batch.commands) {
                if let Some(ticket) = ticket.take_if(|_| now > command.deadline) {
                    self.answers.push((ticket, Answer::Unknown));
                }
            }
        }
    }

    /// Returns whether somebody waits for an answer.
    pub fn is_awaited(&self) -> bool {
        let waits = |batch: &Batch| batch.tickets.iter().any(Option::is_some);
        !self.gathered.is_empty() || self.pending.iter().any(waits)
    }

    /// Rows in which two histories of this data centre were merged: a loss was deeper than every ring. An older
    /// write may have won there, and sums may be wrong.
    pub fn merged(&self) -> u64 {
        self.state.merged
    }

    /// The machine, for those who show elsewhere what it holds; what it does must stay the same.
    pub fn machine_mut(&mut self) -> Option<&mut M> {
        self.state.machine.as_mut()
    }

    /// Returns whether the history of now does not have a mark; of places that nobody remembers it says no.
    pub fn lacks_mark(&self, mark: Mark) -> bool {
        mark.position > self.place.mark.position
            || self.known_at(mark.position).is_some_and(|known| known.mark != mark)
    }

    /// Returns whether the history of now has a mark. `None`: nobody remembers that place.
    pub fn has_mark(&self, mark: Mark) -> Option<bool> {
        if mark.position > self.place.mark.position {
            return Some(false);
        }
        self.known_at(mark.position).map(|known| known.mark == mark)
    }

    /// As `checkpoint`, for another thread to be made while this goes on.
    pub fn checkpoint_later(&self) -> Option<Later> {
        self.may_save().then(|| Checkpoint::later(self.place, &self.state))
    }

    pub(super) fn may_save(&self) -> bool {
        let reads = matches!(self.phase, Phase::Reads) && self.mine.is_none();
        reads && self.state.machine.is_some() && self.place.id.is_some()
    }
}
