//! The names that messages carry: what is leased, kept and charged of each.

use crate::key::Key;
use crate::queue::parts::gate::line::Line;
use crate::queue::parts::slab::NONE;
use crate::queue::types::limits::{Limits, Rate};
use crate::queue::types::{LimitUse, Time};

/// Names of a message at most.
pub(super) const NAMES: usize = 8;

#[derive(Debug)]
pub(super) struct Name {
    pub text: Key,
    pub hash: u64,
    /// `None`: not limited.
    pub most: Option<u32>,
    pub rate: Option<Rate>,
    /// Time from which on the rate is as if nothing had been granted: the "theoretical arrival time".
    pub used_until: Time,
    /// A handler closed it until then.
    pub closed_until: Time,
    /// It has a rate, or was closed.
    timed: bool,
    /// Unsettled messages with the name.
    pub unsettled: u32,
    pub leased: u32,
    /// Messages that wait for it, without its keeper.
    pub waiting: u32,
    /// The message that keeps slots until it has one of each of its names.
    pub keeper: u32,
    /// A slot, or a grant of the rate, is kept for the keeper.
    pub kept: bool,
    /// Messages without keys that wait for it, and those with keys.
    pub line: [Line; 2],
    /// The time for which it is among the gate's times; 0: it is not.
    pub opens: Time,
    /// The time for which it is among the names to be forgotten; 0: it is not.
    pub rests: Time,
}

impl Name {
    pub fn new(text: &[u8], hash: u64, limits: &Limits) -> Self {
        let mut new = Name {
            text: Key::new(text),
            hash,
            most: None,
            rate: None,
            used_until: 0,
            closed_until: 0,
            timed: false,
            unsettled: 0,
            leased: 0,
            waiting: 0,
            keeper: NONE,
            kept: false,
            line: Default::default(),
            opens: 0,
            rests: 0,
        };
        new.declare(limits, 0);
        new
    }

    /// Other limits, from `now` on. A rate is used up for no longer than the new one could be.
    pub fn declare(&mut self, limits: &Limits, now: Time) {
        (self.most, self.rate) = limits.of(self.text.as_bytes());
        self.used_until = self.rate.map_or(0, |rate| self.used_until.min(rate.latest(now)));
        self.timed = self.rate.is_some() || self.closed_until > 0;
    }

    /// Closes it to all messages until a time.
    pub fn close(&mut self, until: Time) {
        self.closed_until = self.closed_until.max(until);
        self.timed = true;
    }

    /// A message with the name is granted.
    #[inline]
    pub fn charge(&mut self, now: Time) {
        if let Some(rate) = self.rate {
            self.used_until = self.used_until.max(now).saturating_add(rate.interval);
        }
    }

    /// Returns whether a message waits for it or keeps it: else nothing is to be offered when it has room.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        self.waiting > 0 || self.keeper != NONE || self.opens > 0
    }

    /// Returns whether one more may be leased at once, if only the number counts.
    #[inline]
    pub fn has_slot(&self) -> bool {
        self.most.is_none_or(|most| self.leased + u32::from(self.kept) < most)
    }

    /// Returns whether a message that keeps nothing of it may be leased.
    #[inline]
    pub fn has_room(&self, now: Time) -> bool {
        self.has_slot() && (!self.timed || self.shut_until(false) <= now)
    }

    /// Returns the time before which its rate, or its closing, refuses a message. `Time::MAX`: time alone does
    /// not change that. `mine`: the message is the one for which a grant is kept.
    pub fn shut_until(&self, mine: bool) -> Time {
        self.rate.map_or(0, |rate| self.used_up_until(rate, mine)).max(self.closed_until)
    }

    /// Like `shut_until`, of its rate alone.
    pub fn used_up_until(&self, rate: Rate, mine: bool) -> Time {
        match self.kept && !mine {
            // The only grant of a burst of one is the keeper's.
            true if rate.tolerance == 0 => Time::MAX,
            true => self.used_until.saturating_sub(rate.tolerance - rate.interval),
            false => self.used_until.saturating_sub(rate.tolerance),
        }
    }

    /// Returns what is used of it; its keeper is named by its slot.
    pub fn used(&self, now: Time) -> LimitUse {
        let opens = self.rate.map(|rate| self.used_up_until(rate, false));
        LimitUse {
            name: self.text.as_bytes().to_vec(),
            most: self.most,
            rate: self.rate,
            leased: self.leased,
            waiting: self.waiting,
            keeper: Some(self.keeper).filter(|&at| at != NONE).map(u64::from),
            wait: opens.filter(|&time| time < Time::MAX).map(|time| time.saturating_sub(now)),
            closed: self.closed_until.saturating_sub(now),
        }
    }

    /// Returns the time from which on nothing of a name need be known that no message has.
    pub fn known_until(&self) -> Time {
        self.used_until.max(self.closed_until)
    }

    /// Returns the time at which its first messages in line are to be offered. 0: not by time.
    pub fn opens_at(&self, now: Time) -> Time {
        if !self.timed || self.waiting == 0 || !self.has_slot() {
            return 0;
        }
        let until = self.shut_until(false);
        if until > now && until < Time::MAX {
            until
        } else {
            0
        }
    }
}
