//! Rule 5: joining states of this data centre and of others.

use super::Whole;
use crate::codec::{Damaged, Reader};
use crate::entry::{Mark, Source};
use crate::heard::Heard;
use crate::machine::{Centre, Judge, Machine, Origin, Rules};

impl<M: Machine> Whole<M> {
    /// Rule 5: joins a state. Returns true if it was a history of this data centre with writes that
    /// this one lacked.
    pub(super) fn join(
        &mut self,
        source: Option<&Source>,
        bytes: &[u8],
        at: Mark,
        rules: Rules,
    ) -> Result<bool, Damaged> {
        let mut reader = Reader::new(bytes);
        let mut theirs = Self::decode(&mut reader)?;
        reader.end()?;
        if self.machine.is_none() || theirs.machine.is_none() || !theirs.is_believed() {
            return Err(Damaged);
        }
        match source {
            // The names and clients of another data centre are numbered by its own log.
            Some(source) => {
                let (Some(ours), Some(machine)) = (&mut self.machine, theirs.machine) else {
                    return Err(Damaged);
                };
                let judge = Judge::new(&self.sessions, &theirs.sessions, rules);
                let heard = self.sources.entry(source.name.clone()).or_default();
                let follows = heard.take(source, bytes, machine.changes() > 0);
                let is_newest = follows && !source.is_returned || !rules.follows;
                let origin = Origin::Far(Centre { name: &source.name, is_newest });
                self.reading = self.reading.max(ours.join(machine, &judge, origin));
                self.merged += ours.take_short();
            }
            None => {
                // A state from a wrong clock must not stop all writes.
                theirs.sessions.forgotten = theirs.sessions.forgotten.min(self.now);
                if rules.within && theirs.is_within(self) {
                    return Ok(false);
                }
                let is_history = theirs.now > 0;
                self.merge(theirs, rules);
                self.lineage = at.checksum | 1;
                return Ok(is_history);
            }
        }
        Ok(false)
    }

    /// Merges another history of this data centre.
    pub(crate) fn merge(&mut self, theirs: Self, rules: Rules) {
        let is_whole = rules.within && self.genesis == theirs.genesis && self.is_within(&theirs);
        let (Some(ours), Some(machine)) = (&mut self.machine, theirs.machine) else { return };
        let before = ours.changes();
        let judge = Judge::new(&self.sessions, &theirs.sessions, rules);
        let highest = if is_whole {
            ours.replace(machine, self.now)
        } else {
            ours.join(machine, &judge, Origin::Own)
        };
        let lifted = judge.lifted.into_inner();
        self.merged = self.merged.max(theirs.merged);
        if !is_whole {
            self.merged += (ours.changes() - before).max(1);
        }
        self.reading = self.reading.max(highest);
        let mut sessions = theirs.sessions;
        sessions.rebase(theirs.busy, self.busy);
        self.sessions.join(sessions);
        for (client, number, stamp) in lifted {
            self.sessions.lift(&client, number, stamp);
        }
        for (name, heard) in theirs.sources {
            self.sources.entry(name).or_default().join(&heard);
        }
    }

    /// Returns whether another state contains all writes of this history. It must have every record
    /// that this one has forgotten. Rows from elsewhere are not part of a history.
    pub fn is_within(&self, other: &Self) -> bool {
        let is_known = |(name, heard): (&Vec<u8>, &Heard)| {
            other.sources.get(name).is_some_and(|it| heard.is_within(it))
        };
        self.now > 0
            && self.sources.iter().all(is_known)
            && self.sessions.is_within(&other.sessions)
    }
}
