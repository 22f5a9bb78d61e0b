//! Counts of messages and events, the remaining room, and whether enough was freed to return memory.

use std::collections::BTreeSet;

use crate::queue::types::Stats;

/// A peak of this many messages is worth returning its memory.
const FLOOD: u64 = 1 << 16;
/// So few messages keep no memory worth giving back before they are all settled.
const SLACK: u64 = 1 << 12;

#[derive(Debug, Default)]
pub struct Counts {
    stats: Stats,
    /// The held messages, by id.
    held: BTreeSet<u64>,
    /// Most unsettled messages since memory was last given back.
    peak: u64,
    /// Memory is returned below this count.
    low: u64,
    /// Segments enough were freed for the allocator to be asked to return them.
    freed: bool,
}

/// One thing to be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    Acked,
    Retried,
    Released,
    LeaseExpired,
    Revoked,
    DeadLettered,
    Cancelled,
    Skipped,
    Requeued,
    Deduplicated,
    Coalesced,
    MessageExpired,
    DeadExpired,
}

impl Counts {
    /// The counts that are kept here; those of states are asked of what they count.
    #[inline]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    #[inline]
    pub fn unsettled(&self) -> u64 {
        self.stats.unsettled
    }

    /// Bytes of the unsettled messages.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.stats.bytes
    }

    pub fn held(&self) -> u64 {
        self.stats.held
    }

    #[inline]
    pub fn note(&mut self, happened: Happened) {
        let stats = &mut self.stats;
        let count = match happened {
            Happened::Acked => &mut stats.acks,
            Happened::Retried => &mut stats.retries,
            Happened::Released => &mut stats.releases,
            Happened::LeaseExpired => &mut stats.leases_expired,
            Happened::Revoked => &mut stats.revoked,
            Happened::DeadLettered => &mut stats.dead_lettered,
            Happened::Cancelled => &mut stats.cancelled,
            Happened::Skipped => &mut stats.skipped,
            Happened::Requeued => &mut stats.requeued,
            Happened::Deduplicated => &mut stats.deduplicated,
            Happened::Coalesced => &mut stats.coalesced,
            Happened::MessageExpired => &mut stats.messages_expired,
            Happened::DeadExpired => &mut stats.dead_expired,
        };
        *count += 1;
    }

    #[inline]
    pub fn leased(&mut self, messages: u64) {
        self.stats.leases += messages;
    }

    pub fn held_one(&mut self, id: u64) {
        self.stats.held += 1;
        self.held.insert(id);
    }

    pub fn held_no_more(&mut self, id: u64) {
        self.stats.held -= 1;
        self.held.remove(&id);
    }

    /// Ids of the held messages, rising.
    pub fn held_ids(&self) -> impl Iterator<Item = u64> + '_ {
        self.held.iter().copied()
    }

    /// A message that was restored is held; it is counted already.
    pub fn restore_held(&mut self, id: u64) {
        self.held.insert(id);
    }

    #[inline]
    pub fn entered(&mut self, messages: u64) {
        self.stats.puts += messages;
        self.stats.unsettled += messages;
        self.note_peak();
    }

    /// Adds to the bytes; where they are not bounded the sum may pass 2^64, and comes back to zero all the
    /// same.
    #[inline]
    pub fn add_bytes(&mut self, bytes: u64) {
        self.stats.bytes = self.stats.bytes.wrapping_add(bytes);
    }

    #[inline]
    pub fn take_bytes(&mut self, bytes: u64) {
        self.stats.bytes = self.stats.bytes.wrapping_sub(bytes);
    }

    #[inline]
    pub fn settled(&mut self) {
        self.stats.unsettled -= 1;
    }

    /// Looks whether a peak is gone, once what is settled has left.
    #[inline]
    pub fn note_low(&mut self) {
        if self.stats.unsettled < self.low {
            self.fell();
        }
    }

    /// Returns and clears whether memory should be returned.
    pub fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.freed)
    }

    #[inline]
    pub fn have_freed(&self) -> bool {
        self.freed
    }

    pub fn restore(&mut self, stats: Stats) {
        self.stats = stats;
        self.note_peak();
    }

    #[inline]
    fn note_peak(&mut self) {
        if self.stats.unsettled > self.peak {
            self.peak = self.stats.unsettled;
            if self.peak >= FLOOD {
                self.low = self.peak / 8;
            }
        }
    }

    /// A peak is gone by seven eighths, and each time by seven eighths of what was left: what it took
    /// goes back, for the allocator keeps what is freed little by little.
    #[cold]
    fn fell(&mut self) {
        self.peak = self.stats.unsettled;
        self.low = match self.low {
            1 => 0,
            low if low < SLACK => 1,
            low => low / 8,
        };
        self.freed = true;
    }
}
