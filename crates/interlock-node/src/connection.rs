//! One non-blocking connection to an engine; its owner polls the descriptor.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixStream};
use std::sync::mpsc::{channel, Receiver};
use std::time::Duration;

use interlock_stores::network::{Session, Tls};

use crate::reply::{self, Bad, Reply, Scan};

/// The addresses of one server, while they are looked up.
pub struct Places {
    found: Receiver<io::Result<Vec<SocketAddr>>>,
    /// Readable once the addresses are known.
    woken: UnixStream,
}

/// An address to connect to.
#[derive(Clone, Debug)]
pub enum Place {
    Tcp(SocketAddr),
    Unix(String),
}

/// Looks up `HOST:PORT`, or `unix:PATH`, with `@` before an abstract name. A lookup of a host name
/// may take long, so it runs in a thread.
pub fn look_up(address: &str) -> io::Result<Result<Vec<Place>, Places>> {
    if let Some(path) = address.strip_prefix("unix:") {
        return Ok(Ok(vec![Place::Unix(path.to_owned())]));
    }
    let wrong = || {
        let text = format!("{address:?} is not an address; allowed: HOST:PORT, unix:PATH");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    };
    let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
    let port: u16 = port.parse().map_err(|_| wrong())?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(Ok(vec![Place::Tcp(SocketAddr::new(ip, port))]));
    }
    let (woken, waker) = UnixStream::pair()?;
    let (tell, found) = channel();
    std::thread::Builder::new().name("interlock-dns".to_owned()).spawn(move || {
        let addresses = (host.as_str(), port).to_socket_addrs();
        // If the caller has given up, nobody receives it.
        let _ = tell.send(addresses.map(Iterator::collect));
        drop(waker);
    })?;
    Ok(Err(Places { found, woken }))
}

impl Places {
    pub fn descriptor(&self) -> RawFd {
        self.woken.as_raw_fd()
    }

    /// The addresses, once they are known.
    pub fn found(&self) -> Option<io::Result<Vec<Place>>> {
        let found = self.found.try_recv().ok()?;
        Some(found.map(|all| all.into_iter().map(Place::Tcp).collect()))
    }
}

pub struct Connection {
    socket: Socket,
    tls: Option<Box<Session>>,
    is_connected: bool,
    /// Bytes to send, from `sent` on.
    pub out: Vec<u8>,
    sent: usize,
    /// Received bytes, not yet parsed from `read` on.
    received: Vec<u8>,
    read: usize,
    buffer: Box<[u8]>,
    scan: Scan,
    has_ended: bool,
    /// The next [`Connection::drive`] need not try to receive: a poll has found nothing.
    is_quiet: bool,
    /// The last receive filled all available space.
    is_full: bool,
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Connection {
    /// Begins to connect.
    pub fn begin(place: &Place, tls: Option<&Tls>, timeout: Duration) -> io::Result<Connection> {
        let (socket, is_connected) = match place {
            Place::Unix(path) => (Socket::Unix(unix(path)?), true),
            Place::Tcp(address) => (Socket::Tcp(tcp(address, timeout)?), false),
        };
        let tls = tls.map(|tls| tls.begin().map(Box::new)).transpose()?;
        let (out, received, scan) = Default::default();
        let (sent, read, has_ended, is_quiet, is_full) = Default::default();
        let buffer = vec![0; RECEIVED].into_boxed_slice();
        Ok(Connection {
            socket,
            tls,
            is_connected,
            out,
            sent,
            received,
            read,
            buffer,
            scan,
            has_ended,
            is_quiet,
            is_full,
        })
    }

    /// The descriptor and the events to poll for.
    pub fn interest(&self) -> libc::pollfd {
        let wants_write = !self.is_connected
            || match &self.tls {
                None => self.unsent() > 0,
                Some(tls) => tls.wants_write() || (self.unsent() > 0 && !tls.is_handshaking()),
            };
        let events = libc::POLLIN | if wants_write { libc::POLLOUT } else { 0 };
        libc::pollfd { fd: self.socket.fd(), events, revents: 0 }
    }

    /// The number of bytes to send.
    pub fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// The number of received bytes not taken yet.
    pub fn held(&self) -> usize {
        self.received.len() - self.read
    }

    /// Notes the result of a poll of [`Connection::interest`]: the events in `found`.
    pub fn polled(&mut self, found: i16) {
        self.is_quiet = found == 0;
    }

    /// Sends as much as possible without blocking. [`Connection::drive`] reports a failure.
    pub fn flush(&mut self) {
        if self.is_connected {
            let _ = self.send();
        }
    }

    /// Returns whether more data may have arrived than the last [`Connection::drive`] received.
    pub fn may_hold_more(&self) -> bool {
        self.tls.is_some() || self.is_full
    }

    /// Sends and receives as much as possible without blocking. Returns whether anything arrived.
    ///
    /// # Errors
    ///
    /// The connection has ended; replies that arrived before can still be taken.
    pub fn drive(&mut self, most: usize) -> io::Result<bool> {
        if !self.is_connected {
            match self.socket.peer() {
                Ok(()) => self.is_connected = true,
                Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                    return match self.socket.take_error()? {
                        Some(error) => Err(error),
                        None => Ok(false),
                    };
                }
                Err(error) => return Err(error),
            }
        }
        let sent = self.send();
        // A TLS session may hold data that arrived earlier.
        if std::mem::take(&mut self.is_quiet) && self.tls.is_none() {
            return sent.map(|()| false);
        }
        // The other side may have said why it closes the connection.
        let moved = self.receive(most)?;
        sent?;
        // A handshake that has just finished may have unblocked waiting bytes.
        if moved && self.unsent() > 0 {
            self.send()?;
        }
        Ok(moved)
    }

