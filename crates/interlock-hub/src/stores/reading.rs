//! Reading what stores keep: XRANGE, XREAD, XLEN. A thread does it, for a disk may take its time; who
//! waits for messages that are not there yet waits here.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use interlock_stores::disk::folder::Folder;
use interlock_stores::file::{Forward, Found, Missing, Reader};
use interlock_stores::{Position, StoreError};
use parking_lot::{Condvar, Mutex};

use super::store::Host;
use crate::resp::write::Writer;
use crate::system::signals::BlockedSignals;

/// The readers of a hub: one thread, begun by the first question.
#[derive(Default)]
pub struct Readings {
    inbox: Arc<Inbox>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Inbox {
    inner: Mutex<Inner>,
    arrived: Condvar,
    /// Somebody waits for messages.
    blocked: AtomicBool,
}

#[derive(Default)]
struct Inner {
    asked: VecDeque<Asked>,
    /// Connections that have closed meanwhile.
    gone: Vec<(usize, u64)>,
    /// Connections whose wait is over, each with its error unless it timed out.
    unblocked: Vec<((usize, u64), Option<String>)>,
    written: bool,
    ended: bool,
}

/// A question of a connection.
pub struct Asked {
    pub worker: usize,
    pub token: u64,
    pub resp3: bool,
    pub question: Question,
}

pub enum Question {
    /// Messages between two positions, both included.
    Range {
        reader: Reader<Folder>,
        from: Position,
        to: Position,
        count: usize,
        backward: bool,
    },
    Length {
        reader: Reader<Folder>,
    },
    /// Messages after a position, of several topics; waits until a time if there are none.
    Read {
        topics: Vec<Behind>,
        count: usize,
        until: Option<Instant>,
        waits: bool,
    },
}

/// A topic, and the position behind which it is read.
pub struct Behind {
    pub topic: Vec<u8>,
    pub reader: Reader<Folder>,
    /// `None`: behind what there is.
    pub position: Option<Position>,
}

/// A question that waits for messages.
struct Blocked {
    worker: usize,
    token: u64,
    resp3: bool,
    topics: Vec<(Vec<u8>, Forward<Folder>)>,
    count: usize,
    until: Option<Instant>,
}

/// The reason for a missing answer.
enum Failure {
    Store(StoreError),
    TooLong,
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure::Store(error)
    }
}

impl Readings {
    /// The answer goes to the connection's worker.
    ///
    /// # Errors
    ///
    /// Returns an error if no thread can be created.
    pub fn ask(&self, asked: Asked, host: impl FnOnce() -> Arc<dyn Host>) -> std::io::Result<()> {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let (inbox, host) = (self.inbox.clone(), host());
            let _signals = BlockedSignals::block();
            let begun = Builder::new().name("hub-reader".into());
            *thread = Some(begun.spawn(move || read(&inbox, &*host))?);
        }
        drop(thread);
        self.inbox.inner.lock().asked.push_back(asked);
        self.inbox.arrived.notify_one();
        Ok(())
    }

    /// A store wrote something.
    pub fn written(&self) {
        if self.inbox.blocked.load(SeqCst) {
            self.inbox.inner.lock().written = true;
            self.inbox.arrived.notify_one();
        }
    }

    /// The connection has closed.
    pub fn forget(&self, worker: usize, token: u64) {
        self.inbox.inner.lock().gone.push((worker, token));
        self.inbox.arrived.notify_one();
    }

    /// Ends the wait of a connection, as if its time were over or by an error.
    pub fn unblock(&self, worker: usize, token: u64, error: Option<String>) {
        self.inbox.inner.lock().unblocked.push(((worker, token), error));
        self.inbox.arrived.notify_one();
    }

    /// Answers nobody any more.
    pub fn stop(&self) {
        self.inbox.inner.lock().ended = true;
        self.inbox.arrived.notify_one();
        // Not waited for: a disk that hangs would hold it.
        self.thread.lock().take();
    }
}

