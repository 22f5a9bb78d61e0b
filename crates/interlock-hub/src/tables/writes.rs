//! Tables whose rows somebody else writes: the event loop of a node. The workers give it the writes of
//! their clients, many at once, and it answers each when it is done, from any thread and in any order.
//!
//! Neither way takes a lock or wakes a thread for each call: a worker gives what it has read in one turn,
//! and [`Answers`] sends what one look of the loop has answered, once to each worker.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

/// Writes the rows of a table.
pub trait RowWrites: Send + Sync {
    /// Accepts writes that a worker has read; a group is complete. Over all calls, the writes of a connection
    /// arrive in the order in which its client sent them, and must be done in that order. It must not block,
    /// or all connections of the worker would wait.
    fn write(&self, writes: Vec<Write>);
}

/// One command on rows, as the client sent it.
#[derive(Debug)]
pub struct Write {
    /// Identifies the write when it is answered.
    pub waiting: Waiting,
    /// `None`: a client that does not number its writes.
    pub client: Option<Numbered>,
    /// The command's name first. Rights and the number of arguments were checked, and all rows are of tables
    /// that have this writer.
    pub arguments: Words,
    /// True if it is done together with the next write, or neither is.
    pub goes_on: bool,
}

/// The arguments of a write: their number, and each with its length before it. These numbers have seven bits to a
/// byte, the lowest first, as in the entries of logs. Writes that are given together share one allocation.
#[derive(Clone)]
pub struct Words {
    whole: Arc<[u8]>,
    place: Range<usize>,
    count: usize,
}

impl Words {
    pub fn new<T: AsRef<[u8]>>(words: impl ExactSizeIterator<Item = T>) -> Words {
        let (mut bytes, count) = (Vec::new(), words.len());
        put(&mut bytes, words);
        Words { place: 0..bytes.len(), whole: bytes.into(), count }
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All of them, as they are in memory.
    pub fn bytes(&self) -> &[u8] {
        &self.whole[self.place.clone()]
    }

    /// Returns the shared bytes, and the place of these arguments in them.
    pub fn into_shared(self) -> (Arc<[u8]>, Range<usize>) {
        (self.whole, self.place)
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.bytes();
        number(&mut rest);
        (0..self.count).map(move |_| {
            let length = number(&mut rest);
            let (word, behind) = rest.split_at(length);
            rest = behind;
            word
        })
    }
}

impl PartialEq for Words {
    fn eq(&self, other: &Words) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Words {}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

fn put<T: AsRef<[u8]>>(to: &mut Vec<u8>, words: impl ExactSizeIterator<Item = T>) {
    put_number(to, words.len());
    for word in words {
        put_number(to, word.as_ref().len());
        to.extend_from_slice(word.as_ref());
    }
}

fn put_number(to: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

fn number(from: &mut &[u8]) -> usize {
    let (mut number, mut shift) = (0, 0);
    while let Some((byte, rest)) = from.split_first() {
        *from = rest;
        number |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if *byte < 0x80 {
            break;
        }
    }
    number
}

/// The client and the number of a write, under which it is done once however often it comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbered {
    pub name: Vec<u8>,
    /// From 1 on.
    pub number: u64,
    /// The log time after which it is not done, in ms.
    pub deadline: u64,
}

/// A client that waits for its reply. Dropped, it answers that nobody knows whether the write was done.
#[must_use]
pub struct Waiting {
    /// `None`: it is answered.
    worker: Option<Arc<Desk>>,
    token: u64,
    number: u64,
    resp3: bool,
}

/// A worker, as those see it who answer its connections.
pub struct Desk {
    pub worker: usize,
    pub host: Arc<dyn Host>,
}

impl Desk {
    fn is_same(&self, other: &Desk) -> bool {
        self.worker == other.worker
            && std::ptr::addr_eq(Arc::as_ptr(&self.host), Arc::as_ptr(&other.host))
    }
}

/// A hub as its writers see it, which it outlives or not.
pub trait Host: Send + Sync {
    fn written(&self, worker: usize, replies: Vec<Written>);
}

/// The reply to a write, as it goes out.
#[derive(Debug)]
pub struct Written {
    /// Token of the connection.
    pub token: u64,
    /// Number of the write within its connection.
    pub number: u64,
    pub reply: Reply,
}

/// A reply to a write. One thread makes it and another sends it, so short ones need no allocation.
pub type Reply = SmallVec<[u8; 24]>;

/// The writes that a worker has read in a turn and not yet given.
#[derive(Default)]
pub struct Batches(Vec<Batch>);

/// The writes for one writer. Each batch has a `Desk` of its own, so that threads do not share its counter.
struct Batch {
    writes: Arc<dyn RowWrites>,
    desk: Arc<Desk>,
    words: Vec<u8>,
    drafts: Vec<Draft>,
}

/// A write whose arguments are at a place in the batch's bytes.
struct Draft {
    waiting: Waiting,
    client: Option<Numbered>,
    place: Range<usize>,
    count: usize,
    goes_on: bool,
}

/// Replies that go out together. Dropped, it sends what it has.
#[derive(Default)]
pub struct Answers {
    /// The batches of each worker; there are few workers.
    batches: Vec<(Arc<Desk>, Vec<Written>)>,
}

impl Waiting {
    pub fn new(worker: Arc<Desk>, token: u64, number: u64, resp3: bool) -> Self {
        Waiting { worker: Some(worker), token, number, resp3 }
    }

