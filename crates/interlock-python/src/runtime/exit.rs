//! The end of the interpreter. A daemon thread that asks for the GIL once finalization has begun is
//! ended by CPython with `pthread_exit`, before 3.14. Its unwinding cannot pass Rust's frames: the
//! process would abort. From 3.14 on such a thread hangs until the process ends, and so it does here.
//!
//! With glibc, `pthread_exit` runs the thread's cleanup handlers before it unwinds the frames that they
//! belong to. Ours belongs to no frame of the stack, so that it comes before the first; and if it is
//! CPython that ends, it never returns. (Elsewhere nothing is done: such a thread may abort the process
//! at its very end.)

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::sync::OnceLock;

/// `struct _pthread_cleanup_buffer` of glibc's pthread.h.
#[repr(C)]
struct Cleanup {
    routine: Option<extern "C" fn(*mut c_void)>,
    argument: *mut c_void,
    cancel_type: libc::c_int,
    previous: *mut Cleanup,
}

type Push = unsafe extern "C" fn(*mut Cleanup, extern "C" fn(*mut c_void), *mut c_void);
type IsFinalizing = unsafe extern "C" fn() -> libc::c_int;

thread_local! {
    static PREPARED: Cell<bool> = const { Cell::new(false) };
    // On the heap: glibc identifies memory outside any frame by its address, and thread-local
    // storage may be in the same block of memory as the stack.
    static CLEANUP: Box<UnsafeCell<Cleanup>> = Box::new(UnsafeCell::new(Cleanup {
        routine: None,
        argument: std::ptr::null_mut(),
        cancel_type: 0,
        previous: std::ptr::null_mut(),
    }));
}

/// To be called before this thread gives up the GIL, or calls Python code, which may do so.
#[inline]
pub fn prepare() {
    if !PREPARED.get() {
        prepare_thread();
    }
}

#[cold]
fn prepare_thread() {
    static PUSH: OnceLock<Option<Push>> = OnceLock::new();
    PREPARED.set(true);
    // SAFETY: glibc's function of this name is of this type.
    let push = PUSH.get_or_init(|| unsafe {
        std::mem::transmute::<*mut c_void, Option<Push>>(find(c"_pthread_cleanup_push"))
    });
    if let Some(push) = push {
        // SAFETY: the place lives as long as the thread may be unwound, and is used for nothing else.
        let prepare = |place: *mut Cleanup| unsafe { push(place, stay, std::ptr::null_mut()) };
        // If the thread is already ending, there is nothing to prepare.
        let _ = CLEANUP.try_with(|cleanup| prepare(cleanup.get()));
    }
}

extern "C" fn stay(_: *mut c_void) {
    // SAFETY: CPython's function, if found, is of this type and may be called without the GIL.
    if is_finalizing().is_some_and(|function| unsafe { function() } != 0) {
        loop {
            // SAFETY: only sleeps.
            unsafe { libc::pause() };
        }
    }
}

/// In the stable ABI from 3.13 on, and under another name before.
fn is_finalizing() -> Option<IsFinalizing> {
    let found = [c"Py_IsFinalizing", c"_Py_IsFinalizing"].map(find);
    let first = found.into_iter().find(|found| !found.is_null());
    // SAFETY: CPython's function of either name is of this type.
    first.map(|found| unsafe { std::mem::transmute::<*mut c_void, IsFinalizing>(found) })
}

fn find(name: &std::ffi::CStr) -> *mut c_void {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the name is a C string.
    return unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    return std::ptr::null_mut();
}
