//! Renews leases for a client that cannot do so itself: its interpreter or its event loop is held by a handler.
//!
//! The client renews each lease after a third of its time, and reports that here. A lease without a
//! report for half of its time is renewed by a thread, which has connections of its own and needs
//! nothing from the client. It ends with the process, stops while that is frozen, and never renews
//! beyond the handler's time.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::network::secure::Tls;
use crate::network::settings::{Protocol, Settings};
use crate::network::stream::{Patience, Stream};
use crate::network::wire;

/// The way to a client's servers.
#[derive(Clone, Default)]
pub struct Peer {
    pub user: Option<String>,
    pub password: Option<String>,
    pub database: u32,
    pub tls: bool,
    /// The file of the authority that must have signed a server's certificate; `None`: those of the machine.
    pub ca: Option<PathBuf>,
    /// Time limit for connecting, and for a reply.
    pub timeout: Duration,
    /// The function that moves a lease's deadline: it takes the token, and the time in microseconds.
    pub function: String,
}

/// The leases that a client holds. When it is dropped its thread ends.
pub struct Renewals {
    shared: Arc<Shared>,
}

struct Shared {
    peer: Peer,
    state: Mutex<State>,
    changed: Condvar,
    stop: AtomicBool,
}

#[derive(Default)]
struct State {
    leases: HashMap<u64, Lease>,
    /// The time at which the thread looks again; infinite: when it is woken.
    next: f64,
    has_thread: bool,
    /// Something was held since the thread's last look.
    used: bool,
    /// Renewals that it made.
    renewed: u64,
    /// Errors not fetched yet.
    errors: Vec<String>,
}

struct Lease {
    address: Arc<str>,
    queue: Box<str>,
    token: u64,
    seconds: f64,
    /// Deadline by the monotonic clock, in seconds, like all times here.
    deadline: f64,
    /// The time at which its handler's time is over.
    until: f64,
    /// Not before this: the last attempt failed.
    again: f64,
    /// True if this thread renewed it last.
    alone: bool,
}

impl Lease {
    /// The time at which it is renewed if the client has not; infinite: not at all.
    fn due(&self) -> f64 {
        match self.deadline < self.until {
            true => (self.deadline - self.seconds / 2.0).max(self.again),
            false => f64::INFINITY,
        }
    }
}

impl Renewals {
    pub fn new(peer: Peer) -> Renewals {
        let (changed, stop) = Default::default();
        let state = State { next: f64::INFINITY, ..State::default() };
        Renewals { shared: Arc::new(Shared { peer, state: Mutex::new(state), changed, stop }) }
    }

    /// Adds a lease to be renewed, or notes that the client has renewed it. `key`: the client's name for it,
    /// never used for another lease; `until`: as for `bound`.
    #[allow(clippy::too_many_arguments)]
    pub fn hold(
        &self,
        key: u64,
        address: &str,
        queue: &str,
        token: u64,
        seconds: f64,
        deadline: f64,
        until: f64,
    ) {
        let shared = &self.shared;
        let mut state = shared.lock();
        // The queue may have moved to another server since.
        let address = state.address(address);
        let (again, alone) = (0.0, false);
        let due = match state.leases.get_mut(&key) {
            Some(known) => {
                (known.address, known.seconds, known.deadline) = (address, seconds, deadline);
                (known.until, known.again, known.alone) = (until, again, alone);
                known.due()
            }
            None => {
                let queue = queue.into();
                let lease = Lease { address, queue, token, seconds, deadline, until, again, alone };
                let due = lease.due();
                state.leases.insert(key, lease);
                due
            }
        };
        state.used = true;
        if due < state.next {
            state.next = due;
            if state.has_thread {
                shared.changed.notify_one();
            } else {
                // If no thread can be created the client renews alone, as it usually does.
                state.has_thread = spawn(shared.clone());
            }
        }
    }

    /// Forgets a lease: it is settled, lost, or to run out.
    pub fn let_go(&self, key: u64) {
        self.shared.lock().leases.remove(&key);
    }

    /// Sets the time at which the handler's time is over: nothing is renewed beyond it.
    pub fn bound(&self, key: u64, until: f64) {
        let mut state = self.shared.lock();
        let Some(lease) = state.leases.get_mut(&key) else { return };
        lease.until = until;
        let due = lease.due();
        if due < state.next {
            state.next = due;
            self.shared.changed.notify_one();
        }
    }

    /// The number of renewals that the client had not made in time.
    pub fn renewed(&self) -> u64 {
        self.shared.lock().renewed
    }

