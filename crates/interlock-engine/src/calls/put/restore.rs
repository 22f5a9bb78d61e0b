//! `il1_restore`: messages of another queue, with the attempts they had, and its dead letters.

use std::borrow::Cow;

use interlock_core::queue::calls::carry::Stands;
use interlock_core::queue::scheduler::Budget;
use interlock_core::queue::types::{State, Time};

use super::*;
use crate::queue::shared::Context;
use crate::values::words::to_text;
use crate::wire::codes::Code;
use crate::wire::functions::Function;

/// The state in which an item stood, beside the message itself.
struct Stood<'a> {
    /// Identifies it when it is restored again.
    mark: Cow<'a, str>,
    state: &'a [u8],
    attempt: u32,
    time: Time,
    error: &'a [u8],
}

impl Stood<'_> {
    fn is_dead(&self) -> bool {
        self.state == b"dead"
    }

    fn may_park(&self) -> bool {
        self.attempt == 1 && [&b"waiting"[..], b"parked"].contains(&self.state)
    }
}

impl Queue {
    /// Restores all that is not known, or none.
    pub fn restore<A: Args + ?Sized>(
        &mut self,
        from: &mut Reader<'_, A>,
        args: &A,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Read<()> {
        let window = from.natural(1, MAX_SPAN, || "window".into())?;
        let (all, stood) = read(from)?;
        self.begin(cx);
        self.has_room(&all, &stood, cx)?;
        let mut budget = self.budget;
        reply::array(out, 2 * stood.len());
        for (message, stood) in all.list.iter().zip(&stood) {
            let (id, became) = match self.known_by(message, stood) {
                Some(id) => {
                    self.scheduler.deduplicated();
                    (id, "known")
                }
                None => self.carry_in(&all, message, stood, &mut budget),
            };
            if self.scheduler.known(&stood.mark).is_none() {
                self.waiting.became_known(&stood.mark);
                self.scheduler.know(&stood.mark, id, window);
            }
            reply::number(out, id);
            reply::text(out, became.as_bytes());
        }
        cx.record_call(self, Function::Restore, args);
        Ok(())
    }

    /// The message that it was restored as before, or that has its dedup string.
    fn known_by(&self, message: &Message<'_>, stood: &Stood<'_>) -> Option<u64> {
        let name = message.dedup().filter(|_| !stood.is_dead());
        let known = |name: &str| self.scheduler.known(name);
        known(&stood.mark).or_else(|| name.and_then(known))
    }

    fn has_room(&self, all: &Messages<'_>, stood: &[Stood<'_>], cx: &Context<'_>) -> Read<()> {
        let mut names: HashSet<&str, std::hash::RandomState> = HashSet::default();
        let (mut count, mut dead, mut bytes, mut weight) = (0u64, 0u64, 0u64, 0u64);
        let (mut could_park, attentive) = ((0u64, 0u64), self.scheduler.is_attentive());
        for (message, stood) in all.list.iter().zip(stood) {
            let name = message.dedup().filter(|_| !stood.is_dead());
            let again = |name: &str| names.contains(name);
            let before = again(&stood.mark) || name.is_some_and(again);
            // Whatever knows it, its mark is known from here on.
            names.insert(&stood.mark);
            if before || self.known_by(message, stood).is_some() {
                continue;
            }
            if let Some(name) = name {
                names.insert(name);
            }
            if stood.is_dead() {
                dead += 1;
            } else {
                count += 1;
                bytes += message.payload.len() as u64;
                if attentive && stood.may_park() && self.scheduler.put_could_park(&all.put(message))
                {
                    could_park.0 += 1;
                    could_park.1 += message.payload.len() as u64;
                }
            }
            weight += message.weight();
        }
        if count > 0 {
            self.too_large(count, bytes, "restore")?;
            self.room_to_park(could_park, "restore")?;
            if let Some(full) = self.no_room(count, bytes, "restore") {
                return Err(full);
            }
        }
        let kept = (self.scheduler.dead_count() + self.scheduler.dying()) as u64;
        let most = self.declared.max_dead;
        if dead > 0 && kept + dead > most {
            let text = format_args!("{kept} dead letters are kept; MAXDEAD is {most}");
            return refuse(Code::Full, "restore", text);
        }
        if weight > cx.free() {
            return Err(cx.out_of_memory(weight, "restore"));
        }
        Ok(())
    }

