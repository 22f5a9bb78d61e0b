//! Bind, accept, start, drain, stop.

use std::fs;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::events::{Events, Level};
use crate::inherited;
use crate::reactor::mailbox::{Mail, Mailbox, Peer};
use crate::reactor::poll;
use crate::reactor::worker::{now, Worker};
use crate::settings::Settings;
use crate::shared::{add, Refused, Shared};

/// A hub that listens and serves until it is stopped or dropped.
pub struct Server {
    shared: Arc<Shared>,
    addresses: Vec<String>,
    unix: Option<String>,
    /// Ends the accept thread.
    stop: Arc<Mailbox>,
    accept: Option<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
    running: Arc<Running>,
}

/// How many workers have not ended.
struct Running {
    count: Mutex<usize>,
    ended: Condvar,
}

pub(crate) enum Listener {
    /// And whether it speaks TLS.
    Tcp(TcpListener, bool),
    Unix(UnixListener, String),
}

impl Server {
    /// Binds and starts. An error names the address and the reason.
    pub fn start(mut settings: Settings) -> io::Result<Server> {
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for &fd in &settings.inherited {
            let failed = |error| refused(&format!("descriptor {fd}"), error);
            let (listener, address) =
                inherited::listener(fd, settings.port_speaks_tls).map_err(failed)?;
            addresses.push(address);
            listeners.push(listener);
        }
        if !listeners.is_empty() {
            settings.host.clear();
            settings.unix.clear();
            settings.port = listeners.iter().find_map(Listener::port).unwrap_or(0);
        }
        if !settings.host.is_empty() {
            let bound = bind(&settings.host, settings.port)?;
            settings.port = bound.1.port();
            let shown = if settings.port_speaks_tls { "tls:" } else { "" };
            addresses.push(format!("{shown}{}", bound.1));
            listeners.push(Listener::Tcp(bound.0, settings.port_speaks_tls));
            if let Some(port) = settings.tls_port {
                let bound = bind(&settings.host, port)?;
                settings.tls_port = Some(bound.1.port());
                addresses.push(format!("tls:{}", bound.1));
                listeners.push(Listener::Tcp(bound.0, true));
            }
        }
        let unix = Some(settings.unix.clone()).filter(|path| !path.is_empty());
        let mut bound = Bound(None);
        if let Some(path) = &unix {
            let failed = |error| refused(&format!("unix:{path}"), error);
            remove_stale(path).map_err(failed)?;
            let listener = UnixListener::bind(path).map_err(failed)?;
            poll::listen(listener.as_raw_fd()).map_err(failed)?;
            bound.0 = Some(path.clone());
            listener.set_nonblocking(true).map_err(failed)?;
            addresses.push(format!("unix:{path}"));
            listeners.push(Listener::Unix(listener, path.clone()));
        }
        if listeners.is_empty() {
            let text = "the hub has neither host nor unix to listen on";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let count = settings.workers();
        let mailboxes: io::Result<Vec<_>> = (0..count).map(|_| Mailbox::new()).collect();
        let shared = Arc::new(Shared::new(settings, mailboxes?, now())?);
        let workers: io::Result<Vec<_>> =
            (0..count).map(|worker| Worker::new(shared.clone(), worker)).collect();
        let running = Arc::new(Running { count: Mutex::new(count), ended: Condvar::new() });
        let stop = Arc::new(Mailbox::new()?);
        let mut server =
            Server { shared, addresses, unix, stop, accept: None, workers: Vec::new(), running };
        // Signals are for the thread that started the hub.
        let signals = BlockedSignals::block();
        for (index, worker) in workers?.into_iter().enumerate() {
            let (running, shared) = (server.running.clone(), server.shared.clone());
            let body = move || {
                contained(&shared, index, || worker.run());
                *running.count.lock() -= 1;
                running.ended.notify_all();
            };
            server.workers.push(spawn(format!("hub-worker-{index}"), body)?);
        }
        let (shared, stop) = (server.shared.clone(), server.stop.clone());
        let body = move || accept(&shared, &stop, &listeners);
        server.accept = Some(spawn("hub-accept".into(), body)?);
        drop(signals);
        // From here on it goes with the server.
        bound.0 = None;
        Ok(server)
    }

    /// `host:port`, `tls:host:port` or `unix:PATH`, with the port that was really bound.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// What outlives the threads: figures and events.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub fn info(&self) -> Vec<(&'static str, String)> {
        self.shared.info()
    }

