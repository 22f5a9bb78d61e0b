//! The queue of a store: bounded in bytes, filled by workers, emptied by the store's thread.
//!
//! Room is reserved before a message is taken, so that a publisher that must wait has published
//! nothing yet. A message handed over gets a ticket; a worker that waits for a ticket or for room
//! sets its bit and looks again when notified.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::batch::Batch;
use super::settings::StoreKind;

#[derive(Debug, Default)]
pub struct Queue {
    inner: Mutex<Inner>,
    arrived: Condvar,
    /// Bytes that are reserved, wait, or are being written.
    held: AtomicUsize,
    /// Messages that are as safe as the store makes them: all up to this ticket.
    passed: AtomicU64,
    /// Messages that were delivered upstream: all up to this ticket.
    delivered: AtomicU64,
    /// A bit for each worker that wants to hear of progress.
    watchers: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    batches: VecDeque<Batch>,
    /// Messages that were ever put here: the ticket of the last one.
    accepted: u64,
    /// Bytes of their payloads.
    bytes: u64,
    orders: Orders,
    /// The thread has ended, or will: nobody takes anything any more.
    ended: bool,
}

/// Words for the thread of the store.
#[derive(Debug, Default)]
pub struct Orders {
    /// From now on it is to be of this kind.
    pub kind: Option<StoreKind>,
    pub rotate: bool,
    /// True if what failed is to be tried at once, or something has changed that it waits for.
    pub again: bool,
    pub end: End,
}

/// The way a store ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    #[default]
    No,
    /// Once everything is written and nothing can be added.
    Drained,
    /// Like `Drained`, but at this time at the latest.
    Within(Instant),
}

impl Queue {
    /// Reserves bytes, up to a total of `most`. A longer message has room when nothing else waits.
    #[must_use]
    pub fn reserve(&self, bytes: usize, most: usize) -> bool {
        let room = |held: usize| {
            (held == 0 || held.saturating_add(bytes) <= most).then(|| held.saturating_add(bytes))
        };
        self.held.fetch_update(SeqCst, SeqCst, room).is_ok()
    }

    pub fn release(&self, bytes: usize) {
        self.held.fetch_sub(bytes, SeqCst);
    }

    /// Hands over messages for which room is reserved; returns their ticket.
    pub fn put(&self, batch: Batch) -> u64 {
        let mut inner = self.inner.lock();
        inner.accepted += batch.len() as u64;
        inner.bytes += batch.payload();
        let wakes = inner.batches.is_empty();
        inner.batches.push_back(batch);
        let ticket = inner.accepted;
        drop(inner);
        if wakes {
            self.arrived.notify_one();
        }
        ticket
    }

    /// Returns whether everything up to a ticket is safe.
    pub fn has_passed(&self, ticket: u64) -> bool {
        self.passed.load(SeqCst) >= ticket
    }

    /// Returns whether everything up to a ticket is delivered upstream.
    pub fn has_delivered(&self, ticket: u64) -> bool {
        self.delivered.load(SeqCst) >= ticket
    }

    /// Marks everything up to a ticket as delivered. Returns which workers to notify.
    #[must_use]
    pub fn deliver(&self, ticket: u64) -> u64 {
        self.delivered.fetch_max(ticket, SeqCst);
        self.watchers.swap(0, SeqCst)
    }

    /// Has the worker notified of the next progress. It must look again after this call, because
    /// progress may already have happened.
    pub fn watch(&self, worker: usize) {
        self.watchers.fetch_or(1 << worker, SeqCst);
    }

    /// Called by the thread: marks everything up to a ticket as done, and frees its bytes. Returns
    /// which workers to notify.
    #[must_use]
    pub fn pass(&self, ticket: u64, bytes: usize) -> u64 {
        self.passed.store(ticket, SeqCst);
        self.release(bytes);
        self.watchers.swap(0, SeqCst)
    }

    pub fn order(&self, order: impl FnOnce(&mut Orders)) {
        order(&mut self.inner.lock().orders);
        self.arrived.notify_one();
    }

