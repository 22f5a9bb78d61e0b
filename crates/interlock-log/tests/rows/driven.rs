//! A table that a log drives: genesis, writes of clients, checkpoints, rows of another data centre.

use interlock_log::apply::{Answer, Fate, Whole};
use interlock_log::codec::Reader;
use interlock_log::entry::{digest, Arguments, Body, Command, Entry, Mark, PutBack, Source};
use interlock_log::machine::{Limits, Rules as LogRules};
use interlock_log::rows::Rows;
use interlock_log::stamp::BELIEVED_MS;
use interlock_table::Value;

use crate::commands::settings;

pub const NOW: u64 = 1_700_000_000_000;
/// Number of the column of flags.
const FLAGS: usize = 3;

pub struct Log {
    whole: Whole<Rows>,
    at: Mark,
    number: u64,
    pub name: Vec<u8>,
    pub kept: Option<PutBack>,
}

impl Log {
    pub fn new(dc: &str) -> Log {
        Log::begun(dc, 0, 0)
    }

    /// Begins a log some ms later, by a node that has seen a log time.
    pub fn begun(dc: &str, seen: u64, later: u64) -> Log {
        let whole = Whole::default();
        let (at, name) = (Mark { position: later, ..Mark::default() }, b"node.1".to_vec());
        let mut log = Log { whole, at, number: 0, name, kept: None };
        let mut genesis = Vec::new();
        settings(dc, 10, 2).encode(&mut genesis);
        assert_eq!(log.append_seen(0, Body::Genesis(genesis), seen).0, Fate::Taken);
        if seen > 0 {
            log.name = b"node.2".to_vec();
        }
        log
    }

    pub fn append(&mut self, number: u64, body: Body) -> (Fate, Vec<Answer>) {
        self.append_seen(number, body, 0)
    }

    fn append_seen(&mut self, number: u64, body: Body, seen: u64) -> (Fate, Vec<Answer>) {
        let (name, read) = (self.name.clone(), self.at);
        let mut entry = Entry { name, number, read, seen, nonce: 1, body };
        self.at = self.at.then(digest(&entry.encode()));
        let time = NOW + self.at.position;
        let applied =
            self.whole.apply(&mut entry, self.at, time, true, &Limits::default(), LogRules::ALL);
        self.kept = applied.kept;
        (applied.fate, applied.answers.into_iter().map(|(_, answer)| answer).collect())
    }

    pub fn write(&mut self, client: u64, lines: &[&str]) -> Vec<String> {
        self.number += 1;
        let commands = lines.iter().zip(client..).map(|(line, number)| Command {
            client: Some((b"ann"[..].into(), number)),
            deadline: NOW + 10_000,
            arguments: Arguments::new(&line.split(' ').collect::<Vec<_>>()),
        });
        let (fate, answers) = self.append(self.number, Body::Commands(commands.collect()));
        assert_eq!(fate, Fate::Counted);
        let text = |answer| match answer {
            Answer::Done { reply: Some(reply), .. } => String::from_utf8(reply).unwrap(),
            other => format!("{other:?}"),
        };
        answers.into_iter().map(text).collect()
    }

    /// Joins the rows of another data centre.
    pub fn takes(&mut self, name: &str, other: &Log) {
        let body = Body::State { source: Some(self.source(name, other)), bytes: other.bytes() };
        assert_eq!(self.append(0, body).0, Fate::Taken);
    }

    /// Returns the head of a report that follows all before.
    fn source(&self, name: &str, other: &Log) -> Source {
        let heard = self.whole.sources.get(name.as_bytes());
        let checked = heard.map_or_else(Vec::new, |heard| heard.marks.clone());
        let (name, marks) = (name.as_bytes().to_vec(), vec![other.at]);
        Source { name, marks, time: other.whole.now, checked, ..Source::default() }
    }

    pub fn rows(&self) -> &Rows {
        self.whole.machine.as_ref().unwrap()
    }

    /// Returns whether a write of the client has been done and will not be put back again.
    pub fn has_done(&self, number: u64) -> bool {
        self.whole.sessions.has_done(b"ann", number)
    }

