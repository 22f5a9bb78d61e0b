//! Calls of NODE, by which operators and other nodes ask a node: they are not done by the workers but given
//! to the node's keeper, which answers them later, and says until when rows of its table may be read.
//!
//! The keeper sleeps on a descriptor, takes many calls at once, and answers many at once. A call
//! waits with its connection: if that closes, the call is forgotten; if it had not been taken yet,
//! it is not executed.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use std::hash::RandomState;

use crate::access::users::User;
use crate::resp::parse::{Arguments, Copied};
use crate::system::time::Time;
use crate::system::wake::WakeUp;
use crate::tables::writes::UNKNOWN;

/// A hub as its keeper sees it, which it outlives or not.
pub trait Host: Send + Sync {
    /// Answers connections of a worker, by their tokens, with these bytes as they go out.
    fn answer(&self, worker: usize, replies: Vec<(u64, Vec<u8>)>);
}

/// The keeper of a node's table.
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
    /// Numbers of calls that are not taken yet, oldest first; some of these calls are forgotten.
    waiting: VecDeque<u64>,
    /// Unanswered calls, by number.
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
    /// Number to answer the call by, unique within this keeper.
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

    /// Removes and returns up to `most` calls, oldest first.
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

    /// Ends the service: waiting and later calls are refused.
    pub fn end(&self) {
        let mut batches = Vec::new();
        let mut calls = self.calls.lock();
        calls.ended = true;
        calls.bytes = 0;
        calls.waiting.clear();
        for (_, open) in std::mem::take(&mut calls.open) {
            let text = if open.call.is_some() { ENDED } else { UNKNOWN };
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
    /// Removes a call that was answered, or whose client no longer waits.
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

const ENDED: &str = "NODE the node has ended: the call was not done";
/// The error of refused reads.
pub const STALE: &str =
    "STALE this node has not read its log to the end for longer than --max-staleness, or cannot write its table; ask another";
const FOR_EVER: Time = Time::MAX;
/// Bytes of a call and of an argument beside what they say.
const OF_A_CALL: usize = 256;
const OF_AN_ARGUMENT: usize = 8;
/// Numbers of forgotten calls that are no reason to look for them.
const FEW: usize = 1024;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize};
    use std::sync::mpsc::{channel, Receiver, Sender};

    use crate::resp::parse::{self, Parser};
    use crate::tables::keeper::*;

    /// Hands replies on, by their tokens.
    struct Told(Mutex<Sender<(usize, u64, Vec<u8>)>>);

    type Replies = Receiver<(usize, u64, Vec<u8>)>;

    impl Host for Told {
        fn answer(&self, worker: usize, replies: Vec<(u64, Vec<u8>)>) {
            let tell = self.0.lock();
            replies
                .into_iter()
                .for_each(|(token, reply)| tell.send((worker, token, reply)).unwrap());
        }
    }

    fn host() -> (Arc<dyn Host>, Replies) {
        let (tell, told) = channel();
        (Arc::new(Told(Mutex::new(tell))), told)
    }

    fn ask(keeper: &Keeper, host: &Arc<dyn Host>, token: u64, line: &str) -> Result<u64, String> {
        let (mut parser, line) = (Parser::default(), format!("{line}\r\n"));
        let limits = parse::Limits { bulk: 1 << 20, strict: false };
        parser.parse(line.as_bytes(), &limits).unwrap();
        let caller =
            Caller { host, worker: token as usize % 3, token, user: None, resp3: token == 1 };
        keeper.ask(caller, parser.arguments(line.as_bytes()))
    }

    fn keeper(calls: usize, bytes: usize) -> Arc<Keeper> {
        Keeper::new(Limits { calls, bytes }).unwrap()
    }

    fn readable(keeper: &Keeper) -> bool {
        let fd = keeper.descriptor();
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        unsafe { libc::poll(&mut poll, 1, 0) == 1 }
    }

    #[test]
    fn calls_are_taken_in_their_order_and_answered_once() {
        let (keeper, (host, told)) = (keeper(10, 10_000), host());
        assert!(!readable(&keeper) && keeper.take(9).is_empty());
        for token in 1..=3 {
            assert_eq!(ask(&keeper, &host, token, &format!("HSET t:{token} a ")), Ok(token));
        }
        assert!(readable(&keeper));
        let two = keeper.take(2);
        let shown = |call: &Call| {
            let texts = call.arguments.arguments();
            let texts: Vec<_> = texts.from(0).map(|text| text.to_vec()).collect();
            (call.number, call.resp3, texts)
        };
        let wanted = [b"HSET".to_vec(), b"t:1".to_vec(), b"a".to_vec()];
        assert_eq!(shown(&two[0]), (1, true, wanted.to_vec()));
        assert!(readable(&keeper), "one is left");
        assert_eq!(keeper.take(2)[0].number, 3);
        assert!(!readable(&keeper));
        let replies = [3, 1, 1, 7, 2].map(|number| (number, format!(":{number}\r\n").into_bytes()));
        keeper.answer(replies.clone());
        keeper.answer(replies);
        let mut found: Vec<_> = told.try_iter().collect();
        found.sort();
        let wanted = [(0, 3), (1, 1), (2, 2)]
            .map(|(worker, token)| (worker, token, format!(":{token}\r\n").into_bytes()));
        assert_eq!(found, wanted);
    }

    #[test]
    fn waiting_calls_are_bounded_whether_taken_or_not() {
        let (few, (host, told)) = (keeper(2, 10_000), host());
        ask(&few, &host, 1, "A").unwrap();
        ask(&few, &host, 2, "A").unwrap();
        let refused = ask(&few, &host, 3, "A").unwrap_err();
        assert!(refused.starts_with("TRYAGAIN the node has 2 calls of "), "{refused}");
        assert_eq!(few.take(2).len(), 2);
        assert!(ask(&few, &host, 3, "A").is_err());
        few.answer([(1, b"+OK\r\n".to_vec())]);
        ask(&few, &host, 3, "A").unwrap();
        few.forget(2);
        ask(&few, &host, 4, "A").unwrap();
        assert_eq!(told.try_iter().count(), 1);

        let small = keeper(10, 2 * OF_A_CALL + 200);
        let long = format!("A {}", "x".repeat(2_000));
        ask(&small, &host, 1, &long).expect("alone");
        assert!(ask(&small, &host, 2, "A").is_err());
        small.forget(1);
        ask(&small, &host, 3, "A").unwrap();
        assert!(ask(&small, &host, 4, &long).is_err());
        ask(&small, &host, 5, "A").unwrap();
        assert!(ask(&small, &host, 6, "A").is_err());
        assert_eq!(small.take(9).iter().map(|call| call.number).collect::<Vec<_>>(), [2, 3]);
        small.answer([(2, b"+OK\r\n".to_vec()), (3, b"+OK\r\n".to_vec())]);
        let calls = small.calls.lock();
        assert_eq!((calls.bytes, calls.open.len()), (0, 0));
    }

    #[test]
    fn a_dropped_call_is_not_taken_and_leaves_nothing() {
        let (keeper, (host, told)) = (keeper(10, 10_000), host());
        for token in 0..100_000 {
            let number = ask(&keeper, &host, token, "A").unwrap();
            keeper.forget(number);
        }
        assert!(keeper.calls.lock().waiting.len() <= FEW + 1);
        let number = ask(&keeper, &host, 7, "A").unwrap();
        let taken = keeper.take(10);
        assert_eq!(taken.iter().map(|call| call.number).collect::<Vec<_>>(), [number]);
        keeper.forget(number);
        keeper.answer([(number, b"+OK\r\n".to_vec())]);
        assert_eq!(told.try_iter().count(), 0);
    }

    #[test]
    fn calls_waiting_at_shutdown_learn_whether_they_may_have_been_applied() {
        let (keeper, (host, told)) = (keeper(10, 10_000), host());
        ask(&keeper, &host, 1, "A").unwrap();
        keeper.take(1);
        ask(&keeper, &host, 2, "A").unwrap();
        keeper.end();
        let mut found: Vec<_> = told.try_iter().map(|(_, token, reply)| (token, reply)).collect();
        found.sort();
        let wanted = [(1, UNKNOWN), (2, ENDED)];
        assert_eq!(found, wanted.map(|(token, text)| (token, format!("-{text}\r\n").into_bytes())));
        assert_eq!(ask(&keeper, &host, 3, "A"), Err(ENDED.to_owned()));
        keeper.end();
        keeper.answer([(1, b"+OK\r\n".to_vec())]);
        assert_eq!(told.try_iter().count(), 0);
    }

    #[test]
    fn rows_can_be_read_until_a_deadline_that_can_be_moved() {
        let keeper = keeper(1, 1);
        assert!(keeper.is_fresh(|| Time::MAX), "for ever");
        keeper.set_fresh_until(Some(5));
        assert!(keeper.is_fresh(|| 4) && !keeper.is_fresh(|| 5));
        keeper.set_fresh_until(Some(0));
        assert!(!keeper.is_fresh(|| 0));
        keeper.set_fresh_until(None);
        assert!(keeper.is_fresh(|| 5));
    }

    #[test]
    fn under_threads_each_call_is_answered_once_and_no_wake_up_is_lost() {
        let (keeper, (host, told)) = (keeper(64, 1 << 20), host());
        let (asked, done) = (AtomicUsize::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let askers = (0..3u64).map(|worker| {
                let (keeper, host, asked) = (&keeper, &host, &asked);
                scope.spawn(move || {
                    let mut token = worker;
                    while token < 3 * EACH {
                        match ask(keeper, host, token, "HSET t:k a 1") {
                            Ok(number) if token % 7 == 0 => keeper.forget(number),
                            Ok(_) => drop(asked.fetch_add(1, Relaxed)),
                            Err(text) => {
                                assert!(text.starts_with("TRYAGAIN "), "{text}");
                                std::thread::yield_now();
                                continue;
                            }
                        }
                        token += 3;
                    }
                })
            });
            let askers: Vec<_> = askers.collect();
            let (keeper, done) = (&keeper, &done);
            let taker = scope.spawn(move || loop {
                let last = done.load(Relaxed);
                let mut poll =
                    libc::pollfd { fd: keeper.descriptor(), events: libc::POLLIN, revents: 0 };
                // SAFETY: one valid entry.
                let woken = unsafe { libc::poll(&mut poll, 1, if last { 0 } else { 50 }) } == 1;
                if !woken {
                    let left = keeper.take(1);
                    assert!(left.is_empty() || !last, "it was not told of {left:?}");
                    if last {
                        return;
                    }
                    // It may have arrived just now; it cannot be put back.
                    keeper.answer(left.iter().map(|call| (call.number, b"+OK\r\n".to_vec())));
                    continue;
                }
                let taken = keeper.take(5);
                keeper.answer(taken.iter().map(|call| (call.number, b"+OK\r\n".to_vec())));
            });
            askers.into_iter().for_each(|asker| asker.join().unwrap());
            done.store(true, Relaxed);
            taker.join().unwrap();
        });
        let mut tokens: Vec<u64> = told.try_iter().map(|(_, token, _)| token).collect();
        let answered = tokens.len();
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), answered, "nobody twice");
        // Dropped calls may have been answered just before.
        assert!(answered >= asked.load(Relaxed), "{answered}");
        assert!(tokens.iter().filter(|token| *token % 7 != 0).count() == asked.load(Relaxed));
    }

    const EACH: u64 = 20_000;
}
