//! Reading what stores keep: XRANGE, XREAD, XLEN. A thread does it, for a disk may take its time; who
//! waits for messages that are not there yet waits here.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use interlock_stores::disk::folder::Folder;
use interlock_stores::file::{Forward, Reader};
use interlock_stores::{Position, StoreError, Stored};
use parking_lot::{Condvar, Mutex};

use super::store::Host;
use crate::resp::write::Writer;
use crate::signals::BlockedSignals;

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
    /// Messages behind a position, of several topics; waits until then if there are none.
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

/// The reason why there is no answer.
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
    /// If there is no thread to be had.
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

    /// Answers nobody any more.
    pub fn stop(&self) {
        self.inbox.inner.lock().ended = true;
        self.inbox.arrived.notify_one();
        // Not waited for: a disk that hangs would hold it.
        self.thread.lock().take();
    }
}

fn read(inbox: &Inbox, host: &dyn Host) {
    let mut blocked: Vec<Blocked> = Vec::new();
    loop {
        let (asked, gone) = {
            let mut inner = inbox.inner.lock();
            loop {
                if inner.ended {
                    return;
                }
                let soonest = blocked.iter().filter_map(|one| one.until).min();
                let is_due = soonest.is_some_and(|until| until <= Instant::now());
                let written = std::mem::take(&mut inner.written);
                if is_due || written || !inner.asked.is_empty() || !inner.gone.is_empty() {
                    break;
                }
                // What is read beside the writer may be seen a moment late.
                let most = Instant::now() + if blocked.is_empty() { IDLE } else { LOOK };
                let until = soonest.map_or(most, |soonest| soonest.min(most));
                if inbox.arrived.wait_until(&mut inner, until).timed_out() && !blocked.is_empty() {
                    break;
                }
            }
            (std::mem::take(&mut inner.asked), std::mem::take(&mut inner.gone))
        };
        for asked in asked {
            let (worker, token, resp3) = (asked.worker, asked.token, asked.resp3);
            let mut reply = Vec::new();
            match answer(asked, &mut reply) {
                Ok(None) => host.answer(worker, token, reply),
                Ok(Some(waits)) => {
                    // From now on it is told what is written; what was until now is looked for once more.
                    inbox.blocked.store(true, SeqCst);
                    blocked.push(waits);
                }
                Err(failure) => host.answer(worker, token, refused(failure, resp3)),
            }
        }
        blocked.retain(|one| !gone.contains(&(one.worker, one.token)));
        let now = Instant::now();
        blocked.retain_mut(|one| {
            let mut reply = Vec::new();
            let found = one.look(&mut reply);
            let is_over = one.until.is_some_and(|until| until <= now);
            match found {
                Ok(false) if !is_over => return true,
                Ok(false) => nothing(&mut reply, one.resp3),
                Ok(true) => {}
                Err(failure) => reply = refused(failure, one.resp3),
            }
            host.answer(one.worker, one.token, reply);
            false
        });
        inbox.blocked.store(!blocked.is_empty(), SeqCst);
    }
}

/// Answers a question, or returns it to wait.
fn answer(asked: Asked, out: &mut Vec<u8>) -> Result<Option<Blocked>, Failure> {
    let Asked { worker, token, resp3, question } = asked;
    match question {
        Question::Length { reader } => {
            let length = reader.len()?;
            Writer { out, resp3 }.integer(length as i64);
            Ok(None)
        }
        Question::Range { reader, from, to, count, backward } => {
            let found = if backward {
                let mut messages = reader.backward(to)?;
                collected(count, || Ok(messages.next()?.filter(|one| one.position >= from)))?
            } else {
                let mut messages = reader.forward(from);
                collected(count, || Ok(messages.next()?.filter(|one| one.position <= to)))?
            };
            entries(&found, &mut Writer { out, resp3 });
            Ok(None)
        }
        Question::Read { topics, count, until, waits } => {
            let mut all = Vec::new();
            for Behind { topic, reader, position } in topics {
                let position = match position {
                    Some(position) => Some(position),
                    None => reader.backward(Position::LAST)?.next()?.map(|last| last.position),
                };
                let from = position.map_or(Position::FIRST, Position::next);
                all.push((topic, reader.forward(from)));
            }
            let mut waiting = Blocked { worker, token, resp3, topics: all, count, until };
            if waiting.look(out)? {
                return Ok(None);
            }
            if waits {
                return Ok(Some(waiting));
            }
            nothing(out, resp3);
            Ok(None)
        }
    }
}

impl Blocked {
    /// Writes the reply, if there is a message of one of its topics.
    fn look(&mut self, out: &mut Vec<u8>) -> Result<bool, Failure> {
        let mut found = Vec::new();
        for (topic, messages) in &mut self.topics {
            let some = collected(self.count, || Ok(messages.next()?))?;
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
            entries(some, &mut reply);
        }
        Ok(true)
    }
}

/// Takes up to so many messages, and not more than a reply may have.
fn collected(
    count: usize,
    mut next: impl FnMut() -> Result<Option<Stored>, Failure>,
) -> Result<Vec<Stored>, Failure> {
    let (mut found, mut bytes) = (Vec::new(), 0);
    while found.len() < count {
        let Some(stored) = next()? else { break };
        bytes += stored.payload.len() + OVERHEAD;
        if bytes > MOST && !found.is_empty() {
            return Err(Failure::TooLong);
        }
        found.push(stored);
    }
    Ok(found)
}

fn entries(found: &[Stored], reply: &mut Writer<'_>) {
    reply.array(found.len());
    for stored in found {
        reply.array(2);
        reply.bulk(stored.position.to_string().as_bytes());
        reply.array(2);
        reply.bulk(FIELD);
        reply.bulk(&stored.payload);
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

/// The one field that a message has, for clients that know entries of streams.
const FIELD: &[u8] = b"payload";
/// Bytes of one answer.
const MOST: usize = 64 << 20;
const OVERHEAD: usize = 64;
const IDLE: Duration = Duration::from_secs(3600);
const LOOK: Duration = Duration::from_millis(100);
