//! A connection to an upstream. It never waits without a deadline.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::network::secure::Session;
use crate::network::settings::Settings;

pub(super) struct Stream {
    socket: Socket,
    tls: Option<Box<Session>>,
    /// Bytes that are to be sent, from `sent` on.
    pub out: Vec<u8>,
    sent: usize,
    /// Bytes that came, from `read` on.
    received: Vec<u8>,
    read: usize,
    buffer: Box<[u8]>,
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A bound of waiting.
#[derive(Clone, Copy)]
pub(super) struct Patience<'a> {
    /// Without anything happening.
    pub timeout: Duration,
    /// The stream is given up when this is set.
    pub stop: &'a AtomicBool,
}

impl Stream {
    pub fn open(settings: &Settings, patience: Patience<'_>) -> io::Result<Stream> {
        let socket = match settings.address.strip_prefix("unix:") {
            Some(path) => Socket::Unix(unix(path)?),
            None => Socket::Tcp(tcp(&settings.address, patience)?),
        };
        socket.prepare(patience.timeout)?;
        let tls = match &settings.tls {
            Some(tls) => Some(Box::new(tls.begin()?)),
            None => None,
        };
        let (out, received) = Default::default();
        let buffer = vec![0; RECEIVED].into_boxed_slice();
        let mut stream = Stream { socket, tls, out, sent: 0, received, read: 0, buffer };
        while stream.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            stream.exchange(patience)?;
        }
        Ok(stream)
    }

    /// Sends and receives what can be; waits until something could, if nothing can.
    ///
    /// # Errors
    ///
    /// If nothing could in that time, or the connection has ended.
    pub fn exchange(&mut self, patience: Patience<'_>) -> io::Result<()> {
        let began = Instant::now();
        loop {
            let sent = self.send();
            // A server that closes the connection may have sent the reason.
            if self.receive()? || sent? {
                return Ok(());
            }
            if patience.stop.load(Relaxed) {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "it is to end"));
            }
            let left = patience.timeout.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(io::Error::from(io::ErrorKind::TimedOut));
            }
            self.wait(left.min(SLICE))?;
        }
    }

    fn send(&mut self) -> io::Result<bool> {
        let mut moved = false;
        loop {
            let bytes = &self.out[self.sent..];
            let taken = match &mut self.tls {
                None if bytes.is_empty() => break,
                None => self.socket.write(bytes),
                Some(tls) if bytes.is_empty() && !tls.wants_write() => break,
                Some(tls) => tls.send(&mut self.socket, bytes),
            };
            match taken {
                Ok(0) => break,
                Ok(count) => {
                    self.sent += count;
                    moved = true;
                }
                Err(error) if is_nothing(&error) => break,
                Err(error) => return Err(error),
            }
        }
        if self.sent == self.out.len() && self.sent > 0 {
            self.out.clear();
            self.sent = 0;
            self.out.shrink_to(KEPT);
        } else if self.sent >= SENT {
            self.out.drain(..std::mem::take(&mut self.sent));
        }
        Ok(moved)
    }

    fn receive(&mut self) -> io::Result<bool> {
        if self.read > 0 {
            self.received.drain(..std::mem::take(&mut self.read));
        }
        let was_shaking = self.tls.as_ref().is_some_and(|tls| tls.is_handshaking());
        let mut moved = false;
        while self.received.len() < RECEIVED {
            let taken = match &mut self.tls {
                None => self.socket.read(&mut self.buffer),
                Some(tls) => tls.receive(&mut self.socket, &mut self.buffer),
            };
            match taken {
                Ok(0) if moved => break,
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                Ok(count) => {
                    self.received.extend_from_slice(&self.buffer[..count]);
                    moved = true;
                    if count < self.buffer.len() {
                        break;
                    }
                }
                Err(error) if is_nothing(&error) => break,
                Err(error) => return Err(error),
            }
        }
        let shaken = was_shaking && self.tls.as_ref().is_some_and(|tls| !tls.is_handshaking());
        Ok(moved || shaken)
    }

    /// Bytes that are to be sent.
    pub fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// The bytes that came and are not done with.
    pub fn received(&self) -> &[u8] {
        &self.received[self.read..]
    }

    pub fn consume(&mut self, count: usize) {
        self.read += count;
    }

    /// Returns whether the other side is there, as far as is known, and has said nothing unasked.
    pub fn is_quiet(&mut self) -> bool {
        match self.receive() {
            Ok(_) => self.received().is_empty(),
            Err(_) => false,
        }
    }

    /// Returns whether the connection is open, without reading from it.
    pub fn is_open(&self) -> bool {
        let mut byte = 0u8;
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        // SAFETY: the descriptor is open for as long as the stream is, and there is room for one byte.
        let count = unsafe { libc::recv(self.socket.fd(), (&raw mut byte).cast(), 1, flags) };
        count > 0 || (count < 0 && is_nothing(&io::Error::last_os_error()))
    }

    #[cfg(test)]
    pub fn break_off(&mut self) {
        // SAFETY: the descriptor is open for as long as the stream is.
        unsafe { libc::shutdown(self.socket.fd(), libc::SHUT_RDWR) };
    }

    fn wait(&self, most: Duration) -> io::Result<()> {
        let unsent = self.sent < self.out.len();
        let wants_write = match &self.tls {
            None => unsent,
            Some(tls) => tls.wants_write() || (unsent && !tls.is_handshaking()),
        };
        let events = libc::POLLIN | if wants_write { libc::POLLOUT } else { 0 };
        let mut poll = libc::pollfd { fd: self.socket.fd(), events, revents: 0 };
        // Rounded up, or it would look again and again in the last millisecond.
        let ms = most.as_millis() as i32 + 1;
        // SAFETY: there is one descriptor, which is open for as long as the stream is.
        let count = unsafe { libc::poll(&raw mut poll, 1, ms) };
        match count {
            -1 => Err(io::Error::last_os_error()).or_else(|error| match error.kind() {
                io::ErrorKind::Interrupted => Ok(()),
                _ => Err(error),
            }),
            _ => Ok(()),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.say_goodbye(&mut self.socket);
        }
    }
}

