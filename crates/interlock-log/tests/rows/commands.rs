//! A table: replies, capacity, checkpoints, lost commands, and the rows of other histories.

use fastrand::Rng;
use interlock_log::machine::Centre;
use interlock_log::rows::{Rows, Settings, When};
use interlock_log::stamp::Clock;
use interlock_log::state::Rules;

const EAST: Centre<'_> = Centre { name: b"east", is_newest: true };
const WEST: Centre<'_> = Centre { name: b"west", is_newest: true };
const NOW: u64 = 1_700_000_000_000;
const TABLE: &str =
    "name: str[8], n: U32, top: U8, bits: U16, f: F64; last, sum, max, flags, sum; \
                     4000 ms";

pub fn settings(dc: &str, capacity: u64, centres: u64) -> Settings {
    let rules = Rules::parse(TABLE).unwrap();
    let (name, dc) = ("t".to_owned(), dc.to_owned());
    Settings { name, dc, rules, capacity, centres, tombstones: 1000, key_size: 8, ttl: 0 }
}

/// A table and the time of its log.
struct Node {
    rows: Rows,
    clock: Clock,
    now: u64,
    lineage: u64,
}

impl Node {
    fn new(dc: &str, capacity: u64, centres: u64) -> Node {
        let rows = Rows::new(settings(dc, capacity, centres));
        Node { rows, clock: Clock::default(), now: NOW, lineage: 0 }
    }

    fn run(&mut self, line: &str) -> String {
        self.clock.saw(self.rows.store().newest());
        let reading = self.clock.next(self.now);
        self.run_at(line, reading, false, &|existing| Some(reading).filter(|at| *at > existing))
    }

    fn run_at(
        &mut self,
        line: &str,
        reading: u64,
        put_back: bool,
        place: &dyn Fn(u64) -> Option<u64>,
    ) -> String {
        self.rows.pass(self.now);
        let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
        let when = When {
            time: self.now,
            reading,
            lineage: self.lineage,
            put_back,
            writer: None,
            late: false,
            lost: false,
            sent: None,
            place,
        };
        let (mut reply, checksum) = (Vec::new(), self.rows.store().checksum());
        let done = self.rows.run(&words, &when, &mut reply);
        assert_eq!(done.is_err(), reply.starts_with(b"-"));
        assert!(done.is_ok() || self.rows.store().checksum() == checksum, "{line}");
        String::from_utf8(reply).unwrap().trim_end().replace("\r\n", " ")
    }

    fn again(&self) -> Rows {
        let mut bytes = Vec::new();
        self.rows.write(&mut bytes);
        let rows = Rows::read(&bytes).unwrap();
        assert_eq!(rows.store().checksum(), self.rows.store().checksum());
        rows
    }
}

#[test]
fn a_float_sum_that_was_infinite_counts_again_once_it_is_set() {
    let mut node = Node::new("east", 100, 1);
    for (line, reply) in [
        ("HSET t:a f inf", ":1"),
        ("TABLE INCR t:a f 1", "$3 inf"),
        ("TABLE INCR t:a f -inf", "$3 nan"),
        ("HSET t:a f 5", ":0"),
        ("TABLE INCR t:a f 0.5", "$3 5.5"),
        ("TABLE INCR t:a f inf", "$3 inf"),
        ("HSET t:a f 1e308", ":0"),
        ("TABLE INCR t:a f 7e307", "$7 1.7e308"),
        ("HSET t:a f 0", ":0"),
        ("TABLE INCR t:a f 1.5e308", "$7 1.5e308"),
        ("HSET t:a f 2", ":0"),
    ] {
        assert_eq!(node.run(line), reply, "{line}");
    }
    node.again();
}

