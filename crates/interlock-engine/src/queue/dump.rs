//! A queue as bytes, with everything that the wire keeps in addition to the scheduler: its
//! declaration, the last reply of each consumer, results. Waiting calls are left out: a connection
//! does not outlive a server.

use interlock_core::queue::schedules::bytes::{number, option, string, Damaged, Reader};
use interlock_core::queue::types::Then;

use crate::queue::consumers::Consumers;
use crate::queue::declare::{Declared, Durability};
use crate::queue::results::Results;
use crate::queue::{Body, Presence, Queue};
use crate::values::args;
use crate::values::args::{refuse, Args, Read};
use crate::values::scratch::Payload;
use crate::wire::codes::Code;
use crate::wire::records::Recorded;
use crate::Engine;

/// Bytes that a message takes beside its payload, about.
const OF_A_MESSAGE: u64 = 32;
/// The first byte. A change of the form takes the next number: since 2 replies may be kept in short;
/// `wire/options.toml` says which one a new option came with.
const VERSION: u8 = if Declared::NEWEST > FORM { Declared::NEWEST } else { FORM };
const FORM: u8 = 2;
/// The oldest that can be read.
const FIRST_VERSION: u8 = 1;

const SEALED: u8 = 1;
const DROPPED: u8 = 2;

const DURABILITIES: [Durability; 3] =
    [Durability::None, Durability::EverySecond, Durability::Always];

impl Queue {
    pub fn dump(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[VERSION, u8::from(self.is_declared), self.marks()]);
        write_declared(out, &self.declared);
        self.consumers.dump(out);
        self.results.dump(out);
        number(out, self.weight);
        self.scheduler.dump(out, |body, out| {
            number(out, body.result);
            number(out, u64::from(body.data.beside));
            out.extend_from_slice(&body.data);
        });
    }

    fn marks(&self) -> u8 {
        (u8::from(self.sealed) * SEALED) | (u8::from(self.is_dropped()) * DROPPED)
    }

    /// A queue of this name as it was dumped.
    pub fn restored(name: &[u8], bytes: &[u8]) -> Result<Queue, Damaged> {
        let mut reader = Reader::new(bytes);
        let version = reader.byte("version")?;
        if !(FIRST_VERSION..=VERSION).contains(&version) {
            return Err(Damaged { at: 0, wanted: "version that is known" });
        }
        let is_declared = reader.byte("declaration")? != 0;
        let marks = reader.byte("marks")?;
        let declared = read_declared(&mut reader, version)?;
        let mut queue = Queue::new(name, declared.durability);
        queue.consumers = Consumers::restored(&mut reader)?;
        queue.results = Results::restored(&mut reader, declared.results)?;
        queue.weight = reader.number("weight")?;
        (queue.declared, queue.is_declared) = (declared, is_declared);
        queue.sealed = marks & SEALED != 0;
        if marks & DROPPED != 0 {
            (queue.presence, queue.in_journal) = (Presence::Dropped, true);
        }
        queue.scheduler = queue.scheduler.restored(reader.rest(), read_body)?;
        Ok(queue)
    }
}

impl Queue {
    /// Becomes what a record says: see `Journal`.
    pub fn replace<A: Args + ?Sized>(&mut self, args: &A) -> Read<()> {
        let mut from = args::Reader::new(Recorded::State.name(), args);
        let bytes = from.take(|| "state".into())?;
        from.end()?;
        match Queue::restored(&self.name, bytes) {
            Ok(queue) => *self = queue.instead_of(self),
            Err(damaged) => return refuse(Code::BadArgument, Recorded::State.name(), damaged),
        }
        Ok(())
    }
}

