//! Settlements: any subset of what is out, of any leases.

use std::cell::Cell;
use std::ops::Deref;

use interlock_core::queue::calls::lease::Failed;
use interlock_core::queue::scheduler::Budget;
use interlock_core::queue::types::limits::BETWEEN;

use crate::queue::results::End;
use crate::queue::Queue;
use crate::values::args::{plain, refuse, Args, Read, Reader};
use crate::values::reply;
use crate::values::scratch;
use crate::values::words::to_text;
use crate::wire::codes::Code;
use crate::wire::limits::*;

#[derive(Clone, Copy, Debug)]
pub struct Settlement<'a> {
    token: u64,
    id: u64,
    how: How<'a>,
}

#[derive(Clone, Copy, Debug)]
enum How<'a> {
    Ack,
    Done(&'a [u8]),
    Nack(Option<u64>, &'a [u8]),
    Reject(&'a [u8]),
    Exhaust(&'a [u8]),
    Release,
    Defer(u64),
    Drop(&'a [u8]),
    /// As `Nack` or `Defer`, and closes a limit name.
    Close(Closing<'a>),
}

#[derive(Clone, Copy, Debug)]
struct Closing<'a> {
    delay: u64,
    error: &'a [u8],
    name: &'a [u8],
    /// The attempt counts.
    counts: bool,
}

/// The answer to a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Acked,
    Retried,
    Dead,
    Held,
    Released,
    Dropped,
    Lost,
}

impl Answer {
    /// The answer with this name.
    pub fn of(text: &[u8]) -> Option<Answer> {
        let all = [
            Answer::Acked,
            Answer::Retried,
            Answer::Dead,
            Answer::Held,
            Answer::Released,
            Answer::Dropped,
            Answer::Lost,
        ];
        all.into_iter().find(|answer| answer.text() == text)
    }

    pub fn text(self) -> &'static [u8] {
        match self {
            Answer::Acked => b"ACKED",
            Answer::Retried => b"RETRIED",
            Answer::Dead => b"DEAD",
            Answer::Held => b"HELD",
            Answer::Released => b"RELEASED",
            Answer::Dropped => b"DROPPED",
            Answer::Lost => b"LEASELOST",
        }
    }
}

#[inline]
pub fn tell(out: &mut Vec<u8>, answer: Answer) {
    match answer {
        Answer::Acked => out.extend_from_slice(b"$5\r\nACKED\r\n"),
        answer => reply::text(out, answer.text()),
    }
}

/// Settlements that were read.
pub struct Settlements<'a>(Vec<Settlement<'a>>);

thread_local! {
    /// One that is not in use.
    static LIST: Cell<Vec<Settlement<'static>>> = const { Cell::new(Vec::new()) };
}

impl<'a> Deref for Settlements<'a> {
    type Target = [Settlement<'a>];

    fn deref(&self) -> &[Settlement<'a>] {
        &self.0
    }
}

impl Drop for Settlements<'_> {
    fn drop(&mut self) {
        let list = std::mem::take(&mut self.0);
        // A thread that ends has none any more.
        let _ = LIST.try_with(|room| room.set(scratch::emptied(list)));
    }
}

pub fn read<'a, A: Args + ?Sized>(from: &mut Reader<'a, A>) -> Read<Settlements<'a>> {
    // Three arguments each, at least. More is not taken at once on the word of who calls.
    let left = from.args.len() - from.at.min(from.args.len());
    let mut all = Settlements(LIST.take());
    let list = &mut all.0;
    list.reserve((left / 3).min(ROOM));
    let mut last = Token::default();
    while from.more() {
        if list.len() == MAX_BATCH {
            return refuse(
                Code::TooBig,
                from.called,
                format_args!("more than {MAX_BATCH} settlements"),
            );
        }
        if let Some((token, id)) = acknowledged(from, &mut last) {
            list.push(Settlement { token, id, how: How::Ack });
            continue;
        }
        list.push(settlement(from, list.len() + 1)?);
    }
    Ok(all)
}

/// The token of the settlement before: nearly all of a call are of one lease.
#[derive(Default)]
struct Token {
    text: [u8; 16],
    number: u64,
}

/// Parses an acknowledgement, the usual settlement. `None`: it is another settlement or malformed, which the
/// caller handles.
#[inline]
fn acknowledged<A: Args + ?Sized>(
    from: &mut Reader<'_, A>,
    last: &mut Token,
) -> Option<(u64, u64)> {
    let (args, at) = (from.args, from.at);
    if args.len() - at < 3 || args.get(at) != b"ACK" {
        return None;
    }
    let text: &[u8; 16] = args.get(at + 1).try_into().ok()?;
    if *text != last.text {
        *last = Token { text: *text, number: plain(text)? };
    }
    let id = plain(args.get(at + 2).try_into().ok()?)?;
    from.at += 3;
    Some((last.number, id))
}

const VERBS: [&[u8]; 9] =
    [b"ACK", b"DONE", b"NACK", b"REJECT", b"EXHAUST", b"RELEASE", b"DEFER", b"DROP", b"CLOSE"];

