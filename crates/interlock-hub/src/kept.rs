//! Tables that a node of a cluster keeps: what is to be written to them is not done by the workers but
//! given to the keeper, which answers it later.
//!
//! The keeper sleeps on a descriptor, takes many calls at once, and answers many at once. A call waits with
//! its connection: when that closes, the call is forgotten, and if nobody has taken it yet, it is not done.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::resp::parse::{Arguments, Copied};
use crate::time::Time;
use crate::users::User;
use crate::wake::WakeUp;

/// A hub as its keeper sees it, which it outlives or not.
pub trait Host: Send + Sync {
    /// Answers connections of a worker, by their tokens, with these bytes as they go out.
    fn answer(&self, worker: usize, replies: Vec<(u64, Vec<u8>)>);
}

/// The keeper of tables.
pub struct Keeper {
    calls: Mutex<Calls>,
    wake: WakeUp,
    /// The time until which rows may be read. Relaxed: who misses a change by a moment was a moment earlier.
    fresh_until: AtomicU64,
    limits: Limits,
}

/// The bounds of what waits for a keeper, taken or not.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub calls: usize,
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { calls: 1 << 16, bytes: 64 << 20 }
    }
}

#[derive(Default)]
struct Calls {
    /// Numbers of those that nobody has taken, oldest first; some of them are forgotten.
    waiting: VecDeque<u64>,
    /// Those that are not answered, by their numbers.
    open: HashMap<u64, Open, RandomState>,
    bytes: usize,
    last: u64,
    ended: bool,
}

/// A call that is not answered.
struct Open {
    host: Arc<dyn Host>,
    worker: usize,
    token: u64,
    bytes: usize,
    /// `None`: it was taken.
    call: Option<Call>,
}

/// A call as a keeper takes it.
#[derive(Debug)]
pub struct Call {
    /// By which it is answered; no other call of this keeper has or had it.
    pub number: u64,
    pub user: Option<Arc<User>>,
    pub resp3: bool,
    pub arguments: Copied,
}

/// The connection that a call comes from.
pub struct Caller<'a> {
    pub host: &'a Arc<dyn Host>,
    pub worker: usize,
    pub token: u64,
    pub user: Option<&'a Arc<User>>,
    pub resp3: bool,
}

/// Replies to a worker of a hub.
struct Batch {
    host: Arc<dyn Host>,
    worker: usize,
    replies: Vec<(u64, Vec<u8>)>,
}

impl Keeper {
    pub fn new(limits: Limits) -> io::Result<Arc<Keeper>> {
        let (calls, wake) = (Mutex::default(), WakeUp::new()?);
        Ok(Arc::new(Keeper { calls, wake, fresh_until: AtomicU64::new(FOR_EVER), limits }))
    }

    /// Has a call wait for its answer; returns its number, or the text of an error.
    pub fn ask(&self, caller: Caller<'_>, arguments: Arguments<'_>) -> Result<u64, String> {
        let size = |argument: &[u8]| argument.len() + OF_AN_ARGUMENT;
        let bytes = OF_A_CALL + arguments.from(0).map(size).sum::<usize>();
        // Before the lock, behind which others wait.
        let arguments = arguments.copied();
        let mut calls = self.calls.lock();
        if calls.ended {
            return Err(ENDED.into());
        }
        // One that is longer than the bound has room alone.
        let over = calls.bytes + bytes > self.limits.bytes && !calls.open.is_empty();
        if over || calls.open.len() >= self.limits.calls {
            return Err(format!(
                "TRYAGAIN the node has {} calls of {} bytes to answer, and no room for more",
                calls.open.len(),
                calls.bytes
            ));
        }
        calls.last += 1;
        let number = calls.last;
        let (user, resp3) = (caller.user.cloned(), caller.resp3);
        let call = Some(Call { number, user, resp3, arguments });
        let Caller { host, worker, token, .. } = caller;
        calls.open.insert(number, Open { host: host.clone(), worker, token, bytes, call });
        calls.bytes += bytes;
        let first = calls.waiting.is_empty();
        calls.waiting.push_back(number);
        drop(calls);
        if first {
            self.wake.wake();
        }
        Ok(number)
    }

