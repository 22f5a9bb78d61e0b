//! Nodes on one server, with a machine that keeps counters.

#[path = "node/readers.rs"]
mod readers;
mod server;

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use interlock_hub::tables::writes::Words;
use interlock_log::apply::Answer;
use interlock_log::codec::{put_bytes, put_number, Damaged, Reader};
use interlock_log::machine::{Judge, Limits, Machine, Moment, Origin, Outcome, Rules};
use interlock_log::replica::Setup;
use interlock_node::files::lock;
use interlock_node::node::{Clients, News, Node, Pace, Refused, Unacknowledged, Write};
use interlock_node::projection::Projection;
use interlock_stores::disk::folder::Folder;
use interlock_stores::disk::simulated::{Faults, Simulated};
use interlock_stores::disk::Disk;
use server::{Server, STREAM};

/// Counters by name and lineage: `INCR name` replies with the sum.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Sums(BTreeMap<(Vec<u8>, u64), u64>);

impl Machine for Sums {
    fn begin(_: &[u8]) -> Result<Self, Damaged> {
        Ok(Sums::default())
    }

    fn advance(&mut self, _: u64) {}

    fn apply(&mut self, arguments: &[&[u8]], moment: &Moment<'_>, reply: &mut Vec<u8>) -> Outcome {
        let name = arguments[0].to_vec();
        *self.0.entry((name.clone(), moment.lineage)).or_default() += 1;
        let sum = self.sum(&name);
        reply.extend_from_slice(&sum.to_le_bytes());
        Outcome::Done
    }

    fn join(&mut self, other: Self, _: &Judge<'_>, _: Origin<'_>) -> u64 {
        for (key, sum) in other.0 {
            let ours = self.0.entry(key).or_default();
            *ours = sum.max(*ours);
        }
        0
    }

    fn replace(&mut self, other: Self, _: u64) -> u64 {
        *self = other;
        0
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_number(out, self.0.len() as u64);
        for ((name, lineage), sum) in &self.0 {
            put_bytes(out, name);
            put_number(out, *lineage);
            put_number(out, *sum);
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        let mut reader = Reader::new(bytes);
        let mut sums = Sums::default();
        for _ in 0..reader.count(3)? {
            let name = reader.bytes(100)?.to_vec();
            sums.0.insert((name, reader.number()?), reader.number()?);
        }
        reader.end()?;
        Ok(sums)
    }
}

impl Sums {
    fn sum(&self, name: &[u8]) -> u64 {
        self.0.iter().filter(|((one, _), _)| one == name).map(|(_, sum)| sum).sum()
    }
}

/// The clients of a node: threads of the test.
struct Threads {
    shared: Arc<Shared>,
    woken: UnixStream,
}

#[derive(Default)]
struct Shared {
    asked: Mutex<Vec<Write>>,
    answered: Mutex<HashMap<u64, Answer>>,
    lacking: Mutex<HashMap<u64, Unacknowledged>>,
    refused: Mutex<Vec<Refused>>,
    told: Condvar,
    last: AtomicU64,
    news: Mutex<Vec<News>>,
    ends: AtomicBool,
}

impl Clients for Threads {
    fn descriptor(&self) -> RawFd {
        self.woken.as_raw_fd()
    }

    fn waiting(&self) -> usize {
        self.shared.asked.lock().unwrap().len()
    }

    fn take(&mut self, most: usize) -> Vec<Write> {
        let mut asked = self.shared.asked.lock().unwrap();
        let count = asked.len().min(most);
        if count == asked.len() {
            let _ = std::io::Read::read(&mut self.woken, &mut [0; 4096]);
        }
        asked.drain(..count).collect()
    }

    fn answer(&mut self, answers: Vec<(u64, Answer)>) {
        self.shared.answered.lock().unwrap().extend(answers);
        self.shared.told.notify_all();
    }

