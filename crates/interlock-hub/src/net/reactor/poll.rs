//! The sockets of a worker that have something for it: epoll.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

pub struct Poll {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
}

#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub token: u64,
    pub readable: bool,
    /// An error, or the end of both directions: told whatever is asked for. Or the peer's farewell.
    pub ended: bool,
    pub writable: bool,
}

/// The events of a connection to watch for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wants {
    pub read: bool,
    pub write: bool,
    /// The peer has stopped sending; what it has sent may still be unread.
    pub farewell: bool,
}

impl Wants {
    /// The interests of a new connection.
    pub const FIRST: Wants = Wants { read: true, write: false, farewell: false };
}

impl Poll {
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the result is checked and has no other owner.
        let epoll = unsafe {
            let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Poll { epoll, events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS] })
    }

    pub fn add(&self, fd: RawFd, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, libc::EPOLLIN as u32)
    }

    /// Level-triggered: what is not asked for is not told again and again.
    pub fn change(&self, fd: RawFd, token: u64, wants: Wants) -> io::Result<()> {
        let Wants { read, write, farewell } = wants;
        let asked = [(read, libc::EPOLLIN), (write, libc::EPOLLOUT), (farewell, libc::EPOLLRDHUP)];
        let flags = asked.iter().filter(|(wanted, _)| *wanted).map(|(_, flag)| *flag as u32);
        self.control(libc::EPOLL_CTL_MOD, fd, token, flags.fold(0, |all, flag| all | flag))
    }

    /// Waits up to `most` ms, or until an event. Returns the number of events.
    pub fn wait(&mut self, most: Option<u32>) -> usize {
        let timeout = most.map_or(-1, |most| i32::try_from(most).unwrap_or(i32::MAX));
        // SAFETY: the kernel writes at most as many events as the vector has places.
        let count = unsafe {
            let events = self.events.as_mut_ptr();
            libc::epoll_wait(self.epoll.as_raw_fd(), events, EVENTS as i32, timeout)
        };
        // Interrupted by a signal: as good as nothing happened.
        count.max(0) as usize
    }

    pub fn event(&self, index: usize) -> Event {
        let libc::epoll_event { events, u64: token } = self.events[index];
        let has = |flags: i32| events & flags as u32 != 0;
        // An error is found out by reading.
        let ended = has(libc::EPOLLHUP | libc::EPOLLERR | libc::EPOLLRDHUP);
        let readable = has(libc::EPOLLIN) || ended;
        Event { token, readable, ended, writable: has(libc::EPOLLOUT) }
    }

    fn control(&self, what: i32, fd: RawFd, token: u64, events: u32) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: token };
        // SAFETY: `event` lives through the call.
        let result = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), what, fd, &mut event) };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }
}

/// Events taken at once.
const EVENTS: usize = 256;
