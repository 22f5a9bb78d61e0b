//! The line of puts that wait for room, and when room is reserved for the first of them (clause 11).
//!
//! A put that fits enters the queue at once, even if larger puts wait: the holder of a lease may have to
//! put before it settles, and if it had to wait, nothing would ever be settled. But a large put must not
//! wait for ever because small ones keep entering. So two phases alternate. First, other puts may pass the
//! first in line. Then room is *kept* for it: no other put enters, for as long as messages are settled and
//! the room grows. If that was not enough, puts may pass again for as long as room was kept, and the next
//! time room is kept for twice as long, until that exceeds the time that consumers take for a message.
//!
//! No put that fits is kept out for longer than [`LONGEST`] unless a message is settled, and each
//! settlement while no put enters makes room. So no put waits for ever.
//!
//! ```
//! use interlock_core::queue::waiting::room::{Load, Need, RoomLine, PASSES, SHORTEST};
//!
//! let mut line = RoomLine::default();
//! line.enter(1, Need { count: 10, size: 0 });
//! let busy = |_| Load { unsettled: 5, works: true, fits: false };
//! for _ in 0..PASSES {
//!     assert!(!line.keeps_from(None, 0, busy));
//!     line.passed_by(None, 0);
//! }
//! assert!(line.keeps_from(None, 0, busy) && !line.keeps_from(Some(1), 0, busy));
//! assert!(!line.keeps_from(None, SHORTEST, busy), "nothing was settled meanwhile");
//! ```

use std::collections::BTreeMap;

use crate::queue::scheduler::{Put, Scheduler};
use crate::queue::types::{Kind, Time};
use crate::queue::waiting::waiters::Wait;

/// Number of puts that may pass the first in line before room is kept for it; fewer if they take longer
/// than [`PATIENCE`].
pub const PASSES: u32 = 64;
/// Longest time in µs for which the first in line is passed.
pub const PATIENCE: u64 = 1_000_000;
/// Time in µs for which room is kept, the first time, if nothing is settled. It doubles each time.
pub const SHORTEST: u64 = 10_000;
/// Maximum of that time, µs.
pub const LONGEST: u64 = 10_000_000;

/// The room that a waiting put needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Messages.
    pub count: usize,
    /// Bytes of all its messages.
    pub size: u64,
}

/// The state of a queue that matters to a put that waits for room.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub unsettled: u64,
    /// A message is leased or ready, so that one may be settled.
    pub works: bool,
    /// There is room for the first in line.
    pub fits: bool,
}

/// The turn of the first in line: whether room is kept for it.
#[derive(Debug)]
struct Turn {
    /// The number of the put whose turn it is.
    of: u64,
    passed: u32,
    /// Time for which room is kept while nothing is settled: now, or the next time.
    span: u64,
    /// Start of the phase in which puts may pass.
    since: Time,
    /// Earliest end of that phase.
    open_until: Time,
    kept: Option<Kept>,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    from: Time,
    until: Time,
    /// The number of unsettled messages when `until` was set.
    unsettled: u64,
}

impl Turn {
    fn new(of: u64, now: Time) -> Self {
        Turn { of, passed: 0, span: SHORTEST, since: now, open_until: 0, kept: None }
    }