    /// Returns the value of a column of a row.
    pub fn value(&self, key: &str, column: usize) -> Value<'_> {
        let store = self.rows().store();
        let view = store.rules().view_of(store.get(key.as_bytes()), store.time());
        view.value(column)
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.whole.encode(&mut bytes);
        bytes
    }
}

#[test]
fn a_log_drives_a_table() {
    let mut east = Log::new("east");
    let first = ["HSET t:a n 5", "HINCRBY t:a n 2", "HSET t:a x 1", "PEXPIRE t:a 3"];
    let replies = east.write(1, &first);
    assert_eq!(replies[..2], [":1\r\n", ":7\r\n"]);
    assert!(replies[2].starts_with("-NOCOLUMN"), "{replies:?}");
    // A client that repeats them gets the same replies, and nothing is done.
    let checksum = east.rows().store().checksum();
    assert_eq!(east.write(1, &first), replies);
    assert_eq!(east.rows().store().checksum(), checksum);
    assert_eq!(east.rows().store().rows(), 1);
    assert_eq!(east.write(5, &["TABLE BARRIER t"]), ["+OK\r\n"]);
    assert_eq!(east.write(6, &["TABLE BARRIER t"]), ["+OK\r\n"]);
    assert_eq!(east.rows().store().rows(), 0, "it has expired by the time of the log");

    let read = Whole::<Rows>::decode(&mut Reader::new(&east.bytes())).unwrap();
    let machine = read.machine.as_ref().unwrap();
    assert_eq!(machine.store().checksum(), east.rows().store().checksum());
    assert!(Whole::<Rows>::default().machine.is_none());

    let mut west = Log::new("west");
    for number in 1..20 {
        assert_eq!(west.write(number, &["HINCRBY t:sum n 3"]), [format!(":{}\r\n", number * 3)]);
    }
    assert_eq!(east.write(7, &["HINCRBY t:sum n 1"]), [":1\r\n"]);
    for _ in 0..2 {
        let body = Body::State { source: Some(east.source("west", &west)), bytes: west.bytes() };
        assert_eq!(east.append(0, body).0, Fate::Taken);
    }
    assert_eq!(east.write(8, &["HINCRBY t:sum n 1"]), [":59\r\n"]);
    // A forked history of the same data centre: sums continue under another name.
    for number in 9..30 {
        let body = Body::State { source: None, bytes: east.bytes() };
        assert_eq!(east.append(0, body).0, Fate::Taken);
        let sum = format!(":{}\r\n", number + 51);
        assert_eq!(east.write(number, &["HINCRBY t:sum n 1"]), [sum]);
    }
}

/// Later writes of both data centres need readings after those of the state.
#[test]
fn a_state_from_beyond_the_last_time_that_is_believed_is_refused() {
    for (beyond, fate) in [(0, Fate::Taken), (1, Fate::Void)] {
        let mut east = Log::new("east");
        let west = Log::begun("west", 0, BELIEVED_MS + beyond - NOW - 1);
        let source = Source { time: NOW, ..east.source("west", &west) };
        let body = Body::State { source: Some(source), bytes: west.bytes() };
        assert_eq!(east.append(0, body).0, fate, "{beyond} ms beyond it");
        // West itself continues, and reads its own checkpoint.
        assert!(Whole::<Rows>::decode(&mut Reader::new(&west.bytes())).is_ok());
    }
}

