//! The few system calls of a worker.

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

/// The events of a connection that are to be told.
#[derive(Clone, Copy, Debug)]
pub struct Wants {
    pub read: bool,
    pub write: bool,
    /// The peer sends no more, though what it has sent may not be read yet.
    pub farewell: bool,
}

impl Poll {
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the result is checked and owned by nobody else.
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

    /// Waits up to so many ms, or for ever if negative. Gives how many events there are.
    pub fn wait(&mut self, timeout: i32) -> usize {
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

/// `None`: nothing there now. `Some(0)`: the other end is done.
pub fn receive(fd: RawFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    // SAFETY: the kernel writes at most the buffer's length.
    let count = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    outcome(count)
}

/// `None`: no room now.
pub fn send(fd: RawFd, parts: &[&[u8]]) -> io::Result<Option<usize>> {
    if let [one] = parts {
        // SAFETY: reads within the slice.
        let count = unsafe { libc::send(fd, one.as_ptr().cast(), one.len(), libc::MSG_NOSIGNAL) };
        return outcome(count);
    }
    let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PARTS];
    for (vector, part) in vectors.iter_mut().zip(parts) {
        *vector = libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() };
    }
    // SAFETY: all zeros is a valid msghdr; the vectors live through the call and are only read.
    let count = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = vectors.as_mut_ptr();
        message.msg_iovlen = parts.len().min(PARTS) as _;
        libc::sendmsg(fd, &message, libc::MSG_NOSIGNAL)
    };
    outcome(count)
}

/// Lets more connections wait to be taken than the standard library does: a crowd that comes back at
/// once after a restart must not be turned away.
pub fn listen(fd: RawFd) -> io::Result<()> {
    // SAFETY: no pointers. On a socket that listens already it only changes the number.
    if unsafe { libc::listen(fd, BACKLOG) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Replies are small and wanted now.
pub fn no_delay(fd: RawFd) {
    let one: libc::c_int = 1;
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: reads one c_int. A socket that cannot is slower, no more.
    unsafe {
        let value = (&raw const one).cast();
        libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, value, size);
    }
}

fn outcome(count: isize) -> io::Result<Option<usize>> {
    if count >= 0 {
        return Ok(Some(count as usize));
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
        _ => Err(error),
    }
}

/// As much as the kernel allows (net.core.somaxconn).
const BACKLOG: libc::c_int = 65535;
/// Events taken at once.
const EVENTS: usize = 256;
/// Pieces of one send.
pub const PARTS: usize = 64;

/// Returns whether a read would give something, its end included.
pub fn has_input(socket: &OwnedFd) -> bool {
    let mut byte = 0u8;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: one byte of our own to write to.
    unsafe { libc::recv(socket.as_raw_fd(), (&raw mut byte).cast(), 1, flags) >= 0 }
}