    /// Takes no more connections, answers what has arrived and sends what is owed for so long at
    /// most, then closes. How many connections were cut: they were owed something, or would not close.
    pub fn stop(&mut self, patience: Duration) -> u64 {
        let until = Instant::now().checked_add(patience);
        if let Some(accept) = self.accept.take() {
            self.stop.wake();
            let _ = accept.join();
            if let Some(path) = &self.unix {
                let _ = fs::remove_file(path);
            }
            self.tell(|| Mail::Drain);
        }
        {
            let mut count = self.running.count.lock();
            while *count > 0 {
                let timed_out = match until {
                    Some(until) => self.running.ended.wait_until(&mut count, until).timed_out(),
                    None => {
                        self.running.ended.wait(&mut count);
                        false
                    }
                };
                if timed_out {
                    break;
                }
            }
        }
        self.tell(|| Mail::Stop);
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
        self.shared.counters.connections_cut.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn tell(&self, mail: impl Fn() -> Mail) {
        for worker in 0..self.shared.mailboxes.len() {
            self.shared.send(worker, mail());
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

fn bind(host: &str, port: u16) -> io::Result<(TcpListener, SocketAddr)> {
    let failed = |error| refused(&format!("{host}:{port}"), error);
    let listener = TcpListener::bind((host, port)).map_err(failed)?;
    poll::listen(listener.as_raw_fd()).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// Runs a worker. If it panics, its connections are closed with it; the others go on, until whoever
/// runs the hub has heard of it.
fn contained(shared: &Shared, worker: usize, run: impl FnOnce()) {
    // What it leaves behind is its own, or made of single steps that each are whole.
    let Err(panic) = catch_unwind(AssertUnwindSafe(run)) else { return };
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a text");
    shared.worker_broke(worker, text);
}

/// Deals connections to the workers in turn, and reads none.
fn accept(shared: &Shared, stop: &Mailbox, listeners: &[Listener]) {
    let poll_for = |fd: RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut fds = vec![poll_for(stop.event())];
    fds.extend(listeners.iter().map(|listener| poll_for(listener.fd())));
    let (mut next, mut pause) = (0, false);
    let mut complaint = Complaint::default();
    loop {
        // Out of descriptors, only the order to stop is listened to for a moment: the waiting
        // connection would otherwise wake this thread without end.
        let (count, timeout) = if pause { (1, PAUSE) } else { (fds.len(), -1) };
        // SAFETY: `fds` has at least `count` entries.
        unsafe { libc::poll(fds.as_mut_ptr(), count as libc::nfds_t, timeout) };
        if fds[0].revents != 0 {
            return;
        }
        pause = false;
        for listener in listeners {
            loop {
                match listener.accept() {
                    Ok((socket, peer)) => match shared.arrive(&peer) {
                        Ok(()) => match shared.serving(next) {
                            Some(worker) => {
                                shared.send(worker, Mail::Accepted(socket, peer));
                                next = (worker + 1) % shared.mailboxes.len();
                            }
                            None => shared.left(&peer),
                        },
                        Err(refused) if !peer.speaks_tls => turn_away(socket, refused),
                        // Without a handshake it can be told nothing.
                        Err(_) => {}
                    },
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        add(&shared.counters.accept_errors, 1);
                        let text = format!("cannot take a connection: {error}");
                        complaint.say(&shared.events, text);
                        pause = true;
                        break;
                    }
                }
            }
        }
    }
}

/// What goes on happening is said once a minute.
#[derive(Default)]
struct Complaint {
    said: Option<Instant>,
}

impl Complaint {
    fn say(&mut self, events: &Events, text: String) {
        if self.said.is_none_or(|said| said.elapsed() > Duration::from_secs(60)) {
            self.said = Some(Instant::now());
            events.log(Level::Warning, text);
        }
    }
}

fn turn_away(socket: OwnedFd, refused: Refused) {
    let text: &[u8] = match refused {
        Refused::Full => b"-ERR max number of clients reached\r\n",
        Refused::Address => b"-ERR max number of clients reached for this address\r\n",
    };
    // A new socket has room for a line; if not, its end says enough.
    let _ = fs::File::from(socket).write(text);
}

/// The file of a unix socket whose hub does not get so far as to serve.
struct Bound(Option<String>);

impl Drop for Bound {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

impl Listener {
    fn port(&self) -> Option<u16> {
        match self {
            Listener::Tcp(listener, _) => listener.local_addr().ok().map(|address| address.port()),
            Listener::Unix(..) => None,
        }
    }

    fn fd(&self) -> RawFd {
        match self {
            Listener::Tcp(listener, _) => listener.as_raw_fd(),
            Listener::Unix(listener, _) => listener.as_raw_fd(),
        }
    }

    fn accept(&self) -> io::Result<(OwnedFd, Peer)> {
        match self {
            Listener::Tcp(listener, speaks_tls) => {
                let (stream, address) = listener.accept()?;
                stream.set_nonblocking(true)?;
                let local = stream.local_addr().map_or_else(|_| String::new(), |a| a.to_string());
                let (address, speaks_tls) = (address.to_string(), *speaks_tls);
                Ok((stream.into(), Peer { address, local, is_tcp: true, speaks_tls }))
            }
            Listener::Unix(listener, path) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                // As Redis names them.
                let address = format!("{path}:0");
                let (local, is_tcp, speaks_tls) = (address.clone(), false, false);
                Ok((stream.into(), Peer { local, address, is_tcp, speaks_tls }))
            }
        }
    }
}

/// A socket file behind which nobody listens is left over from a hub that was killed.
fn remove_stale(path: &str) -> io::Result<()> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if is_socket {
        match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path)?
            }
            _ => {}
        }
    }
    Ok(())
}

