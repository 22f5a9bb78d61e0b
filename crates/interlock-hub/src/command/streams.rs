//! XRANGE, XREVRANGE, XREAD, XLEN: topics that a file store keeps, by position. And STORE.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use interlock_stores::disk::folder::Folder;
use interlock_stores::file::Reader;
use interlock_stores::Position;

use super::Call;
use crate::command::info;
use crate::command::pending::Pending;
use crate::resp::parse::integer;
use crate::stores::reading::{Asked, Behind, Question};

pub fn range(call: &mut Call<'_, '_>) {
    ranged(call, false);
}

pub fn reverse(call: &mut Call<'_, '_>) {
    ranged(call, true);
}

pub fn length(call: &mut Call<'_, '_>) {
    if let Some(reader) = reader(call, 1) {
        ask(call, Question::Length { reader });
    }
}

fn ranged(call: &mut Call<'_, '_>, backward: bool) {
    let (from, to) = if backward { (3, 2) } else { (2, 3) };
    let (from, to) = (bound(&call.arguments[from], false), bound(&call.arguments[to], true));
    let (Some(from), Some(to)) = (from, to) else {
        return call.error("ERR Invalid stream ID specified as stream command argument");
    };
    let count = match call.arguments.len() {
        4 => Some(usize::MAX),
        6 if call.is(4, "COUNT") => match integer(&call.arguments[5]) {
            Some(count) => usize::try_from(count).ok().filter(|count| *count > 0),
            None => return call.error("ERR value is not an integer or out of range"),
        },
        _ => return call.syntax_error(),
    };
    let Some(reader) = reader(call, 1) else { return };
    let Some(count) = count.filter(|_| from <= to) else {
        return call.reply.array(0);
    };
    ask(call, Question::Range { reader, from, to, count, backward });
}

pub fn read(call: &mut Call<'_, '_>) {
    let (mut count, mut block, mut at) = (usize::MAX, None, 1);
    let streams = loop {
        let word = |name: &str| call.is(at, name);
        if word("STREAMS") {
            break at + 1;
        }
        let number = call.arguments.get(at + 1).map(integer);
        if word("COUNT") && number.is_some() {
            match number.flatten() {
                // As in Redis, 0 means no limit.
                Some(most) => {
                    count = usize::try_from(most).ok().filter(|c| *c > 0).unwrap_or(count)
                }
                None => return call.error("ERR value is not an integer or out of range"),
            }
        } else if word("BLOCK") && number.is_some() {
            match number.flatten() {
                Some(time) if time < 0 => return call.error("ERR timeout is negative"),
                Some(time) => block = Some(time as u64),
                None => return call.error("ERR timeout is not an integer or out of range"),
            }
        } else if word("GROUP") || word("NOACK") {
            return call.error(GROUPS);
        } else {
            return call.syntax_error();
        }
        at += 2;
    };
    let left = call.arguments.len() - streams.min(call.arguments.len());
    if left == 0 || left % 2 == 1 {
        return call.error(
            "ERR Unbalanced 'xread' list of streams: for each stream key an ID or '$' must be \
             specified.",
        );
    }
    let mut topics = Vec::new();
    for place in streams..streams + left / 2 {
        let id = &call.arguments[place + left / 2];
        let position = match id {
            b"$" => None,
            b">" => return call.error(GROUPS),
            id => match position(id, 0) {
                Some(position) => Some(position),
                None => {
                    let text = "ERR Invalid stream ID specified as stream command argument";
                    return call.error(text);
                }
            },
        };
        let Some(reader) = reader(call, place) else { return };
        topics.push(Behind { topic: call.arguments[place].to_vec(), reader, position });
    }
    let until = block.filter(|time| *time > 0).map(Duration::from_millis);
    let until = until.and_then(|time| Instant::now().checked_add(time));
    ask(call, Question::Read { topics, count, until, waits: block.is_some() });
}

/// XREADGROUP, XGROUP: not supported.
pub fn groups(call: &mut Call<'_, '_>) {
    call.error(GROUPS);
}

