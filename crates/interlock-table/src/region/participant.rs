//! Participants that threads are: a place for its intents and scratch rows, from its first write to its
//! end.
//!
//! A forked child is another participant, for it has another life; a thread gives its number back
//! when it ends, or when the table is closed. The first process that finds a killed one's numbers
//! frees them.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, TryLockError, Weak};
use std::time::Duration;

use crate::error::Error;
use crate::layout::geometry::{control, IMAGE, INTENTS, THREAD, WHO};
use crate::memory::process;
use crate::memory::Memory;
use crate::protocol::writer::Writer;
use crate::region::{Region, Wanted};
use crate::sync::Ordering::{AcqRel, Acquire, Release};

/// A table that this process has open.
pub struct Shared {
    pub region: Region,
    /// Tells it from all others that this process has or had open.
    serial: u64,
    /// Numbers that its threads have, each with the life in which it was taken.
    taken: Mutex<Vec<Claim>>,
    /// The table that has taken this one's place: an `Arc` of it, as soon as somebody has followed.
    next: AtomicPtr<Shared>,
    own: Weak<Shared>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Claim {
    life: u64,
    id: u64,
}

/// The number that a thread has in one table.
struct Mine {
    serial: u64,
    claim: Claim,
    shared: Weak<Shared>,
}

thread_local! {
    static MINE: RefCell<Vec<Mine>> = const { RefCell::new(Vec::new()) };
    /// Serial and number of the table that this thread wrote to last: most write to one. It needs no
    /// destructor, so to read it is a load.
    static LAST: Cell<(u64, Claim)> = const { Cell::new(NO_TABLE) };
}

/// No table has this serial.
const NO_TABLE: (u64, Claim) = (0, Claim { life: 0, id: 0 });

impl Shared {
    pub fn new(region: Region) -> Arc<Shared> {
        static SERIAL: AtomicU64 = AtomicU64::new(1);
        let serial = SERIAL.fetch_add(1, Relaxed);
        let (taken, next) = (Mutex::default(), AtomicPtr::default());
        Arc::new_cyclic(|own| Shared { region, serial, taken, next, own: own.clone() })
    }

    /// The table that has replaced this one; opens it on first use. Errors: it cannot be opened, or
    /// its name was removed since.
    #[cold]
    pub fn next(&self) -> Result<&Shared, Error> {
        if let Some(next) = self.known_next() {
            return Ok(next);
        }
        let Region { header, path, mode, .. } = &self.region;
        let text = header.text();
        let next = Region::attach(path, &Wanted { text: Some(&text), mode: *mode })?;
        match next.filter(|next| next.header.secret == header.secret) {
            Some(next) => Ok(self.follow(Shared::new(next))),
            // Another thread may have followed, and this one looked at what it had released.
            None => self.known_next().ok_or_else(|| Error::NoTable { path: path.clone() }),
        }
    }

    fn take_next(&mut self) -> Option<Arc<Shared>> {
        let next = std::mem::take(self.next.get_mut());
        // SAFETY: it was made of an `Arc`, and is taken once.
        (!next.is_null()).then(|| unsafe { Arc::from_raw(next) })
    }

    fn known_next(&self) -> Option<&Shared> {
        // SAFETY: it is an `Arc` of this one's, until the drop, and never changes.
        unsafe { self.next.load(Acquire).as_ref() }
    }

    /// Has all who have this one follow to the next, and gives this one's memory back. Returns the one that
    /// they follow to: another may have been first.
    pub fn follow(&self, next: Arc<Shared>) -> &Shared {
        let next = Arc::into_raw(next).cast_mut();
        let set = self.next.compare_exchange(std::ptr::null_mut(), next, AcqRel, Acquire);
        match set {
            // Behind the exchange: who finds nothing here finds where to go.
            Ok(_) => self.region.give_back(),
            // SAFETY: just made of an `Arc`, and not shared.
            Err(_) => drop(unsafe { Arc::from_raw(next) }),
        }
        self.known_next().expect("set just now, or before")
    }

    /// The number of this thread. Errors: all are taken by the living.
    #[inline]
    pub fn claim(&self) -> Result<u64, Error> {
        let life = process::life();
        match LAST.get() {
            (serial, claim) if serial == self.serial && claim.life == life => Ok(claim.id),
            _ => self.claim_anew(life),
        }
    }

    #[cold]
    fn claim_anew(&self, life: u64) -> Result<u64, Error> {
        let known = MINE.try_with(|mine| {
            let mine = mine.borrow();
            let same = |mine: &&Mine| mine.serial == self.serial && mine.claim.life == life;
            mine.iter().find(same).map(|mine| mine.claim.id)
        });
        let id = match known {
            Ok(Some(id)) => id,
            Ok(None) => self.join(life)?,
            Err(_) => return Err(Error::Invalid("this thread has ended".to_owned())),
        };
        LAST.set((self.serial, Claim { life, id }));
        Ok(id)
    }