    /// The errors since the last call.
    pub fn errors(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.lock().errors)
    }

    /// Ends the thread, whatever it waits for.
    pub fn stop(&self) {
        self.shared.stop.store(true, Relaxed);
        self.shared.lock().leases.clear();
        self.shared.changed.notify_one();
    }
}

impl Drop for Renewals {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life of the thread.
    fn run(&self) {
        let mut streams: HashMap<Arc<str>, Stream> = HashMap::new();
        loop {
            let Some(due) = self.wait(&mut streams) else { return };
            let first =
                due.values().flatten().map(|one| one.deadline).fold(f64::INFINITY, f64::min);
            // One that does not answer leaves time for the others, and for a second attempt.
            let share = (first - now()) / (due.len() + 1) as f64;
            let most = self.peer.timeout.as_secs_f64();
            let timeout = Duration::from_secs_f64(share.max(SHORTEST).min(most));
            for (address, mut due) in due {
                let stream = streams.remove(&address);
                match self.renew(&address, stream, &mut due, timeout) {
                    Ok((stream, answers)) => {
                        streams.insert(address, stream);
                        self.note(due, &answers);
                    }
                    Err(why) => self.fail(due, format!("{address}: {why}")),
                }
            }
        }
    }

    /// Waits until leases are due; returns them by their servers. `None`: it is over.
    fn wait(&self, streams: &mut HashMap<Arc<str>, Stream>) -> Option<HashMap<Arc<str>, Vec<Due>>> {
        let mut state = self.lock();
        while !self.stop.load(Relaxed) {
            let now = now();
            // Drops expired leases: the process was frozen, or the server could not be reached.
            state.leases.retain(|_, lease| now < lease.deadline + GRACE);
            let mut due: HashMap<Arc<str>, Vec<Due>> = HashMap::new();
            for (&key, lease) in state.leases.iter().filter(|(_, lease)| lease.due() <= now) {
                if lease.until > now {
                    let Lease { token, seconds, deadline, until, .. } = *lease;
                    let queue = lease.queue.clone();
                    let one = Due { key, queue, token, seconds, deadline, until };
                    due.entry(lease.address.clone()).or_default().push(one);
                }
            }
            if !due.is_empty() {
                return Some(due);
            }
            if !state.leases.values().any(|lease| lease.alone) {
                // The client does it by itself again.
                streams.clear();
            }
            let first = state.leases.values().map(Lease::due).filter(|due| *due > now);
            state.next = first.fold(f64::INFINITY, f64::min);
            if std::mem::take(&mut state.used) {
                // Leases that are held for a moment come and go: to be woken by each would be dear.
                state.next = state.next.min(now + IDLE);
            }
            state = match state.next.is_finite() {
                true => {
                    let left = between(now, state.next);
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                false => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        None
    }

    fn renew(
        &self,
        address: &str,
        stream: Option<Stream>,
        due: &mut Vec<Due>,
        timeout: Duration,
    ) -> Result<(Stream, Vec<Answer>), String> {
        let patience = Patience { timeout, stop: &self.stop };
        let known = stream.map(|mut stream| (stream.is_quiet(), stream));
        let mut stream = match known {
            Some((true, stream)) => stream,
            _ => self.connect(address, patience)?,
        };
        // Connecting has taken time, in which the time of a handler may have ended.
        let began = now();
        due.retain(|one| one.until > began);
        for one in due.iter_mut() {
            one.deadline = one.until.min(began + one.seconds);
            let micros = ((one.deadline - began).min(LONGEST) * 1e6).max(1.0) as u64;
            let (token, micros) = (one.token.to_string(), micros.to_string());
            let (function, queue) = (self.peer.function.as_bytes(), one.queue.as_bytes());
            let arguments: [&[u8]; 6] =
                [b"FCALL", function, b"1", queue, token.as_bytes(), micros.as_bytes()];
            wire::request(&mut stream.out, &arguments);
        }
        let answers: Result<Vec<Answer>, String> =
            due.iter().map(|_| hear(&mut stream, patience)).collect();
        answers.map(|answers| (stream, answers))
    }

    fn connect(&self, address: &str, patience: Patience<'_>) -> Result<Stream, String> {
        let Peer { user, password, database, .. } = &self.peer;
        let mut settings = Settings::new(address, Protocol::Publish, 0);
        if self.peer.tls {
            let ca = self.peer.ca.as_ref().map(std::fs::read).transpose();
            let ca = ca.map_err(|error| format!("ca: {error}"))?;
            let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
            let host = host.trim_start_matches('[').trim_end_matches(']');
            settings.tls = Some(Tls::new(host, ca.as_deref(), None)?);
        }
        let opened = Stream::open(&settings, patience);
        let mut stream = opened.map_err(|error| format!("connecting to it: {error}"))?;
        let mut replies = 0;
        if let Some(password) = password {
            let user = user.as_deref().map(str::as_bytes);
            let login = [Some(b"AUTH".as_slice()), user, Some(password.as_bytes())];
            let login: Vec<&[u8]> = login.into_iter().flatten().collect();
            wire::request(&mut stream.out, &login);
            replies += 1;
        }
        if *database != 0 {
            wire::request(&mut stream.out, &[b"SELECT", database.to_string().as_bytes()]);
            replies += 1;
        }
        for _ in 0..replies {
            if let Answer::Refused(text) = hear(&mut stream, patience)? {
                return Err(text);
            }
        }
        Ok(stream)
    }

    fn note(&self, due: Vec<Due>, answers: &[Answer]) {
        let mut state = self.lock();
        for (one, answer) in due.into_iter().zip(answers) {
            match answer {
                Answer::Lost => state.forget(&one),
                Answer::Done => {
                    state.renewed += 1;
                    if let Some(lease) = state.find(&one) {
                        (lease.deadline, lease.alone) = (one.deadline, true);
                    }
                }
                Answer::Refused(text) => {
                    let address = moved(text).map(|address| state.address(address));
                    if address.is_none() {
                        state.complain(text.clone());
                    }
                    let Some(lease) = state.find(&one) else { continue };
                    let moved = address.is_some();
                    lease.address = address.unwrap_or_else(|| lease.address.clone());
                    lease.again =
                        now() + if moved { MOVED } else { AGAIN.min(lease.seconds / 10.0) };
                }
            }
        }
    }

    fn fail(&self, due: Vec<Due>, why: String) {
        let mut state = self.lock();
        for one in &due {
            if let Some(lease) = state.find(one) {
                lease.again = now() + AGAIN.min(lease.seconds / 10.0);
            }
        }
        state.complain(why);
    }
}

impl State {
    /// An address, of which there are few, with one text for all leases there.
    fn address(&self, address: &str) -> Arc<str> {
        let known = self.leases.values().next().map(|lease| &lease.address);
        known.filter(|known| ***known == *address).cloned().unwrap_or_else(|| address.into())
    }

    /// The lease, if it is still held by the same token.
    fn find(&mut self, due: &Due) -> Option<&mut Lease> {
        self.leases.get_mut(&due.key).filter(|lease| lease.token == due.token)
    }

    fn forget(&mut self, due: &Due) {
        if self.find(due).is_some() {
            self.leases.remove(&due.key);
        }
    }

    fn complain(&mut self, why: String) {
        let errors = &mut self.errors;
        if errors.len() < MOST_ERRORS && !errors.contains(&why) {
            errors.push(why);
        }
    }
}

/// A lease that is to be renewed now.
struct Due {
    key: u64,
    queue: Box<str>,
    token: u64,
    seconds: f64,
    /// Deadline of the lease, and then of its request.
    deadline: f64,
    until: f64,
}

enum Answer {
    Done,
    Lost,
    Refused(String),
}

fn hear(stream: &mut Stream, patience: Patience<'_>) -> Result<Answer, String> {
    loop {
        match answer(stream.received()) {
            Ok(Some((answer, length))) => {
                stream.consume(length);
                return Ok(answer);
            }
            Ok(None) => stream.exchange(patience).map_err(|error| error.to_string())?,
            Err(wire::Garbage) => return Err("it answered what is not a reply".to_owned()),
        }
    }
}

/// The answer at the beginning of these bytes and its length; `None` if it is incomplete. A
/// function answers with a list whose first text is the outcome.
fn answer(bytes: &[u8]) -> Result<Option<(Answer, usize)>, wire::Garbage> {
    let Some(b'*') = bytes.first() else {
        return Ok(wire::reply(bytes)?.map(|(reply, length)| match reply {
            wire::Reply::Done => (Answer::Done, length),
            wire::Reply::Refused(text) => (Answer::Refused(text), length),
        }));
    };
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let count =
        std::str::from_utf8(&bytes[1..end]).ok().and_then(|text| text.trim_end().parse().ok());
    let count: usize = count.ok_or(wire::Garbage)?;
    let (mut at, mut is_lost) = (end + 1, false);
    for n in 0..count {
        let Some((_, length)) = wire::reply(&bytes[at..])? else { return Ok(None) };
        is_lost |= n == 0 && bytes[at..at + length].ends_with(b"\nLEASELOST\r\n");
        at += length;
    }
    Ok(Some((if is_lost { Answer::Lost } else { Answer::Done }, at)))
}

/// The address in a cluster's redirection.
fn moved(text: &str) -> Option<&str> {
    let address = text.strip_prefix("MOVED ")?.split(' ').nth(1)?;
    (!address.starts_with(':')).then_some(address)
}

/// Returns whether there is a thread.
fn spawn(shared: Arc<Shared>) -> bool {
    // Signals are for the client's threads.
    // SAFETY: both sets are ours; a zeroed set is a valid one, and the second was filled.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let name = "interlock-renew".to_owned();
        let thread = std::thread::Builder::new().name(name).spawn(move || shared.run());
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        thread.is_ok()
    }
}

/// The time between two times, of which the second may be without end, as with `extend(1e300)`.
fn between(now: f64, then: f64) -> Duration {
    Duration::from_secs_f64((then - now).clamp(0.0, LONGEST))
}

/// Seconds of the monotonic clock, as the client has them.
pub fn now() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Seconds for which a lease whose time is over is still asked for: the server counts from when it answered.
const GRACE: f64 = 0.1;
/// Seconds after which a refused or failed renewal is tried again, of a lease of some seconds.
const AGAIN: f64 = 0.5;
/// Seconds after which the server is asked to which a queue has moved.
const MOVED: f64 = 0.05;
/// Seconds after which a thread looks again that has nothing to do, if something was held meanwhile.
const IDLE: f64 = 5.0;
/// Seconds that a server has for its answer at least.
const SHORTEST: f64 = 0.1;
/// Seconds that are without end: as many as the client asks for at most.
const LONGEST: f64 = 1e9;
const MOST_ERRORS: usize = 10;

#[cfg(test)]
mod tests {
    use crate::network::renewal::*;

    #[test]
    fn a_complete_answer_tells_whether_the_lease_was_renewed() {
        for (bytes, done) in [
            (&b"*1\r\n$8\r\nEXTENDED\r\n"[..], true),
            (b"*2\r\n$2\r\nOK\r\n:1\r\n", true),
            (b"*1\r\n$9\r\nLEASELOST\r\n", false),
            (b"+OK\r\n", true),
        ] {
            for cut in 1..bytes.len() {
                assert!(matches!(answer(&bytes[..cut]), Ok(None)), "{cut} of {bytes:?}");
            }
            let two = [bytes, bytes].concat();
            let Ok(Some((answer, length))) = answer(&two) else { panic!("{bytes:?}") };
            assert_eq!((length, matches!(answer, Answer::Done)), (bytes.len(), done));
        }
        for bytes in [&b"*x\r\n"[..], b"*-1\r\n$1\r\na\r\n", b"?\r\n", b"*1\r\n*1\r\n$1\r\na\r\n"] {
            assert!(answer(bytes).is_err(), "{bytes:?}");
        }
        assert!(
            matches!(answer(b"-ERR no\r\n"), Ok(Some((Answer::Refused(text), 9))) if text == "ERR no")
        );
    }

    #[test]
    fn the_longest_lease_is_waited_for() {
        assert_eq!(between(1.0, 1.5), Duration::from_millis(500));
        assert_eq!(between(2.0, 1.0), Duration::ZERO);
        assert_eq!(between(1.0, 1e300), Duration::from_secs_f64(LONGEST));
    }

    #[test]
    fn a_redirection_names_the_next_server() {
        assert_eq!(moved("MOVED 3999 10.0.0.2:6381"), Some("10.0.0.2:6381"));
        assert_eq!(moved("MOVED 3999 :6381"), None);
        assert_eq!(moved("ASK 3999 10.0.0.2:6381"), None);
        assert_eq!(moved("MOVED"), None);
    }

    #[test]
    fn a_renewal_is_due_at_half_the_lease_and_never_after_the_handler_s_timeout() {
        let lease = |deadline, until, again| Lease {
            address: "a".into(),
            queue: "q".into(),
            token: 1,
            seconds: 30.0,
            deadline,
            until,
            again,
            alone: false,
        };
        assert_eq!(lease(100.0, f64::INFINITY, 0.0).due(), 85.0);
        assert_eq!(lease(100.0, 101.0, 0.0).due(), 85.0);
        assert_eq!(lease(100.0, 100.0, 0.0).due(), f64::INFINITY);
        assert_eq!(lease(100.0, f64::INFINITY, 90.0).due(), 90.0);
    }
}
