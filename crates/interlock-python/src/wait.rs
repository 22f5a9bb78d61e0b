//! Waiting with the GIL released; looking, always, with it held.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use interlock_core::queue::types::Time;
use interlock_core::queue::waiters::Wait;
use interlock_core::queue::{Ended, Look};
use interlock_core::sync::{Parker, Unparked};
use pyo3::prelude::*;

use crate::exit;
use crate::gil::Core;

thread_local! {
    static PARKER: (Arc<Parker>, Waker) = {
        let parker = Parker::new();
        let waker = parker.waker();
        (parker, waker)
    };
}

/// A signal that comes between a look and the sleep does not end the sleep. Only the main thread runs
/// Python's handlers, so that only it looks again this often. (No wake of ours depends on it.)
const MAIN_SLICE: Duration = Duration::from_millis(250);

/// Looks and sleeps until there is something, the wait ends, or a signal handler raised.
pub fn until<T>(
    py: Python<'_>,
    queue: &Core,
    wait: &mut Wait,
    mut look: impl FnMut(&mut Wait, &Waker) -> Look<T>,
) -> PyResult<Result<T, Ended>> {
    // Nested waits (a signal handler that gets from a queue) may take each other's wakes, so that each
    // wait looks again after it, and a parker of its own is made only where one is in use.
    let (parker, waker) = PARKER.with(|(parker, waker)| (parker.clone(), waker.clone()));
    let nested = Arc::strong_count(&parker) > 4;
    let (parker, waker) = if nested {
        let parker = Parker::new();
        let waker = parker.waker();
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
                if let Err(error) = sleep(py, &parker, queue.time_left(until), main) {
                    queue.give_up(wait);
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
    let unparked = py.detach(|| parker.park(left));
    if unparked != Unparked::Woken {
        py.check_signals()?;
    }
    Ok(unparked)
}

#[cfg(target_os = "linux")]
pub fn is_main_thread() -> bool {
    // SAFETY: both calls only read.
    unsafe { libc::getpid() == libc::gettid() }
}

#[cfg(not(target_os = "linux"))]
pub fn is_main_thread() -> bool {
    // The platform's parker looks for signals by itself.
    true
}

/// Who calls, as the scheduler keeps it and `explain` shows it: the thread's identity.
#[inline]
pub fn consumer() -> u64 {
    // Who takes a message will drop its payload, and that may run Python code.
    exit::prepare();
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::pthread_self() as u64 }
}

/// When a wait that starts now ends, `Time::MAX` for never.
pub fn deadline(queue: &Core, timeout: Option<u64>) -> Time {
    timeout.map_or(Time::MAX, |timeout| queue.clock().now().saturating_add(timeout))
}