    /// Called by the thread before it ends. Returns false if it is to continue instead.
    #[must_use]
    pub fn end(&self, known: End) -> bool {
        let mut inner = self.inner.lock();
        inner.ended = inner.orders.end == known;
        inner.ended
    }

    /// Lets a store that was ending continue with these settings. Returns false if it has ended.
    #[must_use]
    pub fn revive(&self, kind: StoreKind) -> bool {
        let mut inner = self.inner.lock();
        if !inner.ended {
            (inner.orders.end, inner.orders.kind) = (End::No, Some(kind));
            self.arrived.notify_one();
        }
        !inner.ended
    }

    /// The thread's: waits until there are messages or orders that it does not know, or until then.
    /// Messages are taken only if it `takes`, and about as many bytes as `most`.
    pub fn next(
        &self,
        until: Instant,
        known: End,
        takes: bool,
        most: usize,
        batches: &mut Vec<Batch>,
    ) -> Orders {
        let mut inner = self.inner.lock();
        loop {
            let has_messages = takes && !inner.batches.is_empty();
            let Orders { kind, rotate, again, .. } = &inner.orders;
            let ordered = kind.is_some() || *rotate || *again;
            if has_messages || ordered || inner.orders.end != known {
                break;
            }
            if self.arrived.wait_until(&mut inner, until).timed_out() {
                break;
            }
        }
        let mut bytes = 0;
        // Messages that wait while the settings change are written by the new settings.
        while takes && inner.orders.kind.is_none() && bytes < most {
            let Some(batch) = inner.batches.pop_front() else { break };
            bytes += batch.weight();
            batches.push(batch);
        }
        let end = inner.orders.end;
        Orders { end, ..std::mem::replace(&mut inner.orders, Orders { end, ..Orders::default() }) }
    }

    pub fn is_empty(&self) -> bool {
        self.inner.lock().batches.is_empty()
    }

    /// Bytes that are reserved, wait, or are being written.
    pub fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// Messages that were ever put here, and bytes of their payloads.
    pub fn accepted(&self) -> (u64, u64) {
        let inner = self.inner.lock();
        (inner.accepted, inner.bytes)
    }

    /// The ticket up to which all is safe.
    pub fn passed(&self) -> u64 {
        self.passed.load(SeqCst)
    }

