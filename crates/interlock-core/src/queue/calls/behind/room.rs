//! Room for messages that could be parked: at most half of each bound.

use crate::key::KeyRef;
use crate::queue::calls::coalesce::Coalesce;
use crate::queue::parts::parked::Parked;
use crate::queue::scheduler::{NoRoom, Put, Scheduler};
use crate::queue::types::{Behind, Options};

impl<P> Scheduler<P> {
    /// Returns whether at most half of each bound is parked with these.
    pub(super) fn may_park(&self, count: u64, bytes: u64) -> bool {
        let Options { max_messages, max_bytes, .. } = self.options;
        let (count, bytes) = (self.parked.count() + count, self.parked.payload_bytes() + bytes);
        (max_messages == 0 || count.saturating_mul(2) <= max_messages as u64)
            && (max_bytes == 0 || bytes.saturating_mul(2) <= max_bytes)
    }

    /// Returns whether this message could be parked when it is put now.
    pub fn could_park(
        &self,
        own: Option<Behind>,
        keys: &[KeyRef<'_>],
        shared: &[KeyRef<'_>],
    ) -> bool {
        let shut = |key: &KeyRef<'_>| {
            self.parked.minds(key)
                && (self.parked.is_stuck(key.bytes)
                    || self.parked.has_before(key.bytes, 0)
                    || self.lanes.find(*key).is_some_and(|lane| self.lanes.lane(lane).paused))
        };
        own.unwrap_or(self.options.behind) == Behind::Park && keys.iter().chain(shared).any(shut)
    }

    /// Returns whether any message could be parked when it is put now.
    #[inline]
    pub fn is_attentive(&self) -> bool {
        self.parked.is_some_and(Parked::is_busy)
    }

    /// Refuses a put that could park more than half of a bound. `could`: those of its messages that could be
    /// parked, and their bytes.
    pub fn room_to_park(&self, (count, bytes): (u64, u64)) -> Result<(), NoRoom> {
        if count == 0 || self.may_park(count, bytes) {
            return Ok(());
        }
        Err(NoRoom::Stuck)
    }

    /// Like `could_park`; a coalescing name is one of its keys, and a message that is delayed takes no place now.
    pub fn put_could_park(&self, put: &Put<'_>) -> bool {
        let (name, debounce) = put.coalesce.map_or((None, 0), |one| (Some(one.name), one.debounce));
        let first = name.map(KeyRef::new);
        put.delay == 0
            && debounce == 0
            && (self.could_park(put.behind, put.keys, put.shared)
                || self.could_park(put.behind, first.as_slice(), &[]))
    }

    /// Counts the messages of a call that could be parked, and their bytes: those that are not known, and that
    /// replace no payload.
    #[cold]
    pub fn parking_of<'a>(&self, puts: impl Iterator<Item = (Put<'a>, u64)>) -> (u64, u64) {
        let mut seen = hashbrown::HashSet::<(bool, &[u8]), std::hash::RandomState>::default();
        let (mut count, mut bytes) = (0, 0u64);
        for (put, size) in puts {
            let known = put.dedup.is_some_and(|name| {
                self.dedup.find(name, self.now).is_some() || !seen.insert((false, name.as_bytes()))
            });
            let again = put.coalesce.is_some_and(|Coalesce { name, .. }| {
                self.newest(name).is_some() || !seen.insert((true, *name))
            });
            if !known && !again && self.put_could_park(&put) {
                count += 1;
                bytes = bytes.saturating_add(size);
            }
        }
        (count, bytes)
    }

    /// Returns whether a message with these keys may not be able to take its places.
    #[inline]
    pub(in crate::queue) fn minds(&self, keys: &[KeyRef<'_>], shared: &[KeyRef<'_>]) -> bool {
        self.parked.is_some_and(|parked| {
            parked.is_busy() && keys.iter().chain(shared).any(|key| parked.minds(key))
        })
    }

    /// Refuses puts that could park too much.
    #[inline]
    pub(in crate::queue) fn room_behind(&self, puts: &[Put<'_>]) -> Result<(), NoRoom> {
        match self.parked.is_some_and(Parked::is_busy) {
            false => Ok(()),
            true => self.room_to_park(self.parking_of(puts.iter().map(|put| (*put, put.size)))),
        }
    }
}
