//! A spool that is open: one thread puts messages into it, another takes them out.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Instant;

use interlock_journal::storage::disk::Disk;
use interlock_stores::spool::{Cursor, Spool, Spooled};
use parking_lot::{Condvar, Mutex, RwLock};

use super::settings::Child;
use super::store::{Level, Surroundings};

/// The part of a spool that its two threads share.
pub struct Spooling {
    open: RwLock<Option<Opened>>,
    inner: Mutex<Inner>,
    arrived: Condvar,
    pub level: Arc<Level>,
    /// Something in it could not be read: it is to be opened anew.
    unreadable: AtomicBool,
    /// The store waits for room to put messages.
    full: AtomicBool,
    /// True if it ends once no messages wait in it.
    ending: AtomicBool,
    around: Surroundings,
}

struct Opened {
    spool: Spool<Disk>,
    /// The number of times it was opened: places of one life are not those of another.
    life: u64,
}

#[derive(Default)]
struct Inner {
    /// News that the pump has not seen yet.
    news: bool,
    orders: Orders,
    /// Places, and the ticket of the queue that is reached once all up to there is delivered.
    marks: VecDeque<(u64, u64)>,
    /// The place up to which all is delivered.
    delivered: u64,
}

/// Words for the thread that takes messages out.
#[derive(Default)]
pub struct Orders {
    /// From now on they go there.
    pub child: Option<Child>,
    pub rotate: bool,
    /// True if it should end as soon as possible.
    pub end: bool,
}

/// A place from which messages are taken out.
pub struct Reading {
    cursor: Cursor<Disk>,
    life: u64,
}

/// The outcome of reading.
pub enum Read {
    Messages(Vec<Spooled>),
    Nothing,
    Failed(std::io::Error),
    /// It is being closed.
    Closed,
}

impl Spooling {
    pub fn new(around: Surroundings) -> Arc<Spooling> {
        let level = Arc::new(Level::default());
        around.figures(|figures| figures.add_level(&level));
        let (open, inner, arrived, unreadable, full, ending) = Default::default();
        Arc::new(Spooling { open, inner, arrived, level, unreadable, full, ending, around })
    }

    pub fn is_open(&self) -> bool {
        self.open.read().is_some()
    }

    /// From now on it is this one, whose messages up to there are delivered.
    pub fn opened(&self, mut spool: Spool<Disk>, delivered: u64) {
        let mut open = self.open.write();
        spool.forget(delivered);
        let (messages, bytes) = spool.waiting();
        self.level.messages.store(messages, Relaxed);
        self.level.bytes.store(bytes, Relaxed);
        self.unreadable.store(false, Relaxed);
        let mut inner = self.inner.lock();
        (inner.delivered, inner.news) = (spool.forgotten(), true);
        static LIVES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        *open = Some(Opened { spool, life: LIVES.fetch_add(1, Relaxed) });
        drop(inner);
        self.arrived.notify_one();
    }

    pub fn closed(&self) -> Option<Spool<Disk>> {
        self.open.write().take().map(|opened| opened.spool)
    }

    /// Does something that changes the spool; `None`: it is not open.
    pub fn change<T>(&self, work: impl FnOnce(&mut Spool<Disk>) -> T) -> Option<T> {
        self.open.write().as_mut().map(|opened| work(&mut opened.spool))
    }

    /// Does something that does not.
    pub fn look<T>(&self, work: impl FnOnce(&Spool<Disk>) -> T) -> Option<T> {
        self.open.read().as_ref().map(|opened| work(&opened.spool))
    }

    /// Messages were committed.
    pub fn arrived(&self) {
        self.inner.lock().news = true;
        self.arrived.notify_one();
    }

    pub fn order(&self, order: impl FnOnce(&mut Orders)) {
        order(&mut self.inner.lock().orders);
        self.arrived.notify_one();
    }