/// A lost entry is put back by nodes, and another data centre that also has it sends its rows. The
/// entry must count once, whichever comes first.
#[test]
fn sums_that_another_data_centre_has_count_once_when_they_are_put_back() {
    for (in_between, is_all_lost) in [(0, false), (2, false), (5, false), (0, true), (3, true)] {
        let (mut east, mut west) = (Log::new("east"), Log::new("west"));
        east.write(1, &["HINCRBY t:sum n 100"]);
        let (early, early_at) = (east.bytes(), east.at);
        let mut lost = Vec::new();
        if is_all_lost {
            lost.push(kept(&mut Log::new("east"), 1, "HINCRBY t:sum n 100"));
        }
        lost.extend((2..7).map(|number| kept(&mut east, number, "HINCRBY t:sum n 1")));
        west.takes("east", &east);
        west.write(1, &["HINCRBY t:sum n 1000", "HSET t:sum n 5000"]);
        let mut east = if is_all_lost {
            // It was begun again by a node that had seen the other log.
            Log::begun("east", NOW, 0)
        } else {
            let whole = Whole::decode(&mut Reader::new(&early)).unwrap();
            Log { whole, at: early_at, number: 0, name: b"node.2".to_vec(), kept: None }
        };
        // A client writes before anything is put back.
        east.at.position += 5_000;
        east.write(90, &["HINCRBY t:sum n 20"]);
        for (count, (number, did)) in lost.into_iter().enumerate() {
            if count == in_between {
                east.takes("west", &west);
                west.takes("east", &east);
            }
            let name = std::mem::replace(&mut east.name, b"node.1".to_vec());
            assert_eq!(east.append(number, Body::PutBack(did)).0, Fate::Counted);
            east.name = name;
        }
        east.takes("west", &west);
        west.takes("east", &east);
        let told = ":5020\r\n";
        assert_eq!(east.write(91, &["HINCRBY t:sum n 0"]), [told], "{in_between} {is_all_lost}");
        assert_eq!(west.write(9, &["HINCRBY t:sum n 0"]), [told], "{in_between} {is_all_lost}");
    }
}

/// The same for flags: a put-back clears nothing that was set after its stamp.
#[test]
fn flags_that_another_data_centre_has_are_as_they_were_when_they_are_put_back() {
    for in_between in 0..4 {
        let (mut east, mut west) = (Log::new("east"), Log::new("west"));
        east.write(1, &["HSET t:a bits 1"]);
        let (early, early_at) = (east.bytes(), east.at);
        let lost = [6, 3, 12].into_iter().zip(2..);
        let lost: Vec<_> =
            lost.map(|(f, n)| kept(&mut east, n, &format!("HSET t:a bits {f}"))).collect();
        west.takes("east", &east);
        let whole = Whole::decode(&mut Reader::new(&early)).unwrap();
        let name = b"node.1".to_vec();
        let mut east = Log { whole, at: early_at, number: 0, name, kept: None };
        for (count, (number, did)) in lost.into_iter().enumerate() {
            if count == in_between {
                east.takes("west", &west);
            }
            assert_eq!(east.append(number, Body::PutBack(did)).0, Fate::Counted);
        }
        east.takes("west", &west);
        west.takes("east", &east);
        for log in [&east, &west] {
            let store = log.rows().store();
            let view = log.rows().settings().rules.view_of(store.get(b"a"), store.time());
            assert_eq!(view.value(FLAGS), Value::Unsigned(12), "{in_between}");
        }
    }
}

/// A lost delete comes back, by its entry or from another data centre that had its rows. It must
/// not remove later writes.
#[test]
fn a_lost_delete_leaves_what_was_written_since() {
    for is_put_back_first in [false, true] {
        let (mut east, mut west) = (Log::new("east"), Log::new("west"));
        east.write(1, &["HSET t:a n 1", "HSET t:b n 1"]);
        let (early, early_at) = (east.bytes(), east.at);
        let deletes = kept(&mut east, 3, "DEL t:a t:b");
        let sets = kept(&mut east, 4, "HSET t:a n 2");
        west.takes("east", &east);
        let whole = Whole::decode(&mut Reader::new(&early)).unwrap();
        let name = b"node.2".to_vec();
        let mut east = Log { whole, at: early_at, number: 0, name, kept: None };
        east.at.position += 5_000;
        east.write(5, &["HSET t:a n 3", "HINCRBY t:b n 5"]);
        if !is_put_back_first {
            east.takes("west", &west);
        }
        let name = std::mem::replace(&mut east.name, b"node.1".to_vec());
        for (number, did) in [deletes, sets] {
            assert_eq!(east.append(number, Body::PutBack(did)).0, Fate::Counted);
        }
        east.name = name;
        east.takes("west", &west);
        west.takes("east", &east);
        east.takes("west", &west);
        for log in [&mut east, &mut west] {
            let read = log.write(90, &["HINCRBY t:a n 0", "HINCRBY t:b n 0"]);
            assert_eq!(read, [":3\r\n", ":6\r\n"], "{is_put_back_first}");
        }
    }
}

