//! Kills and stops at any moment.

use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fastrand::Rng;
use interlock_table::{Error, Table};

use crate::child::{spawn, Armed, Process};
use crate::common::{number, seed, Place};
use crate::rows::*;

/// Reads all rows for ever: each is whole, what is always there is never missed, and nothing goes back.
pub fn read_on(table: &Table, stop: &AtomicBool, reads: &AtomicU64) {
    let mut counts = [0; SHARED as usize];
    let mut stamps = [[0; OWN as usize]; WRITERS as usize];
    while !stop.load(Relaxed) {
        for n in 0..SHARED {
            let (_, count) = get(table, shared_key(n)).expect("it is always there");
            assert!(count >= counts[n as usize], "a count went back");
            counts[n as usize] = count;
        }
        for (writer, stamps) in stamps.iter_mut().enumerate() {
            for (n, last) in stamps.iter_mut().enumerate() {
                if let Some((stamp, _)) = get(table, own_key(writer as u64, n as u64)) {
                    assert!(stamp >= *last, "a row went back");
                    *last = stamp;
                }
            }
        }
        for n in 0..FILLERS {
            get(table, filler_key(n));
        }
        reads.fetch_add(SHARED + OWN * WRITERS + FILLERS, Relaxed);
    }
}

pub fn wait_until_ready(child: &mut Process) {
    if std::mem::replace(&mut child.1, true) {
        return;
    }
    let mut said = String::new();
    let mut byte = [0];
    while !said.ends_with("ready\n") {
        assert_eq!(child.0.stdout.as_mut().unwrap().read(&mut byte).unwrap(), 1, "{said}");
        said.push(byte[0].into());
    }
}

pub fn signal(child: &Process, signal: i32) {
    // SAFETY: takes no pointer; the child was not waited for, so that its pid is its own.
    assert_eq!(unsafe { libc::kill(child.0.id() as i32, signal) }, 0);
}

/// Waits until a child has ended or stopped, and returns its status.
pub fn await_change(child: &Process) -> i32 {
    let mut status = 0;
    // SAFETY: the status outlives the call.
    let pid = unsafe { libc::waitpid(child.0.id() as i32, &mut status, libc::WUNTRACED) };
    assert_eq!(pid, child.0.id() as i32);
    status
}

#[test]
fn writers_killed_or_stopped_at_any_moment_leave_every_row_whole() {
    let first = seed();
    let mut rng = Rng::with_seed(first);
    let place = Place::new("random");
    let table = crowded(&place);
    let impatient = attach(&place.name(), Duration::from_millis(2));
    let patient = attach(&place.name(), Duration::from_secs(20));
    let ledger = Ledger::open(&place.name());
    let start = |writer, rng: &mut Rng| spawn(&place.name(), writer, rng.u64(..), Armed::default());
    let mut children: Vec<Process> = (0..WRITERS).map(|writer| start(writer, &mut rng)).collect();
    let mut waits = Vec::new();
    let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut busy, kills) = (0, number("INTERLOCK_KILLS", 60));
    std::thread::scope(|scope| {
        scope.spawn(|| read_on(&table, &stop, &reads));
        let _stop = StopAtEnd(&stop);
        for round in 0..2 * kills {
            // At any moment: the reader's progress is as good a clock as any.
            let until = reads.load(Relaxed) + rng.u64(..20_000);
            while reads.load(Relaxed) < until {
                std::thread::yield_now();
            }
            let writer = rng.usize(..WRITERS as usize);
            wait_until_ready(&mut children[writer]);
            if round % 2 == 0 {
                children[writer].0.kill().unwrap();
                await_change(&children[writer]);
                check_own(&table, &ledger, writer as u64);
                waits.push(write_all(&patient, &ledger));
                children[writer] = start(writer as u64, &mut rng);
            } else {
                signal(&children[writer], libc::SIGSTOP);
                await_change(&children[writer]);
                check_own(&table, &ledger, writer as u64);
                // Whatever it holds, others continue; they are refused in time where it is in the
                // way.
                for n in 0..FILLERS {
                    match count_up(&impatient, filler_key(n)) {
                        Ok(_) => {}
                        Err(Error::RowBusy { pid }) => {
                            busy += u64::from(pid == children[writer].0.id());
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                signal(&children[writer], libc::SIGCONT);
            }
        }
        for (writer, child) in children.iter_mut().enumerate() {
            wait_until_ready(child);
            child.0.kill().unwrap();
            await_change(child);
            check_own(&table, &ledger, writer as u64);
        }
    });
    check_all(&attach(&place.name(), Duration::from_secs(20)), &ledger);
    waits.sort();
    println!(
        "{kills} kills, {kills} stops, {} reads, {busy} times refused, {:?}\n\
         longest write behind a kill: {:?}, of 99 in 100 {:?}, of one in two {:?}",
        reads.load(Relaxed),
        table.statistics(),
        waits.last(),
        waits.get(waits.len() * 99 / 100),
        waits.get(waits.len() / 2)
    );
    ledger.remove();
}

/// Writes all rows that a dead writer may have held, each of which it does at once, and returns how long
/// the longest of these writes took.
pub fn write_all(table: &Table, ledger: &Ledger) -> Duration {
    let own = (0..WRITERS).flat_map(|writer| (0..OWN).map(move |n| own_key(writer, n)));
    let keys = own.chain((0..FILLERS).map(filler_key)).chain((0..SHARED).map(shared_key));
    let mut longest = Duration::ZERO;
    for key in keys {
        let began = Instant::now();
        let shared = key >> 32 == 1;
        if shared {
            ledger.begin_count(PARENT, key as u32 as u64);
        }
        count_up(table, key).unwrap();
        longest = longest.max(began.elapsed());
        if shared {
            ledger.end_count(PARENT, key as u32 as u64);
        }
    }
    longest
}

/// Ends the readers when the test ends, however it ends.
pub struct StopAtEnd<'a>(pub &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