    #[cold]
    fn join(&self, life: u64) -> Result<u64, Error> {
        let memory = &self.region.memory;
        let places = memory.geometry.participants;
        let free = || (1..=places).find(|id| memory.sit(*id));
        let id = free().or_else(|| {
            self.sweep(None);
            free()
        });
        let claim = Claim { life, id: id.ok_or(Error::TooManyWriters { places })? };
        self.with_taken(|taken| taken.push(claim));
        let mine = Mine { serial: self.serial, claim, shared: self.own.clone() };
        MINE.with(|all| {
            let mut all = all.borrow_mut();
            all.retain(|mine| mine.claim.life == life && mine.is_of_use());
            all.push(mine);
        });
        Ok(claim.id)
    }

    /// This thread as a writer. Errors: as [`claim`](Shared::claim).
    #[inline]
    pub fn writer(&self, patience: Duration) -> Result<Writer<'_>, Error> {
        Ok(Writer::new(&self.region.memory, self.claim()?, patience))
    }

    /// Finishes what the dead have left, and gives their numbers back. Without a number of one's own a
    /// dead one whose row is half copied is left for others.
    pub fn sweep(&self, writer: Option<Writer>) -> bool {
        let memory = &self.region.memory;
        let mut left = false;
        for id in 1..=memory.geometry.participants {
            let who = memory.who(id);
            if process::pid(who) != 0 && memory.is_dead(id, who) {
                left |= match &writer {
                    Some(writer) => writer.recover(id, who).is_err(),
                    None => !memory.retire(id, who),
                };
            }
        }
        left
    }

    fn leave(&self, claim: Claim) {
        self.with_taken(|taken| taken.retain(|known| *known != claim));
        let memory = &self.region.memory;
        memory.vacate(claim.id, memory.who(claim.id));
    }

    /// In a forked child the lock may be held by a thread of the parent, for ever: then a number is
    /// given back when its thread ends, or by the first process that finds this one dead.
    fn with_taken(&self, change: impl FnOnce(&mut Vec<Claim>)) {
        for _ in 0..10_000 {
            match self.taken.try_lock() {
                Ok(mut taken) => return change(&mut taken),
                Err(TryLockError::Poisoned(taken)) => return change(&mut taken.into_inner()),
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let life = process::life();
        // Without the lock, which in a forked child may be held for ever.
        let taken = std::mem::take(self.taken.get_mut().unwrap_or_else(PoisonError::into_inner));
        // Numbers taken by the parent of a fork belong to the parent.
        for Claim { id, .. } in taken.into_iter().filter(|claim| claim.life == life) {
            self.region.memory.vacate(id, self.region.memory.who(id));
        }
        // One behind the other: each dropped by the one before would take the stack of thousands.
        let mut next = self.take_next();
        while let Some(mut shared) = next.and_then(Arc::into_inner) {
            next = shared.take_next();
        }
    }
}

impl Mine {
    /// Returns whether there is something to write to with it.
    fn is_of_use(&self) -> bool {
        self.shared.upgrade().is_some_and(|shared| shared.region.memory.is_current())
    }
}

impl Drop for Mine {
    fn drop(&mut self) {
        // The number may be another thread's from now on.
        LAST.set(NO_TABLE);
        if self.claim.life == process::life() {
            if let Some(shared) = self.shared.upgrade() {
                shared.leave(self.claim);
            }
        }
    }
}

impl Memory {
    /// Takes a number if it is vacant.
    fn sit(&self, id: u64) -> bool {
        let Some(at) = self.geometry.participant(id) else { return false };
        let seen = self.who(id);
        if process::pid(seen) != 0 {
            return false;
        }
        // Acquire: the locks of who had it before are seen to be free.
        let who = process::this(seen);
        if self.word(at + WHO).compare_exchange(seen, who, AcqRel, Relaxed).is_err() {
            return false;
        }
        self.control(control::USED).fetch_max(id, AcqRel);
        // Behind `who`, with whose generation it goes. Release: who sees it sees whose it is.
        self.word(at + IMAGE).store(process::image(who), Release);
        // Only to be shown.
        // SAFETY: takes no pointer.
        self.word(at + THREAD).store(unsafe { libc::gettid() } as u64, Relaxed);
        (0..3).for_each(|n| self.word(at + INTENTS + n).store(0, Release));
        true
    }
}