/// Each store: its name, kind, settings, whether it writes, and its figures.
pub fn list(call: &mut Call<'_, '_>) {
    let set = call.core.shared.stores.current();
    let figures = info::stores(call.core.shared);
    call.reply.array(figures.len());
    for (name, figures) in figures {
        let kept = set.stores.iter().find(|kept| kept.settings.name == name);
        let kind = kept.map_or("", |kept| &*kept.settings.word);
        let ack = kept.map_or("", |kept| kept.settings.acknowledges.name());
        let upstreams = kept.map_or_else(Vec::new, |kept| kept.settings.upstreams());
        let trouble = kept.and_then(|kept| kept.store.figures.trouble());
        let is_old = |(name, age): &(&str, u64)| *name == "oldest_age_ms" && *age >= LONG;
        let state = match (kept, &trouble) {
            (None, _) => "draining",
            (Some(_), Some(_)) => "failing",
            // It does not keep up, or hangs in a system call.
            (Some(_), None) if figures.iter().any(is_old) => "behind",
            (Some(_), None) => "ok",
        };
        call.reply.map(7 + figures.len());
        for (key, text) in [
            ("name", &*name),
            ("kind", kind),
            ("ack", ack),
            ("state", state),
            ("trouble", trouble.as_deref().unwrap_or_default()),
            ("upstream", &upstreams.join(" ")),
        ] {
            call.reply.bulk(key.as_bytes());
            call.reply.bulk(text.as_bytes());
        }
        call.reply.bulk(b"queue");
        call.reply.integer(kept.map_or(0, |kept| kept.settings.queue as i64));
        for (figure, value) in figures {
            call.reply.bulk(figure.as_bytes());
            call.reply.integer(value as i64);
        }
    }
}

/// The reader of the topic that an argument names; without one the call is refused.
fn reader(call: &mut Call<'_, '_>, index: usize) -> Option<Reader<Folder>> {
    let topic = &call.arguments[index];
    let found = call.core.shared.stores.current().reader(topic);
    if found.is_none() {
        let text = [b"NOSTORE no file store of this hub keeps '", topic, b"'"].concat();
        call.error_bytes(&text);
    }
    found
}

/// The reply comes when it is read.
fn ask(call: &mut Call<'_, '_>, question: Question) {
    let topics = match &question {
        Question::Read { topics, .. } => {
            topics.iter().map(|one| one.topic.clone().into()).collect()
        }
        Question::Range { .. } | Question::Length { .. } => vec![call.arguments[1].into()],
    };
    let waits = matches!(question, Question::Read { waits: true, .. });
    let card = &call.state.card;
    let asked = Asked { worker: card.worker, token: card.token, resp3: call.reply.resp3, question };
    let shared = call.core.shared;
    match shared.host.get() {
        Some(host) => match shared.readings.ask(asked, || host.clone()) {
            Ok(()) => {
                call.state.card.blocked.store(waits, Relaxed);
                call.state.pending = Some(Box::new(Pending::Reading { topics }));
            }
            Err(error) => call.error(&format!("ERR cannot start a thread for reading: {error}")),
        },
        None => call.error("ERR the hub has no stores"),
    }
}

/// An end of a range: `-`, `+`, `1526919030474`, `1526919030474-55`, and with `(` without it.
fn bound(text: &[u8], is_end: bool) -> Option<Position> {
    match text {
        b"-" => return Some(Position::FIRST),
        b"+" => return Some(Position::LAST),
        _ => {}
    }
    let Some(text) = text.strip_prefix(b"(") else {
        return position(text, if is_end { u32::MAX } else { 0 });
    };
    let named = position(text, if is_end { 0 } else { u32::MAX })?;
    match is_end {
        false => (named < Position::LAST).then(|| named.next()),
        true => before(named),
    }
}

fn before(position: Position) -> Option<Position> {
    match (position.ms, position.n.checked_sub(1)) {
        (ms, Some(n)) => Some(Position { ms, n }),
        (0, None) => None,
        (ms, None) => Some(Position { ms: ms - 1, n: u32::MAX }),
    }
}

/// `ms` or `ms-n`; without `n`, `otherwise` is used.
fn position(text: &[u8], otherwise: u32) -> Option<Position> {
    let text = std::str::from_utf8(text).ok()?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (ms, n) = match text.split_once('-') {
        None => (text, None),
        Some((ms, n)) => (ms, Some(n)),
    };
    if !digits(ms) || n.is_some_and(|n| !digits(n)) {
        return None;
    }
    let n = match n {
        None => otherwise,
        // Redis has 64 bits for it; no topic has that many messages in a millisecond.
        Some(n) => u32::try_from(n.parse::<u64>().ok()?).unwrap_or(u32::MAX),
    };
    Some(Position { ms: ms.parse().ok()?, n })
}

/// Milliseconds that a message waits in a store that keeps up, at most.
const LONG: u64 = 10_000;
const GROUPS: &str =
    "ERR topics have no consumer groups: each reader keeps its own position (XREAD); to share \
     messages out, use a keyed queue";