impl Socket {
    fn fd(&self) -> RawFd {
        match self {
            Socket::Tcp(socket) => socket.as_raw_fd(),
            Socket::Unix(socket) => socket.as_raw_fd(),
        }
    }

    fn prepare(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Socket::Unix(socket) => socket.set_nonblocking(true),
            Socket::Tcp(socket) => {
                socket.set_nodelay(true)?;
                socket.set_nonblocking(true)?;
                // A machine that has gone is noticed though nothing is sent to it.
                let seconds = timeout.as_secs().clamp(1, 60) as i32;
                let fd = socket.as_raw_fd();
                set(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
                set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, seconds)?;
                set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, (seconds + 2) / 3)?;
                set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3)?;
                set(fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, seconds * 2000)
            }
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.read(buffer),
            Socket::Unix(socket) => socket.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.write(bytes),
            Socket::Unix(socket) => socket.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn unix(path: &str) -> io::Result<UnixStream> {
    match path.strip_prefix('@') {
        Some(name) => UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?),
        None => UnixStream::connect(path),
    }
}

fn tcp(address: &str, patience: Patience<'_>) -> io::Result<TcpStream> {
    let began = Instant::now();
    let mut last = None;
    for place in address.to_socket_addrs()? {
        let left = patience.timeout.saturating_sub(began.elapsed());
        if left.is_zero() || patience.stop.load(Relaxed) {
            break;
        }
        match TcpStream::connect_timeout(&place, left) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::from(io::ErrorKind::TimedOut)))
}

fn set(fd: RawFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the value has the given length.
    let done = unsafe {
        libc::setsockopt(fd, level, option, (&raw const value).cast(), size_of::<i32>() as u32)
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Bytes received at once, and most of replies that wait to be looked at.
const RECEIVED: usize = 64 << 10;
/// Bytes of room that are kept when all is sent.
const KEPT: usize = 8 << 20;
/// Bytes that were sent and are still there.
const SENT: usize = 1 << 20;
/// Between two looks at whether it is to be given up.
const SLICE: Duration = Duration::from_millis(50);