    /// Returns whether the client speaks RESP3; its reply must be worded so.
    pub fn resp3(&self) -> bool {
        self.resp3
    }

    /// Sends the reply, a whole one of the protocol, behind those to the writes that the client sent before.
    /// [`Answers`] does it for many at once.
    pub fn answer(self, reply: Vec<u8>) {
        Answers::default().add(self, reply);
    }

    fn written(&mut self, reply: Reply) -> Option<(Arc<Desk>, Written)> {
        let worker = self.worker.take()?;
        Some((worker, Written { token: self.token, number: self.number, reply }))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.worker.is_none() {
            return;
        }
        let reply = format!("-{UNKNOWN}\r\n").into_bytes();
        if let Some((desk, written)) = self.written(reply.into()) {
            desk.host.written(desk.worker, vec![written]);
        }
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waiting({}, {})", self.token, self.number)
    }
}

impl Batches {
    /// Adds a write. Of very many the first are given at once, so that the writer does not wait for all.
    ///
    /// # Arguments
    ///
    /// `desk` makes the worker as its answerers see it. `wait` gets the size of the arguments, and returns the
    /// client that waits. `goes_on`: the write is done together with the next one.
    pub fn add<T: AsRef<[u8]>>(
        &mut self,
        writes: &Arc<dyn RowWrites>,
        (client, goes_on): (Option<Numbered>, bool),
        arguments: impl ExactSizeIterator<Item = T>,
        desk: impl FnOnce() -> Desk,
        wait: impl FnOnce(Arc<Desk>, usize) -> Waiting,
    ) {
        let at = self.0.iter().position(|batch| is_same(&batch.writes, writes));
        let at = at.unwrap_or_else(|| {
            let (writes, desk) = (writes.clone(), Arc::new(desk()));
            self.0.push(Batch { writes, desk, words: Vec::new(), drafts: Vec::new() });
            self.0.len() - 1
        });
        let batch = &mut self.0[at];
        let (from, count) = (batch.words.len(), arguments.len());
        put(&mut batch.words, arguments);
        let place = from..batch.words.len();
        let waiting = wait(batch.desk.clone(), place.len());
        batch.drafts.push(Draft { waiting, client, place, count, goes_on });
        let is_enough = batch.drafts.len() >= GIVEN || batch.words.len() >= GIVEN_BYTES;
        if is_enough && !goes_on {
            self.give();
        }
    }

    pub fn give(&mut self) {
        for Batch { writes, words, drafts, .. } in self.0.drain(..) {
            let whole: Arc<[u8]> = words.into();
            let write = |Draft { waiting, client, place, count, goes_on }| {
                let whole = whole.clone();
                Write { waiting, client, arguments: Words { whole, place, count }, goes_on }
            };
            writes.write(drafts.into_iter().map(write).collect());
        }
    }
}

/// Returns whether both are the same writer.
pub fn is_same(one: &Arc<dyn RowWrites>, other: &Arc<dyn RowWrites>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

impl Answers {
    /// Adds a reply, a whole one of the protocol.
    pub fn add(&mut self, mut waiting: Waiting, reply: impl AsRef<[u8]>) {
        let reply = Reply::from_slice(reply.as_ref());
        let Some((desk, written)) = waiting.written(reply) else { return };
        match self.batches.iter_mut().find(|(known, _)| known.is_same(&desk)) {
            Some((_, batch)) => batch.push(written),
            None => self.batches.push((desk, vec![written])),
        }
    }

    /// Sends them.
    pub fn send(&mut self) {
        for (desk, batch) in self.batches.drain(..) {
            desk.host.written(desk.worker, batch);
        }
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.send();
    }
}

/// The longest name of a client that numbers its writes, in bytes.
pub const MOST_NAME: usize = 128;
/// Number of writes, or bytes of arguments, from which a batch is given.
const GIVEN: usize = 512;
const GIVEN_BYTES: usize = 1 << 20;
/// Error for a write that its writer dropped, or that is not answered when the hub stops; also for
/// NODE.
pub const UNKNOWN: &str = "UNANSWERED the node has ended or its hub stops: it may have been done";
