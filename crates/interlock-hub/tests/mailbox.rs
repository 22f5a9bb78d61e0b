//! Mail that was put into a mailbox is found, and its owner is woken for it.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;

use interlock_hub::shared::mailbox::{Mail, Mailbox};
use interlock_hub::shared::settings::Settings;
use interlock_hub::shared::Shared;
use interlock_hub::topics::chunk::{Builder, Chunk};
use interlock_hub::topics::directory::{Interest, SubscriptionKind};

/// The owner takes so much that the other's letter comes in the middle of it. Only one comes: the
/// next would have the owner find what it overlooked.
#[test]
fn mail_put_while_the_owner_looks_is_found_the_next_time() {
    let mailbox = Mailbox::new().unwrap();
    let chunk = Arc::new(Chunk::default());
    let (round, put) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=ROUNDS {
                // Acquire and release: the letters of a round come after its beginning.
                while round.load(Ordering::Acquire) < number {
                    thread::yield_now();
                }
                (0..number % 200).for_each(|_| std::hint::spin_loop());
                let _ = mailbox.put(Mail::Drain);
                put.store(number, Ordering::Release);
            }
        });
        for number in 1..=ROUNDS {
            for _ in 0..LETTERS {
                let _ = mailbox.put(Mail::Chunk(chunk.clone()));
            }
            round.store(number, Ordering::Release);
            let mut found = 0;
            loop {
                let all_there = put.load(Ordering::Acquire) == number;
                found += mailbox.take().len();
                if all_there {
                    break;
                }
                thread::yield_now();
            }
            if found != LETTERS + 1 {
                // Or the other thread would wait for ever, and the test not fail.
                round.store(ROUNDS, Ordering::Release);
            }
            assert_eq!(found, LETTERS + 1, "round {number}");
        }
    });
}

#[test]
fn publishing_wakes_other_workers_once_and_not_the_publisher_s() {
    let mailboxes = (0..3).map(|_| Mailbox::new().unwrap()).collect();
    let shared = Shared::new(Settings::default(), mailboxes, 0).unwrap();
    let woken = || -> Vec<bool> { shared.mailboxes.iter().map(|m| readable(m.event())).collect() };
    let publish = || {
        let mut builder = Builder::default();
        let to = Interest { receivers: 2, workers: 0b011 };
        builder.add(SubscriptionKind::Topic, b"t", b"t", b"x", to);
        shared.sequence(0, builder.take());
    };
    publish();
    assert_eq!(woken(), [false, true, false]);
    shared.mailboxes[1].silence();
    publish();
    assert_eq!(woken(), [false, false, false], "it has not looked yet, and will");
    assert_eq!(shared.mailboxes[1].take().len(), 2);
    publish();
    assert_eq!(woken(), [false, true, false]);
}

#[test]
fn workers_are_told_to_close_when_the_last_of_them_has_drained() {
    let mailboxes = (0..2).map(|_| Mailbox::new().unwrap()).collect();
    let shared = Shared::new(Settings::default(), mailboxes, 0).unwrap();
    shared.drained();
    assert!(shared.mailboxes.iter().all(|mailbox| mailbox.take().is_empty()));
    shared.drained();
    for mailbox in shared.mailboxes.iter() {
        assert!(matches!(&mailbox.take()[..], [Mail::Finish]));
    }
}

fn readable(fd: RawFd) -> bool {
    let mut one = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which lives through the call.
    unsafe { libc::poll(&mut one, 1, 0) > 0 }
}

const ROUNDS: usize = 10_000;
const LETTERS: usize = 3_000;
