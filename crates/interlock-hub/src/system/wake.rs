//! A descriptor that wakes a thread which sleeps in epoll: readable after `wake`.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

pub struct WakeUp {
    event: OwnedFd,
}

impl WakeUp {
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the result is checked and has no other owner.
        let event = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        Ok(WakeUp { event })
    }

    pub fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight valid bytes. The counter cannot overflow, because the owner resets it each time it wakes.
        unsafe { libc::write(self.event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Resets it: called by its owner; it is not readable until the next `wake`.
    pub fn silence(&self) {
        let mut count = [0u8; 8];
        // SAFETY: eight bytes of our own to write to.
        unsafe { libc::read(self.event.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }

    pub fn descriptor(&self) -> RawFd {
        self.event.as_raw_fd()
    }
}
