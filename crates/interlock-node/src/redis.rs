//! The log in a stream of Redis or Valkey: one connection appends, the other reads.
//!
//! Each read looks up, in the same pipeline, the entry read last: only if that still has the same
//! bytes do the new entries follow it.

mod link;
mod reader;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use interlock_stores::network::Tls;

use crate::log::{is_genesis, mark, Entry, Event, Id, Largest, LogPort, Position, GONE, LOST};
use crate::trouble::{Kind, Trouble};
use link::{Asked, Heard, Link};
use reader::Reader;

#[derive(Clone)]
pub struct Settings {
    /// Each is `HOST:PORT`, or `unix:PATH`, with `@` before an abstract name. They are tried in
    /// turn.
    pub addresses: Vec<String>,
    pub tls: Option<Tls>,
    /// `None` with a password: the default user.
    pub user: Option<String>,
    pub password: Option<String>,
    pub database: u32,
    /// The stream's key.
    pub stream: Vec<u8>,
    /// Timeout for connecting, and for an engine that does not answer.
    pub timeout: Duration,
    /// Returns whether these bytes can be the first entry of a log.
    pub is_first: fn(&[u8]) -> bool,
}

impl Settings {
    pub fn new(address: &str, stream: &[u8]) -> Settings {
        let (tls, user, password) = Default::default();
        Settings {
            addresses: vec![address.to_owned()],
            tls,
            user,
            password,
            database: 0,
            stream: stream.to_vec(),
            timeout: Duration::from_secs(5),
            is_first: is_genesis,
        }
    }
}

pub struct Log {
    settings: Settings,
    appender: Link,
    reader: Link,
    reading: Reader,
    /// Numbers of the entries under way, oldest first, each with the last id read before it was
    /// appended.
    flying: VecDeque<(u64, Id)>,
    flying_bytes: VecDeque<usize>,
    bytes: usize,
    last: u64,
    /// The positions being looked up, and the entries found.
    looking: Vec<Position>,
    looked: Vec<Option<Entry>>,
    largest: Option<Largest>,
    events: VecDeque<Event>,
}

impl Log {
    /// Begins to connect. Nothing is read before [`LogPort::read_from`].
    pub fn new(settings: Settings) -> Log {
        let (flying, flying_bytes, events) = Default::default();
        let (appender, reader, reading) = (Link::new(true), Link::new(false), Reader::default());
        let (bytes, last) = (0, 0);
        let (looking, looked, largest) = Default::default();
        Log {
            settings,
            appender,
            reader,
            reading,
            flying,
            flying_bytes,
            bytes,
            last,
            looking,
            looked,
            largest,
            events,
        }
    }

    fn add(&mut self, bytes: &[u8], is_there: bool) -> Option<u64> {
        let stream = self.settings.stream.as_slice();
        let whole: [&[u8]; 6] = [b"XADD", stream, b"NOMKSTREAM", b"*", FIELD, bytes];
        let first: [&[u8]; 5] = [b"XADD", stream, b"*", FIELD, bytes];
        let arguments: &[&[u8]] = if is_there { &whole } else { &first };
        if !self.appender.ask(Asked::Add, arguments) {
            return None;
        }
        self.last += 1;
        self.flying.push_back((self.last, self.reading.id()));
        self.flying_bytes.push_back(bytes.len());
        self.bytes += bytes.len();
        Some(self.last)
    }

    /// The position of the last entry read.
    pub fn position(&self) -> Option<Position> {
        self.reading.position()
    }

    fn drive_appender(&mut self, now: Instant) {
        let mut heard = VecDeque::new();
        let ended = self.appender.drive(now, &self.settings, Duration::ZERO, &mut heard);
        for one in heard {
            self.hear_appender(one);
        }
        if let Err(trouble) = ended {
            self.lose(trouble);
        }
    }