fn refused(address: &str, source: io::Error) -> io::Error {
    io::Error::new(source.kind(), CannotListen { address: address.to_owned(), source })
}

/// Names the address; the system's error with its number is the source.
#[derive(Debug)]
struct CannotListen {
    address: String,
    source: io::Error,
}

impl std::fmt::Display for CannotListen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot listen on {}: {}", self.address, self.source)
    }
}

impl std::error::Error for CannotListen {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name).spawn(body)
}

/// While it lives, threads are born with all signals blocked.
struct BlockedSignals {
    before: libc::sigset_t,
}

impl BlockedSignals {
    fn block() -> Self {
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

/// ms.
const PAUSE: i32 = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Event;

    #[test]
    fn a_worker_that_panics_is_told_of_and_gets_nobody_and_nothing_more() {
        let mailboxes = (0..3).map(|_| Mailbox::new().unwrap()).collect();
        let shared = Shared::new(Settings::default(), mailboxes, 0).unwrap();
        contained(&shared, 1, || {});
        assert_eq!(shared.serving(1), Some(1), "who ends as it should has not broken");
        contained(&shared, 1, || panic!("no {}", "luck"));
        let (events, _) = shared.events.take();
        let told =
            |event: &Event| matches!(event, Event::Broken { text } if text.ends_with("no luck"));
        assert!(events.len() == 1 && told(&events[0]), "{events:?}");
        assert_eq!([0, 1, 2].map(|from| shared.serving(from)), [Some(0), Some(2), Some(2)]);
        let interest = crate::topics::Interest { receivers: 3, workers: 0b111 };
        let mut builder = crate::reactor::chunk::Builder::default();
        builder.add(crate::topics::Kind::Topic, b"t", b"t", b"x", interest);
        shared.sequence(0, builder.take());
        let waiting = shared.mailboxes.iter().map(|mailbox| mailbox.take().len());
        assert_eq!(waiting.collect::<Vec<_>>(), [1, 0, 1]);
        contained(&shared, 0, || panic!());
        contained(&shared, 2, || panic!());
        assert_eq!(shared.serving(0), None);
    }
}
