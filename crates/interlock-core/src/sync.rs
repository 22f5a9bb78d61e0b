//! Lock and parker, from the platform or, under `--cfg shuttle`, from the model checker.
//!
//! The parker is our own, for two reasons: a signal must end a wait at once (so that Ctrl-C works in
//! the thread that runs the signal handlers), which the platform's own hides; and a wait must be able
//! to end at a time.

use std::sync::Arc;
use std::task::{Wake, Waker};

/// Asks the allocator to return what a peak has left behind: glibc keeps freed blocks of the size of our
/// segments (61 MB of 64 after a million messages), where others return them by themselves. With gigabytes
/// that takes a quarter of a second, so a thread of its own does it, one at a time.
#[cfg(all(not(shuttle), target_os = "linux", target_env = "gnu"))]
pub fn give_memory_back() {
    use std::process::id;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    // The process in which one is at it: a child of `fork` has no such thread.
    static BY: AtomicU32 = AtomicU32::new(0);
    // Relaxed: it guards nothing; who comes meanwhile has freed what this one, or the next, finds.
    if BY.swap(id(), Relaxed) == id() {
        return;
    }
    let trim = || {
        #[cfg(test)]
        trimmed::note();
        // SAFETY: takes no pointer; may be called by any thread at any time.
        unsafe {
            libc::malloc_trim(0);
        }
        BY.store(0, Relaxed);
    };
    // If no thread can be created, memory is returned after the next peak.
    if std::thread::Builder::new().name("interlock-trim".into()).spawn(trim).is_err() {
        BY.store(0, Relaxed);
    }
}

#[cfg(not(all(not(shuttle), target_os = "linux", target_env = "gnu")))]
pub fn give_memory_back() {}

/// The thread that gave memory back, for a test.
#[cfg(all(test, not(shuttle), target_os = "linux", target_env = "gnu"))]
mod trimmed {
    use std::sync::mpsc::{channel, Sender};
    use std::sync::Mutex;
    use std::thread::{current, ThreadId};

    use crate::queue::{scheduler::Put, types::Options, Queue};

    static TELL: Mutex<Option<Sender<ThreadId>>> = Mutex::new(None);

    pub fn note() {
        if let Some(told) = &*TELL.lock().unwrap() {
            told.send(current().id()).expect("the test waits for it");
        }
    }

    /// An ack that ends a flood took a quarter of a second with the interpreter's lock held.
    #[test]
    fn no_caller_returns_memory_to_the_system_itself() {
        let (told, hear) = channel();
        *TELL.lock().unwrap() = Some(told);
        let queue = Queue::new(Options::default());
        (0..1 << 16).for_each(|n| assert!(queue.put(&Put::default(), n).is_ok()));
        while queue.call(|scheduler, _| scheduler.unsettled()) > 0 {
            let (grant, _) = queue.get(|_, _| ()).expect("some are left");
            queue.ack(grant.handle).expect("the lease stands");
        }
        assert_ne!(hear.recv().expect("the flood is gone"), current().id());
        *TELL.lock().unwrap() = None;
    }
}

/// The trait that a lock of one's own has to implement, to be a queue's.
#[cfg(not(shuttle))]
pub use parking_lot::lock_api::{GuardNoSend, RawMutex as RawLock};

/// The lock between threads.
#[cfg(not(shuttle))]
pub use parking_lot::RawMutex as ThreadLock;

#[cfg(not(shuttle))]
pub type Mutex<T, L = ThreadLock> = parking_lot::lock_api::Mutex<L, T>;

#[cfg(shuttle)]
pub use checked::{Mutex, RawLock, ThreadLock};

/// The reason why a parked thread continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unparked {
    Woken,
    /// A signal came, or the wait ended without a reason: look whether there is something to do.
    Interrupted,
    TimedOut,
}

/// A place where one thread sleeps until another wakes it. A wake before the sleep is kept, once.
#[derive(Debug, Default)]
pub struct Parker {
    inner: imp::Inner,
}

impl Parker {
    pub fn new() -> Arc<Self> {
        Arc::new(Parker::default())
    }

    /// Sleeps until woken, or for `timeout`.
    pub fn park(&self, timeout: Option<std::time::Duration>) -> Unparked {
        self.inner.park(timeout)
    }

    pub fn unpark(&self) {
        self.inner.unpark();
    }

    pub fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(self.clone())
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.unpark();
    }
}

#[cfg(all(target_os = "linux", not(shuttle)))]
mod imp {
    use crate::sync::Unparked;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    const EMPTY: u32 = 0;
    const WOKEN: u32 = 1;
    const PARKED: u32 = u32::MAX;

