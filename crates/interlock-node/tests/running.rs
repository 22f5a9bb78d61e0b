//! A node in its own thread, between a hub's writes, a Redis and a table.

mod server;

use std::cell::RefCell;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use interlock_hub::tables::keeper;
use interlock_hub::tables::keeper::Keeper;
use interlock_hub::tables::writes::{
    Desk, Host, Numbered, RowWrites, Waiting, Words, Write, Written,
};
use interlock_log::entry::{Arguments, Mark};
use interlock_log::machine::Limits;
use interlock_log::rows;
use interlock_log::state::Rules;
use interlock_node::hub::HubWrites;
use interlock_node::node::{KeeperTold, Lacking, Pace, Reader};
use interlock_node::running::{Running, Settings};
use interlock_table::{Location, Options, Table};
use server::Server;

/// A hub with one client.
struct Told(Mutex<Sender<Written>>);

impl Host for Told {
    fn written(&self, _: usize, replies: Vec<Written>) {
        let tell = self.0.lock().unwrap();
        replies.into_iter().for_each(|reply| tell.send(reply).unwrap());
    }
}

struct Client {
    desk: Arc<Desk>,
    told: Receiver<Written>,
    writes: Arc<HubWrites>,
}

impl Client {
    fn new(most: usize) -> Client {
        let (tell, told) = channel();
        let desk = Arc::new(Desk { worker: 0, host: Arc::new(Told(Mutex::new(tell))) });
        Client { desk, told, writes: HubWrites::new(most).unwrap() }
    }

    fn give(&self, lines: &[&str]) {
        self.give_as(lines, |_| None);
    }

    fn give_as(&self, lines: &[&str], client: impl Fn(u64) -> Option<Numbered>) {
        let write = |(number, line): (u64, &&str)| Write {
            waiting: Waiting::new(self.desk.clone(), 1, number, number == RESP3),
            client: client(number),
            arguments: Words::new(line.split(' ').collect::<Vec<_>>().iter()),
            goes_on: false,
        };
        self.writes.write((0..).zip(lines).map(write).collect());
    }

    /// Sends one command under a client's number.
    fn say_as(&self, number: u64, deadline: u64, line: &str) -> String {
        let name = b"app/1".to_vec();
        self.give_as(&[line], |_| Some(Numbered { name: name.clone(), number, deadline }));
        self.said(1).remove(0)
    }

    fn time(&self) -> u64 {
        self.say(&["TABLE TIME t"])[0][1..].trim_end().parse().unwrap()
    }

    /// Returns the replies in the order of the writes.
    fn said(&self, count: usize) -> Vec<String> {
        let next = |_| self.told.recv_timeout(Duration::from_secs(30)).expect("no reply comes");
        let mut replies: Vec<Written> = (0..count).map(next).collect();
        replies.sort_by_key(|reply| reply.number);
        replies
            .into_iter()
            .map(|reply| String::from_utf8(reply.reply.into_vec()).unwrap())
            .collect()
    }

    fn say(&self, lines: &[&str]) -> Vec<String> {
        self.give(lines);
        self.said(lines.len())
    }
}

/// The index in a batch of the write whose client speaks RESP3.
const RESP3: u64 = 3;

fn start(server: &Server, name: &str, client: &Client) -> Running {
    begin(server, name, client, Pace::default())
}

fn begin(server: &Server, name: &str, client: &Client, pace: Pace) -> Running {
    let rules = Rules::parse("name: str[8], n: U32; last, sum; 60000 ms").unwrap();
    let schema = rules.schema().clone();
    let rows = rows::Settings {
        name: "t".to_owned(),
        dc: "main".to_owned(),
        rules,
        capacity: 100,
        centres: 1,
        tombstones: 100,
        key_size: 8,
        ttl: 0,
    };
    let options = Options { capacity: 100, key_size: 8, evict: false, ..Options::default() };
    let path = server.folder.join(format!("{name}.table"));
    let table = Table::open(&Location::Path(path), &schema, &options).unwrap();
    let settings = Settings {
        name: format!("{name}-{}", fastrand::u64(..)),
        node: name.to_owned(),
        machine: name.to_owned(),
        log: server.log(),
        rows,
        limits: Limits::default(),
        folder: server.folder.join(name),
        pace,
        held: false,
    };
    let reads = Keeper::new(keeper::Limits::default()).unwrap();
    Running::start(settings, table, client.writes.clone(), reads).unwrap()
}

