//! The judgement of the wall clock: which time of day to use for dates. Free of I/O.
//!
//! The system's wall clock can be set. This compares each reading with a clock that only measures
//! elapsed time, and so distinguishes a jump from time that passed. A jump is followed once it has
//! lasted for [`FOLLOW`]; until then dates advance by elapsed time, so a wrong reading that is soon
//! corrected has no effect. Code that deletes by age waits until the clock has been
//! [stable](Reading::is_stable) for [`STABLE`].
//!
//! Durations never use this: they are measured by elapsed time alone.

/// µs, since 1970 or of elapsed time.
type Time = u64;

/// A difference up to this is drift that a time service corrects, µs: followed at once.
pub const STEP: Time = 1_000_000;
/// Time that a jump must last before dates follow it, µs.
pub const FOLLOW: Time = 10_000_000;
/// Time without a jump before anything is deleted by age, µs.
pub const STABLE: Time = 600_000_000;
/// Most changes kept until they are logged: a clock that flaps must not fill the memory.
const MOST_CHANGES: usize = 64;

/// A change that a reading brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The clock was set by this many µs. Dates do not follow yet.
    Jumped(i64),
    /// The jump lasted, and dates follow it.
    Followed(i64),
    /// The clock came back before dates followed the jump.
    Returned(i64),
}

/// The answer to a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The time to use, µs since 1970. It falls only where a jump back is followed, or by at most [`STEP`].
    pub time: Time,
    /// True without a jump for [`STABLE`], and the clock is at least that old.
    pub is_stable: bool,
}

/// The clock so far. Elapsed time must not fall and should count the time in which the machine slept.
#[derive(Clone, Debug, Default)]
pub struct WallClock {
    /// From elapsed time to the time to use; `None`: nothing was read yet.
    offset: Option<i64>,
    jump: Option<Jump>,
    /// Elapsed time of the last change.
    changed: Time,
    last: Time,
    jumps: u64,
    /// Not taken yet.
    changes: Vec<Change>,
}

#[derive(Clone, Copy, Debug)]
struct Jump {
    offset: i64,
    since: Time,
}

impl WallClock {
    pub const fn new() -> Self {
        let changes = Vec::new();
        WallClock { offset: None, jump: None, changed: 0, last: 0, jumps: 0, changes }
    }

    /// Takes a reading of both clocks, in µs.
    pub fn read(&mut self, wall: Time, elapsed: Time) -> Reading {
        // Readings of several threads may arrive late; the clock must not seem to return for that.
        self.last = self.last.max(elapsed);
        let elapsed = self.last;
        let seen = wall.cast_signed() - elapsed.cast_signed();
        let Some(used) = self.offset else {
            (self.offset, self.changed) = (Some(seen), elapsed);
            return Reading { time: wall, is_stable: false };
        };
        if let Some(change) = self.judge(seen, used, elapsed) {
            self.changed = elapsed;
            if self.changes.len() < MOST_CHANGES {
                self.changes.push(change);
            }
        }
        let offset = self.offset.unwrap_or(seen);
        let is_stable = self.jump.is_none() && elapsed - self.changed >= STABLE;
        let time = (elapsed.cast_signed() + offset).max(0).cast_unsigned();
        Reading { time, is_stable }
    }

    fn judge(&mut self, seen: i64, used: i64, elapsed: Time) -> Option<Change> {
        let is_near = |offset: i64| seen.abs_diff(offset) <= STEP;
        if is_near(used) {
            self.offset = Some(seen);
            return self.jump.take().map(|jump| Change::Returned(used - jump.offset));
        }
        match self.jump {
            Some(jump) if is_near(jump.offset) && elapsed - jump.since >= FOLLOW => {
                (self.offset, self.jump) = (Some(seen), None);
                Some(Change::Followed(seen - used))
            }
            Some(jump) if is_near(jump.offset) => {
                self.jump = Some(Jump { offset: seen, ..jump });
                None
            }
            _ => {
                self.jump = Some(Jump { offset: seen, since: elapsed });
                self.jumps += 1;
                Some(Change::Jumped(seen - used))
            }
        }
    }

    /// Returns and clears the changes since the last call, oldest first.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Number of jumps so far.
    pub fn jumps(&self) -> u64 {
        self.jumps
    }

    /// µs by which the wall clock is ahead of the time to use, while a jump is not followed; else 0.
    pub fn distrusted(&self) -> i64 {
        self.jump.map_or(0, |jump| jump.offset - self.offset.unwrap_or(jump.offset))
    }