fn read(inbox: &Inbox, host: &dyn Host) {
    let mut waiting = Waiting::default();
    loop {
        let (asked, gone, unblocked, written) = {
            let mut inner = inbox.inner.lock();
            let written = loop {
                if inner.ended {
                    return;
                }
                let soonest = waiting.soonest();
                let is_due = soonest.is_some_and(|until| until <= Instant::now());
                let written = std::mem::take(&mut inner.written);
                let calls = !inner.asked.is_empty() || !inner.gone.is_empty();
                if is_due || written || calls || !inner.unblocked.is_empty() {
                    break written;
                }
                // A write by another thread may be seen a moment late.
                let most = Instant::now() + if waiting.is_empty() { IDLE } else { LOOK };
                let until = soonest.map_or(most, |soonest| soonest.min(most));
                if inbox.arrived.wait_until(&mut inner, until).timed_out() && !waiting.is_empty() {
                    break true;
                }
            };
            let inner = &mut *inner;
            let (asked, gone) = (std::mem::take(&mut inner.asked), std::mem::take(&mut inner.gone));
            (asked, gone, std::mem::take(&mut inner.unblocked), written)
        };
        for asked in asked {
            let (worker, token, resp3) = (asked.worker, asked.token, asked.resp3);
            let mut reply = Vec::new();
            // Notify it of what is written from now on, before looking for what exists.
            let waits = matches!(asked.question, Question::Read { waits: true, .. });
            if waits {
                inbox.blocked.store(true, SeqCst);
            }
            match answer(asked, &mut waiting, &mut reply) {
                Ok(true) => host.answer(worker, token, reply),
                Ok(false) => {}
                Err(failure) => host.answer(worker, token, refused(failure, resp3)),
            }
        }
        waiting.forget(&gone);
        waiting.unblock(unblocked, host);
        waiting.topics.retain(|_, watched| watched.waiting > 0);
        if written {
            waiting.look(host);
        }
        waiting.end_due(host);
        inbox.blocked.store(!waiting.is_empty(), SeqCst);
    }
}

/// Clients waiting for messages. However many wait for a topic, it is checked once, and each of
/// them only if it has grown.
#[derive(Default)]
struct Waiting {
    all: Vec<Blocked>,
    topics: HashMap<Vec<u8>, Watched>,
}

/// A topic that somebody waits for.
struct Watched {
    reader: Reader<Folder>,
    /// Stands at the end.
    messages: Forward<Folder>,
    waiting: usize,
    has_grown: bool,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn soonest(&self) -> Option<Instant> {
        self.all.iter().filter_map(|one| one.until).min()
    }

    /// Watches a topic from now on: what comes behind this is seen.
    fn watch(&mut self, topic: &[u8], reader: &Reader<Folder>) -> Result<(), Failure> {
        if !self.topics.contains_key(topic) {
            let end = reader.last()?.map_or(Position::FIRST, Position::next);
            let (reader, messages) = (reader.clone(), reader.forward(end));
            let watched = Watched { reader, messages, waiting: 0, has_grown: false };
            self.topics.insert(topic.into(), watched);
        }
        Ok(())
    }

    fn add(&mut self, blocked: Blocked) {
        for (topic, _) in &blocked.topics {
            if let Some(watched) = self.topics.get_mut(topic) {
                watched.waiting += 1;
            }
        }
        self.all.push(blocked);
    }

    fn leave(topics: &mut HashMap<Vec<u8>, Watched>, blocked: &Blocked) {
        for (topic, _) in &blocked.topics {
            if let Some(watched) = topics.get_mut(topic) {
                watched.waiting -= 1;
            }
        }
    }

    fn forget(&mut self, gone: &[(usize, u64)]) {
        if gone.is_empty() {
            return;
        }
        let gone: HashSet<_> = gone.iter().copied().collect();
        self.keep(|one, _| !gone.contains(&(one.worker, one.token)));
    }

