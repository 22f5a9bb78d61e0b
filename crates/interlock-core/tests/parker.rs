//! The parker: no wake is lost, a time ends the sleep, and so does a signal.

#![cfg(not(shuttle))]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use interlock_core::sync::{Parker, Unparked};

/// A test that hangs ends after this; none comes near it otherwise.
const HANGS: Duration = Duration::from_secs(30);

#[test]
fn a_wake_up_before_the_sleep_is_remembered_once() {
    let parker = Parker::new();
    parker.unpark();
    parker.unpark();
    assert_eq!(parker.park(Some(HANGS)), Unparked::Woken);
    assert_eq!(parker.park(Some(Duration::from_millis(1))), Unparked::TimedOut);
    parker.waker().wake();
    assert_eq!(parker.park(Some(Duration::ZERO)), Unparked::Woken);
    assert_eq!(parker.park(Some(Duration::ZERO)), Unparked::TimedOut);
}

/// Sleeps until woken, whatever else ended the sleeps, each of `slice` at most.
fn park(parker: &Parker, slice: Duration) {
    let start = Instant::now();
    while parker.park(Some(slice)) != Unparked::Woken {
        assert!(start.elapsed() < HANGS, "a wake was lost");
    }
}

/// A turn goes to and fro: one wake lost, and both sleep for ever.
#[test]
fn two_threads_wake_each_other_a_hundred_thousand_times() {
    let (one, other) = (Parker::new(), Parker::new());
    let turns = Arc::new(AtomicU32::new(0));
    let (done, ended) = mpsc::channel();
    one.unpark();
    for (own, theirs) in [(one.clone(), other.clone()), (other, one)] {
        let (turns, done) = (turns.clone(), done.clone());
        thread::spawn(move || {
            for _ in 0..50_000 {
                park(&own, HANGS);
                turns.fetch_add(1, Ordering::Relaxed);
                theirs.unpark();
            }
            done.send(()).expect("the test waits for it");
        });
    }
    for _ in 0..2 {
        let end = ended.recv_timeout(2 * HANGS);
        assert_eq!(end, Ok(()), "a wake was lost after {} turns", turns.load(Ordering::Relaxed));
    }
}

/// Writes of the waker before its wake are seen after the sleep, also with a timeout at the same
/// time.
#[test]
fn a_wake_up_at_a_timeout_is_seen_now_or_at_the_next_sleep() {
    let parker = Parker::new();
    let written = Arc::new(AtomicU32::new(0));
    let waker = {
        let (parker, written) = (parker.clone(), written.clone());
        thread::spawn(move || {
            for n in 1..=20_000 {
                written.store(n, Ordering::Relaxed);
                parker.unpark();
                while written.load(Ordering::Relaxed) != 0 {
                    thread::yield_now();
                }
            }
        })
    };
    for n in 1..=20_000 {
        park(&parker, Duration::from_micros(20));
        assert_eq!(written.swap(0, Ordering::Relaxed), n);
    }
    waker.join().expect("it only writes");
}

#[cfg(target_os = "linux")]
#[test]
fn a_signal_ends_the_sleep_at_once() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handler does nothing, and without SA_RESTART a sleep is not gone on with.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as libc::sighandler_t;
        assert_eq!(libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut()), 0);
    }
    let (named, name) = mpsc::channel();
    let (done, ended) = mpsc::channel();
    let sleeper = thread::spawn(move || {
        // SAFETY: takes nothing and cannot fail.
        named.send(unsafe { libc::pthread_self() } as usize).expect("the test waits for it");
        done.send(Parker::new().park(None)).expect("the test waits for it");
    });
    let name = name.recv().expect("it names itself first") as libc::pthread_t;
    // A signal before the sleep does not end it, so that it is sent until one has.
    let end = loop {
        // SAFETY: the thread is joined below, so that its name is still valid.
        unsafe { libc::pthread_kill(name, libc::SIGUSR2) };
        match ended.recv_timeout(Duration::from_millis(1)) {
            Err(RecvTimeoutError::Timeout) => continue,
            end => break end,
        }
    };
    assert_eq!(end, Ok(Unparked::Interrupted));
    sleeper.join().expect("it only sleeps");
}