fn settlement<'a, A: Args + ?Sized>(from: &mut Reader<'a, A>, i: usize) -> Read<Settlement<'a>> {
    let verb = from.take(|| format!("settlements[{i}]"))?;
    if !VERBS.contains(&verb) {
        let text = "is not ACK, DONE, NACK, REJECT, EXHAUST, RELEASE, DEFER, DROP or CLOSE";
        return from.bad(|| format!("settlements[{i}]"), text);
    }
    let token = from.number(|| format!("settlements[{i}].token"))?;
    let id = from.number(|| format!("settlements[{i}].id"))?;
    let how = match verb {
        b"ACK" => How::Ack,
        b"DONE" => How::Done(from.text(MAX_PAYLOAD, || format!("settlements[{i}].result"))?),
        b"NACK" => {
            let what = || format!("settlements[{i}].delay");
            let delay = if from.more() && from.args.get(from.at).is_empty() {
                from.at += 1;
                None
            } else {
                Some(from.natural(0, MAX_SPAN, what)?)
            };
            How::Nack(delay, from.text(MAX_ERROR, || format!("settlements[{i}].error"))?)
        }
        b"REJECT" => How::Reject(from.text(MAX_ERROR, || format!("settlements[{i}].reason"))?),
        b"EXHAUST" => How::Exhaust(from.text(MAX_ERROR, || format!("settlements[{i}].error"))?),
        b"DEFER" => How::Defer(from.natural(0, MAX_SPAN, || format!("settlements[{i}].delay"))?),
        b"DROP" => How::Drop(from.text(MAX_ERROR, || format!("settlements[{i}].reason"))?),
        b"CLOSE" => How::Close(closing(from, i)?),
        _ => How::Release,
    };
    Ok(Settlement { token, id, how })
}

fn closing<'a, A: Args + ?Sized>(from: &mut Reader<'a, A>, i: usize) -> Read<Closing<'a>> {
    let delay = from.natural(0, MAX_SPAN, || format!("settlements[{i}].delay"))?;
    let error = from.text(MAX_ERROR, || format!("settlements[{i}].error"))?;
    let what = || format!("settlements[{i}].name");
    let name = from.text(MAX_TEXT, what)?;
    if name.is_empty() {
        return from.bad(what, "is empty");
    }
    if name.contains(&BETWEEN) {
        return from.bad(what, "has the byte 0x1F");
    }
    let counts = from.natural(0, 1, || format!("settlements[{i}].counts"))? == 1;
    Ok(Closing { delay, error, name, counts })
}

/// Settlements for which room is made before they are read, at most.
const ROOM: usize = 1 << 10;

impl Queue {
    pub fn settle(&mut self, list: &[Settlement<'_>], budget: &mut Budget) -> Vec<Answer> {
        let settled = |one| {
            let answer = self.settle_one(one, budget);
            self.scheduler.moves(budget);
            self.note_cancelled();
            answer
        };
        list.iter().map(settled).collect()
    }

    #[inline]
    fn settle_one(&mut self, one: &Settlement<'_>, budget: &mut Budget) -> Answer {
        let s = &mut self.scheduler;
        if let How::Ack | How::Done(_) = one.how {
            let Some(acked) = s.ack_held(one.token, one.id, budget) else {
                s.clear_suspect(one.token, one.id);
                return Answer::Lost;
            };
            let result = if let How::Done(result) = one.how { result } else { b"" };
            if let Some(body) = acked {
                self.gone(one.id, body, End::Done, result);
            }
            return Answer::Acked;
        }
        let Some(handle) = s.held(one.token, one.id) else {
            s.clear_suspect(one.token, one.id);
            return Answer::Lost;
        };
        let how = match one.how {
            How::Close(Closing { delay, error, name, counts }) => {
                s.close_limit_within(name, delay);
                if counts {
                    How::Nack(Some(delay), error)
                } else {
                    How::Defer(delay)
                }
            }
            how => how,
        };
        let failed = match how {
            How::Ack | How::Done(_) | How::Close(_) => unreachable!("as just seen"),
            How::Release | How::Defer(_) => {
                let released = match how {
                    How::Defer(delay) => s.defer_within(handle, delay),
                    _ => s.release_within(handle),
                };
                return released.map_or(Answer::Lost, |()| Answer::Released);
            }
            How::Drop(reason) => {
                let Ok(dropped) = s.drop_within(handle, &to_text(reason), budget) else {
                    return Answer::Lost;
                };
                if let Some(body) = dropped {
                    self.gone(one.id, body, End::Expired, reason);
                }
                return Answer::Dropped;
            }
            How::Nack(delay, error) => s.nack_within(handle, delay, &to_text(error), budget),
            How::Reject(reason) => s.reject_within(handle, &to_text(reason), budget),
            How::Exhaust(error) => s.exhaust_within(handle, &to_text(error), budget),
        };
        match failed {
            Ok(Failed::Again { .. }) => Answer::Retried,
            Ok(Failed::Dead) => Answer::Dead,
            Ok(Failed::Held) => Answer::Held,
            Err(_) => Answer::Lost,
        }
    }
}