    fn hear_appender(&mut self, heard: Heard) {
        match heard {
            Heard::Up => self.events.push_back(Event::Open),
            Heard::Largest(bytes) => {
                self.largest = Some(Largest { bytes, setting: "proto-max-bulk-len".into() });
            }
            Heard::Added(done) => {
                let Some((number, floor)) = self.flying.pop_front() else { return };
                self.bytes -= self.flying_bytes.pop_front().unwrap_or_default();
                match done {
                    Ok(Some(id)) => {
                        self.events.push_back(Event::Appended { number, id: Some(id) });
                        if id <= floor {
                            let text = format!(
                                "an entry was appended as {id}, though {floor} had been read before: {LOST}"
                            );
                            self.stop_reading(Trouble::new(Kind::Forked, text));
                        }
                    }
                    Ok(None) => {
                        let trouble = Trouble::new(Kind::Gone, GONE);
                        self.events.push_back(Event::Refused { number, trouble });
                    }
                    Err(trouble) => self.events.push_back(Event::Refused { number, trouble }),
                }
            }
            Heard::Ends(ends) => self.events.push_back(Event::Ends(ends)),
            Heard::Looked { found, left } => {
                self.looked.push(found);
                if left == 0 {
                    let found = self.looking.iter().zip(&self.looked);
                    let there = found.map(|(position, entry)| is_at(entry.as_ref(), position));
                    self.events.push_back(Event::Looked(there.collect()));
                }
            }
            Heard::Trimmed(done) => self.events.push_back(Event::Trimmed(done)),
            _ => {}
        }
    }

    /// Handles the end of the appending connection.
    fn lose(&mut self, trouble: Trouble) {
        let (first, last) = (self.flying.front(), self.flying.back());
        match first.zip(last) {
            Some(((first, _), (last, _))) => {
                let (first, last) = (*first, *last);
                self.events.push_back(Event::Unknown { first, last, trouble });
            }
            None => self.events.push_back(Event::Trouble(trouble)),
        }
        self.flying.clear();
        self.flying_bytes.clear();
        self.bytes = 0;
    }

    fn drive_reader(&mut self, now: Instant) {
        if self.reading.is_stopped() {
            return;
        }
        // When a read has succeeded, the next one may follow at once.
        for _ in 0..ROUNDS {
            self.reading.ask(&mut self.reader, &self.settings, now);
            let mut heard = VecDeque::new();
            let ended = self.reader.drive(now, &self.settings, reader::BLOCK, &mut heard);
            let has_heard = !heard.is_empty();
            for one in heard {
                match self.reading.hear(one, &self.settings) {
                    Ok(Some(event)) => self.events.push_back(event),
                    Ok(None) => {}
                    Err(trouble) => {
                        self.stop_reading(trouble);
                        return;
                    }
                }
            }
            if let Err(trouble) = ended {
                self.reading.lose();
                self.events.push_back(Event::Trouble(trouble));
                return;
            }
            if !has_heard {
                return;
            }
            if !self.reader.may_hold_more() {
                self.reading.ask(&mut self.reader, &self.settings, now);
                return self.reader.flush();
            }
        }
    }

    /// Stops reading the log, or reading by this connection.
    fn stop_reading(&mut self, trouble: Trouble) {
        if trouble.kind.is_of_history() {
            if self.reading.is_stopped() {
                return;
            }
            self.reading.stop();
            self.reader.close();
        } else {
            self.reading.lose();
            self.reader.fail(&self.settings);
        }
        self.events.push_back(Event::Trouble(trouble));
    }
}

impl LogPort for Log {
    fn append(&mut self, bytes: &[u8]) -> Option<u64> {
        self.add(bytes, true)
    }

    fn begin(&mut self, bytes: &[u8]) -> Option<u64> {
        self.add(bytes, false)
    }

    fn under_way(&self) -> (usize, usize) {
        (self.flying.len(), self.bytes)
    }

    fn is_open(&self) -> bool {
        self.appender.is_up()
    }

