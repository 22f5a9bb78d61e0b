//! The consumers that call, and the last reply of each (clause 8): a call sent again, because its
//! reply was lost, is answered as the first time and does nothing.
//!
//! Replies are kept in full as long as those of the queue take at most `MAX_KEPT_BYTES` together.
//! Beyond that the oldest leases are kept in short form: their messages are in the queue as long as
//! they are leased.

use std::cell::Cell;
use std::collections::VecDeque;

use interlock_core::queue::types::Time;

use crate::calls::settle::Answer;
use crate::queue::names::ByName;
use crate::values::args::{refuse, Read};
use crate::wire::codes::Code;
use crate::wire::functions::Function;
use crate::wire::limits::{KEPT_REPLY, MAX_KEPT_BYTES, MAX_LIGHT};

mod compact_reply;
mod dump;

pub use compact_reply::Short;

const NONE: u32 = u32::MAX;
/// Bytes that a consumer takes beside its name and reply.
const OF_A_CONSUMER: usize = 200;

#[derive(Debug, Default)]
pub struct Consumers {
    by_name: ByName<u32>,
    all: Vec<Consumer>,
    free: Vec<u32>,
    /// The consumer that the last call named: one call asks more than once.
    recent: Cell<u32>,
    /// The consumer whose reply was kept first, and last; each knows the next.
    first: Option<u32>,
    last: Option<u32>,
    /// Replies before this one in the list are stored in their shortest form.
    whole: Option<u32>,
    bytes: usize,
    /// Bytes of the names, each of which exists twice.
    name_bytes: usize,
    /// Consumers whose last call did nothing, and its number, in the order in which they called.
    light: VecDeque<(u32, u64)>,
    /// At this many names, look for consumers that are gone.
    crowd: usize,
}

#[derive(Debug)]
struct Consumer {
    name: Box<[u8]>,
    call: u64,
    function: Function,
    at: Time,
    kept: Kept,
    /// True if the call leased and settled nothing.
    is_light: bool,
    before: u32,
    after: u32,
}

#[derive(Debug, Default)]
enum Kept {
    #[default]
    Nothing,
    Reply(Vec<u8>),
    /// A lease, and the settlements before it.
    Short(Short),
    /// `il1_next` has settled and still waits, or its connection ended while it did.
    Half(Vec<Answer>),
    /// Dropped for lack of room: in snapshots from before leases were kept in short form.
    Dropped,
}

impl Consumer {
    /// One of whom nothing is known, not its name either.
    fn unknown() -> Self {
        Consumer {
            name: Box::default(),
            call: 0,
            function: Function::Lease,
            at: 0,
            kept: Kept::Nothing,
            is_light: false,
            before: NONE,
            after: NONE,
        }
    }
}

impl Kept {
    fn bytes(&self) -> usize {
        match self {
            Kept::Reply(reply) => reply.capacity(),
            Kept::Short(short) => short.bytes(),
            Kept::Half(answers) => answers.capacity(),
            Kept::Nothing | Kept::Dropped => 0,
        }
    }
}

/// The state of a call, as far as it is known.
pub enum Known {
    New,
    /// The call was answered.
    Reply,
    /// It has settled, but has not leased yet.
    Half(Vec<Answer>),
}

impl Consumers {
    /// The number of a consumer, from 1; 0 for the one without a name.
    pub fn number(&mut self, name: &[u8], holders: impl FnOnce() -> Vec<u64>) -> u64 {
        if name.is_empty() {
            return 0;
        }
        if let Some(at) = self.find(name) {
            return u64::from(at) + 1;
        }
        if self.by_name.len() >= self.crowd.max(64) {
            self.let_go(&holders());
            self.crowd = 2 * self.by_name.len();
        }
        let consumer = Consumer { name: name.into(), ..Consumer::unknown() };
        let at = match self.free.pop() {
            Some(at) => {
                self.all[at as usize] = consumer;
                at
            }
            None => {
                self.all.push(consumer);
                self.all.len() as u32 - 1
            }
        };
        self.by_name.insert(name.into(), at);
        self.name_bytes += name.len();
        u64::from(at) + 1
    }

    #[inline]
    fn find(&self, name: &[u8]) -> Option<u32> {
        let recent = self.recent.get();
        // One that was let go has no name, and nobody asks for none.
        if self.all.get(recent as usize).is_some_and(|consumer| *consumer.name == *name) {
            return Some(recent);
        }
        let at = *self.by_name.get(name)?;
        self.recent.set(at);
        Some(at)
    }

    pub fn name(&self, number: u64) -> &[u8] {
        match number {
            0 => b"",
            number => &self.all[number as usize - 1].name,
        }
    }

    /// Forgets names that hold no lease and of whose calls nothing is kept.
    fn let_go(&mut self, holders: &[u64]) {
        let holders: hashbrown::HashSet<u64, std::hash::RandomState> =
            holders.iter().copied().collect();
        let (all, free, name_bytes) = (&mut self.all, &mut self.free, &mut self.name_bytes);
        self.by_name.retain(|_, &mut at| {
            let consumer = &mut all[at as usize];
            let stays =
                !matches!(consumer.kept, Kept::Nothing) || holders.contains(&(u64::from(at) + 1));
            if !stays {
                *name_bytes -= consumer.name.len();
                consumer.name = Box::default();
                free.push(at);
            }
            stays
        });
    }

