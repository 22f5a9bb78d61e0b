//! The model's concurrency limits (clause 26): what is leased and kept is counted anew at each question.

use interlock_core::queue::types::LimitFull;

use crate::model::{leased, Message, Model};

/// Refusals after the first that make a message with several names a keeper.
const PASSES: u32 = 64;

/// A message's part in limits.
#[derive(Clone, Debug, Default)]
pub struct Named {
    /// Sorted, each once.
    pub names: Vec<Vec<u8>>,
    /// The name for whose room it waits.
    pub waits_for: Option<Vec<u8>>,
    pub passes: u32,
    /// Of a keeper: how many of its first names it keeps a slot of.
    pub slots: Option<usize>,
}

impl Named {
    pub fn new(names: &[Vec<u8>]) -> Self {
        let mut names = names.to_vec();
        names.sort();
        names.dedup();
        Named { names, ..Named::default() }
    }

    /// It is leased, or set aside for another reason.
    pub fn forget(&mut self) {
        *self = Named { names: std::mem::take(&mut self.names), ..Named::default() };
    }

    fn keeps(&self, name: &[u8]) -> bool {
        self.slots.is_some_and(|slots| self.names[..slots].iter().any(|one| one == name))
    }
}

impl Model {
    fn leased_with(&self, name: &[u8]) -> Vec<&Message> {
        let with = |m: &&Message| leased(m.phase) && m.limit.names.iter().any(|one| one == name);
        self.placed.iter().filter(with).collect()
    }

    fn keeper(&self, name: &[u8]) -> Option<&Message> {
        let keeps =
            |m: &&Message| m.limit.slots.is_some() && m.limit.names.contains(&name.to_vec());
        self.placed.iter().find(keeps)
    }

    pub(crate) fn has_room(&self, name: &[u8]) -> bool {
        let kept = self.placed.iter().filter(|message| message.limit.keeps(name)).count();
        let used = self.leased_with(name).len() + kept;
        self.options.limits.most(name).is_none_or(|most| used < most as usize)
    }

    /// Keepers take what is free, one name after another.
    pub(crate) fn advance(&mut self) {
        for at in 0..self.placed.len() {
            while let Some(slots) = self.placed[at].limit.slots {
                let next = self.placed[at].limit.names.get(slots);
                if !next.is_some_and(|name| self.has_room(name)) {
                    break;
                }
                self.placed[at].limit.slots = Some(slots + 1);
            }
        }
    }

    /// A message that nothing but a pause or a limit holds up is looked at: may it be leased?
    pub(crate) fn admit(&mut self, at: usize) -> bool {
        let limit = &self.placed[at].limit;
        if let Some(slots) = limit.slots {
            return slots == limit.names.len();
        }
        if limit.waits_for.as_ref().is_some_and(|name| !self.has_room(name)) {
            return false;
        }
        if self.placed[at].holds.iter().any(|hold| self.paused_keys.contains(&hold.key)) {
            self.placed[at].limit.forget();
            return false;
        }
        let full = limit.names.iter().find(|name| !self.has_room(name)).cloned();
        let Some(full) = full else { return true };
        let limit = &mut self.placed[at].limit;
        limit.passes += u32::from(limit.waits_for.is_some());
        limit.waits_for = Some(full);
        let passed = limit.passes >= PASSES;
        let names = limit.names.clone();
        if passed && names.iter().all(|name| self.keeper(name).is_none()) {
            self.placed[at].limit.slots = Some(0);
            self.advance();
        }
        false
    }

    /// A key was paused: the keepers that have it keep nothing any more.
    pub(crate) fn release_keepers(&mut self, key: usize) {
        for message in &mut self.placed {
            if message.limit.slots.is_some() && message.holds.iter().any(|hold| hold.key == key) {
                message.limit.forget();
            }
        }
    }

    /// The names of a message that have no room for it.
    pub(crate) fn full_names(&self, message: &Message) -> Vec<LimitFull> {
        let full = |name: &&Vec<u8>| !self.has_room(name) && !message.limit.keeps(name);
        let shown = |name: &Vec<u8>| {
            let mut holders: Vec<u64> = self.leased_with(name).iter().map(|m| m.id).collect();
            holders.sort_unstable();
            let keeper = self.keeper(name).filter(|keeper| keeper.limit.keeps(name));
            LimitFull {
                name: name.clone(),
                most: self.options.limits.most(name).expect("it is full"),
                leased: holders.len() as u32,
                keeper: keeper.map(|keeper| keeper.id),
                holders,
            }
        };
        message.limit.names.iter().filter(full).map(shown).collect()
    }
}
