//! The calls that carry no number: extending, declaring, and what an operator says.

use interlock_core::key::KeyRef;
use interlock_core::queue::calls::batch::Told;
use interlock_core::queue::types::RevokeThen;

use crate::calls::put::KEY_OVERHEAD;
use crate::calls::requeue::Edit;
use crate::queue::declare;
use crate::queue::declare::Durability;
use crate::queue::results::End;
use crate::queue::shared::Context;
use crate::queue::{Body, Queue, EMPTY};
use crate::values::args::{refuse, Args, Read, Reader, What};
use crate::values::reply;
use crate::wire::codes::Code;
use crate::wire::functions::Function;
use crate::wire::limits::*;
use crate::wire::records::Recorded;

impl Queue {
    pub fn operate<A: Args + ?Sized>(
        &mut self,
        function: Function,
        args: &A,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Read<()> {
        let mut from = Reader::new(function.name(), args);
        // Functions that create a missing queue.
        let makes = matches!(function, Function::Configure | Function::Pause | Function::Seal);
        if makes && self.is_blank() && EMPTY > cx.free() {
            return Err(cx.out_of_memory(EMPTY, function.name()));
        }
        match function {
            Function::Extend => self.extend(&mut from, cx, out),
            Function::Configure => return self.configure(&mut from, args, cx, out),
            Function::Purge => return self.purge(&mut from, args, cx, out),
            Function::Restore => return self.restore(&mut from, args, cx, out),
            Function::Drop => return self.drop_all(&mut from, cx, out),
            Function::Pause | Function::Resume => self.pause(function, &mut from, cx, out),
            Function::Seal | Function::Reopen => {
                from.end()?;
                self.begin(cx);
                let seals = function == Function::Seal;
                let new = std::mem::replace(&mut self.sealed, seals) != seals;
                tell(out, new);
                Ok(())
            }
            Function::Cancel
            | Function::Revoke
            | Function::Retry
            | Function::Skip
            | Function::Bury
            | Function::Requeue
            | Function::Discard
            | Function::Forget => self.operate_on(function, &mut from, cx, out),
            _ => unreachable!("no other is sent here"),
        }?;
        cx.record_call(self, function, args);
        Ok(())
    }

    fn extend<A: Args + ?Sized>(
        &mut self,
        from: &mut Reader<'_, A>,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Read<()> {
        let token = from.number(|| "token".into())?;
        let duration = from.natural(1, MAX_SPAN, || "duration".into())?;
        let waits = from.more();
        if waits && from.take(|| "waiting".into())? != b"waiting" {
            return from.bad(|| "waiting".into(), "is not waiting");
        }
        from.end()?;
        self.begin(cx);
        reply::array(out, 1);
        let told = if waits { Told::Waiting } else { Told::Begun };
        match self.scheduler.extend_batch(token, duration, told) {
            Some(deadline) => reply::number(out, deadline),
            None => reply::text(out, b"LEASELOST"),
        }
        Ok(())
    }

    fn configure<A: Args + ?Sized>(
        &mut self,
        from: &mut Reader<'_, A>,
        args: &A,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Read<()> {
        let settings = &cx.shared.settings;
        let journal = settings.journal.is_some() || cx.replays;
        let declaration = declare::read(from, &self.declared, settings.durability, journal)?;
        self.begin(cx);
        if let Some(declaration) = declaration {
            let other = declaration.differs(&self.declared);
            if let (true, Some((option, new, old))) =
                (self.is_declared && !declaration.changes, other)
            {
                let name = option.name();
                let text = format_args!("{name} is '{new}'; the queue was declared with '{old}'");
                return refuse(Code::OptionsMismatch, from.called, text);
            }
            if self.is_declared && !declaration.changes {
                // The named options already have these values, and the others stay.
                self.declared.tell(out);
                return Ok(());
            }
            let was_durable = self.is_durable();
            if !was_durable && declaration.declared.durability != Durability::None {
                self.fits_a_record(cx)?;
            }
            if was_durable && declaration.declared.durability == Durability::None {
                cx.record(self, Recorded::Forgotten, &[]);
            }
            self.is_declared = true;
            self.declared = declaration.declared;
            let mut budget = self.budget;
            self.scheduler.redeclare(self.declared.options());
            self.scheduler.moves(&mut budget);
            self.note_cancelled();
            self.results.most = self.declared.results;
            if !was_durable && self.is_durable() {
                // No journal record has its content yet.
                let mut state = Vec::new();
                self.dump(&mut state);
                cx.record(self, Recorded::State, &[&state]);
            } else {
                cx.record_call(self, Function::Configure, args);
            }
        }
        self.declared.tell(out);
        Ok(())
    }

    /// A queue becomes durable by one record of all that it holds.
    fn fits_a_record(&self, cx: &Context<'_>) -> Read<()> {
        if self.total_weight() > MAX_STATE && !cx.replays {
            let text = format_args!(
                "the queue holds {} bytes; at most {MAX_STATE} can become durable at once",
                self.total_weight()
            );
            return refuse(Code::NotSupported, "configure", text);
        }
        match &cx.shared.settings.journal {
            Some(journal) if !cx.replays => journal
                .accepts(Some(self.total_weight()))
                .or_else(|why| refuse(Code::CannotStore, "configure", why)),
            _ => Ok(()),
        }
    }

    fn purge<A: Args + ?Sized>(
        &mut self,
        from: &mut Reader<'_, A>,
        args: &A,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Read<()> {
        let pending = match from.take(|| "what".into())? {
            b"pending" => true,
            b"dead" => false,
            _ => return from.bad(|| "what".into(), "is not pending or dead"),
        };
        from.end()?;
        self.begin(cx);
        let count = if pending {
            let mut budget = self.budget;
            let cancelled = self.scheduler.cancel_some(MAX_PURGED, MAX_BATCH_KEYS, &mut budget);
            let count = cancelled.len();
            // Which ones, for they come in the order in which they lie.
            let ids: Vec<String> = cancelled.iter().map(|(id, _)| id.to_string()).collect();
            let ids: Vec<&[u8]> = ids.iter().map(|id| id.as_bytes()).collect();
            if count > 0 {
                cx.record_budget(self);
                cx.record(self, Recorded::Purged, &ids);
            }
            cancelled.into_iter().for_each(|(id, body)| self.gone(id, body, End::Cancelled, b""));
            self.scheduler.moves(&mut budget);
            self.note_cancelled();
            count
        } else {
            let dropped = self.scheduler.drop_dead(MAX_PURGED);
            dropped.iter().for_each(|body| self.weight -= body.weight());
            cx.record_call(self, Function::Purge, args);
            dropped.len()
        };
        reply::array(out, 1);
        reply::number(out, count as u64);
        Ok(())
    }

    /// A record of what an `il1_purge` cancelled: see `Journal`.
    pub fn replay_purged<A: Args + ?Sized>(&mut self, args: &A, cx: &mut Context<'_>) -> Read<()> {
        let mut from = Reader::new(Recorded::Purged.name(), args);
        self.begin(cx);
        let mut budget = self.budget;
        while from.more() {
            let id = from.number(|| "id".into())?;
            let Some(body) = self.scheduler.cancel_within(id, &mut budget) else {
                return from.bad(|| "id".into(), "is not a message that can be cancelled");
            };
            self.gone(id, body, End::Cancelled, b"");
        }
        self.scheduler.moves(&mut budget);
        self.note_cancelled();
        Ok(())
    }

    fn pause<A: Args + ?Sized>(
        &mut self,
        function: Function,
        from: &mut Reader<'_, A>,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Read<()> {
        let mut keys = Vec::new();
        while from.more() {
            let i = keys.len() + 1;
            if keys.len() == MAX_BATCH_KEYS {
                return refuse(
                    Code::TooBig,
                    from.called,
                    format_args!("more than {MAX_BATCH_KEYS} keys"),
                );
            }
            keys.push(key(from, || format!("keys[{i}]"))?);
        }
        self.begin(cx);
        let pauses = function == Function::Pause;
        let bytes = keys.iter().map(|key| key.bytes.len() as u64 + u64::from(KEY_OVERHEAD)).sum();
        if pauses && bytes > cx.free() {
            return Err(cx.out_of_memory(bytes, from.called));
        }
        let all: Vec<Option<KeyRef<'_>>> = match keys.is_empty() {
            true => vec![None],
            false => keys.into_iter().map(Some).collect(),
        };
        reply::array(out, all.len());
        let mut budget = self.budget;
        for key in all {
            let new = match key {
                Some(key) if !pauses => self.scheduler.resume_key(key, &mut budget),
                Some(key) => self.scheduler.pause_key(key),
                None => {
                    self.scheduler.carry(budget);
                    match pauses {
                        true => self.scheduler.pause(cx.now, None),
                        false => self.scheduler.resume(cx.now, None),
                    }
                }
            };
            reply::text(out, if new { b"1" } else { b"0" });
        }
        self.scheduler.moves(&mut budget);
        self.note_cancelled();
        Ok(())
    }

    /// The calls that take the id of a message.
    fn operate_on<A: Args + ?Sized>(
        &mut self,
        function: Function,
        from: &mut Reader<'_, A>,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Read<()> {
        let id = from.number(|| "id".into())?;
        let then = match function {
            Function::Revoke => match from.take(|| "then".into())? {
                b"retry" => RevokeThen::Retry,
                b"hold" => RevokeThen::Hold,
                b"dead" => RevokeThen::Dead,
                b"skip" => RevokeThen::Skip,
                _ => return from.bad(|| "then".into(), "is not retry, hold, dead or skip"),
            },
            _ => RevokeThen::Retry,
        };
        let by = match function {
            Function::Revoke if from.more() => Some(from.number(|| "token".into())?),
            _ => None,
        };
        let edit = match function {
            Function::Requeue => Edit::read(from)?,
            _ => Edit::default(),
        };
        from.end()?;
        self.begin(cx);
        if by.is_some() && by != self.token_of(id) {
            return told(out, false);
        }
        let (s, now) = (&mut self.scheduler, cx.now);
        if !matches!(function, Function::Requeue | Function::Forget) {
            s.carry(self.budget);
        }
        let (body, end) = match function {
            Function::Requeue => return self.requeue(id, edit, cx, out),
            Function::Discard => {
                let dropped = s.discard(now, id);
                self.weight -= dropped.as_ref().map_or(0, Body::weight);
                return told(out, dropped.is_some());
            }
            Function::Forget => {
                let kept = self.results.get(id, now).is_some();
                self.results.forget(id);
                return told(out, kept);
            }
            Function::Cancel => (s.cancel(now, id), End::Cancelled),
            Function::Skip => (s.skip(now, id), End::Skipped),
            Function::Revoke => match s.revoke(now, id, then) {
                Some(None) => {
                    self.note_cancelled();
                    return told(out, true);
                }
                revoked => (revoked.flatten(), End::Skipped),
            },
            Function::Retry | Function::Bury => {
                let done =
                    if function == Function::Retry { s.retry(now, id) } else { s.bury(now, id) };
                self.note_cancelled();
                return told(out, done);
            }
            _ => unreachable!("no other takes an id"),
        };
        tell(out, body.is_some());
        if let Some(body) = body {
            self.gone(id, body, end, b"");
        }
        self.note_cancelled();
        Ok(())
    }

    /// Token of the lease that holds a message.
    fn token_of(&self, id: u64) -> Option<u64> {
        Some(self.scheduler.seen(id)?.lease?.0)
    }
}

/// `1` or `0`.
fn tell(out: &mut Vec<u8>, yes: bool) {
    reply::array(out, 1);
    reply::text(out, if yes { b"1" } else { b"0" });
}

fn told(out: &mut Vec<u8>, yes: bool) -> Read<()> {
    tell(out, yes);
    Ok(())
}

/// A key that is not empty and not too long.
pub fn key<'a, A: Args + ?Sized>(from: &mut Reader<'a, A>, what: impl What) -> Read<KeyRef<'a>> {
    let key = from.text(MAX_KEY_BYTES, what)?;
    if key.is_empty() {
        return from.bad(what, "is empty");
    }
    Ok(KeyRef::new(key))
}
