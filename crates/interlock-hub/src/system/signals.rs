//! Signals are for the thread that started the hub: its own threads are born with all of them blocked.

/// While it lives, threads are born with all signals blocked.
pub struct BlockedSignals {
    before: libc::sigset_t,
}

impl BlockedSignals {
    pub fn block() -> Self {
        // SAFETY: both sets are ours; a zeroed set is a valid one.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            BlockedSignals { before }
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set was filled by `block`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}
