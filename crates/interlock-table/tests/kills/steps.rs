//! Kills and stops at every step of the write path.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use fastrand::Rng;
use interlock_table::fault::{Step, EXEC};
use interlock_table::Error;

use crate::child::{spawn, Armed};
use crate::common::{seed, Place};
use crate::random::{await_change, read_on, signal, wait_until_ready, StopAtEnd};
use crate::rows::*;

/// Steps that only a recoverer takes.
fn recovers(step: Step) -> bool {
    use Step::*;
    matches!(
        step,
        RedoFilled
            | RedoTaken
            | RedoHalfCopied
            | RedoCopied
            | RecoveredTarget
            | RecoveredSlots
            | RecoveredCounted
    )
}

/// Steps that only who resizes takes, or who finds it dead.
fn resizes(step: Step) -> bool {
    step as u32 >= Step::ResizeBegun as u32
}

fn armed(step: Step, signal: i32, rng: &mut Rng) -> Armed {
    Armed { step: step as u32, times: rng.i64(1..8), signal }
}

#[test]
fn a_writer_killed_at_any_step_leaves_the_old_row_or_the_new_one() {
    ended_at_any_step(libc::SIGKILL);
}

/// Its pid lives on, as another program.
#[test]
fn a_writer_that_calls_exec_at_any_step_leaves_the_old_row_or_the_new_one() {
    ended_at_any_step(EXEC);
}

fn ended_at_any_step(how: i32) {
    let mut rng = Rng::with_seed(seed());
    for step in Step::ALL.into_iter().filter(|step| !recovers(*step) && !resizes(*step)) {
        let place = Place::new("step");
        let table = crowded(&place);
        let ledger = Ledger::open(&place.name());
        let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| read_on(&table, &stop, &reads));
            let _stop = StopAtEnd(&stop);
            let child = spawn(&place.name(), 0, rng.u64(..), armed(step, how, &mut rng));
            let status = await_change(&child);
            let (killed, stopped) = (libc::WIFSIGNALED(status), libc::WIFSTOPPED(status));
            assert!(if how == EXEC { stopped } else { killed }, "{step:?}: {status}");
            check_own(&table, &ledger, 0);
            // A writer that finds its lock continues at once; the rest is freed by the next process
            // that opens the table.
            for n in 0..SHARED {
                assert!(count_up(&table, shared_key(n)).unwrap().is_some(), "{step:?}");
                ledger.begin_count(1, n);
                ledger.end_count(1, n);
            }
            check_own(&table, &ledger, 0);
            if stopped {
                signal(&child, libc::SIGKILL);
                await_change(&child);
            }
        });
        let table = attach(&place.name(), Duration::from_secs(20));
        check_own(&table, &ledger, 0);
        check_all(&table, &ledger);
        ledger.remove();
    }
}

#[test]
fn a_writer_stopped_at_any_step_blocks_no_reader_and_does_no_harm_when_resumed() {
    let mut rng = Rng::with_seed(seed());
    for step in Step::ALL.into_iter().filter(|step| !recovers(*step) && !resizes(*step)) {
        let place = Place::new("stop");
        let table = crowded(&place);
        let impatient = attach(&place.name(), Duration::from_millis(1));
        let ledger = Ledger::open(&place.name());
        let child = spawn(&place.name(), 0, rng.u64(..), armed(step, libc::SIGSTOP, &mut rng));
        let status = await_change(&child);
        assert!(libc::WIFSTOPPED(status), "{step:?}: {status}");
        let before = table.statistics();
        check_own(&table, &ledger, 0);
        for n in 0..FILLERS {
            get(&table, filler_key(n));
        }
        assert_eq!(
            table.statistics().retries,
            before.retries,
            "{step:?}: a reader had to try again"
        );
        let mut busy = 0;
        for n in 0..SHARED {
            ledger.begin_count(1, n);
            match count_up(&impatient, shared_key(n)) {
                Ok(count) => {
                    assert!(count.is_some(), "{step:?}");
                    ledger.end_count(1, n);
                }
                Err(Error::RowBusy { pid }) => {
                    assert_eq!(pid, child.0.id());
                    busy += 1;
                }
                Err(error) => panic!("{step:?}: {error}"),
            }
        }
        assert!(busy <= 1, "{step:?}: one row is held at most");
        signal(&child, libc::SIGCONT);
        // It passes the step again and again, and the signal came once.
        let mut seen = 0;
        while ledger.counted(0, 0).1 < 20 || seen < 3 {
            (0..SHARED).for_each(|n| assert!(get(&table, shared_key(n)).is_some()));
            seen += 1;
        }
        signal(&child, libc::SIGKILL);
        await_change(&child);
        let table = attach(&place.name(), Duration::from_secs(20));
        check_own(&table, &ledger, 0);
        check_all(&table, &ledger);
        ledger.remove();
    }
}