    /// Returns what is known of this call, of which the consumer has said nothing newer.
    pub fn known(&self, name: &[u8], call: u64, function: Function, now: Time) -> Read<Known> {
        let Some(consumer) = self.find(name).map(|at| &self.all[at as usize]) else {
            return Ok(Known::New);
        };
        if call == 0 || call > consumer.call || consumer.at + KEPT_REPLY <= now {
            return Ok(Known::New);
        }
        let (called, last) = (function.name(), consumer.call);
        if call < last {
            return refuse(
                Code::StaleCall,
                called,
                format_args!("call {call} comes after call {last}"),
            );
        }
        if consumer.function != function {
            let of = consumer.function.name();
            return refuse(Code::StaleCall, called, format_args!("call {call} was il1_{of}"));
        }
        match &consumer.kept {
            Kept::Nothing => Ok(Known::New),
            Kept::Reply(_) | Kept::Short(_) => Ok(Known::Reply),
            Kept::Half(answers) => Ok(Known::Half(answers.clone())),
            Kept::Dropped => refuse(
                Code::StaleCall,
                called,
                format_args!("the reply of call {call} was too large to keep"),
            ),
        }
    }

    /// The reply to the call that was answered last, or what it is made of.
    pub fn reply(&self, name: &[u8]) -> Result<&[u8], &Short> {
        match self.find(name).map(|at| &self.all[at as usize].kept) {
            Some(Kept::Reply(reply)) => Ok(reply),
            Some(Kept::Short(short)) => Err(short),
            _ => Ok(b""),
        }
    }

    /// Keeps the reply of a consumer's call instead of the one before.
    pub fn keep(&mut self, number: u64, call: u64, function: Function, now: Time, reply: &[u8]) {
        let at = number as u32 - 1;
        let consumer = &mut self.all[at as usize];
        let before = std::mem::take(&mut consumer.kept);
        self.bytes -= before.bytes();
        let mut room = match before {
            Kept::Reply(before) => before,
            _ => Vec::new(),
        };
        room.clear();
        if room.capacity() > 4 * reply.len() + 1024 {
            room = Vec::new();
        }
        room.extend_from_slice(reply);
        self.set(at, call, function, now, Kept::Reply(room));
    }

    /// Like `keep`, for a call that leased and settled nothing. Only a limited number of these are kept:
    /// repeating such a call does no harm, and otherwise any client with the right to lease could fill the
    /// memory with names.
    pub fn keep_light(
        &mut self,
        number: u64,
        call: u64,
        function: Function,
        now: Time,
        reply: &[u8],
    ) {
        self.keep(number, call, function, now, reply);
        let at = number as u32 - 1;
        self.all[at as usize].is_light = true;
        self.light.push_back((at, call));
        if self.light.len() > MAX_LIGHT {
            let (at, call) = self.light.pop_front().expect("there are many");
            let consumer = &self.all[at as usize];
            // Its number may be another's by now, or it may count anew.
            if consumer.call == call && consumer.is_light {
                self.unlink(at);
                self.bytes -= std::mem::take(&mut self.all[at as usize].kept).bytes();
            }
        }
    }

    /// Keeps what a call has settled, until it has leased.
    pub fn keep_half(&mut self, number: u64, call: u64, now: Time, answers: Vec<Answer>) {
        let at = number as u32 - 1;
        self.bytes -= std::mem::take(&mut self.all[at as usize].kept).bytes();
        self.set(at, call, Function::Next, now, Kept::Half(answers));
    }

    /// Sets what is kept of this consumer; what was kept before is taken away already.
    fn set(&mut self, at: u32, call: u64, function: Function, now: Time, kept: Kept) {
        self.unlink(at);
        self.bytes += kept.bytes();
        let consumer = &mut self.all[at as usize];
        (consumer.call, consumer.function, consumer.at, consumer.kept) =
            (call, function, now, kept);
        consumer.is_light = false;
        self.link(at);
        while let Some(first) = self.first {
            if self.all[first as usize].at + KEPT_REPLY > now {
                break;
            }
            self.unlink(first);
            self.bytes -= std::mem::take(&mut self.all[first as usize].kept).bytes();
        }
        while self.bytes > MAX_KEPT_BYTES {
            let Some(oldest) = self.whole else { break };
            self.shorten(oldest);
        }
    }

    fn shorten(&mut self, at: u32) {
        let consumer = &mut self.all[at as usize];
        self.whole = Some(consumer.after).filter(|&after| after != NONE);
        let Kept::Reply(reply) = &consumer.kept else { return };
        if let Some(short) = Short::of(consumer.function, reply) {
            self.bytes -= consumer.kept.bytes();
            consumer.kept = Kept::Short(short);
            self.bytes += consumer.kept.bytes();
        }
    }

    fn link(&mut self, at: u32) {
        self.all[at as usize].before = self.last.unwrap_or(NONE);
        self.all[at as usize].after = NONE;
        match self.last {
            Some(last) => self.all[last as usize].after = at,
            None => self.first = Some(at),
        }
        self.last = Some(at);
        self.whole.get_or_insert(at);
    }

    fn unlink(&mut self, at: u32) {
        let (before, after) = (self.all[at as usize].before, self.all[at as usize].after);
        let place = |at: u32| (at != NONE).then_some(at);
        if before == NONE && self.first != Some(at) {
            return;
        }
        if self.whole == Some(at) {
            self.whole = place(after);
        }
        match place(before) {
            Some(before) => self.all[before as usize].after = after,
            None => self.first = place(after),
        }
        match place(after) {
            Some(after) => self.all[after as usize].before = before,
            None => self.last = place(before),
        }
        self.all[at as usize].before = NONE;
        self.all[at as usize].after = NONE;
    }

    /// Bytes of replies and names, about.
    pub fn weight(&self) -> u64 {
        let light = self.light.capacity() * size_of::<(u32, u64)>();
        (self.bytes + 2 * self.name_bytes + self.all.len() * OF_A_CONSUMER + light) as u64
    }

    /// Returns whether somebody who sends its last call again is answered as before.
    pub fn keep_something(&self) -> bool {
        self.first.is_some()
    }
}
