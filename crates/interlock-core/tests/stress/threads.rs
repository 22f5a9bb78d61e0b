//! The work of the threads of a round.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::Instant;

use fastrand::Rng;
use interlock_core::key::KeyRef;
use interlock_core::queue::calls::lease::{Failed, LeaseLost};
use interlock_core::queue::scheduler::{Grant, Put};
use interlock_core::queue::types::{Kind, RevokeThen, Time};
use interlock_core::queue::waiting::waiters::{Wait, Want};
use interlock_core::queue::{Ended, Look};
use interlock_core::sync::Parker;

use crate::check::Handling;
use crate::round::{Role, Stage};
use crate::spec::{Payload, Spec};

/// Puts its share of the messages, one by one or in batches, waiting for room.
pub fn produce(stage: &Stage, rng: &mut Rng) -> Role {
    let mut left = stage.round.messages;
    while left > 0 {
        let many = if rng.u8(0..20) == 0 { rng.usize(1..=8).min(left) } else { 1 };
        let specs: Vec<Payload> =
            (0..many).map(|_| Arc::new(Spec::new(rng, stage.round.many_keys))).collect();
        if many == 1 {
            let placed = specs[0].with_put(|put| stage.queue.put(put, specs[0].clone()));
            note_id(&specs[0], placed.expect("the queue is open").id);
        } else {
            left -= put_batch(stage, &specs);
            continue;
        }
        left -= 1;
    }
    Role::Producer
}

fn note_id(spec: &Spec, id: u64) {
    let before = spec.id.swap(id, Ordering::Relaxed);
    assert!(before == 0 || before == id, "handled as {before}, put as {id}");
}

/// A batch larger than the bound is refused as a whole; then it is not counted as put.
fn put_batch(stage: &Stage, specs: &[Payload]) -> usize {
    let mut payloads: Vec<_> = specs.iter().cloned().map(Some).collect();
    let mut wait = Wait::new(Want::Room(specs.len(), 0), Time::MAX);
    let mut puts = Vec::new();
    let placed = with_puts(specs, &mut puts, &mut |puts| {
        sleep_between(stage, &mut wait, |wait, waker| {
            stage.queue.put_many_or_wait(puts, &mut payloads, wait, waker)
        })
    });
    match placed {
        Ok(placed) => {
            placed.iter().zip(specs).for_each(|(placed, spec)| note_id(spec, placed.id));
            specs.len()
        }
        Err(Ended::TooLarge) => {
            assert!(payloads.iter().all(Option::is_some), "a refused batch keeps its payloads");
            0
        }
        Err(ended) => panic!("a batch without a deadline ended with {ended:?}"),
    }
}

/// Each put borrows its keys, so that they nest.
fn with_puts<'a, R>(
    specs: &[Payload],
    puts: &mut Vec<Put<'a>>,
    call: &mut dyn FnMut(&[Put<'_>]) -> R,
) -> R {
    match specs.split_first() {
        None => call(puts),
        Some((spec, rest)) => spec.with_put(|put| {
            let mut puts: Vec<Put<'_>> = puts.iter().copied().chain([*put]).collect();
            with_puts(rest, &mut puts, call)
        }),
    }
}

fn sleep_between<T>(
    stage: &Stage,
    wait: &mut Wait,
    mut look: impl FnMut(&mut Wait, &Waker) -> Look<T>,
) -> Result<T, Ended> {
    let parker = Parker::new();
    let waker = parker.waker();
    loop {
        match look(wait, &waker) {
            Look::Found(found) => return Ok(found),
            Look::Ended(ended) => return Err(ended),
            Look::Sleep(until) => {
                parker.park(stage.queue.time_left(until));
            }
        }
    }
}

/// Gets and handles until the queue is drained, now and then with a deadline or without waiting.
pub fn consume(stage: &Stage, rng: &mut Rng, kind: Kind) -> Role {
    let mut handled = Vec::new();
    loop {
        let patience = if rng.u8(0..4) == 0 { rng.u64(0..100) } else { Time::MAX };
        let deadline = stage.queue.clock().now().saturating_add(patience);
        let mut wait = Wait::new(Want::Message(kind), deadline);
        let got = sleep_between(stage, &mut wait, |wait, waker| {
            stage.queue.get_or_wait(kind, 1, |payload, _| payload.clone(), wait, waker)
        });
        match got {
            Ok((grant, spec)) => handled.extend(handle(stage, rng, grant, spec)),
            Err(Ended::TimedOut) => {}
            Err(Ended::ShutDown) => break,
            Err(ended) => panic!("who holds nothing meets no {ended:?} at a get"),
        }
    }
    stage.handlings.lock().unwrap().append(&mut handled);
    Role::Consumer
}

/// Answers the handling, if its lease stood to its end.
fn handle(stage: &Stage, rng: &mut Rng, grant: Grant, spec: Payload) -> Option<Handling> {
    let from = Instant::now();
    let lasting = stage.round.lease.is_none();
    note_id(&spec, grant.id);
    if lasting {
        assert_eq!(grant.attempt, spec.attempt.load(Ordering::Relaxed), "clause 9: {spec:?}");
        stage.flags.take(&spec);
    }
    match rng.u8(0..10) {
        0 => thread::yield_now(),
        n => (0..u32::from(n) * 20).for_each(|_| std::hint::spin_loop()),
    }
    if lasting {
        stage.flags.give_back(&spec);
    }
    let to = Instant::now();
    let counts = &stage.counts;
    let (count, last, done) = end(stage, rng, &grant, &spec);
    match done {
        Ok(()) => {
            if let Some(count) = count {
                count.fetch_add(1, Ordering::Relaxed);
            }
            assert_eq!(stage.queue.ack(grant.handle).map(drop), Err(LeaseLost), "settled twice");
            let token = grant.handle.token;
            Some(Handling { id: grant.id, spec, from, to, token, last })
        }
        Err(LeaseLost) => {
            assert!(!lasting, "clause 8: a lease without a deadline was lost: {spec:?}");
            counts.lost.fetch_add(1, Ordering::Relaxed);
            None
        }
    }
}

type Done<'a> = (Option<&'a AtomicUsize>, bool, Result<(), LeaseLost>);

