//! The system calls: connections, epoll, a timer, the core to stay on.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A connection that does not wait and does not delay.
///
/// Nagle would hold the second of two small sends back until the first is acknowledged, and an
/// acknowledgement may be put off for 40 ms: a client with it measures its own waiting.
pub fn dial(port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// A connection whose kernel takes in little ahead of the reader.
pub fn dial_narrow(port: u16, receive_buffer: i32) -> io::Result<TcpStream> {
    // SAFETY: no pointers; the descriptor is checked and has no other owner.
    let stream = unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        TcpStream::from_raw_fd(fd)
    };
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(Ipv4Addr::LOCALHOST).to_be() },
        sin_zero: [0; 8],
    };
    // SAFETY: both pointers are to values that live through the calls, with their sizes.
    let result = unsafe {
        let size = size_of_val(&receive_buffer) as libc::socklen_t;
        let value = (&raw const receive_buffer).cast();
        // Before connecting: the window is agreed on there.
        libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, value, size);
        let size = size_of_val(&address) as libc::socklen_t;
        libc::connect(stream.as_raw_fd(), (&raw const address).cast(), size)
    };
    checked(result as isize)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// `None`: nothing there now. The end of the connection is an error, for no server here may close.
pub fn receive(stream: &TcpStream, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    // SAFETY: the kernel writes at most the buffer's length.
    let count =
        unsafe { libc::recv(stream.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    match checked(count) {
        Ok(0) => Err(io::Error::new(ErrorKind::UnexpectedEof, "the server closed a connection")),
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sends what the kernel takes. Gives the number of those bytes.
pub fn send(stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: reads within the slice.
    let count = unsafe {
        let bytes = (bytes.as_ptr().cast(), bytes.len());
        libc::send(stream.as_raw_fd(), bytes.0, bytes.1, libc::MSG_NOSIGNAL)
    };
    match checked(count) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        result => result,
    }
}

/// Sends all of it, and waits for that; not for what is measured.
pub fn send_all(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = send(stream, bytes)?;
        bytes = &bytes[sent..];
        if !bytes.is_empty() {
            wait_for(stream, libc::POLLOUT)?;
        }
    }
    Ok(())
}

/// Waits for exactly these bytes; not for what is measured.
pub fn expect(stream: &TcpStream, expected: &[u8]) -> io::Result<()> {
    let mut got = vec![0; expected.len()];
    let mut filled = 0;
    while filled < got.len() {
        match receive(stream, &mut got[filled..])? {
            Some(count) => filled += count,
            None => wait_for(stream, libc::POLLIN)?,
        }
        if got[..filled] != expected[..filled] {
            let text = String::from_utf8_lossy(&got[..filled]).into_owned();
            return Err(io::Error::other(format!("the server said {text:?}")));
        }
    }
    Ok(())
}

fn wait_for(stream: &TcpStream, events: i16) -> io::Result<()> {
    let mut poll = libc::pollfd { fd: stream.as_raw_fd(), events, revents: 0 };
    // SAFETY: one valid pollfd.
    match unsafe { libc::poll(&mut poll, 1, PATIENCE) } {
        0 => Err(io::Error::new(ErrorKind::TimedOut, "the server does not answer")),
        result => checked(result as isize).map(drop),
    }
}

pub struct Poll {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Poll {
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the result is checked and has no other owner.
        let epoll = unsafe {
            let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            checked(fd as isize)?;
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Poll { epoll, events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS] })
    }

    /// Level-triggered, for reading.
    pub fn add(&self, fd: RawFd, token: usize) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: token as u64 };
        // SAFETY: `event` lives through the call.
        let result =
            unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) };
        checked(result as isize).map(drop)
    }

    /// Waits up to this number of ms. Gives how many events there are.
    pub fn wait(&mut self, timeout: i32) -> io::Result<usize> {
        // SAFETY: the kernel writes at most as many events as the vector has places.
        let count = unsafe {
            let events = self.events.as_mut_ptr();
            libc::epoll_wait(self.epoll.as_raw_fd(), events, EVENTS as i32, timeout)
        };
        match checked(count as isize) {
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
            result => result,
        }
    }

    pub fn token(&self, index: usize) -> usize {
        self.events[index].u64 as usize
    }
}

/// Readable at a time of the monotonic clock.
pub struct Timer(OwnedFd);

impl Timer {
    pub fn new() -> io::Result<Self> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: no pointers; the result is checked and has no other owner.
        unsafe {
            let fd = libc::timerfd_create(libc::CLOCK_MONOTONIC, flags);
            checked(fd as isize)?;
            Ok(Timer(OwnedFd::from_raw_fd(fd)))
        }
    }

    /// In ns of `now`; what was set before is forgotten.
    pub fn set(&self, at: u64) -> io::Result<()> {
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let (tv_sec, tv_nsec) = ((at / 1_000_000_000) as _, (at % 1_000_000_000) as _);
        let value = libc::timespec { tv_sec, tv_nsec };
        let when = libc::itimerspec { it_interval: zero, it_value: value };
        // SAFETY: `when` lives through the call; the earlier setting is not asked for.
        let result = unsafe {
            let before = std::ptr::null_mut();
            libc::timerfd_settime(self.0.as_raw_fd(), libc::TFD_TIMER_ABSTIME, &when, before)
        };
        checked(result as isize).map(drop)
    }

    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// ns of the monotonic clock.
pub fn now() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// ns of CPU that this thread has used.
pub fn used() -> u64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock(which: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives through the call; both clocks exist on every Linux.
    unsafe { libc::clock_gettime(which, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Moves this thread to a core, and keeps it there.
pub fn stay_on(core: usize) -> io::Result<()> {
    if core >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::other(format!("no core {core}")));
    }
    // SAFETY: all zeros is an empty set; it has room for `core` and lives through the call.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set)
    };
    checked(result as isize).map(drop)
}

fn checked(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

const EVENTS: usize = 512;
/// ms until a server that says nothing is given up.
const PATIENCE: i32 = 10_000;
