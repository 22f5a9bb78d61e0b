//! Deliveries: in order, pipelined within a bound, and done when the upstream has acknowledged them.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

use crate::error::StoreError;
use crate::message::Message;
use crate::network::failure::{broken, garbled, refused};
use crate::network::settings::{Protocol, Settings};
use crate::network::stream::{Patience, Stream};
use crate::network::wire::{self, Reply};

/// One connection, made when there is something to deliver, and again after a failure.
pub struct Upstream {
    settings: Settings,
    stream: Option<Stream>,
    counters: Counters,
    stop: Arc<AtomicBool>,
    /// Messages that the upstream has though one before them was refused: they are not sent again. A hub
    /// has none of those.
    ahead: HashSet<Key>,
}

/// The reason why not all is delivered, and how many messages at the beginning are.
#[derive(Debug)]
pub struct Undelivered {
    /// Leading ones that need not be sent again.
    pub acknowledged: usize,
    pub error: StoreError,
}

/// Counts since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections that were made.
    pub connects: u64,
    /// Messages that were sent, those that were sent again among them.
    pub sent: u64,
    pub acknowledged: u64,
}

/// Origin and number.
type Key = (u128, u64);

/// A message under way.
struct Flying {
    key: Key,
    /// Bytes of its request; 0: it was not sent, for the upstream has it.
    bytes: usize,
}

impl Upstream {
    pub fn new(settings: Settings) -> Upstream {
        let (stream, counters, stop, ahead) = Default::default();
        Upstream { settings, stream, counters, stop, ahead }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Set, it ends a delivery that waits, from any thread: the upstream may still get what is under way.
    pub fn stop(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Returns whether there is a connection, as far as this machine knows.
    pub fn is_connected(&self) -> bool {
        self.stream.as_ref().is_some_and(Stream::is_open)
    }

    /// Delivers messages in order; returns when the upstream has acknowledged them all. Those of one origin
    /// must have rising numbers.
    ///
    /// # Errors
    ///
    /// If one is refused, or the upstream cannot be reached, breaks off, or does not move for so long as the
    /// settings say. Those not acknowledged are to be delivered again, in the same order and before others.
    pub fn deliver<'a>(
        &mut self,
        messages: impl Iterator<Item = Message<'a>>,
    ) -> Result<(), Undelivered> {
        let mut messages = messages.peekable();
        if messages.peek().is_none() {
            return Ok(());
        }
        // A connection closed while nothing was sent is not a failure.
        if self.stream.as_mut().is_some_and(|stream| !stream.is_quiet()) {
            self.stream = None;
        }
        let (flying, bytes, acknowledged) = Default::default();
        let mut delivery = Delivery { flying, bytes, acknowledged };
        let done = self.connect().and_then(|()| self.run(messages, &mut delivery));
        match done {
            Ok(()) => {
                self.ahead.clear();
                Ok(())
            }
            Err(error) => {
                self.stream = None;
                let known = delivery.flying.iter().filter(|one| one.bytes == 0);
                self.ahead.extend(known.map(|one| one.key));
                Err(Undelivered { acknowledged: delivery.acknowledged, error })
            }
        }
    }

    /// As if the other side had ended.
    #[cfg(test)]
    pub(super) fn break_off(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.break_off();
        }
    }

    fn run<'a>(
        &mut self,
        mut messages: impl Iterator<Item = Message<'a>>,
        delivery: &mut Delivery,
    ) -> Result<(), StoreError> {
        let (settings, counters) = (&self.settings, &mut self.counters);
        let patience = Patience { timeout: settings.timeout, stop: &self.stop };
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let mut ended = false;
        loop {
            // In pieces, so that the upstream has something to do while the next is made.
            while !ended && delivery.bytes < WINDOW && stream.unsent() < PIECE {
                let Some(message) = messages.next() else {
                    ended = true;
                    break;
                };
                let key = (message.origin, message.number);
                let before = stream.out.len();
                // Messages without origin cannot be distinguished.
                if message.origin == 0 || !self.ahead.remove(&key) {
                    wire::carry(&mut stream.out, settings.protocol, &message);
                    counters.sent += 1;
                }
                delivery.begin(key, stream.out.len() - before);
            }
            counters.acknowledged += delivery.settle();
            if delivery.flying.is_empty() && ended {
                return Ok(());
            }
            stream.exchange(patience).map_err(|error| broken(settings, DELIVERING, error))?;
            let refusal = delivery.hear(stream, counters);
            match refusal.map_err(|_| garbled(settings, DELIVERING))? {
                None => {}
                Some(text) => {
                    if settings.protocol != Protocol::Relay {
                        delivery.hear_out(stream, patience, &mut self.ahead);
                    }
                    return Err(refused(settings, DELIVERING, &text));
                }
            }
        }
    }

    fn connect(&mut self) -> Result<(), StoreError> {
        if self.stream.is_some() {
            return Ok(());
        }
        let settings = &self.settings;
        let patience = Patience { timeout: settings.timeout, stop: &self.stop };
        let opened = Stream::open(settings, patience);
        let mut stream = opened.map_err(|error| broken(settings, CONNECTING, error))?;
        let steps = greeting(settings, &mut stream.out);
        for step in steps {
            let reply = loop {
                match wire::reply(stream.received()) {
                    Ok(Some((reply, length))) => {
                        stream.consume(length);
                        break reply;
                    }
                    Ok(None) => {}
                    Err(_) => return Err(garbled(settings, CONNECTING)),
                }
                let exchanged = stream.exchange(patience);
                exchanged.map_err(|error| broken(settings, CONNECTING, error))?;
            };
            match reply {
                // A name is a courtesy; but the first reply may be a farewell.
                Reply::Refused(text) if step.is_needed || !is_about_names(&text) => {
                    return Err(refused(settings, step.doing, &text));
                }
                _ => {}
            }
        }
        self.counters.connects += 1;
        self.stream = Some(stream);
        Ok(())
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Upstream { settings, counters, .. } = self;
        let mut told = f.debug_struct("Upstream");
        told.field("settings", settings).field("counters", counters).finish_non_exhaustive()
    }
}

