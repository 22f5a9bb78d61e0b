//! The calls that only read: what fell due since the last one counts as it did. And `il1_join`,
//! which applies that, because no other call may come to do it.

use interlock_core::key::KeyRef;
use interlock_core::queue::calls::read::Seen;
use interlock_core::queue::parts::dead::Dead;
use interlock_core::queue::types::{State, Time};

use crate::calls::carry;
use crate::calls::explain;
use crate::calls::limits;
use crate::calls::operate::key;
use crate::calls::put::options::Given;
use crate::calls::roots;
use crate::queue::results::End;
use crate::queue::shared::Context;
use crate::queue::{Body, Queue};
use crate::values::args::{refuse, Args, Read, Reader};
use crate::values::history;
use crate::values::reply;
use crate::values::words::to_bytes;
use crate::waiting::waiters::{Ticket, Waiter, Want};
use crate::wire::codes::Code;
use crate::wire::figures::{self, Others};
use crate::wire::functions::Function;
use crate::wire::limits::*;
use crate::Outcome;

/// Lanes that one call of `il1_hot` tells, at most.
const LANES: usize = 1000;

impl Queue {
    pub fn read<A: Args + ?Sized>(
        &mut self,
        function: Function,
        args: &A,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Read<Outcome> {
        let mut from = Reader::new(function.name(), args);
        match function {
            Function::Stats => {
                from.end()?;
                self.tell_stats(cx.now, out);
            }
            Function::Peek => {
                let id = from.number(|| "id".into())?;
                from.end()?;
                self.peek(id, out);
            }
            Function::Scan => {
                let cursor = cursor(&mut from)?;
                let count = from.natural(1, MAX_BATCH as u64, || "count".into())?;
                match from.more() {
                    true => self.scan_part(&mut from, cursor, count as usize, out)?,
                    false => self.scan(cursor, count as usize, out),
                }
            }
            Function::Paused => {
                let cursor = cursor(&mut from)?;
                from.end()?;
                self.tell_paused(cursor, out);
            }
            Function::DeadLetters => self.dead_letters(&mut from, out)?,
            Function::Hot => {
                let cursor = cursor(&mut from)?;
                from.end()?;
                self.hot(cursor, out);
            }
            Function::Limits => limits::call(self, &mut from, cx.now, out)?,
            Function::Roots => roots::roots(self, &mut from, cx.now, out)?,
            Function::Blocked => roots::blocked(self, &mut from, out)?,
            Function::Explain => explain::call(self, &mut from, cx.now, out)?,
            Function::Join => return self.join(&mut from, cx, out),
            Function::Result => return self.result(&mut from, cx, out),
            _ => unreachable!("no other is sent here"),
        }
        Ok(Outcome::Done)
    }

    /// The counts of a queue, by their names.
    pub fn figures(&mut self) -> Vec<(&'static str, u64)> {
        let others = Others {
            lanes: self.scheduler.lane_count(),
            paused: self.scheduler.pause_count(),
            sealed: self.sealed.into(),
            results: self.results.len() as u64,
            result_bytes: self.results.bytes,
            oldest_ready: self.scheduler.oldest_ready().unwrap_or(0),
            oldest_waiting: self.scheduler.oldest_waiting().unwrap_or(0),
            full: self.scheduler.room(1, 1).is_err().into(),
            riding: self.scheduler.riding(),
        };
        figures::named(&self.scheduler.counts(), &others)
    }

    /// The counts, and the time at which they are taken: ages are relative to it and to no other
    /// clock.
    fn tell_stats(&mut self, now: Time, out: &mut Vec<u8>) {
        let figures = self.figures();
        reply::array(out, 2 * figures.len() + 2);
        for (name, count) in figures.into_iter().chain([("time", now)]) {
            reply::text(out, name.as_bytes());
            reply::number(out, count);
        }
    }

    fn peek(&self, id: u64, out: &mut Vec<u8>) {
        let mut told = Strings::default();
        let Some(seen) = self.scheduler.seen(id) else {
            return match self.scheduler.dead_letter(id) {
                Some(dead) => carry::peek_dead(dead, told, out),
                None => reply::array(out, 0),
            };
        };
        told.text(seen.state.word().as_bytes());
        let lease = seen.lease;
        told.optional(lease.map(|(token, ..)| token));
        told.text(lease.map_or(b"", |(_, consumer, _)| self.consumers.name(consumer)));
        told.optional(lease.map(|(.., deadline)| deadline));
        told.optional(seen.due);
        told.number(seen.blocked.into());
        self.tell_message(&seen, &mut told);
        told.end(out);
    }

    fn scan(&self, cursor: u64, count: usize, out: &mut Vec<u8>) {
        let mut told = Strings::default();
        let mut bytes = 0;
        let next = self.scheduler.scan(cursor, count, |seen| {
            bytes += self.tell_message(&seen, &mut told);
            bytes < MAX_TOLD
        });
        told.end_behind(next, out);
    }

    /// `il1_scan` of the dead letters, or of the messages that have a key.
    fn scan_part<A: Args + ?Sized>(
        &mut self,
        from: &mut Reader<'_, A>,
        cursor: u64,
        count: usize,
        out: &mut Vec<u8>,
    ) -> Read<()> {
        match from.take(|| "what".into())? {
            b"dead" => self.scan_dead(from, cursor, count, false, out),
            b"newest" => self.scan_dead(from, cursor, count, true, out),
            b"key" => {
                let key = key(from, || "key".into())?;
                from.end()?;
                self.scan_key(key, cursor, count, out);
                Ok(())
            }
            b"delayed" => {
                let key = key(from, || "key".into())?;
                from.end()?;
                let (mut told, mut bytes) = (Strings::default(), 0);
                let next = self.scheduler.scan_delayed(cursor, count, key.bytes, |seen| {
                    bytes += self.tell_message(&seen, &mut told);
                    bytes < MAX_TOLD
                });
                told.end_behind(next, out);
                Ok(())
            }
            b"ids" => self.scan_ids(from, cursor, count, out),
            b"larger" => self.scan_larger(from, cursor, count, out),
            b"front" => self.scan_front(from, count, out),
            b"rising" => {
                from.end()?;
                self.scan_in_order(cursor, count, out);
                Ok(())
            }
            _ => from.bad(|| "what".into(), "is not dead, newest, key, delayed, ids or larger"),
        }
    }

    fn scan_in_order(&mut self, cursor: u64, count: usize, out: &mut Vec<u8>) {
        let (mut told, mut bytes) = (Strings::default(), 0);
        // Until all ids are in order, a page is empty and the next one begins at the same id.
        let next = match self.scheduler.order_ids() {
            false => cursor.max(1),
            true => self.scheduler.scan_in_order(cursor, count, |seen| {
                bytes += self.tell_message(&seen, &mut told);
                bytes < MAX_TOLD
            }),
        };
        told.end_behind(next, out);
    }

    fn scan_key(&self, key: KeyRef<'_>, cursor: u64, count: usize, out: &mut Vec<u8>) {
        let (mut told, mut next, mut bytes) = (Strings::default(), 0, 0);
        for (number, seen) in self.scheduler.on_key(key, cursor).enumerate() {
            bytes += self.tell_message(&seen, &mut told);
            if number + 1 == count || bytes >= MAX_TOLD {
                // Whose page is full does not know whether there are more.
                next = seen.id;
                break;
            }
        }
        told.end_behind(next, out);
    }

    /// `il1_scan` of the messages with these ids.
    fn scan_ids<A: Args + ?Sized>(
        &self,
        from: &mut Reader<'_, A>,
        cursor: u64,
        count: usize,
        out: &mut Vec<u8>,
    ) -> Read<()> {
        let mut ids = Vec::new();
        while ids.is_empty() || from.more() {
            let i = ids.len() + 1;
            if i > MAX_BATCH {
                let text = format_args!("more than {MAX_BATCH} ids");
                return refuse(Code::TooBig, from.called, text);
            }
            ids.push(from.number(|| format!("ids[{i}]"))?);
        }
        let (mut told, mut next, mut bytes, mut left) = (Strings::default(), 0, 0, count);
        for id in ids.into_iter().filter(|&id| id > cursor) {
            let Some(seen) = self.scheduler.seen(id) else { continue };
            bytes += self.tell_message(&seen, &mut told);
            left -= 1;
            if left == 0 || bytes >= MAX_TOLD {
                // Whose page is full does not know whether there are more.
                next = id;
                break;
            }
        }
        told.end_behind(next, out);
        Ok(())
    }

    /// `il1_scan` of the ids alone that are larger than one.
    fn scan_larger<A: Args + ?Sized>(
        &self,
        from: &mut Reader<'_, A>,
        cursor: u64,
        count: usize,
        out: &mut Vec<u8>,
    ) -> Read<()> {
        let (least, state) = least_and_state(from)?;
        let mut told = Strings::default();
        told.number(self.scheduler.last_id());
        let next = self.scheduler.scan(cursor, count, |seen| {
            if seen.id > least && state.is_none_or(|state| seen.state == state) {
                told.number(seen.id);
            }
            true
        });
        told.end_behind(next, out);
        Ok(())
    }

    /// `il1_scan` of the first ids that are larger than one, in order.
    fn scan_front<A: Args + ?Sized>(
        &mut self,
        from: &mut Reader<'_, A>,
        count: usize,
        out: &mut Vec<u8>,
    ) -> Read<()> {
        let (least, state) = least_and_state(from)?;
        let mut told = Strings::default();
        let has_few = state.is_some_and(|state| self.scheduler.has_few(state));
        // Until all ids are in order, a page is empty and the next one begins at the same id.
        let last = match has_few || self.scheduler.order_ids() {
            false => least.max(1),
            true => self.scheduler.front(least + 1, count, state, |id| told.number(id)),
        };
        told.end_behind(last, out);
        Ok(())
    }

    /// Answers how many bytes its payload, keys and errors have.
    fn tell_message(&self, seen: &Seen<'_, Body>, told: &mut Strings) -> usize {
        told.number(seen.id);
        told.optional(Some(seen.sequence).filter(|&sequence| sequence != seen.id));
        told.number(seen.attempt.into());
        told.text(&seen.payload.data);
        let (mut exclusive, mut shared, mut bytes) = (0, 0, seen.payload.data.len());
        let mut keys = Strings::default();
        self.scheduler.keys_seen(seen, |key, is_shared| {
            *if is_shared { &mut shared } else { &mut exclusive } += 1;
            bytes += key.len();
            keys.text(key);
        });
        let given = Given {
            priority: seen.priority,
            dedup: seen.dedup,
            window: seen.window,
            barrier: seen.barrier,
            result: seen.payload.result,
            quiet: seen.quiet,
            retry: seen.retry,
            limit: self.scheduler.limit_names(seen),
            group: self.scheduler.group(seen),
            coalesced: self.scheduler.coalesced(seen),
            behind: seen.behind,
            run: self.scheduler.run(seen),
        };
        let options = given.told();
        told.number(exclusive);
        told.number(shared);
        told.number(options.count as u64 / 2);
        told.append(&keys);
        told.append(&options);
        told.text(seen.state.word().as_bytes());
        told.optional(seen.due);
        let error = seen.error.map_or_else(Default::default, to_bytes);
        told.text(&error);
        bytes + error.len()
    }

    fn dead_letters<A: Args + ?Sized>(
        &self,
        from: &mut Reader<'_, A>,
        out: &mut Vec<u8>,
    ) -> Read<()> {
        let count = from.natural(1, MAX_BATCH as u64, || "count".into())? as usize;
        let after = match from.more() && from.args.get(from.at).is_empty() {
            true => {
                from.at += 1;
                None
            }
            false => Some(from.number(|| "after".into())?),
        };
        let key = if from.more() { Some(key(from, || "key".into())?) } else { None };
        from.end()?;
        let mut told = Strings::default();
        let (mut left, mut bytes) = (count, 0);
        let mut tell = |letters: &mut dyn Iterator<Item = &Dead<Body>>| {
            for dead in letters {
                tell_dead(dead, &mut told);
                left -= 1;
                bytes += bytes_of(dead);
                if left == 0 || bytes >= MAX_TOLD {
                    break;
                }
            }
        };
        match (key, after) {
            (Some(key), after) => {
                if let Some(mut letters) = self.scheduler.dead_on(key.bytes, after) {
                    tell(&mut letters);
                }
            }
            (None, None) => tell(&mut self.scheduler.all_dead()),
            (None, Some(id)) => {
                if let Some(mut letters) = self.scheduler.dead_after(id) {
                    tell(&mut letters);
                }
            }
        }
        told.end(out);
        Ok(())
    }

    fn hot(&mut self, cursor: u64, out: &mut Vec<u8>) {
        let mut told = Strings::default();
        let mut count = 0;
        let each = |key: &[u8], depth: u32| {
            told.text(key);
            told.number(depth.into());
            count += 1;
        };
        let next = match cursor {
            // Those that most callers ask for; then all lanes, by place.
            0 => {
                self.scheduler.deepest_lanes(LANES, each);
                u64::from(count == LANES)
            }
            place => match self.scheduler.scan_lanes(place - 1, LANES, each) {
                0 => 0,
                next => next + 1,
            },
        };
        told.end_behind(next, out);
    }

    fn result<A: Args + ?Sized>(
        &mut self,
        from: &mut Reader<'_, A>,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Read<Outcome> {
        let id = from.number(|| "id".into())?;
        let wait = from.natural(0, MAX_SPAN, || "wait".into())?;
        from.end()?;
        match cx.caller {
            Some(ticket) if wait > 0 && self.scheduler.seen(id).is_some() => {
                Ok(self.await_end(ticket, cx.now.saturating_add(wait), Want::Result(id)))
            }
            _ => {
                self.tell_result(id, cx.now, out);
                Ok(Outcome::Done)
            }
        }
    }

    fn join<A: Args + ?Sized>(
        &mut self,
        from: &mut Reader<'_, A>,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Read<Outcome> {
        let wait = from.natural(0, MAX_SPAN, || "wait".into())?;
        let id = if from.more() { Some(from.number(|| "id".into())?) } else { None };
        from.end()?;
        self.begin(cx);
        match cx.caller {
            Some(ticket) if wait > 0 && self.left_of(id) > 0 => {
                let until = self.scheduler.last_time().saturating_add(wait);
                Ok(self.await_end(ticket, until, Want::Join(id)))
            }
            _ => {
                self.tell_join(id, out);
                Ok(Outcome::Done)
            }
        }
    }

    /// Parks who waits for the end of messages.
    fn await_end(&mut self, ticket: Ticket, until: Time, want: Want) -> Outcome {
        let function = match want {
            Want::Join(_) => Function::Join,
            _ => Function::Result,
        };
        if !matches!(want, Want::Join(None)) && !self.waiting.wait_for_ends() {
            self.scheduler.note_ended(true);
        }
        let consumer = Box::default();
        self.waiting.enter(Waiter {
            ticket,
            until,
            function,
            consumer,
            call: 0,
            payer: None,
            want,
        });
        Outcome::Parked
    }

    /// Counts the messages that are unsettled: of all, or of one.
    fn left_of(&self, id: Option<u64>) -> u64 {
        id.map_or(self.scheduler.unsettled(), |id| self.scheduler.seen(id).is_some().into())
    }

    pub fn tell_join(&self, id: Option<u64>, out: &mut Vec<u8>) {
        let left = self.left_of(id);
        reply::array(out, 2);
        reply::number(out, left);
        let due = if left > 0 { self.scheduler.next_due() } else { None };
        // A duration: the caller does not know this clock.
        reply::optional(out, due.map(|due| due.saturating_sub(self.scheduler.last_time())));
    }

    pub fn tell_result(&self, id: u64, now: Time, out: &mut Vec<u8>) {
        if self.scheduler.seen(id).is_some() {
            return reply::texts(out, &[b"pending"]);
        }
        match (self.results.get(id, now), self.scheduler.dead_letter(id)) {
            (Some(kept), _) if matches!(kept.end, End::Done | End::Expired) => {
                reply::texts(out, &[kept.end.text(), &kept.result])
            }
            (Some(kept), _) => reply::texts(out, &[kept.end.text()]),
            (None, Some(dead)) => {
                reply::texts(out, &[b"dead", history::newest(&to_bytes(&dead.error))])
            }
            (None, None) => reply::texts(out, &[b"gone"]),
        }
    }
}

/// The id that others must exceed, and the state that they must have.
fn least_and_state<A: Args + ?Sized>(from: &mut Reader<'_, A>) -> Read<(u64, Option<State>)> {
    let least = from.natural(0, MAX_NUMBER, || "id".into())?;
    let mut state = None;
    if from.more() {
        let word = from.take(|| "state".into())?;
        state = State::ALL.into_iter().find(|one| one.word().as_bytes() == word);
        if state.is_none() {
            return from.bad(|| "state".into(), "is not a state of unsettled messages");
        }
    }
    from.end()?;
    Ok((least, state))
}

pub fn cursor<A: Args + ?Sized>(from: &mut Reader<'_, A>) -> Read<u64> {
    let given = from.take(|| "cursor".into())?;
    if given.is_empty() || given.len() > 20 || !given.iter().all(u8::is_ascii_digit) {
        return from.bad(|| "cursor".into(), "is not a cursor that this queue gives");
    }
    // One that is larger than any of ours is behind the last message.
    Ok(given.iter().fold(0u64, |sum, digit| sum.saturating_mul(10) + u64::from(digit - b'0')))
}

/// Bytes of its payload and keys.
pub fn bytes_of(dead: &Dead<Body>) -> usize {
    let keys = dead.keys.iter().map(|(key, _)| key.as_bytes().len()).sum::<usize>();
    dead.payload.data.len() + keys + to_bytes(&dead.error).len()
}

fn tell_dead(dead: &Dead<Body>, told: &mut Strings) {
    told.number(dead.id);
    told.number(dead.attempts.into());
    told.number(dead.died_at);
    told.text(&to_bytes(&dead.error));
    told.signed(dead.priority);
    told.text(&dead.payload.data);
    let shared = dead.keys.iter().filter(|(_, shared)| *shared).count();
    told.number((dead.keys.len() - shared) as u64);
    told.number(shared as u64);
    dead.keys.iter().for_each(|(key, _)| told.text(key.as_bytes()));
}

/// Strings of a reply whose number is known only at its end.
#[derive(Debug, Default)]
pub struct Strings {
    bytes: Vec<u8>,
    pub count: usize,
}

impl Strings {
    pub fn text(&mut self, text: &[u8]) {
        reply::text(&mut self.bytes, text);
        self.count += 1;
    }

    pub fn number(&mut self, value: u64) {
        reply::number(&mut self.bytes, value);
        self.count += 1;
    }

    pub fn signed(&mut self, value: i8) {
        self.text(value.to_string().as_bytes());
    }

    pub fn optional(&mut self, value: Option<u64>) {
        reply::optional(&mut self.bytes, value);
        self.count += 1;
    }

    /// Bytes that they take.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Frees unused capacity.
    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }

    pub fn append(&mut self, more: &Strings) {
        self.bytes.extend_from_slice(&more.bytes);
        self.count += more.count;
    }

    pub fn end(self, out: &mut Vec<u8>) {
        reply::array(out, self.count);
        out.extend_from_slice(&self.bytes);
    }

    /// With a number before them.
    pub fn end_behind(self, first: u64, out: &mut Vec<u8>) {
        reply::array(out, self.count + 1);
        reply::number(out, first);
        out.extend_from_slice(&self.bytes);
    }
}