    fn read_from(&mut self, position: Option<Position>) {
        // Replies for the old position must not be delivered.
        if self.reading.is_asking() {
            self.reader.close();
        }
        self.reading.read_from(position);
        // Entries read earlier that are not read any more say nothing about the log's present
        // state: an entry under way may rightly get a lower id.
        let read = self.reading.id();
        for (_, floor) in &mut self.flying {
            *floor = read.min(*floor);
        }
    }

    fn ask_ends(&mut self) -> bool {
        let stream = self.settings.stream.clone();
        let first: [&[u8]; 6] = [b"XRANGE", &stream, b"-", b"+", b"COUNT", b"1"];
        let last: [&[u8]; 6] = [b"XREVRANGE", &stream, b"+", b"-", b"COUNT", b"1"];
        self.appender.ask(Asked::First, &first) && self.appender.ask(Asked::Last, &last)
    }

    fn largest(&self) -> Option<Largest> {
        self.largest.clone()
    }

    fn look(&mut self, positions: &[Position]) -> bool {
        self.looked.clear();
        let stream = self.settings.stream.clone();
        for (index, position) in positions.iter().enumerate() {
            let id = position.id.to_string();
            let arguments: [&[u8]; 4] = [b"XRANGE", &stream, id.as_bytes(), id.as_bytes()];
            let left = positions.len() - 1 - index;
            if !self.appender.ask(Asked::Look { left }, &arguments) {
                return false;
            }
        }
        self.looking = positions.to_vec();
        !positions.is_empty()
    }

    fn trim_before(&mut self, positions: &[Position]) -> bool {
        let mut words = vec![b"EVAL".to_vec(), TRIM.into(), b"1".to_vec()];
        words.push(self.settings.stream.clone());
        for position in positions {
            // The script compares all bytes of the entry that was looked up.
            let Some(Some(entry)) =
                self.looked.iter().find(|entry| is_at(entry.as_ref(), position))
            else {
                return false;
            };
            words.extend([position.id.to_string().into_bytes(), entry.bytes.clone()]);
        }
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        self.appender.ask(Asked::Trim, &words)
    }

    fn descriptors(&self, polled: &mut Vec<libc::pollfd>) {
        polled.extend(self.appender.interest());
        polled.extend(self.reader.interest());
    }

    fn wake_at(&self) -> Instant {
        let wakes = self.appender.wake_at(&self.settings, Duration::ZERO);
        if self.reading.is_stopped() {
            return wakes;
        }
        wakes.min(self.reader.wake_at(&self.settings, reader::BLOCK))
    }

    fn drive(&mut self, now: Instant) -> bool {
        self.drive_appender(now);
        self.drive_reader(now);
        !self.events.is_empty()
    }

    fn polled(&mut self, polled: &[libc::pollfd]) {
        self.appender.polled(polled);
        self.reader.polled(polled);
    }

    fn send(&mut self, now: Instant) -> bool {
        if !self.reading.is_stopped() {
            self.reading.ask(&mut self.reader, &self.settings, now);
            self.reader.flush();
        }
        self.appender.flush();
        !self.events.is_empty()
    }

    fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

fn is_at(entry: Option<&Entry>, position: &Position) -> bool {
    entry.is_some_and(|it| it.id == position.id && Some(mark(&it.bytes)) == position.mark)
}

/// Deletes the entries before the last of some if all of them exist unchanged: a log that was lost
/// and begun again may have any ids. `ARGV`: id and bytes of each.
const TRIM: &str = "for i = 1, #ARGV, 2 do
  local found = redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i])[1]
  if not found or found[2][2] ~= ARGV[i + 1] then return 0 end
end
return redis.call('XTRIM', KEYS[1], 'MINID', ARGV[#ARGV - 1])";
/// The only field of each entry.
const FIELD: &[u8] = b"e";
/// Maximum reads in one call, so that other work gets its turn.
const ROUNDS: usize = 4;