    /// Repeats the writes, like a client that retries.
    fn refuse(&mut self, writes: Vec<Write>, why: Refused) {
        assert!(matches!(why, Refused::CannotNow | Refused::Behind), "{why:?}: {writes:?}");
        self.shared.asked.lock().unwrap().extend(writes);
        self.shared.refused.lock().unwrap().push(why);
    }

    fn lack(&mut self, ticket: u64, why: Unacknowledged) {
        self.shared.lacking.lock().unwrap().insert(ticket, why);
        self.shared.told.notify_all();
    }

    fn tell(&mut self, news: News) {
        self.shared.news.lock().unwrap().push(news);
    }
}

struct Running {
    shared: Arc<Shared>,
    waker: Arc<Mutex<UnixStream>>,
    thread: std::thread::JoinHandle<Option<Sums>>,
}

impl Running {
    fn start(server: &Server, name: &str, pace: Pace) -> Running {
        Running::on(server, Folder::new(server.folder.join(name)), name, pace)
    }

    fn on<D: Disk>(server: &Server, disk: D, name: &str, pace: Pace) -> Running {
        Running::of(server, disk, name, name, pace)
    }

    fn of<D: Disk>(server: &Server, disk: D, name: &str, machine: &str, pace: Pace) -> Running {
        Running::shown_in(server, disk, name, machine, pace, Box::new(()))
    }

    fn shown_in<D: Disk>(
        server: &Server,
        disk: D,
        name: &str,
        machine: &str,
        pace: Pace,
        projection: Box<dyn Projection<Sums>>,
    ) -> Running {
        let (woken, waker) = UnixStream::pair().unwrap();
        woken.set_nonblocking(true).unwrap();
        let shared = Arc::new(Shared::default());
        let log = server.log();
        let nonce = fastrand::u64(..);
        let setup = Setup {
            name: format!("{name}-{nonce}").into_bytes(),
            node: name.as_bytes().to_vec(),
            machine: machine.as_bytes().to_vec(),
            genesis: b"sums".to_vec(),
            limits: Limits::default(),
            rules: Rules::ALL,
        };
        let clients = Threads { shared: shared.clone(), woken };
        let ends = shared.clone();
        let thread = std::thread::spawn(move || {
            let _lock = lock(&disk).unwrap();
            let mut node =
                Node::<Sums, _, _>::new(log, setup, disk, clients, projection, pace).unwrap();
            while !ends.ends.load(SeqCst) {
                node.turn(Instant::now() + Duration::from_millis(20), None);
            }
            node.end();
            node.replica_state().cloned()
        });
        Running { shared, waker: Arc::new(Mutex::new(waker)), thread }
    }

    /// Sends `count` writes at once, each of which must be answered.
    fn incr(&self, name: &str, count: u64) -> Vec<Answer> {
        self.tried(name, count, None).into_iter().map(Result::unwrap).collect()
    }

    /// Sends a write that waits for `acks` machines.
    fn acked(&self, name: &str, acks: usize) -> Result<Answer, Unacknowledged> {
        self.tried(name, 1, Some(acks)).remove(0)
    }

    fn tried(
        &self,
        name: &str,
        count: u64,
        acks: Option<usize>,
    ) -> Vec<Result<Answer, Unacknowledged>> {
        let first = self.ask(name, count, acks);
        self.answers(name, first, count)
    }

    /// Sends writes. Returns the ticket of the first.
    fn ask(&self, name: &str, count: u64, acks: Option<usize>) -> u64 {
        let first = self.shared.last.fetch_add(count, SeqCst);
        let write = |n| Write {
            ticket: first + n,
            client: None,
            deadline: None,
            acks,
            arguments: Words::new([name].iter()),
            goes_on: false,
        };
        self.shared.asked.lock().unwrap().extend((0..count).map(write));
        let _ = std::io::Write::write(&mut *self.waker.lock().unwrap(), b"x");
        first
    }