    /// From elapsed time to the time to use; `None`: a jump is pending, so each reading has to be judged.
    pub fn settled(&self) -> Option<i64> {
        self.offset.filter(|_| self.jump.is_none())
    }
}

#[cfg(test)]
mod tests {
    use crate::wall_clock::*;

    const SECOND: Time = 1_000_000;
    const START: Time = 1_700_000_000 * SECOND;

    /// Both clocks of a machine, moved by the test.
    struct Machine {
        clock: WallClock,
        wall: i64,
        elapsed: Time,
    }

    impl Machine {
        fn new() -> Machine {
            let (clock, wall) = (WallClock::new(), START.cast_signed());
            let mut machine = Machine { clock, wall, elapsed: 5 };
            machine.read();
            machine
        }

        fn read(&mut self) -> Reading {
            self.clock.read(self.wall.cast_unsigned(), self.elapsed)
        }

        fn run(&mut self, by: Time) -> Reading {
            (self.wall, self.elapsed) = (self.wall + by.cast_signed(), self.elapsed + by);
            self.read()
        }

        fn set(&mut self, by: i64) -> Reading {
            self.wall += by;
            self.read()
        }
    }

    #[test]
    fn a_lasting_clock_jump_is_followed_and_the_clock_is_unstable_until_long_after() {
        for day in [864_000_000_000_i64, -864_000_000_000, 3_600_000_000, -3_600_000_000] {
            let mut machine = Machine::new();
            assert!(machine.run(STABLE).is_stable);
            let (before, jumped) = (machine.read().time, machine.set(day));
            assert_eq!((jumped.time, jumped.is_stable), (before, false));
            assert_eq!(machine.run(FOLLOW - 1).time, before + FOLLOW - 1);
            let followed = machine.run(1);
            assert_eq!(followed.time.cast_signed(), machine.wall);
            assert!(!machine.run(STABLE - 1).is_stable && machine.run(1).is_stable);
            assert_eq!(machine.clock.take_changes(), [Change::Jumped(day), Change::Followed(day)]);
        }
    }

    #[test]
    fn a_clock_jump_undone_in_time_does_not_affect_dates() {
        let mut machine = Machine::new();
        machine.run(STABLE);
        let mut last = machine.read().time;
        for by in [864_000_000_000, -7_200_000_000] {
            machine.set(by);
            for _ in 0..3 {
                let reading = machine.run(3 * SECOND);
                assert_eq!((reading.time, reading.is_stable), (last + 3 * SECOND, false));
                last = reading.time;
            }
            let back = machine.set(-by);
            assert_eq!((back.time, back.is_stable), (last, false));
            assert_eq!(machine.clock.distrusted(), 0);
        }
        assert_eq!(machine.clock.jumps(), 2);
        assert!(machine.run(STABLE).is_stable);
    }

    #[test]
    fn suspend_and_drift_are_not_clock_jumps() {
        let mut machine = Machine::new();
        // A night: the elapsed time counts it, and nothing is read meanwhile.
        machine.run(8 * 3600 * SECOND);
        for _ in 0..1000 {
            machine.set(-400_000);
            machine.run(SECOND);
        }
        assert_eq!(machine.read().time.cast_signed(), machine.wall);
        assert_eq!((machine.clock.jumps(), machine.clock.take_changes().len()), (0, 0));
    }

    #[test]
    fn random_clock_jumps_are_followed_only_if_they_last() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut machine = Machine::new();
            // The model: what the wall clock showed for how long, and what is used.
            let (mut used, mut shown, mut since) = (0_i64, 0_i64, 0);
            let mut quiet_since = machine.elapsed;
            for _ in 0..300 {
                let mut jumped = false;
                if random.u8(0..10) == 0 {
                    let to = [0, 3600, -3600, 864_000, -864_000][random.usize(0..5)];
                    let to = to * SECOND.cast_signed();
                    jumped = to != shown;
                    machine.wall += to - shown;
                    shown = to;
                }
                let by = random.u64(1..4 * SECOND);
                machine.wall += by.cast_signed();
                machine.elapsed += by;
                if jumped {
                    since = machine.elapsed;
                    quiet_since = machine.elapsed;
                }
                if used != shown && machine.elapsed - since >= FOLLOW {
                    used = shown;
                    quiet_since = machine.elapsed;
                }
                let reading = machine.read();
                let expected = START.cast_signed() + (machine.elapsed - 5).cast_signed() + used;
                assert_eq!(reading.time.cast_signed(), expected, "seed {seed}");
                let stable = used == shown && machine.elapsed - quiet_since >= STABLE;
                assert_eq!(reading.is_stable, stable, "seed {seed}");
            }
        }
    }
}
