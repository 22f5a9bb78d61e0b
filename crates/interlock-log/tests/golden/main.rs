//! States must be byte for byte the same as those of the first implementation, which was in Python.
//!
//! `histories.txt` has random histories of a row in three data centres: nan, infinities and -0.0,
//! sums beyond 64 bits and of more than eight writers, all merge kinds, deletes, expiry, and
//! forgotten states. Each line is one step and ends with a hash of the bytes of the change and the
//! state, and of everything the state shows. `T` begins a history, `L` a lineage; `S`, `P`, `R`,
//! `E` and `D` set, patch, raise, expire and delete the row; `J` joins a change by its number, `M`
//! another data centre's state; `F` forgets. `=` is the full state of the first data centre, in
//! hex.

use interlock_log::stamp::{self, Stamp};
use interlock_log::state::{Change, Rules, State};
use interlock_table::Value;

const BASE_MS: u64 = 1_700_000_000_000;

struct Centre {
    dc: &'static str,
    writer: String,
    state: Option<State>,
}

struct History {
    rules: Rules,
    centres: Vec<Centre>,
    deltas: Vec<State>,
}

impl History {
    fn new(table: &str) -> History {
        let rules = Rules::parse(table).unwrap();
        assert_eq!(rules.fingerprint(), table);
        let centre = |dc: &'static str| Centre { dc, writer: dc.to_owned(), state: None };
        let centres = ["east", "west-2", "e"].map(centre).into();
        History { rules, centres, deltas: Vec::new() }
    }

    /// Executes a step; returns the data centre, the change and the time.
    fn step(&mut self, words: &[&str]) -> (usize, Option<State>, u64) {
        let at: usize = words[1].parse().unwrap();
        match words[0] {
            "J" => {
                let delta = self.deltas[number(words[2]) as usize].clone();
                self.join(at, &delta);
                (at, None, BASE_MS + number(words[3]))
            }
            "M" => {
                let other = self.centres[number(words[2]) as usize].state.clone().unwrap();
                self.join(at, &other);
                (at, None, BASE_MS + number(words[3]))
            }
            "F" => {
                let now = BASE_MS + number(words[2]);
                let state = &mut self.centres[at].state;
                let life = state.as_ref().map(|state| self.rules.life(state.as_bytes()));
                if life.is_some_and(|life| (1..=now).contains(&life.forgettable_at)) {
                    *state = None;
                }
                (at, None, now)
            }
            _ => self.write(at, words),
        }
    }

    fn join(&mut self, at: usize, theirs: &State) {
        let theirs = self.rules.check(theirs.as_bytes()).unwrap();
        let ours = &mut self.centres[at].state;
        if let Some(joined) = self.rules.join(ours.as_ref(), &theirs) {
            *ours = Some(joined);
        }
    }

    fn write(&mut self, at: usize, words: &[&str]) -> (usize, Option<State>, u64) {
        let (ms, counter) = words[2].split_once('.').unwrap();
        let reading = stamp::hybrid(BASE_MS + number(ms)) + number(counter);
        let now = BASE_MS + number(words[3]);
        let centre = &self.centres[at];
        let stamp = Stamp { reading, writer: &centre.writer };
        let change = match words[0] {
            "S" => Change::Create { given: values(words[5]).leak(), expires_at: time(words[4]) },
            "P" => Change::Patch { given: values(words[4]).leak() },
            "R" => {
                let (column, value) = values(words[5]).remove(0);
                Change::CreateBy { column, value, expires_at: time(words[4]) }
            }
            "E" => Change::Expire { at: time(words[4]) },
            "D" => Change::Delete,
            other => panic!("{other}"),
        };
        let before = centre.state.as_ref().map(State::as_bytes);
        let delta = self.rules.delta(before, &change, &stamp, now).unwrap();
        let after = self.rules.apply(before, &change, &stamp, now);
        self.join(at, &delta);
        let centre = &self.centres[at];
        assert!(after.is_none() || after == centre.state, "to apply is to join the change");
        self.deltas.push(delta.clone());
        (at, Some(delta), now)
    }

    /// Hashes a change, the state, and everything the state shows.
    fn seen(&self, at: usize, delta: Option<&State>, now: u64) -> u32 {
        let mut seen = vec![0x90];
        if let Some(state) = &self.centres[at].state {
            let checked = self.rules.check(state.as_bytes());
            assert_eq!(checked.as_ref(), Ok(state));
            let view = self.rules.view(Some(state), now);
            let life = self.rules.life(state.as_bytes());
            assert_eq!(life.is_alive(now), view.is_there());
            let newest = self.rules.newest(state);
            seen = vec![0x95, 0x92];
            integer(&mut seen, stamp::reading(newest));
            text(&mut seen, &newest[8.min(newest.len())..]);
            match view.values() {
                None => seen.push(0xC0),
                Some(values) => {
                    seen.push(0x90 | values.len() as u8);
                    values.iter().for_each(|value| put(&mut seen, value));
                }
            }
            integer(&mut seen, view.expires_at());
            integer(&mut seen, life.forgettable_at);
            seen.push(if life.is_tombstone { 0xC3 } else { 0xC2 });
        }
        let state = self.centres[at].state.as_ref();
        let parts = [delta.map_or(&[][..], State::as_bytes), state.map_or(&[], State::as_bytes)];
        let mut hash = 0xCBF2_9CE4_8422_2325_u64;
        for part in [parts[0], parts[1], &seen] {
            for byte in part.iter().chain([&0xFF]) {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3);
            }
        }
        (hash >> 32) as u32 ^ hash as u32
    }
}