#[test]
fn a_recoverer_killed_at_any_step_is_recovered_in_turn() {
    let mut rng = Rng::with_seed(seed());
    for step in Step::ALL.into_iter().filter(|step| recovers(*step)) {
        // A count lacks something only after the death of a writer that moves or removes a row, and others
        // come upon the insert lock of one that moves.
        let firsts = match step {
            Step::RecoveredCounted => [Step::SourceMoved, Step::TargetPublished],
            _ => [Step::ImageLocked, Step::ImageHalfCopied],
        };
        for first in firsts {
            let place = Place::new("recoverer");
            let table = crowded(&place);
            let ledger = Ledger::open(&place.name());
            let once = |step, times| Armed { step: step as u32, times, signal: libc::SIGKILL };
            let mut recoverer = spawn(&place.name(), 0, rng.u64(..), once(step, 1));
            wait_until_ready(&mut recoverer);
            // The other dies; the one that is there comes upon what it left, and dies of that.
            let mut victims = Vec::new();
            loop {
                let victim = spawn(&place.name(), 1, rng.u64(..), once(first, rng.i64(1..9)));
                let status = await_change(&victim);
                assert!(libc::WIFSIGNALED(status), "{step:?}");
                victims.push(victim);
                check_own(&table, &ledger, 1);
                if recoverer_ended(&recoverer) {
                    break;
                }
                assert!(victims.len() < 50, "{step:?}: never reached");
            }
            check_own(&table, &ledger, 0);
            for n in 0..SHARED {
                ledger.begin_count(2, n);
                assert!(count_up(&table, shared_key(n)).unwrap().is_some(), "{step:?}");
                ledger.end_count(2, n);
            }
            let table = attach(&place.name(), Duration::from_secs(20));
            (0..2).for_each(|writer| check_own(&table, &ledger, writer));
            check_all(&table, &ledger);
            assert!(table.statistics().recovered > 0);
            ledger.remove();
        }
    }
}

/// As after a reboot of the machine, or in the next container: no process has it open, and pids no
/// longer mean anything.
#[test]
fn a_write_unfinished_before_a_restart_is_finished_by_the_first_opener() {
    let mut rng = Rng::with_seed(seed());
    use Step::*;
    for step in [ImageHalfCopied, SourceMoved, SlotClaimed, RowCounted, DeleteClaimed, WordLocked] {
        let place = Place::new("restart");
        let ledger = Ledger::open(&place.name());
        drop(crowded(&place));
        let armed = armed(step, libc::SIGKILL, &mut rng);
        let child = spawn(&place.name(), 0, rng.u64(..), armed);
        assert!(libc::WIFSIGNALED(await_change(&child)), "{step:?}");
        let file = std::fs::File::options().write(true).open(place.0.path().unwrap()).unwrap();
        file.write_all_at(b"another boot", BOOT).unwrap();
        let table = attach_unused(&place.name());
        assert_eq!(table.statistics().writers, 0);
        check_own(&table, &ledger, 0);
        check_all(&table, &ledger);
        ledger.remove();
    }
}

/// The place where the control page has the number of the boot.
const BOOT: u64 = 4096 + 16;

/// Returns whether a child ends within the time that it takes to come upon any row.
fn recoverer_ended(child: &crate::child::Process) -> bool {
    for _ in 0..200 {
        let mut status = 0;
        // SAFETY: the status outlives the call.
        if unsafe { libc::waitpid(child.0.id() as i32, &mut status, libc::WNOHANG) } != 0 {
            assert!(libc::WIFSIGNALED(status));
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}