#[test]
fn commands_are_answered_as_a_hub_does() {
    let mut node = Node::new("east", 100, 1);
    for (line, reply) in [
        ("HSET t:a name ann n 5", ":2"),
        ("HSET t:a name bob", ":0"),
        ("HINCRBY t:a n 3", ":8"),
        ("hincrby t:a n 4294967295", "-ERR increment or decrement would overflow"),
        ("TABLE INCR t:a top 7", ":7"),
        ("TABLE INCR t:a top -3", ":7"),
        ("HSETNX t:a name eve", ":0"),
        ("TABLE CAS t:a name bob eve", ":1"),
        ("HINCRBYFLOAT t:a f 0.5", "$3 0.5"),
        ("TABLE SET t:b ANY DEFAULT bits 6", ":1"),
        ("TABLE MSET t 1 n b 5 c 6 b 7", ":3"),
        ("TABLE POP t:b", "*5 $0  $1 7 $1 0 $1 0 $1 0"),
        ("DEL t:a t:a t:x", ":1"),
        ("PERSIST t:c", ":0"),
        ("PEXPIRE t:c 100", ":1"),
        ("TABLE PATCH t:a n 5", ":0"),
        ("TABLE BARRIER t", "+OK"),
        ("GET t:a", "-ERR unknown command 'GET'"),
        ("HSETNX t:a n", "-ERR wrong number of arguments for 'hsetnx' command"),
        ("HSET u:a n 5", "-NOTABLE this hub has no table 'u'"),
        ("HSET a n 5", "-ERR a row is named by TABLE:KEY"),
        ("HSET t:123456789 n 5", "-ERR a key of 9 bytes; the table takes up to 8 (key_size)"),
        ("HSET t: n 5", "-ERR a key must have at least one byte"),
    ] {
        assert_eq!(node.run(line), reply, "{line}");
    }
    assert_eq!(node.rows.store().rows(), 1);
    assert_eq!(node.rows.store().next_due(), Some(NOW + 100));
    node.now += 100;
    assert_eq!(node.run("HSETNX t:c n 1"), ":1");
}

#[test]
fn a_data_centre_makes_its_share_of_the_rows_and_none_beyond() {
    let full = "-TABLEFULL the table has as many rows as its capacity; delete some, or raise the \
         capacity";
    let (mut east, mut west) = (Node::new("east", 10, 2), Node::new("west", 10, 2));
    assert_eq!(east.run("TABLE MSET t 1 n a 1 b 1 c 1 d 1"), ":4");
    assert_eq!(east.run("TABLE MSET t 1 n a 2 e 1 f 1"), full);
    assert_eq!(east.run("TABLE MSET t 1 n a 2 e 1 e 3"), ":3");
    assert_eq!(east.run("HINCRBY t:f n 1"), full);
    assert_eq!(west.run("TABLE MSET t 1 n v 1 w 1 x 1 y 1 z 1"), ":5");
    east.rows.take_far(&west.rows, WEST);
    west.rows.take_far(&east.rows, EAST);
    assert_eq!(east.rows.store().checksum(), west.rows.store().checksum());
    assert_eq!((east.rows.store().rows(), west.rows.store().rows()), (10, 10));
    for node in [&mut east, &mut west] {
        assert_eq!(node.run("HSET t:f n 1"), full);
        assert_eq!(node.run("HSET t:a n 1"), ":0");
    }
    // A row counts in the share of the data centre that created it.
    assert_eq!(east.run("DEL t:v"), ":1");
    assert_eq!(east.run("HSET t:f n 1"), full);
    assert_eq!(east.run("DEL t:a"), ":1");
    assert_eq!(east.run("HSET t:f n 1"), ":1");
    // A lost write is never refused when it is put back.
    let reading = east.clock.next(NOW);
    assert_eq!(east.run_at("HSET t:g n 1", reading, true, &|_| Some(reading)), ":1");
}

fn line(chance: &mut Rng) -> String {
    let key = ["a", "b", "c", "d"][chance.usize(..4)];
    let number = chance.u8(..);
    match chance.u8(..12) {
        0 => format!("DEL t:{key}"),
        1 => format!("HSET t:{key} name x{number} bits {number}"),
        2 => format!("PEXPIRE t:{key} {number}"),
        3 => format!("TABLE SET t:{key} ANY 500 n {number}"),
        4 => format!("TABLE MSET t 2 n name {key} 4 z d 6 {number}"),
        5 => format!("TABLE POP t:{key}"),
        6 => format!("TABLE INCR t:{key} top {number} SATURATE"),
        7 => format!("TABLE INCR t:{key} bits -{number} WRAP"),
        8 => format!("HINCRBYFLOAT t:{key} f {number}"),
        9 => format!("PERSIST t:{key}"),
        _ => format!("HINCRBY t:{key} n {number}"),
    }
}

#[test]
fn nodes_that_read_the_same_are_equal_also_over_a_checkpoint() {
    for seed in 0..100 {
        let mut chance = Rng::with_seed(seed);
        let mut nodes = [Node::new("east", 3, 1), Node::new("east", 3, 1)];
        for _ in 0..150 {
            let (line, wait) = (line(&mut chance), [0, 1, 200, 900][chance.usize(..4)]);
            let replies = nodes.each_mut().map(|node| {
                node.now += wait;
                node.run(&line)
            });
            assert_eq!(replies[0], replies[1], "seed {seed}: {line}");
            if chance.u8(..) < 20 {
                nodes[1].rows = nodes[1].again();
            }
            assert_eq!(nodes[0].rows.store().checksum(), nodes[1].rows.store().checksum());
        }
    }
}