    /// Waits for the answers to the writes from a ticket on.
    fn answers(&self, name: &str, first: u64, count: u64) -> Vec<Result<Answer, Unacknowledged>> {
        let mut answered = self.shared.answered.lock().unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        let mut answers = Vec::new();
        while (answers.len() as u64) < count {
            let next = first + answers.len() as u64;
            if let Some(answer) = answered.remove(&next) {
                answers.push(Ok(answer));
                continue;
            }
            if let Some(why) = self.shared.lacking.lock().unwrap().remove(&next) {
                answers.push(Err(why));
                continue;
            }
            let news = self.shared.news.lock().unwrap().clone();
            assert!(Instant::now() < end, "{} of {count} to {name}; {news:?}", answers.len());
            let wait = Duration::from_millis(100);
            answered = self.shared.told.wait_timeout(answered, wait).unwrap().0;
        }
        answers
    }

    fn end(self) -> Option<Sums> {
        self.shared.ends.store(true, SeqCst);
        self.thread.join().unwrap()
    }
}

fn sums(answers: &[Answer]) -> Vec<u64> {
    let sum = |answer: &Answer| match answer {
        Answer::Done { reply: Some(reply), .. } => {
            u64::from_le_bytes(reply[..].try_into().unwrap())
        }
        other => panic!("{other:?}"),
    };
    answers.iter().map(sum).collect()
}

#[test]
fn two_nodes_reach_the_same_state_and_answer_each_client_in_order() {
    let server = Server::start("redis-server", &[]);
    let nodes = ["a", "b"].map(|name| Running::start(&server, name, Pace::default()));
    std::thread::scope(|scope| {
        for client in 0..8 {
            let node = &nodes[client % 2];
            scope.spawn(move || {
                for round in 0..10u64 {
                    let own = sums(&node.incr(&format!("own{client}"), 50));
                    assert_eq!(own, (round * 50 + 1..=round * 50 + 50).collect::<Vec<_>>());
                    node.incr("shared", 5);
                }
            });
        }
    });
    assert_eq!(sums(&nodes[0].incr("shared", 1)), [401]);
    assert_eq!(sums(&nodes[1].incr("shared", 1)), [402]);
    let [a, b] = nodes.map(Running::end);
    let b = b.unwrap();
    assert_eq!(b.sum(b"shared"), 402);
    assert_eq!(a.unwrap().sum(b"own3"), 500);
}

#[test]
fn a_restarted_node_continues_from_its_checkpoint() {
    let server = Server::start("valkey-server", &[]);
    let pace = Pace { checkpoint: 10, ..Pace::default() };
    let node = Running::start(&server, "a", pace);
    // Checkpoints are written while the node continues.
    let written = || {
        let Ok(names) = std::fs::read_dir(server.folder.join("a")) else { return 0 };
        let names = names.map(|one| one.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("checkpoint-")).count()
    };
    let mut count = 0;
    while written() < 3 {
        assert_eq!(sums(&node.incr("x", 3))[2], count + 3);
        count += 3;
    }
    node.end();
    assert_eq!(written(), 3);
    let node = Running::start(&server, "a", pace);
    assert_eq!(sums(&node.incr("x", 1)), [count + 1]);
    assert!(node.shared.news.lock().unwrap().is_empty());
    node.end();
}

/// A single node whose log was cut behind its checkpoint has the missing entries in its ring, also
/// the second time.
#[test]
fn a_restarted_node_bridges_a_trimmed_log_from_its_ring_file() {
    let server = Server::start("redis-server", &[]);
    let node = Running::start(&server, "a", Pace { checkpoint: 10, ..Pace::default() });
    let mut count = 0;
    let is_checkpoint = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("checkpoint-");
    let folder = || std::fs::read_dir(server.folder.join("a")).unwrap();
    while count == 0 || !folder().any(|one| is_checkpoint(&one.unwrap().file_name())) {
        count = sums(&node.incr("x", 1))[0];
    }
    node.end();
    for left in [3, 1] {
        let node = Running::start(&server, "a", Pace::default());
        for _ in 0..20 {
            count += 1;
            assert_eq!(sums(&node.incr("x", 1)), [count]);
        }
        let found = node.shared.news.lock().unwrap().clone();
        let goes_on = found.iter().any(|news| matches!(news, News::GoesOn(_)));
        assert_eq!(goes_on, left == 1, "{found:?}");
        node.end();
        server.say(&format!("XTRIM {} MAXLEN {left}", String::from_utf8_lossy(STREAM)));
    }
    let node = Running::start(&server, "a", Pace::default());
    assert_eq!(sums(&node.incr("x", 1)), [count + 1]);
    node.end();
}

#[test]
fn writes_lost_by_the_engine_are_restored_and_count_once() {
    for restarts in [false, true] {
        let mut server = Server::start("redis-server", &[]);
        let nodes = ["a", "b"].map(|name| Running::start(&server, name, Pace::default()));
        for round in 0..20 {
            nodes[round % 2].incr("x", 5);
        }
        let nodes = if restarts {
            // Only their ring files have the entries.
            for node in nodes {
                node.end();
            }
            server.kill();
            server.run();
            ["a", "b"].map(|name| Running::start(&server, name, Pace::default()))
        } else {
            server.kill();
            server.run();
            nodes
        };
        for node in &nodes {
            node.incr("y", 1);
        }
        // A node puts missing entries back before or after the first writes; then each counts once.
        let end = Instant::now() + Duration::from_secs(20);
        let mut counted = 100;
        loop {
            counted += 1;
            let found = sums(&nodes[0].incr("x", 1))[0];
            assert!(found <= counted, "{found}");
            if found == counted {
                break;
            }
            let news = nodes[0].shared.news.lock().unwrap().clone();
            assert!(Instant::now() < end, "{found} of {counted}: {news:?}");
        }
        assert_eq!(sums(&nodes[1].incr("x", 1)), [counted + 1]);
        for node in nodes {
            node.end();
        }
    }
}

#[test]
fn a_node_with_a_full_disk_reports_it_and_acknowledges_no_write() {
    let server = Server::start("redis-server", &[]);
    let disk = Simulated::new(1);
    let node = Running::on(&server, disk.clone(), "a", Pace::default());
    let other = Running::start(&server, "b", Pace::default());
    // Written after the other node's first entry, which would show it that its disk is full before
    // it is asked.
    other.incr("y", 1);
    node.incr("x", 1);
    disk.set_faults(Faults { read_only: true, ..Faults::default() });
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| sums(&node.incr("x", 3)));
        let end = Instant::now() + Duration::from_secs(20);
        let is_told = || {
            let news = node.shared.news.lock().unwrap();
            news.iter().any(|one| matches!(one, News::Disk(text) if text.contains("ring-")))
        };
        while !is_told() {
            assert!(Instant::now() < end);
            std::thread::yield_now();
        }
        // The other node has read them and still takes writes.
        assert_eq!(sums(&other.incr("x", 1)), [5]);
        assert!(!waits.is_finished() && node.shared.answered.lock().unwrap().is_empty());
        disk.set_faults(Faults::default());
        assert_eq!(waits.join().unwrap(), [2, 3, 4]);
    });
    node.end();
    other.end();
}

