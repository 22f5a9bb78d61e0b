//! Kills and stops of who resizes the table, at every step and at any moment, while others write and read.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fastrand::Rng;
use interlock_table::fault::{Step, EXEC};
use interlock_table::{Error, Table};

use crate::child::{spawn, Armed, Process};
use crate::common::{number, seed, Place};
use crate::random::{await_change, read_on, signal, wait_until_ready, write_all, StopAtEnd};
use crate::rows::*;

const STEPS: [Step; 7] = {
    use Step::*;
    [
        ResizeBegun,
        ResizeCopied,
        ResizeFreezing,
        ResizeFrozen,
        ResizeLinked,
        ResizeEnded,
        ResizePublished,
    ]
};

fn has_ended(step: Step) -> bool {
    step as u32 >= Step::ResizeEnded as u32
}

/// At its first passing, or for what is passed for every row, in the midst.
fn armed(step: Step, signal: i32, rng: &mut Rng) -> Armed {
    let times = if step == Step::ResizeFreezing { rng.i64(1..300) } else { 1 };
    Armed { step: step as u32, times, signal }
}

/// Files that a killed child leaves beside the table.
fn left_over(place: &Place) -> usize {
    let begin = format!(".interlock.{}.", place.name());
    let files = std::fs::read_dir("/dev/shm").unwrap().flatten();
    files.filter(|file| file.file_name().to_string_lossy().starts_with(&begin)).count()
}

/// A table with one writer at work, of which there is more than one bucket's worth.
fn at_work(place: &Place, rng: &mut Rng) -> (Table, Process) {
    let table = made(place, 790);
    (0..FILLERS).for_each(|n| set(&table, filler_key(n), n, 0).unwrap());
    let mut child = spawn(&place.name(), 0, rng.u64(..), Armed::default());
    wait_until_ready(&mut child);
    (table, child)
}

fn read_fillers(table: &Table) {
    for n in 0..FILLERS {
        get(table, filler_key(n));
    }
}

fn end(child: &mut Process) {
    child.0.kill().unwrap();
    await_change(child);
}

fn count_all(table: &Table, ledger: &Ledger, step: Step) {
    for n in 0..SHARED {
        ledger.begin_count(1, n);
        assert!(count_up(table, shared_key(n)).unwrap().is_some(), "{step:?}");
        ledger.end_count(1, n);
    }
}

#[test]
fn a_resize_killed_at_any_step_leaves_the_old_table_or_the_new_one() {
    ended_at_any_step(libc::SIGKILL);
}

#[test]
fn a_resize_that_calls_exec_at_any_step_leaves_the_old_table_or_the_new_one() {
    ended_at_any_step(EXEC);
}

fn ended_at_any_step(how: i32) {
    let mut rng = Rng::with_seed(seed());
    for step in STEPS {
        let place = Place::new("resizer");
        let ledger = Ledger::open(&place.name());
        let (table, mut writer) = at_work(&place, &mut rng);
        let idle = attach(&place.name(), Duration::from_secs(20));
        let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| read_on(&table, &stop, &reads));
            let _stop = StopAtEnd(&stop);
            let armed = armed(step, how, &mut rng);
            let mut resizer = spawn(&place.name(), RESIZER, rng.u64(..), armed);
            let status = await_change(&resizer);
            let (killed, stopped) = (libc::WIFSIGNALED(status), libc::WIFSTOPPED(status));
            assert!(if how == EXEC { stopped } else { killed }, "{step:?}: {status}");
            // At once, though the resizer had frozen what they count in.
            count_all(&table, &ledger, step);
            assert_eq!(table.made().capacity != 790, has_ended(step), "{step:?}");
            end(&mut writer);
            check_own(&table, &ledger, 0);
            if stopped {
                end(&mut resizer);
            }
        });
        assert_eq!(idle.made().capacity, table.made().capacity);
        check_own(&idle, &ledger, 0);
        let late = attach(&place.name(), Duration::from_secs(20));
        assert_eq!(late.made().capacity, table.made().capacity, "{step:?}");
        assert_eq!(left_over(&place), 0, "{step:?}");
        late.resize(3000, false).unwrap();
        for table in [&table, &idle, &late] {
            check_own(table, &ledger, 0);
            check_all(table, &ledger);
        }
        ledger.remove();
    }
}