    fn unblock(&mut self, unblocked: Vec<((usize, u64), Option<String>)>, host: &dyn Host) {
        if unblocked.is_empty() {
            return;
        }
        let unblocked: HashMap<_, _> = unblocked.into_iter().collect();
        self.keep(|one, _| {
            let Some(error) = unblocked.get(&(one.worker, one.token)) else { return true };
            let mut reply = Vec::new();
            match error {
                None => nothing(&mut reply, one.resp3),
                Some(text) => reply = format!("-{text}\r\n").into_bytes(),
            }
            host.answer(one.worker, one.token, reply);
            false
        });
    }

    fn keep(&mut self, mut keeps: impl FnMut(&mut Blocked, &HashMap<Vec<u8>, Watched>) -> bool) {
        let topics = &mut self.topics;
        self.all.retain_mut(|one| {
            let keeps = keeps(one, topics);
            if !keeps {
                Waiting::leave(topics, one);
            }
            keeps
        });
    }

    /// Answers those for whom there is something now.
    fn look(&mut self, host: &dyn Host) {
        let mut some = false;
        for watched in self.topics.values_mut() {
            watched.has_grown = watched.look();
            some |= watched.has_grown;
        }
        if !some {
            return;
        }
        self.keep(|one, topics| {
            let has_grown =
                |topic| topics.get(topic).is_none_or(|watched: &Watched| watched.has_grown);
            if !one.topics.iter().any(|(topic, _)| has_grown(topic)) {
                return true;
            }
            let mut reply = Vec::new();
            match one.look(&mut reply) {
                Ok(false) => return true,
                Ok(true) => {}
                Err(failure) => reply = refused(failure, one.resp3),
            }
            host.answer(one.worker, one.token, reply);
            false
        });
    }

    /// Answers those whose time is over.
    fn end_due(&mut self, host: &dyn Host) {
        let now = Instant::now();
        if self.soonest().is_none_or(|soonest| soonest > now) {
            return;
        }
        self.keep(|one, _| {
            if one.until.is_none_or(|until| until > now) {
                return true;
            }
            let mut reply = Vec::new();
            match one.look(&mut reply) {
                Ok(false) => nothing(&mut reply, one.resp3),
                Ok(true) => {}
                Err(failure) => reply = refused(failure, one.resp3),
            }
            host.answer(one.worker, one.token, reply);
            false
        });
    }
}

impl Watched {
    /// Reads to the end; returns whether it found anything.
    fn look(&mut self) -> bool {
        let mut has_grown = false;
        loop {
            match self.messages.find() {
                Ok(None) => return has_grown,
                Ok(Some(_)) => has_grown = true,
                // Each waiting client reports the error by its own look; this one starts over.
                Err(_) => {
                    if let Ok(Some(last)) = self.reader.last() {
                        self.messages = self.reader.forward(last.next());
                    }
                    return true;
                }
            }
        }
    }
}

/// Answers a question, or has it wait: false.
fn answer(asked: Asked, waiting: &mut Waiting, out: &mut Vec<u8>) -> Result<bool, Failure> {
    let Asked { worker, token, resp3, question } = asked;
    match question {
        Question::Length { reader } => {
            let length = reader.count()?;
            Writer { out, resp3 }.integer(length as i64);
            Ok(true)
        }
        Question::Range { reader, from, to, count, backward } => {
            let found = if backward {
                let mut messages = reader.between(from, to)?;
                collected(count, || Ok(messages.find()?))?
            } else {
                let mut messages = reader.forward(from);
                collected(count, || Ok(messages.find()?.and_then(|found| up_to(found, to))))?
            };
            entries(&found, backward, &mut Writer { out, resp3 });
            Ok(true)
        }
        Question::Read { topics, count, until, waits } => {
            let mut begun = Vec::new();
            for Behind { topic, reader, position } in topics {
                // Watched before it is looked for what there is: nothing can come between the two.
                if waits {
                    waiting.watch(&topic, &reader)?;
                }
                let position = match position {
                    Some(position) => Some(position),
                    None => reader.last()?,
                };
                let from = position.map_or(Position::FIRST, Position::next);
                begun.push((topic, reader.forward(from)));
            }
            let mut blocked = Blocked { worker, token, resp3, topics: begun, count, until };
            let found = blocked.look(out)?;
            if !found && waits {
                waiting.add(blocked);
                return Ok(false);
            }
            if !found {
                nothing(out, resp3);
            }
            Ok(true)
        }
    }
}

