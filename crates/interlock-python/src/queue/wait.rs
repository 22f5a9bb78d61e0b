//! Waits with the GIL released; checks the queue only with the GIL held.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use interlock_core::queue::types::Time;
use interlock_core::queue::waiting::waiters::Wait;
use interlock_core::queue::{Ended, Look};
use interlock_core::sync::{Parker, Unparked};
use pyo3::prelude::*;

use crate::queue::Queue;
use crate::runtime::exit;
use crate::runtime::fork;
use crate::runtime::gil::Core;

thread_local! {
    static PARKER: (Arc<Parker>, Waker) = {
        let parker = Parker::new();
        let waker = waker_of(&parker);
        (parker, waker)
    };
    /// True while this thread puts its wakes off; and those it has put off.
    static LATE: Cell<bool> = const { Cell::new(false) };
    static PUT_OFF: RefCell<Vec<Arc<Parker>>> = const { RefCell::new(Vec::new()) };
    /// The fork after which it was looked whether this is the main thread, and whether it is.
    static MAIN: Cell<Option<(u32, bool)>> = const { Cell::new(None) };
}

/// Wakes a thread: at once, or when the waking thread next gives up the GIL.
struct Sleeper(Arc<Parker>);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        // A thread at its end has no thread-local storage any more, and puts nothing off.
        if LATE.try_with(Cell::get).unwrap_or(false) {
            PUT_OFF.with_borrow_mut(|put_off| put_off.push(self.0.clone()));
        } else {
            self.0.unpark();
        }
    }
}

pub fn waker_of(parker: &Arc<Parker>) -> Waker {
    Waker::from(Arc::new(Sleeper(parker.clone())))
}

/// While it lives, wakes by this thread are postponed. A woken thread first needs the GIL: a thread
/// that is about to give it up wakes them then, and they need not sleep a second time for it. It
/// must not live while code of Python may run, which could wait for a thread that was to be woken.
pub struct Late;

impl Late {
    pub fn begin() -> Late {
        LATE.set(true);
        Late
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        LATE.set(false);
    }
}

/// While it lives, no wake is put off, and those that were are made up for: code of Python runs, which a
/// wake within the call of a thread that is `Late` may do.
pub struct AtOnce {
    late: bool,
}

impl AtOnce {
    pub fn begin() -> AtOnce {
        let late = LATE.replace(false);
        catch_up();
        AtOnce { late }
    }
}

impl Drop for AtOnce {
    fn drop(&mut self) {
        LATE.set(self.late);
    }
}

/// Wakes those whose wake was put off.
#[inline]
pub fn catch_up() {
    if PUT_OFF.with_borrow(|put_off| !put_off.is_empty()) {
        wake_all();
    }
}

fn wake_all() {
    let put_off = PUT_OFF.with_borrow_mut(std::mem::take);
    put_off.iter().for_each(|parker| parker.unpark());
}

/// A signal that comes between a look and the sleep does not end the sleep. Only the main thread runs
/// Python's handlers, so that only it looks again this often. (No wake of ours depends on it.)
const MAIN_SLICE: Duration = Duration::from_millis(250);

/// Looks and sleeps until there is something, the wait ends, or a signal handler raised.
pub fn until<T>(
    py: Python<'_>,
    queue: &Queue,
    wait: &mut Wait,
    mut look: impl FnMut(&mut Wait, &Waker) -> Look<T>,
) -> PyResult<Result<T, Ended>> {
    // Nested waits (a signal handler that gets from a queue) may take each other's wakes, so that each
    // wait looks again after it, and a parker of its own is made only where one is in use.
    let (parker, waker) = PARKER.with(|(parker, waker)| (parker.clone(), waker.clone()));
    let nested = Arc::strong_count(&parker) > 3;
    let (parker, waker) = if nested {
        let parker = Parker::new();
        let waker = waker_of(&parker);
        (parker, waker)
    } else {
        (parker, waker)
    };
    let main = is_main_thread();
    loop {
        match look(wait, &waker) {
            Look::Found(found) => return Ok(Ok(found)),
            Look::Ended(ended) => return Ok(Err(ended)),
            Look::Sleep(until) => {
                let slept = sleep(py, &parker, queue.core.time_left(until), main);
                // A signal handler may have forked: in the child the queue starts empty.
                queue.check_fork(py);
                if let Err(error) = slept {
                    queue.core.give_up(wait);
                    return Err(error);
                }
            }
        }
    }
}

/// Sleeps once; an error is one that a signal handler raised.
pub fn sleep(
    py: Python<'_>,
    parker: &Parker,
    left: Option<Duration>,
    main: bool,
) -> PyResult<Unparked> {
    let left = if main { Some(left.map_or(MAIN_SLICE, |left| left.min(MAIN_SLICE))) } else { left };
    exit::prepare();
    let unparked = py.detach(|| {
        catch_up();
        parker.park(left)
    });
    if unparked != Unparked::Woken {
        py.check_signals()?;
    }
    Ok(unparked)
}

#[cfg(target_os = "linux")]
pub fn is_main_thread() -> bool {
    let forks = fork::generation();
    match MAIN.get() {
        Some((at, main)) if at == forks => main,
        _ => {
            // SAFETY: both calls only read.
            let main = unsafe { libc::getpid() == libc::gettid() };
            MAIN.set(Some((forks, main)));
            main
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub fn is_main_thread() -> bool {
    // The platform's parker looks for signals by itself.
    true
}

/// Returns the caller, as the scheduler keeps it and `explain` shows it: the thread's identity.
#[inline]
pub fn consumer() -> u64 {
    // A thread that gets a message will drop its payload, which may run Python code.
    exit::prepare();
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::pthread_self() as u64 }
}

/// Returns the time at which a wait that starts now ends, `Time::MAX` for never.
pub fn deadline(queue: &Core, timeout: Option<u64>) -> Time {
    timeout.map_or(Time::MAX, |timeout| queue.clock().now().saturating_add(timeout))
}