    /// Returns whether room is kept at this time, and whether it was until now.
    fn keeps(&mut self, now: Time, load: Load) -> (bool, bool) {
        let hopeful = load.works || load.fits;
        match &mut self.kept {
            None => {
                let passed = self.passed >= PASSES
                    || (self.passed > 0 && now >= self.since.saturating_add(PATIENCE));
                if !passed || now < self.open_until || !hopeful {
                    return (false, false);
                }
                let until = now.saturating_add(self.span);
                self.kept = Some(Kept { from: now, until, unsettled: load.unsettled });
                (true, false)
            }
            Some(kept) if now < kept.until && hopeful => (true, false),
            // Keeping room helps: there is still too little, but it grows.
            Some(kept) if load.works && !load.fits && load.unsettled < kept.unsettled => {
                kept.unsettled = load.unsettled;
                kept.until = now.saturating_add(self.span);
                (true, false)
            }
            &mut Some(kept) => {
                let end = now.min(kept.until);
                let span = if now < kept.until { self.span } else { self.span.saturating_mul(2) };
                let open_until = now.saturating_add(end.saturating_sub(kept.from));
                *self = Turn { span: span.min(LONGEST), open_until, ..Turn::new(self.of, now) };
                (false, true)
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Place {
    need: Need,
    /// It was woken, and has not run yet.
    called: bool,
}

/// Puts that wait for room, by their numbers, which rise in order of arrival.
#[derive(Debug, Default)]
pub struct RoomLine {
    places: BTreeMap<u64, Place>,
    /// Number of puts by the messages they need, and by the bytes they need. If there is not even room for
    /// the smallest need, the line need not be searched.
    counts: BTreeMap<usize, u32>,
    sizes: BTreeMap<u64, u32>,
    turn: Option<Turn>,
}

fn more<K: Ord>(among: &mut BTreeMap<K, u32>, key: K) {
    *among.entry(key).or_default() += 1;
}

fn fewer<K: Ord>(among: &mut BTreeMap<K, u32>, key: K) {
    let count = among.get_mut(&key).expect("as it was entered");
    *count -= 1;
    if *count == 0 {
        among.remove(&key);
    }
}

impl RoomLine {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Adds a put to the line; one that is already in it keeps its place.
    pub fn enter(&mut self, number: u64, need: Need) {
        self.leave(number);
        more(&mut self.counts, need.count);
        more(&mut self.sizes, need.size);
        self.places.insert(number, Place { need, called: false });
    }

    pub fn leave(&mut self, number: u64) {
        if let Some(Place { need, .. }) = self.places.remove(&number) {
            fewer(&mut self.counts, need.count);
            fewer(&mut self.sizes, need.size);
        }
    }

    /// Notes that a put was woken.
    pub fn called(&mut self, number: u64) {
        if let Some(place) = self.places.get_mut(&number) {
            place.called = true;
        }
    }

    fn first(&self) -> Option<(u64, Place)> {
        self.places.first_key_value().map(|(&number, &place)| (number, place))
    }

    /// Returns whether a put must leave room to the first in line. `me`: its own number there, if
    /// it waits.
    pub fn keeps_from(
        &mut self,
        me: Option<u64>,
        now: Time,
        load: impl FnOnce(Need) -> Load,
    ) -> bool {
        let Some((first, place)) = self.first() else { return false };
        if me.is_some_and(|me| me <= first) {
            return false;
        }
        let load = load(place.need);
        let (keeps, ended) = self.turn_of(first, now).keeps(now, load);
        if ended && load.fits && place.called {
            // It was woken and did not run: a task whose loop is busy or stopped. It enters the line
            // again when it runs.
            self.leave(first);
        }
        keeps
    }

    /// Notes that a put entered; `me`: its number in the line, if it waited.
    pub fn passed_by(&mut self, me: Option<u64>, now: Time) {
        if let Some((first, _)) = self.first().filter(|(first, _)| me.is_none_or(|me| *first < me))
        {
            let turn = self.turn_of(first, now);
            turn.passed = turn.passed.saturating_add(1);
        }
    }

    fn turn_of(&mut self, first: u64, now: Time) -> &mut Turn {
        if self.turn.as_ref().is_none_or(|turn| turn.of != first) {
            self.turn = None;
        }
        self.turn.get_or_insert_with(|| Turn::new(first, now))
    }

    /// Returns the time at which puts that are kept out should try again, if nothing happens before.
    #[inline]
    pub fn due(&self) -> Option<Time> {
        match &self.turn {
            Some(Turn { of, kept: Some(kept), .. }) if self.places.contains_key(of) => {
                Some(kept.until)
            }
            _ => None,
        }
    }

    /// Returns the puts that fit, in order, from a number on. `keeps`: considers only the first in line.
    pub fn fitting<'a, F: Fn(Need) -> bool + 'a>(
        &'a self,
        from: u64,
        keeps: bool,
        fits: F,
    ) -> impl Iterator<Item = u64> + 'a {
        let least = Need {
            count: self.counts.first_key_value().map_or(0, |(&count, _)| count),
            size: self.sizes.first_key_value().map_or(0, |(&size, _)| size),
        };
        let last = match (keeps, fits(least)) {
            (_, false) => None,
            (true, true) => self.first().map(|(number, _)| number),
            (false, true) => Some(u64::MAX),
        };
        let some = self.places.range(from..).take_while(move |(&number, _)| Some(number) <= last);
        some.filter(move |(_, place)| fits(place.need)).map(|(&number, _)| number)
    }
}

impl<P> Scheduler<P> {
    /// Returns the load that matters to the first put that waits for room.
    pub fn load(&self, need: Need) -> Load {
        Load {
            unsettled: self.counts.unsettled(),
            works: self.leases.len() > 0 || self.ready(Kind::Any) > 0,
            fits: self.room(need.count, need.size).is_ok(),
        }
    }

    /// Notes the room that puts lack who wait for it.
    pub(in crate::queue) fn wants_room(&self, puts: &[Put<'_>], wait: &mut Wait) {
        if let Ok(needs) = self.needs(puts) {
            let named = puts.iter().any(|put| put.dedup.is_some() || put.coalesce.is_some());
            wait.wants_room(needs.count, needs.size, named);
        }
    }
}