    /// µs since 1970 of the oldest message that is not taken yet.
    pub fn oldest(&self) -> Option<u64> {
        self.inner.lock().batches.front().and_then(Batch::time)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{channel, Receiver, Sender};
    use std::time::Duration;

    use interlock_stores::Message;

    use crate::stores::batch::weight;
    use crate::stores::queue::*;

    /// Reserves room for a message as a worker does: if there is none, it sets its bit and waits to be
    /// notified.
    fn reserved(queue: &Queue, worker: usize, bytes: usize, told: &Receiver<()>) {
        while !queue.reserve(bytes, MOST) {
            queue.watch(worker);
            if queue.reserve(bytes, MOST) {
                return;
            }
            told.recv_timeout(Duration::from_secs(20)).expect("it was forgotten");
        }
    }

    fn pass(queue: &Queue, taken: &mut u64, batches: &mut Vec<Batch>, tell: &[Sender<()>]) {
        *taken += batches.iter().map(|batch| batch.len() as u64).sum::<u64>();
        let bytes = batches.iter().map(Batch::weight).sum();
        let told = queue.pass(*taken, bytes);
        batches.clear();
        for (worker, tell) in tell.iter().enumerate() {
            if told >> worker & 1 == 1 {
                let _ = tell.send(());
            }
        }
    }

    #[test]
    fn a_store_queue_is_bounded_and_drops_no_waiter() {
        let queue = Queue::default();
        let (tell, told): (Vec<_>, Vec<_>) = (0..WORKERS).map(|_| channel()).unzip();
        std::thread::scope(|scope| {
            for (worker, told) in told.into_iter().enumerate() {
                let queue = &queue;
                scope.spawn(move || {
                    for number in 0..EACH {
                        let payload = number.to_be_bytes();
                        reserved(
                            queue,
                            worker,
                            weight(&Message {
                                topic: b"t",
                                payload: &payload,
                                ..Message::default()
                            }),
                            &told,
                        );
                        let mut batch = Batch::default();
                        batch.push(b"t", &payload, worker as u64);
                        queue.put(batch);
                    }
                });
            }
            let (mut next, mut taken, mut batches) = ([0; WORKERS], 0, Vec::new());
            while taken < WORKERS as u64 * EACH {
                let until = Instant::now() + Duration::from_secs(20);
                queue.next(until, End::No, true, 200, &mut batches);
                assert!(!batches.is_empty() && queue.held() <= MOST);
                for message in batches.iter().flat_map(Batch::iter) {
                    let worker = message.time as usize;
                    assert_eq!(message.payload, u64::to_be_bytes(next[worker]), "in order");
                    next[worker] += 1;
                }
                pass(&queue, &mut taken, &mut batches, &tell);
                assert!(queue.has_passed(taken) && !queue.has_passed(taken + 1));
            }
        });
        assert_eq!((queue.held(), queue.is_empty()), (0, true));
    }

    #[test]
    fn a_single_waiter_is_woken_each_time_there_is_room() {
        // No other store's progress wakes it, and it checks for room when some appears.
        let (queue, (tell, told)) = (Queue::default(), channel());
        let queue = &queue;
        let message = || {
            let mut batch = Batch::default();
            batch.push(b"t", b"x", 0);
            batch
        };
        let one = message().weight();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..EACH * 10 {
                    while !queue.reserve(one, one) {
                        queue.watch(0);
                        if queue.reserve(one, one) {
                            break;
                        }
                        let soon = (0..2_000).find_map(|_| told.try_recv().ok());
                        if soon.is_none() {
                            told.recv_timeout(Duration::from_secs(20)).expect("it was forgotten");
                        }
                    }
                    queue.put(message());
                }
            });
            let (mut taken, mut batches) = (0, Vec::new());
            while taken < EACH * 10 {
                let until = Instant::now() + Duration::from_secs(20);
                queue.next(until, End::No, true, 200, &mut batches);
                assert!(!batches.is_empty(), "nothing came");
                pass(queue, &mut taken, &mut batches, std::slice::from_ref(&tell));
            }
        });
    }

    #[test]
    fn a_message_longer_than_the_limit_fits_into_an_empty_queue() {
        let queue = Queue::default();
        assert!(queue.reserve(MOST * 2, MOST));
        assert!(!queue.reserve(1, MOST));
        queue.release(MOST * 2);
        assert!(queue.reserve(1, MOST) && !queue.reserve(MOST, MOST));
        assert!(queue.reserve(MOST - 1, MOST));
    }

    #[test]
    fn commands_are_delivered_while_paused_and_settings_before_waiting_messages() {
        let (queue, mut batches) = (Queue::default(), Vec::new());
        let mut batch = Batch::default();
        batch.push(b"t", b"x", 0);
        queue.put(batch);
        queue.order(|orders| orders.kind = Some(StoreKind::Null));
        let later = Instant::now() + Duration::from_secs(20);
        let orders = queue.next(later, End::No, true, 200, &mut batches);
        assert!(orders.kind.is_some() && batches.is_empty());
        queue.next(later, End::No, true, 200, &mut batches);
        assert_eq!(batches.len(), 1);
        queue.order(|orders| orders.end = End::Drained);
        assert_eq!(queue.next(later, End::No, false, 200, &mut batches).end, End::Drained);
        let now = Instant::now();
        assert_eq!(queue.next(now, End::Drained, false, 200, &mut batches).end, End::Drained);
    }

    const WORKERS: usize = 3;
    const EACH: u64 = 20_000;
    const MOST: usize = 1000;
}
