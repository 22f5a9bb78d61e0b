//! Between workers: a queue, a flag, and an eventfd behind them.
//!
//! Whoever sets the flag writes the wake-up; whoever finds it set writes nothing: the owner has
//! not looked yet, and will. So a busy worker is woken once per look, not once per message.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;

use super::chunk::Chunk;
use crate::registry::Card;

pub enum Mail {
    Chunk(Arc<Chunk>),
    /// A new connection of this worker.
    Accepted(OwnedFd, Peer),
    /// Look at this connection's card: it was killed.
    Kill(Arc<Card>),
    /// Say that this worker is alive.
    Beat,
    /// Answer what has arrived, then take no more.
    Drain,
    /// All workers have: close each connection that is owed nothing.
    Finish,
    /// Close the rest.
    Stop,
}

/// Who is at the other end.
#[derive(Clone, Debug)]
pub struct Peer {
    pub address: String,
    pub local: String,
    pub is_tcp: bool,
}

impl Peer {
    /// The address without its port.
    pub fn host(&self) -> &str {
        self.address.rsplit_once(':').map_or(&self.address, |(host, _)| host)
    }
}

pub struct Mailbox {
    mail: Mutex<Vec<Mail>>,
    /// Chunk bytes not yet taken.
    pub waiting: AtomicUsize,
    full: AtomicBool,
    event: OwnedFd,
}

impl Mailbox {
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the result is checked and owned by nobody else.
        let event = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        let (mail, waiting, full) = Default::default();
        Ok(Mailbox { mail, waiting, full, event })
    }

    /// True: it is the caller's to wake the owner.
    #[must_use]
    pub fn put(&self, mail: Mail) -> bool {
        if let Mail::Chunk(chunk) = &mail {
            self.waiting.fetch_add(chunk.bytes(false).len(), Ordering::Relaxed);
        }
        self.mail.lock().push(mail);
        // Release: who sees the flag also finds the mail.
        !self.full.swap(true, Ordering::AcqRel)
    }

    pub fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight valid bytes. The counter cannot overflow: one write per look of the owner.
        unsafe { libc::write(self.event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Whether there may be mail.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    /// The owner's: all that is there. Empty: there is nothing until the flag is set again.
    pub fn take(&self) -> Vec<Mail> {
        // The flag first: mail put behind the taking sets it anew and is not overlooked.
        if !self.full.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        let mail = std::mem::take(&mut *self.mail.lock());
        let bytes = mail.iter().map(|mail| match mail {
            Mail::Chunk(chunk) => chunk.bytes(false).len(),
            _ => 0,
        });
        self.waiting.fetch_sub(bytes.sum(), Ordering::Relaxed);
        mail
    }

    pub fn event(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// The owner's, once its eventfd was found readable.
    pub fn silence(&self) {
        let mut count = [0u8; 8];
        // SAFETY: eight bytes of our own to write to.
        unsafe { libc::read(self.event.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}
