//! Commands on rows that merge give the same replies and the same states, byte for byte, as the
//! first implementation, which was in Python. tests/cluster/state/golden_calls.py generates the
//! lines. For a longer run: `python -m tests.cluster.state.golden_calls 100000 calls.txt`, then
//! this test with INTERLOCK_CALLS=.../calls.txt.

mod call;

use std::collections::BTreeMap;
use std::time::Duration;

use interlock_log::stamp::{hybrid, writer, Stamp};
use interlock_log::state::{self, Rules, State};
use interlock_rows::write::Writer;
use interlock_rows::{Change, Refusal, View};
use interlock_table::{Ttl, Value};

use call::{Named, Store};

/// The states of a table on a node of one data centre.
struct States {
    rules: Rules,
    states: BTreeMap<Vec<u8>, State>,
    now: u64,
    /// Time to live of a row in ms; 0: rows never expire.
    ttl: u64,
    reading: u64,
    writer: String,
}

struct Shown<'a> {
    own: &'a States,
    before: Option<&'a [u8]>,
    view: state::View<'a>,
}

impl View for Shown<'_> {
    fn is_there(&self) -> bool {
        self.view.is_there()
    }

    fn value(&self, column: usize) -> Value<'_> {
        self.view.value(column)
    }

    fn left(&self) -> Option<Duration> {
        match self.view.expires_at() {
            0 => None,
            at => Some(Duration::from_millis(at - self.own.now)),
        }
    }

    fn expiry(&self, ttl: Ttl) -> u64 {
        let left = match ttl {
            Ttl::Usual if self.own.ttl > 0 => Duration::from_millis(self.own.ttl),
            Ttl::Usual | Ttl::Never => return 0,
            Ttl::For(left) => left,
        };
        match u64::try_from(left.as_nanos()) {
            Ok(_) => (self.own.now + left.as_millis() as u64).max(1),
            Err(_) => 0,
        }
    }

    fn raised(&self, column: usize, to: Value<'static>) -> Value<'static> {
        let change = Change::Raise { column, to: to.clone() };
        let (own, stamp) = (self.own, self.own.stamp());
        let after = own.rules.apply(self.before, &change, &stamp, own.now);
        let bytes = after.as_ref().map(State::as_bytes).or(self.before);
        let view = own.rules.view_of(bytes, own.now);
        interlock_rows::text::owned(view.value(column))
    }
}

impl States {
    fn stamp(&self) -> Stamp<'_> {
        Stamp { reading: hybrid(self.now).max(self.reading + 1), writer: &self.writer }
    }
}

impl Store for States {
    type Row<'s> = Shown<'s>;

    fn row(&self, key: &[u8]) -> Shown<'_> {
        let before = self.states.get(key).map(State::as_bytes);
        Shown { own: self, before, view: self.rules.view_of(before, self.now) }
    }

    fn room(&self, rows: usize) -> Result<(), Refusal> {
        assert!(rows > 0);
        Ok(())
    }

    fn change(&mut self, key: &[u8], change: &Change<'_>) {
        let stamp = self.stamp();
        let reading = stamp.reading;
        let before = self.states.get(key).map(State::as_bytes);
        let after = self.rules.apply(before, change, &stamp, self.now);
        if let Some(after) = after {
            self.states.insert(key.to_vec(), after);
        }
        self.reading = reading;
    }
}

#[test]
fn replies_and_states_are_those_of_the_first_implementation() {
    let text = match std::env::var("INTERLOCK_CALLS") {
        Ok(path) => std::fs::read_to_string(path).unwrap(),
        Err(_) => include_str!("calls.txt").to_owned(),
    };
    let mut table: Option<(Named, States)> = None;
    let (mut calls, mut refused) = (0, 0);
    for (number, line) in text.lines().enumerate() {
        if let Some(line) = line.strip_prefix("T ") {
            let (ttl, rules) = line.split_once(' ').unwrap();
            let (rules, ttl) = (Rules::parse(rules).unwrap(), ttl.parse().unwrap());
            let named = Named { name: b"t".to_vec(), schema: rules.schema().clone(), key_size: 32 };
            let (states, writer) = (BTreeMap::new(), writer("east", 1));
            table = Some((named, States { rules, states, now: 0, ttl, reading: 0, writer }));
            continue;
        }
        let (named, states) = table.as_mut().unwrap();
        let (call, outcome) = line.split_once(" = ").unwrap();
        let words: Vec<Vec<u8>> = call.split(' ').map(unquoted).collect();
        let (reply, hash) = outcome.split_once(' ').unwrap();
        states.now = String::from_utf8(words[0].clone()).unwrap().parse().unwrap();
        let mut out = Vec::new();
        let mut to = Writer { out: &mut out, resp3: words[1] == b"3" };
        match named.call(&words[2..], states, states.now * 1000) {
            Ok(reply) => reply.write(&mut to),
            Err(Refusal(text)) => to.error(&text),
        }
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(shown(&out), shown(&unquoted(reply)), "line {}: {call}", number + 1);
        let parts =
            states.states.iter().flat_map(|(key, state)| [&key[..], b"\0", state.as_bytes()]);
        let found = parts.flatten().fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3)
        });
        assert_eq!(format!("{found:x}"), hash, "line {}: {call}: the states", number + 1);
        calls += 1;
        refused += usize::from(out[0] == b'-');
    }
    assert!(calls > 1000 && refused > calls / 20 && refused < calls / 2, "{refused} of {calls}");
}

fn unquoted(word: &str) -> Vec<u8> {
    let mut found = Vec::new();
    let mut rest = word.as_bytes();
    while let [first, more @ ..] = rest {
        rest = more;
        match (first, more) {
            (b'%', [high, low, more @ ..]) => {
                let digit = |digit: u8| char::from(digit).to_digit(16).unwrap() as u8;
                found.push(digit(*high) * 16 + digit(*low));
                rest = more;
            }
            (b'%', _) => {}
            _ => found.push(*first),
        }
    }
    found
}
