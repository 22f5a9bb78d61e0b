//! Leasing: which messages are leased, and how the reply is written.

use interlock_core::queue::calls::batch::Most;
use interlock_core::queue::scheduler::{Grant, Scheduler};
use interlock_core::queue::types::{Kind, Time};

use crate::calls::settle;
use crate::calls::settle::Answer;
use crate::queue::consumers::Short;
use crate::queue::{Body, Queue};
use crate::values::args::{Args, Read, Reader};
use crate::values::reply;
use crate::wire::limits::*;

/// The lease that a call asks for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Number of messages, without those that follow one in its run. If the limit of bytes ended the lease, this becomes the number actually leased: so the
    /// journal records the outcome and not the limit.
    pub count: usize,
    /// µs.
    pub duration: u64,
    pub kind: Kind,
    /// The consumer takes runs (clause 30).
    pub runs: bool,
    /// Limit of payload bytes: the message that reaches it is the last.
    pub bytes: u64,
}

pub fn read<A: Args + ?Sized>(from: &mut Reader<'_, A>) -> Read<Wanted> {
    let count = from.natural(1, MAX_BATCH as u64, || "count".into())? as usize;
    let duration = from.natural(1, MAX_SPAN, || "duration".into())?;
    let (kind, runs) = match from.take(|| "kind".into())? {
        b"any" => (Kind::Any, false),
        b"keyed" => (Kind::Keyed, false),
        b"unkeyed" => (Kind::Unkeyed, false),
        b"any+" => (Kind::Any, true),
        b"keyed+" => (Kind::Keyed, true),
        _ => return from.bad(|| "kind".into(), "is not any, keyed, unkeyed, any+ or keyed+"),
    };
    Ok(Wanted { count, duration, kind, runs, bytes: MAX_TOLD as u64 })
}

impl Queue {
    /// Leases what is ready and appends it to the reply, after the answers about settled messages.
    /// Returns false if nothing is ready; nothing was written then.
    pub fn grant(
        &mut self,
        wanted: &mut Wanted,
        consumer: u64,
        settled: Option<&[Answer]>,
        out: &mut Vec<u8>,
    ) -> bool {
        let mut grants = std::mem::take(&mut self.grants);
        grants.clear();
        let Wanted { count, duration, kind, runs, bytes } = *wanted;
        let s = &mut self.scheduler;
        let with_riders = if runs { MAX_BATCH } else { 0 };
        let most = Most { messages: count, with_riders, keys: MAX_BATCH_KEYS, bytes };
        let handed = s.lease_batch(kind, most, duration, consumer, &mut grants);
        if let Some(handed) = handed {
            // Riders are not in the number: the limit of bytes ends a replay where it ended this call.
            if handed.is_cut && !runs {
                wanted.count = grants.len();
            }
            // About what a short message takes; once, and not as often as it grows.
            out.reserve(grants.len() * 128);
            begin(settled, 4 + 6 * grants.len() + handed.keys, out);
            tell_all(&self.scheduler, handed.token, handed.deadline, &grants, out);
        }
        self.grants = grants;
        handed.is_some()
    }

    /// Repeats a lease whose reply is kept in short form: its messages that are still leased. If
    /// none is, a caller that never got the reply may lease again at once.
    pub fn lease_again(&self, short: &Short, out: &mut Vec<u8>) {
        let Short { answers, token, deadline, ids } = short;
        let again = |&id| self.scheduler.granted_again(*token, id);
        let grants: Vec<Grant> = ids.iter().filter_map(again).collect();
        if grants.is_empty() {
            begin(answers.as_deref(), 4, out);
            ["", "", "0", "0"].iter().for_each(|part| reply::text(out, part.as_bytes()));
            return;
        }
        let keys = |grant| self.scheduler.granted(grant).2.count();
        let strings = 4 + grants.iter().map(|grant| 6 + keys(grant)).sum::<usize>();
        begin(answers.as_deref(), strings, out);
        tell_all(&self.scheduler, *token, *deadline, &grants, out);
    }

    /// Tells that nothing is ready, and when it may be worth asking again.
    pub fn nothing(&self, kind: Kind, settled: Option<&[Answer]>, out: &mut Vec<u8>) {
        begin(settled, 4, out);
        reply::text(out, b"");
        reply::text(out, b"");
        match self.scheduler.next_due() {
            // Even if shut keys are still to be swept.
            _ if self.is_over() => reply::text(out, b"sealed"),
            Some(0) => reply::text(out, b"0"),
            // Ready but paused messages are set aside, up to a limit per call.
            _ if self.scheduler.ready(kind) > 0 => reply::text(out, b"0"),
            // A duration: the caller does not know this clock.
            due => {
                reply::optional(out, due.map(|due| due.saturating_sub(self.scheduler.last_time())))
            }
        }
        reply::text(out, b"0");
    }

    /// Sealed, and nothing is unsettled: no lease will ever find something.
    pub fn is_over(&self) -> bool {
        self.sealed && self.scheduler.unsettled() == 0
    }

    /// Returns the time at which something falls due that no call causes.
    pub fn next_due(&self) -> Option<Time> {
        self.scheduler.next_due()
    }
}

fn tell_all(
    scheduler: &Scheduler<Body>,
    token: u64,
    deadline: Time,
    grants: &[Grant],
    out: &mut Vec<u8>,
) {
    reply::number(out, token);
    reply::number(out, deadline);
    match grants {
        [one] if scheduler.is_alone(one) => reply::text(out, b"alone"),
        _ => reply::empty(out),
    }
    reply::number(out, grants.len() as u64);
    grants.iter().for_each(|grant| tell(scheduler, grant, out));
}

/// Appends a message as its consumer gets it.
#[inline]
fn tell(scheduler: &Scheduler<Body>, grant: &Grant, out: &mut Vec<u8>) {
    let (sequence, body, keys, quiet) = scheduler.granted(grant);
    let (behind, sequence) =
        (scheduler.is_rider(grant), (sequence != grant.id).then_some(sequence));
    reply::message(out, grant.id, sequence, grant.attempt, (behind, quiet));
    reply::text(out, &body.data);
    // The counts precede the keys, and are known after them.
    let at = out.len();
    reply::digits(out, 0, 0);
    let (mut exclusive, mut shared) = (0u32, 0u32);
    for (key, is_shared) in keys.clone() {
        *(if is_shared { &mut shared } else { &mut exclusive }) += 1;
        reply::text(out, key.as_bytes());
    }
    if exclusive < 10 && shared < 10 {
        reply::set_digits(&mut out[at..], exclusive as u8, shared as u8);
        return;
    }
    out.truncate(at);
    reply::number(out, exclusive.into());
    reply::number(out, shared.into());
    keys.for_each(|(key, _)| reply::text(out, key.as_bytes()));
}

fn begin(settled: Option<&[Answer]>, strings: usize, out: &mut Vec<u8>) {
    match settled {
        None => reply::array(out, strings),
        Some(answers) => {
            reply::array(out, 1 + answers.len() + strings);
            reply::number(out, answers.len() as u64);
            answers.iter().for_each(|&answer| settle::tell(out, answer));
        }
    }
}