    fn send(&mut self) -> io::Result<()> {
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
                Ok(count) => self.sent += count,
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
        Ok(())
    }

    fn receive(&mut self, most: usize) -> io::Result<bool> {
        if self.has_ended {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        if self.read > 0 {
            self.received.drain(..std::mem::take(&mut self.read));
            self.received.shrink_to(KEPT);
        }
        let mut moved = false;
        self.is_full = true;
        while self.received.len() < most {
            let taken = match &mut self.tls {
                None => self.socket.read(&mut self.buffer),
                Some(tls) => tls.receive(&mut self.socket, &mut self.buffer),
            };
            match taken {
                Ok(0) if moved => {
                    self.has_ended = true;
                    break;
                }
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                Ok(count) => {
                    self.received.extend_from_slice(&self.buffer[..count]);
                    moved = true;
                    if count < RECEIVED {
                        self.is_full = false;
                        break;
                    }
                }
                Err(error) if is_nothing(&error) => {
                    self.is_full = false;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(moved)
    }

    /// Passes the next reply to `see`, if one is complete, and returns its result.
    pub fn next<T>(
        &mut self,
        most: usize,
        see: impl FnOnce(Reply<'_>) -> T,
    ) -> Result<Option<T>, Bad> {
        let bytes = &self.received[self.read..];
        let Some(length) = self.scan.length(bytes, most)? else { return Ok(None) };
        let reply = reply::reply(&bytes[..length])?;
        let seen = see(reply);
        self.read += length;
        Ok(Some(seen))
    }

    /// Returns whether the other side has closed the connection after the received bytes.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }
}

impl Drop for Connection {
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

    fn peer(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(socket) => socket.peer_addr().map(drop),
            Socket::Unix(_) => Ok(()),
        }
    }

    fn take_error(&self) -> io::Result<Option<io::Error>> {
        match self {
            Socket::Tcp(socket) => socket.take_error(),
            Socket::Unix(socket) => socket.take_error(),
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

/// Connects to a path, which succeeds or fails at once.
fn unix(path: &str) -> io::Result<UnixStream> {
    let address = match path.strip_prefix('@') {
        Some(name) => UnixAddress::from_abstract_name(name)?,
        None => UnixAddress::from_pathname(path)?,
    };
    let socket = UnixStream::connect_addr(&address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn tcp(address: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: the call has no pointers; the result is checked, and this is its only owner.
    let socket = unsafe {
        let fd =
            libc::socket(family, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    let socket = TcpStream::from(socket);
    socket.set_nodelay(true)?;
    // Keepalive detects a machine that has gone even if nothing is sent to it.
    let seconds = timeout.as_secs().clamp(1, 60) as i32;
    let fd = socket.as_raw_fd();
    set(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, seconds)?;
    set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, (seconds + 2) / 3)?;
    set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3)?;
    set(fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, seconds * 2000)?;
    let done = match address {
        SocketAddr::V4(v4) => {
            let name = libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            connect(fd, &name)
        }
        SocketAddr::V6(v6) => {
            let name = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            connect(fd, &name)
        }
    };
    match done {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket),
    }
}

fn connect<T>(fd: RawFd, name: &T) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the length is that of `name`.
    let done = unsafe { libc::connect(fd, (&raw const *name).cast(), size_of::<T>() as u32) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn set(fd: RawFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the length is that of `value`.
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

/// Bytes received in one call.
const RECEIVED: usize = 64 << 10;
/// Maximum capacity that an emptied buffer keeps.
const KEPT: usize = 8 << 20;
/// Sent bytes after which the buffer is compacted.
const SENT: usize = 1 << 20;