    /// The connection has closed.
    pub fn forget(&self, number: u64) {
        let mut calls = self.calls.lock();
        let forgotten = calls.close(number);
        // Numbers alone: they must not pile up where nobody takes any.
        if calls.waiting.len() > 2 * calls.open.len() + FEW {
            let Calls { waiting, open, .. } = &mut *calls;
            waiting.retain(|number| open.contains_key(number));
        }
        drop(calls);
        drop(forgotten);
    }

    /// Takes up to so many calls, oldest first.
    pub fn take(&self, most: usize) -> Vec<Call> {
        let mut taken = Vec::new();
        let mut calls = self.calls.lock();
        while taken.len() < most {
            let Some(number) = calls.waiting.pop_front() else { break };
            let call = calls.open.get_mut(&number).and_then(|open| open.call.take());
            taken.extend(call);
        }
        if calls.waiting.is_empty() {
            // Under the lock: what comes behind it wakes anew.
            self.wake.silence();
        }
        taken
    }

    /// Answers calls by their numbers. Those whose connections have closed are passed over.
    pub fn answer(&self, replies: impl IntoIterator<Item = (u64, Vec<u8>)>) {
        let mut batches = Vec::new();
        let mut calls = self.calls.lock();
        for (number, reply) in replies {
            if let Some(open) = calls.close(number) {
                add(&mut batches, open, reply);
            }
        }
        drop(calls);
        tell(batches);
    }

    /// Nobody takes calls any more: those that wait are refused, and those that will come.
    pub fn end(&self) {
        let mut batches = Vec::new();
        let mut calls = self.calls.lock();
        calls.ended = true;
        calls.bytes = 0;
        calls.waiting.clear();
        for (_, open) in std::mem::take(&mut calls.open) {
            let text = if open.call.is_some() { ENDED } else { UNANSWERED };
            add(&mut batches, open, format!("-{text}\r\n").into_bytes());
        }
        self.wake.silence();
        drop(calls);
        tell(batches);
    }

    /// Rows may be read until then; `None`: for ever.
    pub fn set_fresh_until(&self, until: Option<Time>) {
        self.fresh_until.store(until.unwrap_or(FOR_EVER), Relaxed);
    }

    /// Returns whether rows may be read. The clock is looked at only where there is an end.
    #[inline]
    pub fn is_fresh(&self, clock: fn() -> Time) -> bool {
        let until = self.fresh_until.load(Relaxed);
        until == FOR_EVER || clock() < until
    }

    /// Readable while there is something to take.
    pub fn descriptor(&self) -> RawFd {
        self.wake.descriptor()
    }
}

impl Calls {
    /// It is answered, or nobody waits for it.
    fn close(&mut self, number: u64) -> Option<Open> {
        let open = self.open.remove(&number)?;
        self.bytes -= open.bytes;
        Some(open)
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keeper({} calls)", self.calls.lock().open.len())
    }
}

/// Adds a reply to those for the same worker: there are few workers.
fn add(batches: &mut Vec<Batch>, open: Open, reply: Vec<u8>) {
    let Open { host, worker, token, .. } = open;
    let same = |batch: &&mut Batch| batch.worker == worker && Arc::ptr_eq(&batch.host, &host);
    match batches.iter_mut().find(same) {
        Some(batch) => batch.replies.push((token, reply)),
        None => batches.push(Batch { host, worker, replies: vec![(token, reply)] }),
    }
}

fn tell(batches: Vec<Batch>) {
    for Batch { host, worker, replies } in batches {
        host.answer(worker, replies);
    }
}

/// Of a call that was taken by a node that does not answer any more.
pub const UNANSWERED: &str =
    "UNANSWERED the node that keeps this table has ended or its hub stops: the call may have been done";
const ENDED: &str = "NODE the node that keeps this table has ended: the call was not done";
/// Of refused reads.
pub const STALE: &str =
    "STALE this node has not heard from its primary for longer than it may; ask another";
const FOR_EVER: Time = Time::MAX;
/// Bytes of a call and of an argument beside what they say.
const OF_A_CALL: usize = 256;
const OF_AN_ARGUMENT: usize = 8;
/// Numbers of forgotten calls that are no reason to look for them.
const FEW: usize = 1024;