#[test]
fn a_node_with_a_full_disk_answers_writes_at_their_timeout() {
    let server = Server::start("redis-server", &[]);
    let disk = Simulated::new(1);
    let node = Running::on(&server, disk.clone(), "a", acks(0, 500));
    let other = Running::start(&server, "b", Pace::default());
    other.incr("y", 1);
    node.incr("x", 1);
    disk.set_faults(Faults { read_only: true, ..Faults::default() });
    assert_eq!(node.tried("x", 1, None), [Ok(Answer::Unknown)]);
    disk.set_faults(Faults::default());
    assert_eq!(sums(&node.incr("x", 1)), [3]);
    disk.set_faults(Faults { read_only: true, ..Faults::default() });
    let lacking = node.tried("x", 1, Some(1)).remove(0).unwrap_err();
    assert!(matches!(lacking, Unacknowledged::InTime { wanted: 1, .. }), "{lacking:?}");
    disk.set_faults(Faults::default());
    assert_eq!(sums(&node.incr("x", 1)), [5]);
    node.end();
    other.end();
}

fn acks(acks: usize, timeout: u64) -> Pace {
    Pace { acks, timeout: Duration::from_millis(timeout), ..Pace::default() }
}

#[test]
fn a_write_is_answered_once_enough_other_machines_have_it() {
    let server = Server::start("redis-server", &[]);
    let start = |name: &str, machine: &str, pace| {
        Running::of(&server, Folder::new(server.folder.join(name)), name, machine, pace)
    };
    let a = start("a", "m", acks(1, 300));
    assert_eq!(a.acked("x", 1), Err(Unacknowledged::InTime { wanted: 1, have: 0 }));
    let of_the_machine = start("b", "m", Pace::default());
    of_the_machine.incr("x", 1);
    assert_eq!(a.acked("x", 1), Err(Unacknowledged::InTime { wanted: 1, have: 0 }));
    assert_eq!(sums(&[a.acked("x", 0).unwrap()]), [4]);
    let c = start("c", "n", Pace::default());
    assert_eq!(sums(&c.incr("x", 1)), [5]);
    let pairs = std::thread::scope(|scope| {
        let clients = [&a; 8].map(|a| scope.spawn(|| sums(&a.incr("x", 50))));
        clients.map(|client| client.join().unwrap())
    });
    let mut all = pairs.concat();
    all.sort_unstable();
    assert_eq!(all, (6..406).collect::<Vec<_>>());
    assert_eq!(a.acked("x", 2), Err(Unacknowledged::InTime { wanted: 2, have: 1 }));
    c.end();
    // The write is done and stays done.
    assert_eq!(a.acked("x", 1), Err(Unacknowledged::InTime { wanted: 1, have: 0 }));
    assert_eq!(sums(&[a.acked("x", 0).unwrap()]), [408]);
    a.end();
    of_the_machine.end();
}

