//! After a loss, rows from elsewhere are brought back first, because later writes may depend on
//! them. If others may already have sums of this data centre, a lost history comes back as a whole.

use std::collections::BTreeMap;

use super::lost::Lost;
use super::Replica;
use crate::apply::Whole;
use crate::entry::{Body, Entry, Mark, Source};
use crate::heard::Heard;
use crate::machine::Machine;
use crate::ring::{Kept, Ring};

/// Name for rows without a known sender, such as those from a database.
const NOBODY: &[u8] = b".";

/// Progress of bringing back rows from elsewhere of a lost history.
#[derive(Debug, Default)]
pub(super) struct Far {
    /// Index of the sender, and number of the last row examined.
    at: usize,
    since: u64,
    /// Some rows were missing: check again whether they have arrived.
    found: bool,
    done: bool,
}

/// Returns whether a state in a ring is an entry with rows from elsewhere rather than a history.
pub(super) fn is_entry(bytes: &[u8]) -> bool {
    Entry::decode(bytes).is_ok()
}

impl<M: Machine, R: Ring> Replica<M, R> {
    /// Returns whether an entry may be put back by itself.
    pub(super) fn takes_back(&self, kept: &Kept) -> bool {
        let machine = self.state.machine.as_ref();
        let is_judged = self.setup.rules.takes_back && !kept.did.done.is_empty();
        !is_judged || machine.is_none_or(|it| it.takes_back(kept.did.writer))
    }

    /// Returns the first entries to append after a loss; empty if all their rows have arrived.
    pub(super) fn bring_back(&mut self) -> Vec<Vec<u8>> {
        if !self.owes && self.mine.is_none() {
            // The ring is long, and this runs after each read.
            return Vec::new();
        }
        let far = if self.setup.rules.far { self.far_entry() } else { None };
        far.or_else(|| self.history()).into_iter().collect()
    }

    /// Returns some rows from elsewhere that the lost history had and this one lacks.
    fn far_entry(&mut self) -> Option<Vec<u8>> {
        let mine = self.mine.as_mut().filter(|mine| !mine.far.done)?;
        let (theirs, ours) = (mine.state.machine.as_ref()?, self.state.machine.as_ref()?);
        let mut sources = mine.state.sources.clone();
        if theirs.has_joined() {
            let time = mine.state.now;
            sources.insert(NOBODY.to_vec(), Heard { time, ..Heard::default() });
        }
        let heard = &self.state.sources;
        sources.retain(|name, lost| heard.get(name).is_none_or(|it| !it.is_same(lost)));
        loop {
            let Some((name, lost)) = sources.iter().nth(mine.far.at) else {
                mine.far = Far { done: !mine.far.found, ..Far::default() };
                if mine.far.done {
                    return None;
                }
                continue;
            };
            let (last, part) = theirs.far_part(ours, name, mine.far.since);
            match last {
                Some(last) => mine.far.since = last,
                None => (mine.far.at, mine.far.since) = (mine.far.at + 1, 0),
            }
            if let Some(part) = part {
                mine.far.found = true;
                let mut bytes = Vec::new();
                Whole::of(self.state.genesis.clone(), part).encode(&mut bytes);
                let (name, marks) = (name.clone(), lost.marks.clone());
                let (told, time) = (lost.told.clone(), lost.time);
                let source =
                    Source { name, marks, time, told, is_returned: true, ..Source::default() };
                return Some(self.states(Some(source), bytes));
            }
        }
    }

    /// Notes the writers of the ring's entries: the log may have these writes under other writers.
    pub(super) fn note_writers(&mut self) {
        let writers = &mut self.writers;
        self.ring.each(&mut |kept| {
            writers.extend(Some(kept.did.writer).filter(|writer| *writer > 0));
            true
        });
    }

    /// Returns an entry that names the noted writers that the log does not know.
    pub(super) fn named_writers(&mut self) -> Option<Vec<u8>> {
        let machine = self.state.machine.as_ref().filter(|_| self.setup.rules.names_writers)?;
        self.writers.retain(|writer| !machine.is_own(*writer));
        let writers: Vec<u64> = self.writers.iter().copied().collect();
        let part = machine.of_writers(&writers).filter(|_| !writers.is_empty())?;
        let mut bytes = Vec::new();
        Whole::of(self.state.genesis.clone(), part).encode(&mut bytes);
        let source = Source { name: NOBODY.to_vec(), is_returned: true, ..Source::default() };
        Some(self.states(Some(source), bytes))
    }

    /// Returns the lost history as a whole if it has writes that must not come back by themselves.
    fn history(&mut self) -> Option<Vec<u8>> {
        let is_missing = |state: &Whole<M>, kept: &Kept| {
            let mut clients = kept.did.done.iter().filter_map(|done| done.command.client.as_ref());
            kept.number > state.sessions.last(&kept.name)
                || clients.any(|(client, number)| !state.sessions.has_done(client, *number))
        };
        let mut missing = Vec::new();
        let mut all = Vec::new();
        self.ring.each(&mut |kept| {
            if !self.takes_back(kept) && is_missing(&self.state, kept) {
                missing.push(kept.clone());
            }
            true
        });
        if missing.is_empty() {
            return None;
        }
        self.ring.each(&mut |kept| {
            all.push(kept.clone());
            true
        });
        let mut mine = self.mine.take().unwrap_or_else(|| self.nothing());
        if !mine.is_folded {
            for kept in all {
                let time = kept.did.time;
                let body = Body::PutBack(kept.did);
                let entry = Entry { name: kept.name, number: kept.number, ..entry(body) };
                self.apply_to(&mut mine.state, entry, time);
            }
            mine.changed();
            mine.is_folded = true;
        }
        let mut bytes = Vec::new();
        if missing.iter().any(|kept| !is_missing(&mine.state, kept)) {
            mine.state.encode(&mut bytes);
        }
        self.mine = Some(mine);
        (!bytes.is_empty()).then(|| self.states(None, bytes))
    }

    /// Adds rows from elsewhere that only the ring has to the lost history.
    pub(super) fn recall(&mut self) {
        if !std::mem::take(&mut self.has_far) || !self.setup.rules.far {
            return;
        }
        let entries: Vec<_> =
            self.ring.states().iter().filter_map(|bytes| Entry::decode(bytes).ok()).collect();
        if entries.is_empty() {
            return;
        }
        let mut mine = self.mine.take().unwrap_or_else(|| self.nothing());
        if let Some(machine) = &mut mine.state.machine {
            // Reports by others of sums that these entries determine are ignored.
            self.ring.each(&mut |kept| {
                if !kept.did.done.is_empty() {
                    machine.comes_back(kept.did.writer);
                }
                true
            });
        }
        for entry in entries {
            let now = mine.state.now;
            self.apply_to(&mut mine.state, entry, now);
        }
        mine.changed();
        self.mine = Some(mine);
    }

    /// Returns a history of this table without any writes.
    fn nothing(&self) -> Lost<M> {
        let mut state = Whole::default();
        let genesis = Body::Genesis(self.setup.genesis.clone());
        self.apply_to(&mut state, Entry { seen: 1, ..entry(genesis) }, 0);
        Lost::new(state, self.place.mark.position, BTreeMap::new(), false)
    }

    fn apply_to(&self, state: &mut Whole<M>, mut entry: Entry, time: u64) {
        let (limits, rules) = (&self.setup.limits, self.setup.rules);
        state.apply(&mut entry, Mark::default(), time, false, limits, rules);
    }
}

fn entry(body: Body) -> Entry {
    Entry { name: NOBODY.to_vec(), number: 0, read: Mark::default(), seen: 0, nonce: 0, body }
}