#[test]
fn two_data_centres_that_tell_each_other_are_equal_and_sums_are_exact() {
    for seed in 0..60 {
        let mut chance = Rng::with_seed(seed);
        let mut nodes = [Node::new("east", 100, 2), Node::new("west", 100, 2)];
        let (mut told, mut total) = ([0; 2], 0);
        for step in 0..200 {
            let at = chance.usize(..2);
            nodes.iter_mut().for_each(|node| node.now += 1 + step % 3);
            let by = chance.u64(..50);
            nodes[at].run(&format!("HINCRBY t:sum n {by}"));
            total += by;
            nodes[at].run(&line(&mut chance));
            if chance.u8(..) < 60 {
                // A new history adds under another writer.
                nodes[at].lineage = chance.u64(..);
            }
            if step == 199 || chance.u8(..) < 60 {
                for (from, to) in [(0, 1), (1, 0), (0, 1)] {
                    let mut part = Vec::new();
                    let most = if step == 199 { usize::MAX } else { 3 };
                    told[from] = nodes[from].rows.write_part(told[from], most, &mut part);
                    let part = Rows::read(&part).unwrap();
                    nodes[to].rows.take_far(&part, [EAST, WEST][from]);
                }
            }
        }
        nodes.iter_mut().for_each(|node| node.rows.pass(node.now));
        let [east, west] = &nodes;
        assert_eq!(east.rows.store().checksum(), west.rows.store().checksum(), "seed {seed}");
        assert_eq!(nodes[0].run("HINCRBY t:sum n 0"), format!(":{total}"), "seed {seed}");
    }
}

#[test]
fn a_lost_command_that_is_done_late_counts_and_does_not_undo_what_came_after_it() {
    let mut node = Node::new("east", 100, 1);
    let first = node.clock.next(NOW);
    node.now += 10;
    node.run("HSET t:a name new n 5");
    let late = |existing: u64| Some(first).filter(|first| *first > existing);
    assert_eq!(node.run_at("HSET t:a name old", first, true, &late), ":0");
    assert_eq!(node.run_at("HINCRBY t:a n 2", first, true, &late), ":7");
    assert_eq!(node.run_at("HINCRBY t:a n 2", first, true, &late), ":9");
    assert_eq!(node.run_at("DEL t:a", first, true, &late), ":1");
    assert_eq!(node.run("TABLE POP t:a"), "*5 $3 new $1 9 $1 0 $1 0 $1 0");
    // The later write of the same client wins, whatever its stamp.
    node.run("HSET t:a name one");
    let above = |existing: u64| Some(existing + 1);
    node.run_at("HSET t:a name two", first, true, &above);
    assert_eq!(node.run("TABLE POP t:a"), "*5 $3 two $1 0 $1 0 $1 0 $1 0");
}

#[test]
fn of_two_histories_the_side_that_knew_of_the_other_wins() {
    let (mut one, mut other) = (Node::new("east", 100, 1), Node::new("east", 100, 1));
    one.run("HSET t:a name both");
    other.rows = one.again();
    other.lineage = 7;
    one.now += 50;
    one.run("HSET t:a name late");
    other.run("HSET t:a name early");
    let before = other.again();
    // The earlier write wins and gets a stamp above the later one.
    other.rows.take_in(&one.rows, &|ours, theirs| (ours.max(theirs + 1), theirs));
    assert_eq!(other.run("TABLE POP t:a"), "*5 $5 early $1 0 $1 0 $1 0 $1 0");
    other.rows = before;
    other.rows.take_in(&one.rows, &|ours, theirs| (ours, theirs));
    assert_eq!(other.run("TABLE POP t:a"), "*5 $4 late $1 0 $1 0 $1 0 $1 0");
}

#[test]
fn a_data_centre_that_has_lost_all_it_had_counts_under_another_name() {
    let (mut east, mut west) = (Node::new("east", 100, 2), Node::new("west", 100, 2));
    east.run("HINCRBY t:sum n 5");
    west.rows.take_far(&east.rows, EAST);
    east = Node::new("east", 100, 2);
    east.now += 2000;
    east.rows.is_bare(east.now);
    west.now += 2000;
    east.run("HINCRBY t:sum n 2");
    west.run("HINCRBY t:sum n 1");
    east.rows.take_far(&west.rows, WEST);
    west.rows.take_far(&east.rows, EAST);
    assert_eq!(east.run("HINCRBY t:sum n 0"), ":8");
    assert_eq!(west.run("HINCRBY t:sum n 0"), ":8");
}