#[test]
fn states_are_those_of_the_first_implementation_byte_for_byte() {
    let (mut history, mut steps, mut full) = (None, 0, 0);
    for (at, line) in include_str!("histories.txt").lines().enumerate() {
        if let Some(table) = line.strip_prefix("T ") {
            history = Some(History::new(table));
            continue;
        }
        let history = history.as_mut().unwrap();
        if let Some(state) = line.strip_prefix('=') {
            let ours = history.centres[0].state.as_ref().map_or(&[][..], State::as_bytes);
            assert_eq!(hex(ours), state, "line {}", at + 1);
            full += 1;
            continue;
        }
        let words: Vec<_> = line.split(' ').collect();
        if words[0] == "L" {
            let centre = &mut history.centres[number(words[1]) as usize];
            centre.writer = stamp::writer(centre.dc, number(words[2]));
            continue;
        }
        let (centre, delta, now) = history.step(&words);
        let hash = history.seen(centre, delta.as_ref(), now);
        let state = history.centres[centre].state.as_ref().map_or(&[][..], State::as_bytes);
        let what = (words[0], delta.as_ref().map(|delta| hex(delta.as_bytes())), hex(state));
        assert_eq!(format!("{hash:08x}"), words[words.len() - 1], "line {}: {what:?}", at + 1);
        steps += 1;
    }
    assert!(steps > 2000 && full > 80, "{steps} {full}");
}

fn number(word: &str) -> u64 {
    word.parse().unwrap()
}

fn time(word: &str) -> u64 {
    if word == "-" {
        0
    } else {
        BASE_MS + number(word)
    }
}

fn values(words: &str) -> Vec<(usize, Value<'static>)> {
    words
        .split(',')
        .map(|word| {
            let (column, value) = word.split_once('=').unwrap();
            let (kind, value) = value.split_at(1);
            let value = match kind {
                "b" => Value::Bool(value == "1"),
                "i" if value.starts_with('-') => Value::Signed(value.parse().unwrap()),
                "i" => Value::Unsigned(value.parse().unwrap()),
                "f" => Value::Float(f64::from_bits(u64::from_str_radix(value, 16).unwrap())),
                "s" => Value::Str(String::from_utf8(unhex(value)).unwrap().into()),
                _ => Value::Bytes(unhex(value).into()),
            };
            (column.parse().unwrap(), value)
        })
        .collect()
}

fn put(to: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Unsigned(number) => integer(to, *number),
        Value::Signed(number) if *number >= 0 => integer(to, *number as u64),
        Value::Signed(number) => match *number {
            -32..=-1 => to.push(*number as u8),
            -128..=-33 => to.extend([0xD0, *number as u8]),
            -32_768..=-129 => {
                to.push(0xD1);
                to.extend((*number as i16).to_be_bytes());
            }
            -2_147_483_648..=-32_769 => {
                to.push(0xD2);
                to.extend((*number as i32).to_be_bytes());
            }
            _ => {
                to.push(0xD3);
                to.extend(number.to_be_bytes());
            }
        },
        Value::Float(number) => {
            to.push(0xCB);
            let bits = if number.is_nan() { f64::NAN.to_bits() } else { number.to_bits() };
            to.extend(bits.to_be_bytes());
        }
        Value::Bool(is) => to.push(if *is { 0xC3 } else { 0xC2 }),
        Value::Str(string) => text(to, string.as_bytes()),
        Value::Bytes(bytes) => {
            match bytes.len() {
                size @ ..=255 => to.extend([0xC4, size as u8]),
                size => to.extend([0xC5, (size >> 8) as u8, size as u8]),
            }
            to.extend_from_slice(bytes);
        }
    }
}

fn integer(to: &mut Vec<u8>, number: u64) {
    match number {
        0..=0x7F => to.push(number as u8),
        0x80..=0xFF => to.extend([0xCC, number as u8]),
        0x100..=0xFFFF => {
            to.push(0xCD);
            to.extend((number as u16).to_be_bytes());
        }
        0x1_0000..=0xFFFF_FFFF => {
            to.push(0xCE);
            to.extend((number as u32).to_be_bytes());
        }
        _ => {
            to.push(0xCF);
            to.extend(number.to_be_bytes());
        }
    }
}

fn text(to: &mut Vec<u8>, bytes: &[u8]) {
    match bytes.len() {
        size @ ..=31 => to.push(0xA0 | size as u8),
        size => to.extend([0xD9, size as u8]),
    }
    to.extend_from_slice(bytes);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}