    /// Waits until there are messages, if they are `wanted`, or orders, or until then.
    pub fn next(&self, until: Instant, wanted: bool) -> Orders {
        let mut inner = self.inner.lock();
        loop {
            let Orders { child, rotate, end } = &inner.orders;
            if child.is_some() || *rotate || *end || (wanted && inner.news) {
                break;
            }
            if self.arrived.wait_until(&mut inner, until).timed_out() {
                break;
            }
        }
        inner.news &= !wanted;
        std::mem::take(&mut inner.orders)
    }

    pub fn has_orders(&self) -> bool {
        let inner = self.inner.lock();
        let Orders { child, rotate, end } = &inner.orders;
        child.is_some() || *rotate || *end
    }

    /// Reads on; without a `reading` of this life from the first that is not delivered.
    pub fn read(&self, reading: &mut Option<Reading>, most: usize) -> Read {
        let open = self.open.read();
        let Some(Opened { spool, life }) = &*open else { return Read::Closed };
        if reading.as_ref().is_none_or(|reading| reading.life != *life) {
            *reading = Some(Reading { cursor: spool.cursor(), life: *life });
        }
        let reading = reading.as_mut().expect("just made");
        match spool.read(&mut reading.cursor, most) {
            Ok(messages) if messages.is_empty() => Read::Nothing,
            Ok(messages) => Read::Messages(messages),
            Err(error) => {
                if error.kind() == std::io::ErrorKind::InvalidData {
                    self.unreadable.store(true, Relaxed);
                    self.around.with(|store| store.queue.order(|orders| orders.again = true));
                }
                Read::Failed(error)
            }
        }
    }

    pub fn is_unreadable(&self) -> bool {
        self.unreadable.load(Relaxed)
    }

    /// Has the store notified once there may be room.
    pub fn wait_for_room(&self) {
        self.full.store(true, Relaxed);
    }

    /// Sets whether the store is notified once nothing waits in the spool.
    pub fn set_ending(&self, ending: bool) {
        self.ending.store(ending, Relaxed);
    }

    /// Marks everything up to this place, which is `messages` more messages, as delivered. Returns
    /// false if the spool was reopened meanwhile, and they will be delivered again.
    pub fn forget(&self, reading: &Reading, place: u64, messages: u64) -> bool {
        let mut open = self.open.write();
        let Some(Opened { spool, life }) = &mut *open else { return false };
        if reading.life != *life {
            return false;
        }
        spool.forget(place);
        let (waiting, bytes) = spool.waiting();
        self.level.bytes.store(bytes, Relaxed);
        let before = self.level.messages.load(Relaxed);
        // Spooled messages are counted in blocks, so the count is exact only when nothing waits.
        let now = if waiting == 0 { 0 } else { before.saturating_sub(messages) };
        self.level.messages.store(now, Relaxed);
        let mut inner = self.inner.lock();
        inner.delivered = inner.delivered.max(place);
        self.pass(&mut inner);
        true
    }

    /// The ticket is reached once all up to this place is delivered.
    pub fn mark(&self, place: u64, ticket: u64) {
        let mut inner = self.inner.lock();
        if inner.marks.len() < MOST_MARKS {
            inner.marks.push_back((place, ticket));
        } else if let Some(last) = inner.marks.back_mut() {
            // The previous spool's are reported later than they could be.
            *last = (place, ticket);
        }
        self.pass(&mut inner);
    }

    /// Tells the queue up to which ticket all is delivered.
    fn pass(&self, inner: &mut Inner) {
        let mut reached = None;
        while let Some((place, ticket)) = inner.marks.front().copied() {
            if place > inner.delivered {
                break;
            }
            inner.marks.pop_front();
            reached = Some(ticket);
        }
        let is_past = self.ending.load(Relaxed) && self.level.messages.load(Relaxed) == 0;
        let wakes = self.full.swap(false, Relaxed) || is_past;
        self.around.with(|store| {
            if let Some(ticket) = reached {
                let workers = store.queue.deliver(ticket);
                if workers != 0 {
                    self.around.host.progressed(workers);
                }
            }
            if wakes {
                store.queue.order(|orders| orders.again = true);
            }
        });
    }
}

/// Marks that are kept while nothing is delivered.
const MOST_MARKS: usize = 4096;