#[test]
fn a_resize_stopped_at_any_step_blocks_no_reader_and_writers_only_for_their_patience() {
    let mut rng = Rng::with_seed(seed());
    for step in STEPS {
        let place = Place::new("stopped");
        let ledger = Ledger::open(&place.name());
        let (table, mut writer) = at_work(&place, &mut rng);
        let impatient = attach(&place.name(), Duration::from_millis(1));
        let armed = armed(step, libc::SIGSTOP, &mut rng);
        let mut resizer = spawn(&place.name(), RESIZER, rng.u64(..), armed);
        let status = await_change(&resizer);
        assert!(libc::WIFSTOPPED(status), "{step:?}: {status}");
        read_fillers(&table);
        (0..SHARED).for_each(|n| assert!(get(&table, shared_key(n)).is_some()));
        let mut busy = 0;
        for n in 0..SHARED {
            ledger.begin_count(1, n);
            match count_up(&impatient, shared_key(n)) {
                Ok(count) => {
                    assert!(count.is_some(), "{step:?}");
                    ledger.end_count(1, n);
                }
                Err(Error::RowBusy { pid }) => {
                    // What the other waits for is in its hands only for a moment.
                    busy += u64::from(pid == resizer.0.id());
                }
                Err(error) => panic!("{step:?}: {error}"),
            }
        }
        match step {
            Step::ResizeFrozen | Step::ResizeLinked => assert_eq!(busy, SHARED, "{step:?}"),
            Step::ResizeFreezing => {}
            _ => assert_eq!(busy, 0, "{step:?}"),
        }
        if has_ended(step) {
            // With patience for the writer, which may have been pushed off its core.
            attach(&place.name(), Duration::from_secs(20)).resize(5000, false).unwrap();
        } else {
            let refused = impatient.resize(5000, false);
            assert!(
                matches!(refused, Err(Error::RowBusy { pid }) if pid == resizer.0.id()),
                "{step:?}: {refused:?}"
            );
        }
        signal(&resizer, libc::SIGCONT);
        // It resizes on.
        let (first, mut seen) = (table.made().capacity, 0);
        while table.made().capacity == first || seen < 20 {
            count_all(&table, &ledger, step);
            seen += 1;
        }
        end(&mut resizer);
        end(&mut writer);
        let late = attach(&place.name(), Duration::from_secs(20));
        for table in [&table, &late] {
            check_own(table, &ledger, 0);
            check_all(table, &ledger);
        }
        ledger.remove();
    }
}

#[test]
fn a_process_cleaning_up_after_a_dead_resize_may_die_in_turn() {
    let mut rng = Rng::with_seed(seed());
    for step in [Step::ResizeGivenUp, Step::ResizeThawing] {
        let place = Place::new("clearer");
        let ledger = Ledger::open(&place.name());
        let table = made(&place, 790);
        (0..FILLERS).for_each(|n| set(&table, filler_key(n), n, 0).unwrap());
        let times = if step == Step::ResizeThawing { rng.i64(1..300) } else { 1 };
        let once = Armed { step: step as u32, times, signal: libc::SIGKILL };
        let mut clearer = spawn(&place.name(), 0, rng.u64(..), once);
        wait_until_ready(&mut clearer);
        let first = armed(Step::ResizeFrozen, libc::SIGKILL, &mut rng);
        let resizer = spawn(&place.name(), RESIZER, rng.u64(..), first);
        assert!(libc::WIFSIGNALED(await_change(&resizer)), "{step:?}");
        assert!(libc::WIFSIGNALED(await_change(&clearer)), "{step:?}");
        check_own(&table, &ledger, 0);
        count_all(&table, &ledger, step);
        check_own(&table, &ledger, 0);
        let late = attach(&place.name(), Duration::from_secs(20));
        for table in [&table, &late] {
            check_own(table, &ledger, 0);
            check_all(table, &ledger);
            table.resize(2000, false).unwrap();
        }
        ledger.remove();
    }
}

#[test]
fn resizes_and_writers_killed_or_stopped_at_any_moment_lose_no_row() {
    let mut rng = Rng::with_seed(seed());
    let place = Place::new("resizers");
    let table = made(&place, 790);
    let ledger = Ledger::open(&place.name());
    let start = |writer, rng: &mut Rng| {
        let mut child = spawn(&place.name(), writer, rng.u64(..), Armed::default());
        wait_until_ready(&mut child);
        child
    };
    let mut children: Vec<(u64, Process)> =
        (0..WRITERS).chain([RESIZER]).map(|number| (number, start(number, &mut rng))).collect();
    let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    let (kills, mut capacities) = (number("INTERLOCK_KILLS", 60) / 2, 0);
    let (patient, mut waits) = (attach(&place.name(), Duration::from_secs(20)), Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| read_on(&table, &stop, &reads));
        let _stop = StopAtEnd(&stop);
        let mut last = 0;
        for round in 0..2 * kills {
            let until = reads.load(Relaxed) + rng.u64(..10_000);
            while reads.load(Relaxed) < until {
                std::thread::yield_now();
            }
            // As often the one that resizes as one of the others.
            let chosen = if rng.bool() { WRITERS as usize } else { rng.usize(..WRITERS as usize) };
            let (number, child) = &mut children[chosen];
            if round % 2 == 0 {
                end(child);
                waits.push(write_all(&patient, &ledger));
                *child = start(*number, &mut rng);
            } else {
                signal(child, libc::SIGSTOP);
                await_change(child);
                read_fillers(&table);
                signal(child, libc::SIGCONT);
            }
            capacities += u64::from(std::mem::replace(&mut last, table.made().capacity) != last);
        }
        for (number, child) in &mut children {
            end(child);
            if *number != RESIZER {
                check_own(&table, &ledger, *number);
            }
        }
    });
    let late = attach(&place.name(), Duration::from_secs(20));
    (0..WRITERS).for_each(|writer| check_own(&late, &ledger, writer));
    check_all(&table, &ledger);
    check_all(&late, &ledger);
    assert_eq!(left_over(&place), 0);
    assert!(capacities > kills / 4, "it was hardly ever resized: {capacities}");
    waits.sort();
    println!(
        "{kills} kills, {kills} stops, {capacities} sizes, {} reads\n\
         longest write behind a kill: {:?}, of 99 in 100 {:?}, of one in two {:?}",
        reads.load(Relaxed),
        waits.last(),
        waits.get(waits.len() * 99 / 100),
        waits.get(waits.len() / 2)
    );
    ledger.remove();
}