impl Engine {
    /// Appends a durable queue as bytes, and returns the result of `meanwhile`: no call is made
    /// during both. `None` if the queue does not exist or is not durable.
    pub fn dump<R>(
        &self,
        name: &[u8],
        out: &mut Vec<u8>,
        meanwhile: impl FnOnce() -> R,
    ) -> Option<R> {
        let live = self.queues.read().get(name).cloned();
        let cell = live.or_else(|| self.kept_of(name))?;
        // Room beforehand, or growing would copy it over and over while the queue is held; and what will
        // be needed is written to once, or the system would look for its pages then.
        let (from, weight, likely) = {
            let queue = cell.lock_arc();
            let counts = queue.scheduler.counts();
            let likely = counts.bytes + counts.unsettled * OF_A_MESSAGE;
            (out.len(), queue.total_weight() as usize, likely as usize)
        };
        out.reserve(weight);
        out.resize(from + likely.min(weight), 0);
        out.truncate(from);
        let queue = cell.lock_arc();
        if !(queue.is_durable() || queue.is_dropped() && queue.in_journal) {
            return None;
        }
        queue.dump(out);
        Some(meanwhile())
    }

    /// Puts a queue in, or in the place of one, as it was dumped.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are not a dump.
    pub fn restore(&self, name: &[u8], bytes: &[u8]) -> Result<(), Damaged> {
        let restored = Queue::restored(name, bytes)?;
        let cell = self.cell(name);
        let mut queue = cell.lock_arc();
        *queue = restored.instead_of(&mut queue);
        queue.measure();
        if queue.is_dropped() {
            let now = queue.scheduler.last_time();
            self.let_go(&mut queue, &cell, now, true);
        }
        self.after(&mut queue);
        Ok(())
    }
}

fn read_body(bytes: &[u8]) -> Option<Body> {
    let mut reader = Reader::new(bytes);
    let result = reader.number("time of a result").ok()?;
    let extra_weight = reader.small("weight").ok()?;
    Some(Body { data: Payload::new(reader.rest(), extra_weight), result })
}

fn write_declared(out: &mut Vec<u8>, declared: &Declared) {
    let Declared {
        max_size,
        max_bytes,
        max_dead,
        window,
        attempts,
        first,
        factor,
        longest,
        jitter,
        then,
        results,
        durability,
        ..
    } = declared;
    for value in [max_size, max_bytes, max_dead, window, first, factor, longest, results] {
        number(out, *value);
    }
    option(out, attempts.map(u64::from));
    let durability = DURABILITIES.iter().position(|one| one == durability).expect("one of all");
    out.extend_from_slice(&[u8::from(*jitter), u8::from(*then == Then::Hold), durability as u8]);
    declared.dump_added(out);
}

fn read_declared(reader: &mut Reader<'_>, version: u8) -> Result<Declared, Damaged> {
    let mut declared = Declared::default_of(Durability::None);
    let Declared { max_size, max_bytes, max_dead, window, first, factor, longest, results, .. } =
        &mut declared;
    for value in [max_size, max_bytes, max_dead, window, first, factor, longest, results] {
        *value = reader.number("option")?;
    }
    let attempts = reader.option("attempts")?.map(u32::try_from).transpose();
    declared.attempts = attempts.or_else(|_| reader.damaged("attempts"))?;
    declared.jitter = reader.byte("jitter")? != 0;
    declared.then = if reader.byte("end of a policy")? == 0 { Then::Dead } else { Then::Hold };
    let durability = DURABILITIES.get(usize::from(reader.byte("durability")?)).copied();
    declared.durability = durability.map_or_else(|| reader.damaged("durability"), Ok)?;
    declared.restore_added(reader, version)?;
    Ok(declared)
}

/// Appends a byte string and, behind it, how much room it was kept in: a bound counts the room.
pub fn string_with_room(out: &mut Vec<u8>, bytes: &Vec<u8>) {
    string(out, bytes);
    number(out, bytes.capacity() as u64);
}

pub fn read_with_room(reader: &mut Reader<'_>, wanted: &'static str) -> Result<Vec<u8>, Damaged> {
    let bytes = reader.string(wanted)?;
    let room: usize = reader.small(wanted)?;
    if room < bytes.len() || room > MOST_ROOM {
        return reader.damaged(wanted);
    }
    let mut kept = Vec::with_capacity(room);
    kept.extend_from_slice(bytes);
    Ok(kept)
}

/// Damage must not ask for all memory.
const MOST_ROOM: usize = 4 << 30;
