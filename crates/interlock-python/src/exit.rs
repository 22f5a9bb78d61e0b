//! The end of the interpreter. A daemon thread that asks for the GIL once finalization has begun is
//! ended by CPython (before 3.14) with `pthread_exit`, whose unwinding through Rust's frames aborts
//! the process. So a thread that slept here does not ask for it at the end: it sleeps on.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use interlock_core::sync::{Parker, Unparked};
use pyo3::prelude::*;

static EXITING: AtomicBool = AtomicBool::new(false);
/// Threads that have slept, were let through, and do not hold the GIL yet.
static COMING_BACK: AtomicU32 = AtomicU32::new(0);

/// Longest wait for threads that are coming back; one of them may be stopped by a debugger.
const PATIENCE: Duration = Duration::from_secs(1);

/// Called by `atexit`: from here on only a thread that was woken for something comes back (another
/// function of `atexit` may wait for what it does), and none once finalization has begun.
#[pyfunction]
pub fn exiting(py: Python<'_>) {
    // SeqCst, here and below: either this thread sees that one coming, or that one sees the exit.
    EXITING.store(true, Ordering::SeqCst);
    let until = Instant::now() + PATIENCE;
    py.detach(|| {
        while COMING_BACK.load(Ordering::SeqCst) > 0 && Instant::now() < until {
            std::thread::yield_now();
        }
    });
}

/// Without the GIL, after a sleep: returns if the thread may ask for the GIL. `come_back` must follow.
pub fn may_come_back(parker: &Parker, mut unparked: Unparked) -> Unparked {
    loop {
        COMING_BACK.fetch_add(1, Ordering::SeqCst);
        if !EXITING.load(Ordering::SeqCst) || (unparked == Unparked::Woken && !finalizing()) {
            return unparked;
        }
        COMING_BACK.fetch_sub(1, Ordering::SeqCst);
        unparked = parker.park(None);
    }
}

/// The thread has the GIL.
pub fn came_back() {
    COMING_BACK.fetch_sub(1, Ordering::SeqCst);
}

/// In the child of a fork nobody else is coming.
pub fn forked() {
    COMING_BACK.store(0, Ordering::SeqCst);
}

/// Whether CPython has begun to finalize. Its function for that is in the stable ABI from 3.13 on and
/// had another name before, so that it is looked up.
fn finalizing() -> bool {
    static FUNCTION: OnceLock<Option<extern "C" fn() -> libc::c_int>> = OnceLock::new();
    let function = FUNCTION.get_or_init(|| {
        [c"Py_IsFinalizing", c"_Py_IsFinalizing"].into_iter().find_map(|name| {
            // SAFETY: the name is a C string; the answer is null or a function of this type.
            unsafe {
                let found = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
                std::mem::transmute::<*mut libc::c_void, Option<extern "C" fn() -> libc::c_int>>(
                    found,
                )
            }
        })
    });
    function.is_some_and(|function| function() != 0)
}