/// A data centre may lose rows that it has sent, and the other its note of rows that have arrived.
#[test]
fn what_a_data_centre_has_lost_it_is_sent_again() {
    let (mut east, mut west) = (Log::new("east"), Log::new("west"));
    east.write(1, &["HSET t:a n 1"]);
    let (early, early_at) = (east.bytes(), east.at);
    east.write(2, &["DEL t:a"]);
    west.takes("east", &east);
    let whole = Whole::decode(&mut Reader::new(&early)).unwrap();
    let mut east = Log { whole, at: early_at, number: 0, name: b"node.2".to_vec(), kept: None };
    for expected in [1, 0] {
        let before = west.rows().store().changes();
        west.takes("east", &east);
        assert_eq!(west.rows().store().changed_since(before, 9).len(), expected);
        east.takes("west", &west);
    }
    assert_eq!(east.rows().store().rows(), 0);
}

#[test]
fn sums_that_all_nodes_of_a_data_centre_have_lost_come_from_another() {
    let (mut east, mut west) = (Log::new("east"), Log::new("west"));
    east.write(1, &["HINCRBY t:sum n 100"]);
    west.takes("east", &east);
    // A node without any data begins the log.
    let mut east = Log::begun("east", 0, 5_000);
    assert_eq!(east.write(2, &["HINCRBY t:sum n 1"]), [":1\r\n"]);
    east.takes("west", &west);
    assert_eq!(east.write(3, &["HINCRBY t:sum n 1"]), [":102\r\n"]);
    west.takes("east", &east);
    east.takes("west", &west);
    assert_eq!(east.write(4, &["HINCRBY t:sum n 1"]), [":103\r\n"]);
    assert_eq!(west.write(1, &["HINCRBY t:sum n 0"]), [":102\r\n"]);
}

/// Writes, and returns the part that a ring keeps, with the number of the entry.
pub fn kept(log: &mut Log, client: u64, line: &str) -> (u64, PutBack) {
    log.write(client, &[line]);
    (log.number, log.kept.clone().unwrap())
}

/// A client may send any deadline. If its write is not done, the deadline must not make the log
/// refuse all writes up to then once the client's record is dropped.
#[test]
fn a_deadline_too_far_ahead_harms_nobody_else() {
    let mut log = Log::new("east");
    let write = |name: &[u8], deadline| Command {
        client: Some((name.into(), 1)),
        deadline,
        arguments: Arguments::new(&["HINCRBY", "t:a", "n", "1"]),
    };
    let far = log.append(1, Body::Commands(vec![write(b"bad", u64::MAX)]));
    assert_eq!(far, (Fate::Counted, vec![Answer::Unknown]));
    let (mut at, mut time) = (log.at, NOW);
    for number in 1..60 {
        time += 60_000;
        let commands = vec![write(format!("c{number}").as_bytes(), time + 1000)];
        let (name, body) = (b"node.2".to_vec(), Body::Commands(commands));
        let mut entry = Entry { name, number, read: at, seen: 0, nonce: 1, body };
        at = at.then(digest(&entry.encode()));
        let applied =
            log.whole.apply(&mut entry, at, time, true, &Limits::default(), LogRules::ALL);
        assert!(matches!(applied.answers[0].1, Answer::Done { .. }), "{number}: {applied:?}");
    }
    assert!(log.whole.sessions.last(b"node.1") == 0, "its record was dropped");
}

#[test]
fn an_image_stays_as_it_was_and_writes_the_same_bytes() {
    let mut log = Log::new("east");
    for round in 0..20u64 {
        let client = round * 4 + 1;
        let (image, bytes) = (log.whole.image(), log.bytes());
        let row = format!("t:k{}", round % 5);
        let (set, raise) = (format!("HSET {row} n 1"), format!("HINCRBY t:k{} n 2", round % 3));
        log.write(client, &[&set, &raise, &format!("DEL t:k{}", (round + 2) % 5)]);
        assert_ne!(log.bytes(), bytes);
        let mut written = Vec::new();
        image(&mut written);
        assert_eq!(written, bytes);
    }
}