/// Gives a checkpoint to each node that needs one, as the nodes' owners do over the network.
fn give(server: &Server, names: &[&str], nodes: &[Option<(Client, Running)>]) {
    for (name, node) in names.iter().zip(nodes) {
        let Some((_, node)) = node.as_ref().filter(|(_, it)| it.figures().needs_snapshot) else {
            continue;
        };
        for (other, (_, giver)) in
            names.iter().zip(nodes).filter_map(|(n, it)| Some((n, it.as_ref()?)))
        {
            let Some((path, _)) = giver.checkpoint().filter(|_| other != name) else { continue };
            let to = server.folder.join(name).join(UNFINISHED);
            if std::fs::copy(server.folder.join(other).join(path), to).is_ok() {
                node.install(UNFINISHED.to_owned());
            }
        }
    }
}

const UNFINISHED: &str = "unfinished-00000000000000000000";

fn eventually(what: impl FnMut() -> bool) {
    eventually_in(Duration::from_secs(30), what, String::new);
}

/// `shown`: what a failure prints.
fn eventually_in(time: Duration, mut what: impl FnMut() -> bool, shown: impl FnOnce() -> String) {
    let until = Instant::now() + time;
    while !what() {
        if Instant::now() >= until {
            panic!("it has not happened in {time:?}: {}", shown());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn the_words_of_a_write_have_the_layout_of_an_entry() {
    let long = "x".repeat(20_000);
    for line in ["HSET t:a name n", "PING", &format!("HSET t:a name {long} n {}", &long[..200])] {
        let words: Vec<&str> = line.split(' ').collect();
        let given = Words::new(words.iter());
        assert!(given.iter().eq(words.iter().map(|word| word.as_bytes())));
        let (whole, place) = given.into_shared();
        assert_eq!(Arguments::shared(whole, place), Arguments::new(&words));
    }
}

#[test]
fn rows_expire_without_writes_and_nodes_are_equal_at_the_same_position() {
    let server = Server::start("redis-server", &[]);
    let clients = [Client::new(1 << 20), Client::new(1 << 20)];
    let nodes = [start(&server, "a", &clients[0]), start(&server, "b", &clients[1])];
    assert_eq!(clients[0].say(&["HSET t:x n 1", "PEXPIRE t:x 100", "HSET t:y n 2"]).len(), 3);
    let figures = || nodes.each_ref().map(Running::figures);
    eventually(|| figures().iter().all(|one| one.rows == 1 && one.tombstones == 1));
    eventually(|| {
        let [a, b] = figures();
        a.standing.place.mark == b.standing.place.mark && {
            assert_eq!(a.checksum, b.checksum);
            true
        }
    });
    assert_eq!(clients[1].say(&["HINCRBY t:y n 1"]), [":3\r\n"]);
}

#[test]
fn a_draining_node_answers_accepted_writes_and_refuses_others() {
    let server = Server::start("redis-server", &[]);
    let client = Client::new(1 << 20);
    let node = start(&server, "a", &client);
    assert_eq!(client.say(&["HINCRBY t:y n 1"; 500]).last().unwrap(), ":500\r\n");
    assert!(node.drain(Instant::now() + Duration::from_secs(10)));
    let said = client.say(&["HINCRBY t:y n 1"]);
    assert!(said[0].starts_with("-TRYAGAIN the node drains"), "{said:?}");
    node.stop();
    let said = client.say(&["HINCRBY t:y n 1"]);
    assert!(said[0].starts_with("-TRYAGAIN the node that writes this table has ended"), "{said:?}");
}

#[test]
fn writes_waiting_for_a_node_are_bounded_and_answered_when_it_ends() {
    let client = Client::new(2000);
    let row = format!("HSET t:x name {}", "x".repeat(600));
    client.give(&[&row]);
    client.give(&[&row]);
    client.give(&[&row]);
    let said = client.said(1);
    assert!(said[0].contains("more writes to do than it has room for"), "{said:?}");
    client.writes.end();
    let said = client.said(2);
    assert!(said.iter().all(|one| one.contains("has ended: it was not done")), "{said:?}");
}

#[test]
fn a_node_reports_its_errors_while_they_last_and_its_counters() {
    let mut server = Server::start("redis-server", &[]);
    let client = Client::new(1 << 20);
    let node = start(&server, "a", &client);
    assert_eq!(client.say(&["HINCRBY t:y n 1", "HINCRBY t:y n 1"]), [":1\r\n", ":2\r\n"]);
    eventually(|| node.figures().rows == 1);
    let before = node.figures();
    assert_eq!((before.rows, before.waiting, before.standing.told.went_back), (1, 0, 0));
    assert!(before.standing.ring > 0 && before.standing.told.bytes > 0);
    assert!(before.standing.told.troubles.is_empty());
    server.kill();
    let kinds = || {
        let troubles = node.figures().standing.told.troubles;
        troubles.iter().map(|one| one.kind).collect::<Vec<_>>()
    };
    eventually(|| kinds() == ["engine"]);
    assert!(node.figures().standing.told.troubles[0].since > 1_700_000_000_000);
    client.give(&["HINCRBY t:y n 1"]);
    eventually(|| node.figures().waiting == 1);
    // The engine returns without data.
    server.run();
    assert_eq!(client.said(1).len(), 1);
    eventually(|| kinds().is_empty() && node.figures().standing.serves);
    let after = node.figures();
    assert_eq!((after.waiting, after.standing.told.went_back), (0, 1));
    assert!(after.standing.told.put_back >= 1 && after.rows == 1);
    let reads = after.standing.place;
    node.resync();
    eventually(|| {
        let standing = node.figures().standing;
        standing.told.resyncs == 1 && standing.serves && standing.place.mark >= reads.mark
    });
    assert_eq!(node.figures().rows, 1);
}

#[test]
fn a_numbered_write_is_applied_once_in_order_and_not_after_its_deadline() {
    let server = Server::start("redis-server", &[]);
    let clients = [Client::new(1 << 20), Client::new(1 << 20)];
    let [a, b] = &clients;
    let _nodes = [start(&server, "a", a), start(&server, "b", b)];
    let later = a.time() + 30_000;
    assert_eq!(a.say_as(1, later, "HINCRBY t:x n 1"), ":1\r\n");
    for node in [a, b, a] {
        // It has the same reply on every node, whatever was done since.
        assert_eq!(node.say_as(1, later, "HINCRBY t:x n 1"), ":1\r\n");
    }
    assert_eq!(b.say_as(3, later, "HINCRBY t:x n 1"), ":2\r\n");
    let late = a.say_as(2, later, "HSET t:x n 9");
    assert!(late.starts_with("-LATE ") && late.contains("was not, and will not be"), "{late}");
    let past = a.say_as(4, a.time() - 1, "HSET t:x n 9");
    assert!(past.starts_with("-PAST ") && past.contains("it was not done by then"), "{past}");
    let far = a.say_as(4, a.time() + 600_000, "HSET t:x n 9");
    assert!(far.starts_with("-TOOFAR the deadline is too far ahead"), "{far}");
    // The number of a refused write can be used again.
    assert_eq!(a.say_as(4, later, "TABLE BARRIER t"), "+OK\r\n");
    assert_eq!(b.say_as(4, later, "HSET t:x n 9"), "+OK\r\n");
    assert_eq!(a.say(&["HINCRBY t:x n 0"]), [":2\r\n"]);
}

#[test]
fn a_write_too_large_for_an_entry_is_refused_and_the_node_continues() {
    let server = Server::start("redis-server", &[]);
    let client = Client::new(256 << 20);
    let _node = start(&server, "a", &client);
    let keys = format!("DEL{}", " t:x".repeat(70_000));
    let long = format!("HSET t:x name {}", "x".repeat(17 << 20));
    let half = format!("HSET t:x name {}", "x".repeat(9 << 20));
    let said = client.say(&[&keys, "HSET t:x n 1", &long, &half, &half, "HINCRBY t:x n 1"]);
    assert!(said[0].starts_with("-ERR it has more than 65536 arguments"), "{}", said[0]);
    assert!(
        said[2].contains(" bytes in an entry of the log; allowed: 16776192, by "),
        "{}",
        said[2]
    );
    for at in [3, 4] {
        assert!(said[at].starts_with("-WRONGTYPE "), "{}", said[at]);
    }
    assert_eq!((&said[1][..], &said[5][..]), (":1\r\n", ":2\r\n"));
}

#[test]
fn entries_do_not_exceed_the_engine_s_limit_and_a_larger_write_is_refused() {
    let server = Server::start("redis-server", &["--proto-max-bulk-len", "1mb"]);
    let client = Client::new(256 << 20);
    let _node = start(&server, "a", &client);
    let long = format!("HSET t:x name {}", "x".repeat(1 << 20));
    let part = format!("HSET t:x name {}", "x".repeat(400_000));
    let said = client.say(&["HSET t:x n 1", &part, &part, &long, &part, &part, "HINCRBY t:x n 1"]);
    assert!(
        said[3].ends_with("allowed: 1047552, by proto-max-bulk-len: it was not done\r\n"),
        "{}",
        said[3]
    );
    for at in [1, 2, 4, 5] {
        assert!(said[at].starts_with("-WRONGTYPE "), "{}", said[at]);
    }
    assert_eq!((&said[0][..], &said[6][..]), (":1\r\n", ":2\r\n"));
}

#[test]
fn a_null_has_the_form_of_the_client_s_protocol() {
    let server = Server::start("redis-server", &[]);
    let client = Client::new(1 << 20);
    let _node = start(&server, "a", &client);
    let pops = ["TABLE POP t:x"; 5];
    let said = client.say(&pops);
    assert_eq!(said, ["$-1\r\n", "$-1\r\n", "$-1\r\n", "_\r\n", "$-1\r\n"]);
}

/// Nodes that start and end, and an engine that loses its tail or everything, in random order: each
/// answered write of a client counts once, and each refused one does not count.
#[test]
fn answered_writes_count_once_over_random_starts_ends_and_losses() {
    let number = |name| std::env::var(name).ok().and_then(|text: String| text.parse().ok());
    let seed = number("INTERLOCK_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("INTERLOCK_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut server = Server::start("redis-server", &[]);
    let pace = Pace { checkpoint: 20, timeout: Duration::from_millis(1500), ..Pace::default() };
    let names = ["a", "b", "c"];
    let mut nodes: Vec<Option<(Client, Running)>> = names.iter().map(|_| None).collect();
    let (mut done, mut unknown) = (0i64, 0i64);
    let start = |server: &Server, at: usize| {
        let client = Client::new(1 << 20);
        let running = begin(server, names[at], &client, pace);
        Some((client, running))
    };
    nodes[0] = start(&server, 0);
    let mut steps = Vec::new();
    for _ in 0..number("STEPS").unwrap_or(80) {
        let (at, step) = (random.usize(..3), random.u8(..14));
        steps.push((at, step));
        give(&server, &names, &nodes);
        match step {
            13 => nodes[at].iter().for_each(|(_, node)| node.resync()),
            // The engine later loses only what came after this save.
            12 => assert!(server.say("SAVE").starts_with("+OK")),
            0 => {
                // At least one node has the entries that the engine loses.
                if nodes.iter().flatten().count() > 1 {
                    nodes[at] = None;
                }
            }
            1 => {
                server.kill();
                server.run();
            }
            2..5 if nodes[at].is_none() => nodes[at] = start(&server, at),
            _ => {
                let Some((client, _)) = &nodes[at] else { continue };
                for reply in client.say(&vec!["HINCRBY t:x n 1"; random.usize(1..40)]) {
                    match reply.as_bytes()[0] {
                        b':' => done += 1,
                        _ if reply.starts_with("-UNANSWERED") => unknown += 1,
                        _ => assert!(reply.contains("it was not done"), "{reply}"),
                    }
                }
            }
        }
    }
    for (at, node) in nodes.iter_mut().enumerate() {
        if node.is_none() {
            *node = start(&server, at);
        }
    }
    // Longer than a node waits for others to put back what it lacks.
    let time = 4 * pace.patience;
    let seen = RefCell::new(Vec::new());
    let is_settled = || {
        give(&server, &names, &nodes);
        let nodes: Vec<_> = nodes.iter().flatten().collect();
        let said = nodes.iter().map(|(client, _)| client.say(&["HINCRBY t:x n 0"]).remove(0));
        seen.replace(said.collect());
        let said = seen.borrow();
        let counts: Vec<i64> =
            said.iter().filter_map(|one| one[1..].trim_end().parse().ok()).collect();
        let is_right = |count: &i64| (done..=done + unknown).contains(count) && *count == counts[0];
        let is_settled = |node: &Running| {
            let standing = node.figures().standing;
            standing.serves && !standing.owes
        };
        counts.len() == 3
            && counts.iter().all(is_right)
            && nodes.iter().all(|(_, node)| is_settled(node))
    };
    eventually_in(time, is_settled, || {
        let figures: Vec<_> = nodes.iter().flatten().map(|(_, node)| node.figures()).collect();
        let said = seen.borrow();
        format!(
            "{done} were done, {unknown} maybe; the nodes said {said:?}; steps {steps:?}; {figures:#?}"
        )
    });
}

#[test]
fn nodes_that_are_resynced_together_continue_from_their_checkpoints_of_a_trimmed_log() {
    let server = Server::start("redis-server", &[]);
    let start = |keep| {
        ["a", "b"].map(|name| {
            let client = Client::new(1 << 20);
            let pace = Pace { checkpoint: 5, keep, ..Pace::default() };
            let node = begin(&server, name, &client, pace);
            (client, node)
        })
    };
    let mut done = 0;
    // The log is not trimmed before both have reported their checkpoints in it.
    let nodes = start(1 << 20);
    eventually(|| {
        done += 1;
        assert_eq!(nodes[0].0.say(&["HINCRBY t:x n 1"]), [format!(":{done}\r\n")]);
        let is_kept = |keeper: &KeeperTold| keeper.kept.is_some();
        let figures = nodes[0].1.figures();
        figures.standing.keepers.iter().filter(|keeper| is_kept(keeper)).count() == 2
    });
    drop(nodes);
    let begins = || server.say("XRANGE il:log:{test} - + COUNT 1");
    let genesis = begins();
    let [(a, one), (b, other)] = start(0);
    let nodes = [one, other];
    eventually(|| begins() != genesis);
    server.signal(libc::SIGSTOP);
    nodes.iter().for_each(Running::resync);
    eventually(|| nodes.iter().all(|node| !node.figures().standing.serves));
    server.signal(libc::SIGCONT);
    let is_back = |node: &Running| {
        let standing = node.figures().standing;
        standing.serves && !standing.owes && standing.told.resyncs == 1
    };
    let figures = || nodes.each_ref().map(Running::figures);
    let shown = || format!("{:#?}", figures());
    eventually_in(Duration::from_secs(30), || nodes.iter().all(is_back), shown);
    for client in [a, b] {
        assert_eq!(client.say(&["HINCRBY t:x n 0"]), [format!(":{done}\r\n")]);
    }
    assert_eq!(figures().map(|one| one.standing.told.went_back), [0, 0]);
}

#[test]
fn a_later_position_is_of_another_history_only_if_the_end_of_the_log_was_read() {
    let server = Server::start("redis-server", &[]);
    let client = Client::new(1 << 20);
    let node = start(&server, "a", &client);
    eventually(|| client.say(&["HINCRBY t:x n 1"])[0] == ":1\r\n");
    let at = |position| Mark { position, checksum: 1 };
    let ask = |mark| {
        let reader = Reader::Database { mark, number: 1 };
        node.changes(reader, 10, Instant::now() + Duration::from_millis(200))
    };
    // An earlier place is known to differ.
    let found = ask(at(1)).map(|found| found.lacking);
    assert!(matches!(found, Some(Lacking::All { is_known: false, .. })), "{found:?}");
    // Another node may have read further.
    server.signal(libc::SIGSTOP);
    // Entries read before the stop may still be on their way.
    while ask(at(1000)).is_some() {}
    for _ in 0..3 {
        assert!(ask(at(1000)).is_none());
    }
    server.signal(libc::SIGCONT);
    eventually(|| {
        let found = ask(at(1000)).map(|found| found.lacking);
        matches!(found, Some(Lacking::All { is_known: false, .. }))
    });
}
