//! The scheduler's record of an unsettled message.

use std::sync::Arc;

use crate::queue::parts::slab::{Record, NONE};
use crate::queue::types::{RetryPart, State};

/// An unsettled message; 32 bytes for a payload of 8.
#[derive(Debug)]
pub struct Message<P> {
    pub id: u64,
    pub payload: Option<P>,
    pub first_edge: u32,
    /// While it waits: the number of keys on which it is not in front, and gates. While it is
    /// leased: the place of its lease.
    pub hold: u32,
    /// Place of what only few messages have.
    pub extra: u32,
    pub state: Option<State>,
    pub priority: i8,
    pub flags: u8,
}

pub const KEYED: u8 = 1;
pub const BARRIER: u8 = 2;
/// Behind a barrier that is not settled, or whose gates are still opening.
pub const BEHIND_BARRIER: u8 = 4;
/// Ready, but set aside because a key of it is paused.
pub const PAUSED: u8 = 8;
pub const QUIET: u8 = 16;
/// It has limit names.
pub const LIMITED: u8 = 32;
/// Ready, but set aside because a limit of it is reached.
pub const REFUSED: u8 = 64;
/// It has a group.
pub const GROUPED: u8 = 128;

/// Tokens are below 2⁵³. Behind them `Extra::suspect` has room for a count, and for marks.
pub const SILENT: u32 = 56;
pub const TOKEN: u64 = (1 << SILENT) - 1;
/// Its own value of [`Behind`](crate::queue::types::Behind), one more than its number; 0: it has none.
pub const OWN: u32 = 59;
/// It was held once: its keys are shut until it is settled (clause 31).
pub const STUCK: u64 = 1 << 62;
/// A lease of it ended without settling it: it keeps its places.
pub const RETURNED: u64 = 1 << 63;
/// The marks behind the count.
pub const MARKS: u64 = !0 << OWN;

/// Properties that only some messages have: delay, more than one attempt, a size, a dedup string.
#[derive(Debug, Default)]
pub struct Extra {
    /// Its sequence, if that is not its id: it was delayed or parked.
    pub sequence: u64,
    pub size: u64,
    /// Token of the lease that expired while its handler may have run; 0: none. Such a message is leased
    /// alone (clause 9). From bit `SILENT` on: number of leases whose holder did not report; from bit `OWN` on:
    /// marks.
    pub suspect: u64,
    pub attempt: u32,
    /// Its place among the timers, or the next free record.
    pub timer: u32,
    pub dedup: Option<Arc<str>>,
    pub failing: Option<Box<Failing>>,
}

/// The last failure of a message, and the retry policy that its put named.
#[derive(Debug, Default)]
pub struct Failing {
    pub error: Option<Box<str>>,
    pub retry: Option<RetryPart>,
}

impl Failing {
    /// Bytes of the error and of what it is in, if there is one.
    pub fn bytes(&self) -> usize {
        self.error.as_ref().map_or(0, |error| error.len() + OF_AN_ERROR)
    }
}

/// The box, the record that names it, the heads of allocations.
const OF_AN_ERROR: usize = 208;

impl Record for Extra {
    fn clear(&mut self) {
        *self = Extra::default();
    }
    fn link(&self) -> u32 {
        self.timer
    }
    fn set_link(&mut self, next: u32) {
        self.timer = next;
    }
}

impl<P> Default for Message<P> {
    fn default() -> Self {
        Message {
            id: 0,
            payload: None,
            first_edge: NONE,
            hold: 0,
            extra: NONE,
            state: None,
            priority: 0,
            flags: 0,
        }
    }
}

impl<P> Message<P> {
    /// Notes that it is in its lanes, from this edge on; `gated`: behind a barrier. It waits for this
    /// number of things, edges that are not granted and a gate, or is ready if that is 0.
    #[inline(always)]
    pub fn enter_lanes(&mut self, first_edge: u32, gated: bool, things: u32) {
        self.first_edge = first_edge;
        if gated {
            self.flags |= BEHIND_BARRIER;
        }
        let state = if things > 0 { State::Waiting } else { State::Ready };
        (self.state, self.hold) = (Some(state), things);
    }
}

impl<P> Record for Message<P> {
    fn clear(&mut self) {
        debug_assert!(self.payload.is_none(), "a payload is taken out, never dropped here");
        self.id = 0;
        self.state = None;
    }
    fn link(&self) -> u32 {
        self.first_edge
    }
    fn set_link(&mut self, next: u32) {
        self.first_edge = next;
    }
}

#[cfg(test)]
mod tests {
    use std::mem::size_of;
    use std::num::NonZeroU64;

    use crate::queue::parts::lane::{Edge, Lane};
    use crate::queue::parts::leases::Lease;
    use crate::queue::types::message::*;

    /// Cache misses grow with the number of waiting messages: a larger record is a slower queue.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn records_keep_their_size() {
        // A payload is never null, as a pointer to an object is not.
        let sizes = [
            ("Message", size_of::<Message<NonZeroU64>>(), 32),
            ("Edge", size_of::<Edge>(), 20),
            ("Lane", size_of::<Lane>(), 64),
            ("Lease", size_of::<Lease>(), 48),
            ("Extra", size_of::<Extra>(), 56),
        ];
        for (record, size, most) in sizes {
            assert!(size <= most, "{record} takes {size} bytes, {most} before");
        }
    }
}