#[test]
fn an_acknowledged_write_survives_the_loss_of_its_node_and_of_the_log() {
    let mut server = Server::start("valkey-server", &[]);
    let nodes = ["a", "b", "c"].map(|name| Running::start(&server, name, acks(1, 20_000)));
    assert_eq!(sums(&nodes[0].incr("x", 20)).last(), Some(&20));
    let [a, b, c] = nodes;
    a.end();
    server.kill();
    std::fs::remove_dir_all(server.folder.join("a")).unwrap();
    server.run();
    raised(&b, "x", 20);
    b.end();
    c.end();
}

#[test]
fn writes_waiting_for_other_machines_are_answered_when_the_engine_loses_them_or_the_node_ends() {
    let mut server = Server::start("redis-server", &[]);
    let a = Running::start(&server, "a", acks(0, 20_000));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| a.acked("x", 1));
        // The write is applied, and its answer held back.
        raised(&a, "x", 1);
        server.kill();
        server.run();
        assert_eq!(waits.join().unwrap(), Err(Unacknowledged::Lost));
        let waits = scope.spawn(|| a.acked("y", 1));
        raised(&a, "y", 1);
        a.shared.ends.store(true, SeqCst);
        assert_eq!(waits.join().unwrap(), Err(Unacknowledged::Ends));
    });
    a.end();
}

/// Raises a counter until it includes `others` raises of other nodes.
fn raised(node: &Running, name: &str, others: u64) {
    let end = Instant::now() + Duration::from_secs(20);
    for own in 1.. {
        let found = sums(&node.incr(name, 1))[0];
        assert!(found <= own + others && Instant::now() < end, "{found}, {own} of its own");
        if found == own + others {
            return;
        }
    }
}
