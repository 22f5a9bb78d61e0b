//! A journal on a disk that loses what was not synced, through many crashes: after each, what was
//! confirmed is there, nothing twice, nothing out of order, and the report is exact.

use fastrand::Rng;
use interlock_journal::storage::simulated::{Faults, Simulated};
use interlock_journal::storage::Fill;
use interlock_journal::{Durability, Journal, JournalSettings, OpenError, Repair};

use crate::number;
use crate::queues::{append, reopen, Queues};

/// So small that a life has many segments.
fn settings(rng: &mut Rng) -> JournalSettings {
    let segment = [512, 1_000, 4_096][rng.usize(0..3)];
    JournalSettings { segment, fill: Fill::Written, longest: 2_000, salt: rng.u32(..), rules: 1 }
}

struct Life {
    rng: Rng,
    queues: Queues,
    /// The last record of which a commit said that it is on disk.
    confirmed: u64,
    snapshots: u32,
    /// True if it was closed at last.
    closed: bool,
}

impl Life {
    /// Works until the disk stops or fails, or it is enough.
    fn work(&mut self, journal: &Journal<Simulated>) {
        for _ in 0..self.rng.u32(1..60) {
            if self.step(journal).is_err() {
                return;
            }
        }
        if self.rng.u8(0..4) == 0 && journal.close().is_ok() {
            self.confirmed = journal.last();
            self.closed = true;
        }
    }

    fn step(&mut self, journal: &Journal<Simulated>) -> Result<(), String> {
        let said = |error: interlock_journal::JournalError| error.to_string();
        match self.rng.u8(0..16) {
            0..=10 => {
                let mut sequence = 0;
                for _ in 0..self.rng.u8(1..6) {
                    let length = [0, 3, 40, 200, 600][self.rng.usize(0..5)];
                    let value: Vec<u8> = (0..length).map(|_| self.rng.u8(..)).collect();
                    let queue = self.rng.u32(0..4);
                    sequence = append(journal, &mut self.queues, queue, &value).map_err(said)?;
                }
                let durabilities = [Durability::Always, Durability::EverySecond, Durability::None];
                let durability = durabilities[self.rng.usize(0..3)];
                journal.commit(sequence, durability).map_err(said)?;
                if durability == Durability::Always {
                    self.confirmed = sequence;
                }
            }
            11 | 12 => {
                let last = journal.last();
                journal.tick().map_err(said)?;
                self.confirmed = last;
            }
            13 | 14 => {
                journal.prepare().map_err(said)?;
            }
            _ => {
                let mut snapshot = journal.snapshot().map_err(|error| error.to_string())?;
                for queue in self.queues.told.clone().into_keys() {
                    let state = self.queues.state(queue);
                    let last = journal.last();
                    snapshot.queue(queue, last, &state).map_err(|error| error.to_string())?;
                    // A call that comes while the snapshot is made.
                    let sequence =
                        append(journal, &mut self.queues, queue, b"meanwhile").map_err(said)?;
                    if self.rng.bool() {
                        journal.commit(sequence, Durability::None).map_err(said)?;
                    }
                }
                snapshot.finish().map_err(|error| error.to_string())?;
                self.snapshots += 1;
            }
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Seen {
    torn: u64,
    whole_behind: u64,
    snapshots: u64,
    damaged: u64,
    closed: u64,
    crashes_while_opening: u64,
}

fn live(seed: u64, lies: bool, seen: &mut Seen) {
    let mut rng = Rng::with_seed(seed);
    let mut disk = Simulated::new(rng.u64(..));
    let mut life = Life {
        rng: rng.fork(),
        queues: Queues::default(),
        confirmed: 0,
        snapshots: 0,
        closed: false,
    };
    for _ in 0..rng.u32(2..8) {
        let mut faults = Faults { stop_in: Some(rng.u64(0..120)), lies, ..Faults::default() };
        match rng.u8(0..6) {
            0 => faults.fail_sync_in = Some(rng.u64(0..20)),
            1 => faults.fail_write_in = Some(rng.u64(0..30)),
            2 => faults.capacity = Some(rng.u64(2_000..40_000)),
            _ => {}
        }
        // Recovery is cut short too, now and then.
        let from_the_start = rng.u8(0..4) == 0;
        if from_the_start {
            disk.set_faults(faults);
        }
        let settings = settings(&mut rng);
        match reopen(disk.clone(), settings, Repair::Refuse) {
            Ok((journal, report, found)) => {
                let last = report.last;
                assert!(lies || last >= life.confirmed, "{last} of {}\n{report}", life.confirmed);
                let expected = life.queues.up_to(last);
                let newest = life.queues.told.values().flatten().map(|(s, _)| *s).max();
                // The journal's own marks are records too, of which no queue knows.
                assert!(last <= newest.unwrap_or(0).max(last), "{report}");
                assert!(found == expected, "seed {seed}: {report}\n{found:?}\n{expected:?}");
                if let Some(torn) = &report.torn {
                    seen.torn += 1;
                    seen.whole_behind += u64::from(torn.whole > 0);
                    assert_eq!(torn.first, last + 1, "{report}");
                    assert!(torn.bytes > 0 && !life.closed, "{report}");
                }
                seen.snapshots += u64::from(report.snapshot.is_some());
                seen.closed += u64::from(life.closed);
                life.queues = expected;
                life.confirmed = last;
                life.closed = false;
                disk.set_faults(faults);
                life.work(&journal);
            }
            Err(OpenError::Disk { .. }) => {
                assert!(from_the_start, "seed {seed}");
                seen.crashes_while_opening += 1;
            }
            Err(error @ OpenError::Damaged(_)) => {
                assert!(lies, "seed {seed}: {error}");
                seen.damaged += 1;
                disk.set_faults(Faults::default());
                let (journal, report, found) =
                    reopen(disk.clone(), settings, Repair::SetAside).unwrap();
                assert!(report.aside.is_some());
                // What a snapshot has may be of different moments; of each queue it is a beginning.
                let begins =
                    |(queue, told): (&u32, &Vec<_>)| life.queues.told[queue].starts_with(told);
                assert!(found.told.iter().all(begins), "seed {seed}: {report}");
                drop(journal);
                return;
            }
            Err(error) => panic!("seed {seed}: {error}"),
        }
        disk = disk.restart();
    }
}

#[test]
fn confirmed_records_survive_any_crash() {
    let mut seen = Seen::default();
    let first = number("INTERLOCK_SEED", 1);
    for seed in first..first + number("INTERLOCK_LIVES", 2_000) {
        live(seed, false, &mut seen);
    }
    println!("{seen:?}");
    let Seen { torn, whole_behind, snapshots, closed, crashes_while_opening, .. } = seen;
    for met in [torn, whole_behind, snapshots, closed, crashes_while_opening] {
        assert!(met > 0, "{seen:?}");
    }
}

#[test]
fn after_a_lying_disk_crashes_the_loss_is_detected_or_a_prefix_remains() {
    let mut seen = Seen::default();
    let first = number("INTERLOCK_SEED", 1);
    for seed in first..first + number("INTERLOCK_LIVES", 2_000) {
        live(seed, true, &mut seen);
    }
    println!("{seen:?}");
    assert!(seen.damaged > 0, "{seen:?}");
}