impl Blocked {
    /// Writes the reply, if there is a message of one of its topics.
    fn look(&mut self, out: &mut Vec<u8>) -> Result<bool, Failure> {
        let mut found = Vec::new();
        for (topic, messages) in &mut self.topics {
            let some = collected(self.count, || Ok(messages.find()?))?;
            if !some.is_empty() {
                found.push((topic.clone(), some));
            }
        }
        if found.is_empty() {
            return Ok(false);
        }
        let mut reply = Writer { out, resp3: self.resp3 };
        if self.resp3 {
            reply.map(found.len());
        } else {
            reply.array(found.len());
        }
        for (topic, some) in &found {
            if !self.resp3 {
                reply.array(2);
            }
            reply.bulk(topic);
            entries(some, false, &mut reply);
        }
        Ok(true)
    }
}

/// Collects up to `most` entries that fit a reply.
fn collected(
    count: usize,
    mut next: impl FnMut() -> Result<Option<Found>, Failure>,
) -> Result<Vec<Found>, Failure> {
    let (mut found, mut bytes) = (Vec::new(), 0);
    while found.len() < count {
        let Some(next) = next()? else { break };
        bytes += OVERHEAD;
        if let Found::Message(stored) = &next {
            bytes += stored.payload.len();
        }
        if bytes > MOST && !found.is_empty() {
            return Err(Failure::TooLong);
        }
        found.push(next);
    }
    Ok(found)
}

/// Drops a finding behind this position.
fn up_to(found: Found, to: Position) -> Option<Found> {
    match found {
        Found::Message(stored) => (stored.position <= to).then_some(Found::Message(stored)),
        Found::Missing(missing) => (missing.from <= to)
            .then(|| Found::Missing(Missing { to: missing.to.min(to), ..missing })),
    }
}

/// An entry has the field `payload`. A gap is an entry too, so that no client can miss it; its id
/// is its last position in the order of reading.
fn entries(found: &[Found], backward: bool, reply: &mut Writer<'_>) {
    reply.array(found.len());
    for found in found {
        reply.array(2);
        match found {
            Found::Message(stored) => {
                reply.bulk(stored.position.to_string().as_bytes());
                reply.array(2);
                reply.bulk(b"payload");
                reply.bulk(&stored.payload);
            }
            Found::Missing(Missing { from, to, messages, why, .. }) => {
                reply.bulk(if backward { from } else { to }.to_string().as_bytes());
                reply.array(8);
                for (name, value) in [
                    ("missing", &messages.to_string()),
                    ("from", &from.to_string()),
                    ("to", &to.to_string()),
                    ("why", &(*why).to_owned()),
                ] {
                    reply.bulk(name.as_bytes());
                    reply.bulk(value.as_bytes());
                }
            }
        }
    }
}

fn nothing(out: &mut Vec<u8>, resp3: bool) {
    out.extend_from_slice(if resp3 { b"_\r\n" } else { b"*-1\r\n" });
}

fn refused(failure: Failure, resp3: bool) -> Vec<u8> {
    let text = match failure {
        Failure::Store(error) => format!("ERR {error}"),
        Failure::TooLong => {
            format!("ERR the answer has more than {} MiB; ask for fewer with COUNT", MOST >> 20)
        }
    };
    let mut out = Vec::new();
    Writer { out: &mut out, resp3 }.error(text.as_bytes());
    out
}

/// Bytes of one answer.
const MOST: usize = 64 << 20;
const OVERHEAD: usize = 64;
const IDLE: Duration = Duration::from_secs(3600);
const LOOK: Duration = Duration::from_millis(100);