/// Returns whether a refusal is of the request for a name, and not of the connection.
fn is_about_names(text: &str) -> bool {
    ["NOPERM", "NOAUTH"].iter().any(|code| text.starts_with(code)) || text.contains("nknown")
}

/// A request that a connection begins with.
struct Step {
    doing: &'static str,
    is_needed: bool,
}

fn greeting(settings: &Settings, out: &mut Vec<u8>) -> Vec<Step> {
    let mut steps = Vec::new();
    let password = settings.password.as_deref().unwrap_or_default().as_bytes();
    match &settings.user {
        Some(user) => wire::request(out, &[b"AUTH", user.as_bytes(), password]),
        None if settings.password.is_some() => wire::request(out, &[b"AUTH", password]),
        None => {}
    }
    if !out.is_empty() {
        steps.push(Step { doing: "logging in to", is_needed: true });
    }
    wire::request(out, &[b"CLIENT", b"SETNAME", NAME]);
    steps.push(Step { doing: CONNECTING, is_needed: false });
    if settings.protocol == Protocol::Relay {
        let mut name = [0; 32];
        let sender = wire::hexadecimal(&mut name, settings.sender);
        wire::request(out, &[b"RELAY", b"OPEN", sender]);
        steps.push(Step { doing: "relaying to", is_needed: true });
    }
    steps
}

/// Messages under way, in the order in which their replies come.
struct Delivery {
    flying: VecDeque<Flying>,
    /// Bytes of their requests.
    bytes: usize,
    acknowledged: usize,
}

impl Delivery {
    fn begin(&mut self, key: Key, bytes: usize) {
        self.bytes += bytes;
        self.flying.push_back(Flying { key, bytes });
    }

    /// Counts those at the beginning that the upstream had already.
    fn settle(&mut self) -> u64 {
        let before = self.acknowledged;
        while self.flying.front().is_some_and(|one| one.bytes == 0) {
            self.flying.pop_front();
            self.acknowledged += 1;
        }
        (self.acknowledged - before) as u64
    }

    /// Reads the replies that arrived; returns the first refusal among them.
    fn hear(
        &mut self,
        stream: &mut Stream,
        counters: &mut Counters,
    ) -> Result<Option<String>, wire::Garbage> {
        loop {
            let Some((reply, length)) = wire::reply(stream.received())? else { return Ok(None) };
            counters.acknowledged += self.settle();
            // A reply without a request.
            let Some(one) = self.flying.front() else { return Err(wire::Garbage) };
            match reply {
                Reply::Refused(text) => return Ok(Some(text)),
                Reply::Done => {
                    stream.consume(length);
                    self.bytes -= one.bytes;
                    self.flying.pop_front();
                    self.acknowledged += 1;
                    counters.acknowledged += 1;
                }
            }
        }
    }

    /// One was refused, and its reply is the next: those behind it are remembered if the upstream has them.
    fn hear_out(&mut self, stream: &mut Stream, patience: Patience<'_>, ahead: &mut HashSet<Key>) {
        for one in self.flying.iter().filter(|one| one.bytes > 0) {
            loop {
                match wire::reply(stream.received()) {
                    Ok(Some((reply, length))) => {
                        stream.consume(length);
                        if reply == Reply::Done {
                            ahead.insert(one.key);
                        }
                        break;
                    }
                    Ok(None) => {}
                    Err(_) => return,
                }
                if stream.exchange(patience).is_err() {
                    return;
                }
            }
        }
    }
}

const CONNECTING: &str = "connecting to";
const DELIVERING: &str = "delivering to";
const NAME: &[u8] = b"interlock-relay";
/// Bytes of requests that may be under way without a reply; one that is longer is alone.
const WINDOW: usize = 4 << 20;
/// Bytes that wait to be sent.
const PIECE: usize = 128 << 10;