    fn carry_in(
        &mut self,
        all: &Messages<'_>,
        message: &Message<'_>,
        stood: &Stood<'_>,
        budget: &mut Budget,
    ) -> (u64, &'static str) {
        let result = message.said.as_ref().map_or(0, |said| said.result);
        let body = Body { data: Payload::new(message.payload, message.beside()), result };
        self.weight += body.weight();
        let put = all.put(message);
        let Stood { state, attempt, time, error, .. } = *stood;
        let error = to_text(error);
        let stands = match state {
            b"dead" => {
                return (self.scheduler.carry_dead(&put, body, attempt, &error, time), "dead");
            }
            b"delayed" => Stands::Delayed(time),
            b"backing_off" => Stands::BackingOff(time),
            b"held" => Stands::Held,
            _ => Stands::Waiting,
        };
        if let Some(name) = put.dedup {
            self.waiting.became_known(name);
        }
        let (id, state) = self.scheduler.carry_in(&put, body, attempt, &error, stands, budget);
        self.note_cancelled();
        let became = match state {
            Some(State::Ready) => "waiting",
            Some(state) => state.word(),
            None if self.scheduler.dead_letter(id).is_some() => "dead",
            None => "cancelled",
        };
        (id, became)
    }
}

fn read<'a, A: Args + ?Sized>(from: &mut Reader<'a, A>) -> Read<(Messages<'a>, Vec<Stood<'a>>)> {
    let mut all = Messages { list: Vec::new(), keys: Vec::new(), names: 0 };
    let mut list = Vec::new();
    loop {
        let i = list.len() + 1;
        if list.len() == MAX_BATCH {
            return refuse(
                Code::TooBig,
                from.called,
                format_args!("more than {MAX_BATCH} messages"),
            );
        }
        list.push(stood(from, i)?);
        let message = message(from, i, &mut all.keys)?;
        all.push(message, from.called)?;
        let said = all.list[i - 1].said.as_ref();
        let (delay, debounce) = said.map_or((0, 0), |said| (said.delay, said.coalesce.debounce));
        for (name, time) in [("DELAY", delay), ("DEBOUNCE", debounce)] {
            if time > 0 {
                let what = || format!("messages[{i}].{name}");
                return from.bad(what, "is given by state and time");
            }
        }
        if !from.more() {
            break;
        }
    }
    match named_as_mark(&all, &list) {
        Some(at) => from.bad(|| format!("messages[{}].DEDUP", at + 1), "is a mark"),
        None => Ok((all, list)),
    }
}

/// A message that names a mark as its dedup string.
fn named_as_mark(all: &Messages<'_>, list: &[Stood<'_>]) -> Option<usize> {
    let marks: HashSet<&str, std::hash::RandomState> =
        list.iter().map(|stood| &*stood.mark).collect();
    let named = |message: &Message<'_>| message.dedup().is_some_and(|name| marks.contains(name));
    all.list.iter().position(named)
}

fn stood<'a, A: Args + ?Sized>(from: &mut Reader<'a, A>, i: usize) -> Read<Stood<'a>> {
    let what = || format!("messages[{i}].mark");
    let mark = from.text(MAX_TEXT, what)?;
    if mark.is_empty() {
        return from.bad(what, "is empty");
    }
    let mark = to_text(mark);
    let what = || format!("messages[{i}].state");
    let state = from.take(what)?;
    let states = [&b"waiting"[..], b"delayed", b"backing_off", b"held", b"parked", b"dead"];
    if !states.contains(&state) {
        return from.bad(what, "is not waiting, delayed, backing_off, held, parked or dead");
    }
    let attempt = from.natural(1, MAX_COUNT, || format!("messages[{i}].attempt"))? as u32;
    let time = from.natural(0, MAX_TIME, || format!("messages[{i}].time"))?;
    let error = from.text(MAX_HISTORY, || format!("messages[{i}].error"))?;
    Ok(Stood { mark, state, attempt, time, error })
}