    #[derive(Debug, Default)]
    pub struct Inner {
        state: AtomicU32,
    }

    impl Inner {
        pub fn park(&self, timeout: Option<Duration>) -> Unparked {
            // Acquire: what the waker wrote before its wake is seen. WOKEN - 1 = EMPTY, EMPTY - 1 = PARKED.
            if self.state.fetch_sub(1, Ordering::Acquire) == WOKEN {
                return Unparked::Woken;
            }
            let spec = timeout.map(|timeout| libc::timespec {
                tv_sec: timeout.as_secs().min(i32::MAX as u64) as libc::time_t,
                tv_nsec: timeout.subsec_nanos() as _,
            });
            let spec = spec.as_ref().map_or(std::ptr::null(), |spec| spec as *const libc::timespec);
            // SAFETY: the futex word outlives the call, and `spec` is null or a valid relative time.
            let failed = unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    self.state.as_ptr(),
                    libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                    PARKED,
                    spec,
                ) != 0
            };
            let timed_out =
                failed && std::io::Error::last_os_error().raw_os_error() == Some(libc::ETIMEDOUT);
            // A wake may have come between the end of the wait and here; it is not to be lost.
            match self.state.swap(EMPTY, Ordering::Acquire) {
                WOKEN => Unparked::Woken,
                _ if timed_out => Unparked::TimedOut,
                _ => Unparked::Interrupted,
            }
        }

        pub fn unpark(&self) {
            // Release: pairs with the acquire in `park`.
            if self.state.swap(WOKEN, Ordering::Release) == PARKED {
                // SAFETY: the futex word outlives the call.
                unsafe {
                    libc::syscall(
                        libc::SYS_futex,
                        self.state.as_ptr(),
                        libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                        1,
                    );
                }
            }
        }
    }
}

#[cfg(all(not(target_os = "linux"), not(shuttle)))]
mod imp {
    use crate::sync::Unparked;
    use parking_lot::{Condvar, Mutex};
    use std::time::{Duration, Instant};

    #[derive(Debug, Default)]
    pub struct Inner {
        woken: Mutex<bool>,
        condition: Condvar,
    }

    /// A condition variable does not report signals: waits end this often to look for them.
    const SLICE: Duration = Duration::from_millis(50);

    impl Inner {
        pub fn park(&self, timeout: Option<Duration>) -> Unparked {
            let mut woken = self.woken.lock();
            if !*woken {
                let slice = timeout.map_or(SLICE, |timeout| timeout.min(SLICE));
                let until = Instant::now() + slice;
                while !*woken && !self.condition.wait_until(&mut woken, until).timed_out() {}
            }
            match std::mem::take(&mut *woken) {
                true => Unparked::Woken,
                false if timeout.is_some_and(|timeout| timeout <= SLICE) => Unparked::TimedOut,
                false => Unparked::Interrupted,
            }
        }

        pub fn unpark(&self) {
            *self.woken.lock() = true;
            self.condition.notify_one();
        }
    }
}

#[cfg(shuttle)]
mod imp {
    use crate::sync::Unparked;
    use shuttle::sync::{Condvar, Mutex};
    use std::time::Duration;

    #[derive(Debug, Default)]
    pub struct Inner {
        woken: Mutex<bool>,
        condition: Condvar,
    }

    impl Inner {
        /// No time passes in the model: a wait that nobody ends is a deadlock, which it reports.
        pub fn park(&self, _timeout: Option<Duration>) -> Unparked {
            let mut woken = self.woken.lock().unwrap();
            while !*woken {
                woken = self.condition.wait(woken).unwrap();
            }
            *woken = false;
            Unparked::Woken
        }

        pub fn unpark(&self) {
            *self.woken.lock().unwrap() = true;
            self.condition.notify_one();
        }
    }
}

#[cfg(shuttle)]
mod checked {
    use std::marker::PhantomData;

    /// The model has but one lock, its own.
    pub trait RawLock {}
    #[derive(Debug)]
    pub struct ThreadLock;
    impl RawLock for ThreadLock {}

    /// The model's mutex with the signature of parking_lot's.
    #[derive(Debug)]
    pub struct Mutex<T, L = ThreadLock>(shuttle::sync::Mutex<T>, PhantomData<L>);

    impl<T, L> Mutex<T, L> {
        pub fn new(value: T) -> Self {
            Mutex(shuttle::sync::Mutex::new(value), PhantomData)
        }

        pub fn lock(&self) -> shuttle::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }
}