/// Ends a lease in one of the ways there are: what it counts as, whether it settles, the answer.
fn end<'a>(stage: &'a Stage, rng: &mut Rng, grant: &Grant, spec: &Spec) -> Done<'a> {
    let (queue, counts, handle) = (&stage.queue, &stage.counts, grant.handle);
    match rng.u8(0..100) {
        0..=4 => {
            let delay = [None, Some(0), Some(50)][rng.usize(0..3)];
            // Before the call: afterwards another thread may have the message already.
            spec.attempt.store(grant.attempt + 1, Ordering::Relaxed);
            let failed = queue.nack(handle, delay, "again");
            if let Ok(failed) = failed {
                assert!(matches!(failed, Failed::Again { .. }), "{failed:?}");
            }
            (Some(&counts.retried), false, failed.map(drop))
        }
        5..=7 => (None, false, queue.call(|scheduler, now| scheduler.release(now, handle))),
        8 => {
            let failed = queue.call(|scheduler, now| scheduler.reject(now, handle, "no"));
            (Some(&counts.rejected), true, failed.map(drop))
        }
        _ => {
            let payload = queue.ack(handle);
            if let Ok(payload) = &payload {
                let payload = payload.as_ref().expect("an ack gives the payload back");
                assert!(std::ptr::eq(&**payload, spec), "an ack gives back another payload");
            }
            (Some(&counts.acked), true, payload.map(drop))
        }
    }
}

/// Pauses, cancels, revokes and asks while the others work; shuts the queue down when all is put.
pub fn operate(stage: &Stage, rng: &mut Rng) -> Role {
    let queue = &stage.queue;
    while !stage.put_all.load(Ordering::Acquire) {
        let newest = queue.call(|scheduler, now| scheduler.stats(now).puts);
        let id = newest.saturating_sub(rng.u64(0..20)).max(1);
        let key = (rng.usize(0..stage.round.many_keys) + 1).to_be_bytes();
        let key = if rng.u8(0..4) > 0 { Some(KeyRef::new(&key)) } else { None };
        match rng.u8(0..8) {
            0 => {
                if queue.call(|scheduler, now| scheduler.cancel(now, id)).is_some() {
                    stage.taken_back.lock().unwrap().push(id);
                }
            }
            1 => {
                queue.call(|scheduler, now| scheduler.pause(now, key));
                thread::yield_now();
                assert!(queue.call(|scheduler, now| scheduler.resume(now, key)));
            }
            2 if stage.round.lease.is_some() => {
                queue.call(|scheduler, now| scheduler.revoke(now, id, RevokeThen::Retry));
            }
            3 => {
                queue.call(|scheduler, now| scheduler.explain(now, id, 10));
            }
            4 => {
                queue.call(|scheduler, now| scheduler.hot_keys(now, 3));
            }
            _ => thread::yield_now(),
        }
    }
    queue.shut_down();
    Role::Operator
}
