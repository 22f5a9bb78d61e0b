//! `il1_restore`: messages of another queue, with the attempts they had, and its dead letters.

use interlock_core::queue::carry::Stands;
use interlock_core::queue::types::{State, Time};

use super::*;
use crate::shared::Context;

/// How an item stood, beside the message itself.
struct Stood<'a> {
    state: &'a [u8],
    attempt: u32,
    time: Time,
    error: &'a [u8],
}

impl Stood<'_> {
    fn is_dead(&self) -> bool {
        self.state == b"dead"
    }
}

impl Queue {
    /// Restores all, or none; nothing if the mark is known, for then they were restored before.
    pub fn restore<A: Args + ?Sized>(
        &mut self,
        from: &mut Reader<'_, A>,
        args: &A,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Read<()> {
        let mark = from.text(MAX_TEXT, || "mark".into())?;
        if mark.is_empty() {
            return from.bad(|| "mark".into(), "is empty");
        }
        let mark = to_text(mark);
        let window = from.natural(1, MAX_SPAN, || "window".into())?;
        let (all, stood) = read(from)?;
        self.begin(cx);
        if self.scheduler.known(&mark).is_some() {
            reply::array(out, 0);
            return Ok(());
        }
        self.has_room(&all, &stood, cx)?;
        reply::array(out, 2 * stood.len());
        let mut first = None;
        for (message, stood) in all.list.iter().zip(&stood) {
            let known = message.dedup().filter(|_| !stood.is_dead());
            let (id, became) = match known.and_then(|name| self.scheduler.known(name)) {
                Some(id) => {
                    self.scheduler.deduplicated();
                    (id, "known")
                }
                None => self.carry_in(&all, message, stood),
            };
            reply::number(out, id);
            reply::text(out, became.as_bytes());
            first.get_or_insert(id);
        }
        self.scheduler.know(&mark, first.expect("there is one at least"), window);
        cx.record_call(self, "restore", args);
        Ok(())
    }

    fn has_room(&self, all: &Messages<'_>, stood: &[Stood<'_>], cx: &Context<'_>) -> Read<()> {
        let mut names: HashMap<&str, (), foldhash::fast::RandomState> = HashMap::default();
        let (mut count, mut dead, mut bytes, mut weight) = (0u64, 0u64, 0u64, 0u64);
        for (message, stood) in all.list.iter().zip(stood) {
            if stood.is_dead() {
                dead += 1;
            } else {
                let known =
                    |name| self.scheduler.known(name).is_some() || names.insert(name, ()).is_some();
                if message.dedup().is_some_and(known) {
                    continue;
                }
                count += 1;
                bytes += message.payload.len() as u64;
            }
            weight += message.weight();
        }
        if count > 0 {
            self.too_large(count, bytes, "restore")?;
            if let Some(full) = self.no_room(count, bytes, "restore") {
                return Err(full);
            }
        }
        let (kept, most) = (self.scheduler.has_dead_letters() as u64, self.declared.max_dead);
        if dead > 0 && kept + dead > most {
            let text = format_args!("{kept} dead letters are kept; MAXDEAD is {most}");
            return refuse("FULL", "restore", text);
        }
        if weight > cx.free() {
            return Err(out_of_memory());
        }
        Ok(())
    }

    fn carry_in(
        &mut self,
        all: &Messages<'_>,
        message: &Message<'_>,
        stood: &Stood<'_>,
    ) -> (u64, &'static str) {
        let keys = |range: &Range<u32>| &all.keys[range.start as usize..range.end as usize];
        let plain = Said::default();
        let said = message.said.as_deref().unwrap_or(&plain);
        let body = Body {
            data: Payload::new(message.payload, message.key_bytes + OVERHEAD as u32),
            result: said.result,
        };
        self.weight += body.weight();
        let put = Put {
            keys: keys(&message.exclusive),
            shared: keys(&message.shared),
            priority: said.priority,
            dedup: said.dedup.as_deref(),
            barrier: said.barrier,
            retry: said.retry.as_deref(),
            window: said.window,
            ..Put::default()
        };
        let Stood { state, attempt, time, error } = *stood;
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
        let (id, state) = self.scheduler.carry_in(&put, body, attempt, &error, stands);
        let became = match state {
            State::Ready => "waiting",
            state => crate::read::state_name(state),
        };
        (id, became)
    }
}

fn read<'a, A: Args + ?Sized>(from: &mut Reader<'a, A>) -> Read<(Messages<'a>, Vec<Stood<'a>>)> {
    let mut all = Messages { list: Vec::new(), keys: Vec::new() };
    let mut list = Vec::new();
    loop {
        let i = list.len() + 1;
        if list.len() == MAX_BATCH {
            return refuse("TOOBIG", from.called, format_args!("more than {MAX_BATCH} messages"));
        }
        list.push(stood(from, i)?);
        let message = message(from, i, &mut all.keys)?;
        if all.keys.len() > MAX_BATCH_KEYS {
            let text = format_args!("more than {MAX_BATCH_KEYS} keys, all messages together");
            return refuse("TOOBIG", from.called, text);
        }
        if message.said.as_ref().is_some_and(|said| said.delay > 0) {
            return from.bad(|| format!("messages[{i}].DELAY"), "is told by state and time");
        }
        all.list.push(message);
        if !from.more() {
            return Ok((all, list));
        }
    }
}

fn stood<'a, A: Args + ?Sized>(from: &mut Reader<'a, A>, i: usize) -> Read<Stood<'a>> {
    let what = || format!("messages[{i}].state");
    let state = from.take(what)?;
    if ![&b"waiting"[..], b"delayed", b"backing_off", b"held", b"dead"].contains(&state) {
        return from.bad(what, "is not waiting, delayed, backing_off, held or dead");
    }
    let attempt = from.natural(1, MAX_COUNT, || format!("messages[{i}].attempt"))? as u32;
    let time = from.natural(0, MAX_TIME, || format!("messages[{i}].time"))?;
    let error = from.text(MAX_TEXT, || format!("messages[{i}].error"))?;
    Ok(Stood { state, attempt, time, error })
}
