//! The model's concurrency limits and rates (clauses 26 and 27): what is leased and kept is counted anew at each
//! question. What rates have granted must be remembered.

use interlock_core::queue::types::limits::{Limits, Rate};
use interlock_core::queue::types::{LimitFull, Time};

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
    /// Number of names of which a keeper keeps a slot: the first ones, with rates last.
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

    fn keeps(&self, name: &[u8], limits: &Limits) -> bool {
        self.slots
            .is_some_and(|slots| self.rates_last(limits)[..slots].iter().any(|one| one == name))
    }

    fn rates_last(&self, limits: &Limits) -> Vec<Vec<u8>> {
        let mut names = self.names.clone();
        names.sort_by_key(|name| (limits.rate(name).is_some(), name.clone()));
        names
    }
}

/// Grants and closings of a name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// Time from which on its rate is as if nothing had been granted.
    used_until: Time,
    closed_until: Time,
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

    /// The message that keeps a slot of a name, or a grant.
    fn kept_by(&self, name: &[u8]) -> Option<&Message> {
        self.placed.iter().find(|message| message.limit.keeps(name, &self.options.limits))
    }

    fn has_slot(&self, name: &[u8]) -> bool {
        let used = self.leased_with(name).len() + usize::from(self.kept_by(name).is_some());
        self.options.limits.most(name).is_none_or(|most| used < most as usize)
    }

    /// The time before which a rate, or a closing, refuses a message; `None`: no time changes that.
    fn shut_until(&self, name: &[u8], message: &Message) -> Option<Time> {
        let times = self.times.get(name).copied().unwrap_or_default();
        let Some(rate) = self.options.limits.rate(name) else { return Some(times.closed_until) };
        let burst = rate.tolerance / rate.interval + 1;
        let wanted =
            1 + u64::from(self.kept_by(name).is_some_and(|keeper| keeper.id != message.id));
        // With as many intervals used as are granted at once, the next grant is an interval away.
        let free = burst.checked_sub(wanted)?;
        Some(times.closed_until.max(times.used_until.saturating_sub(free * rate.interval)))
    }

    fn is_shut(&self, name: &[u8], message: &Message) -> bool {
        self.shut_until(name, message).is_none_or(|until| until > self.now)
    }

    /// Returns whether time refuses a message that keeps something of all its names.
    pub(crate) fn is_shut_to(&self, message: &Message) -> bool {
        message.limit.names.iter().any(|name| self.is_shut(name, message))
    }

    pub(crate) fn has_room(&self, name: &[u8], message: &Message) -> bool {
        self.has_slot(name) && !self.is_shut(name, message)
    }

    /// A message is granted.
    pub(crate) fn charge(&mut self, names: &[Vec<u8>]) {
        for name in names {
            if let Some(rate) = self.options.limits.rate(name) {
                let times = self.times.entry(name.clone()).or_default();
                times.used_until = times.used_until.max(self.now).saturating_add(rate.interval);
            }
        }
    }

    /// The times at which rates and closings let messages pass.
    pub(crate) fn opens(&self) -> impl Iterator<Item = Time> + '_ {
        let waits = self.unsettled().flat_map(move |message| {
            message.limit.names.iter().filter_map(move |name| self.shut_until(name, message))
        });
        waits.filter(move |&until| until > self.now)
    }

    pub(crate) fn close(&mut self, name: &[u8], delay: u64) {
        let until = self.now.saturating_add(delay);
        let times = self.times.entry(name.to_vec()).or_default();
        times.closed_until = times.closed_until.max(until);
    }

    pub(crate) fn declare(&mut self, limits: &Limits) {
        if self.options.limits == *limits {
            return;
        }
        for message in &mut self.placed {
            if message.limit.slots.is_some() {
                message.limit.forget();
            }
        }
        for (name, times) in &mut self.times {
            let most = |rate: Rate| self.now.saturating_add(rate.tolerance + rate.interval);
            times.used_until = limits.rate(name).map_or(0, |rate| times.used_until.min(most(rate)));
        }
        self.options.limits = limits.clone();
    }

    /// Keepers take what is free, one name after another.
    pub(crate) fn advance(&mut self) {
        for at in 0..self.placed.len() {
            while let Some(slots) = self.placed[at].limit.slots {
                let names = self.placed[at].limit.rates_last(&self.options.limits);
                let free = |name: &Vec<u8>| {
                    self.options.limits.rate(name).is_some() || self.has_slot(name)
                };
                if !names.get(slots).is_some_and(free) {
                    break;
                }
                self.placed[at].limit.slots = Some(slots + 1);
            }
        }
    }

    /// A message comes up that nothing but a pause or a limit holds up: may it be leased?
    pub(crate) fn admit(&mut self, at: usize) -> bool {
        let message = &self.placed[at];
        if message.limit.slots.is_some() {
            return true;
        }
        let paused = |key: &usize| self.paused_keys.contains(key);
        if let Some(key) = message.holds.iter().map(|hold| hold.key).find(paused) {
            self.placed[at].set_aside = Some(key);
            self.placed[at].limit.forget();
            return false;
        }
        let names = message.limit.rates_last(&self.options.limits);
        let full = names.iter().find(|name| !self.has_room(name, message));
        let waits_for = full.or_else(|| names.iter().find(|name| self.own_before(at, name)));
        let Some(waits_for) = waits_for.cloned() else { return true };
        let passed = u32::from(full.is_some() && message.limit.waits_for.is_some());
        self.enter_line(at, &waits_for);
        let limit = &mut self.placed[at].limit;
        limit.passes += passed;
        limit.waits_for = Some(waits_for);
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
        let shown = |name: &Vec<u8>| {
            let keeper = self.kept_by(name).filter(|keeper| keeper.id != message.id);
            let mine = self.kept_by(name).is_some() && keeper.is_none();
            let lacks_slot = !self.has_slot(name) && !mine;
            if !lacks_slot && !self.is_shut(name, message) {
                return None;
            }
            let mut leased: Vec<u64> = self.leased_with(name).iter().map(|m| m.id).collect();
            leased.sort_unstable();
            let wait = self.shut_until(name, message).filter(|&until| until < Time::MAX);
            Some(LimitFull {
                name: name.clone(),
                most: self.options.limits.most(name),
                leased: leased.len() as u32,
                keeper: keeper.map(|keeper| keeper.id),
                wait: wait.map(|until| until.saturating_sub(self.now)).filter(|&wait| wait > 0),
                holders: if lacks_slot { leased } else { Vec::new() },
            })
        };
        message.limit.names.iter().filter_map(shown).collect()
    }
}
