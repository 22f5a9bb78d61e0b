//! CLIENT: what connections are called, who there is, and the end of some.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use super::{is_printable, BAD_NAME, LONGEST_NAME, LONG_NAME};
use crate::access::registry::Card;
use crate::catalog::name_of;
use crate::command::state::Silent;
use crate::command::{queues, Call};
use crate::resp::parse::integer;
use crate::shared::mailbox::Mail;
use crate::watch::counters::add;

pub fn id(call: &mut Call<'_, '_>) {
    call.reply.integer(call.state.card.id as i64);
}

pub fn info(call: &mut Call<'_, '_>) {
    let card = call.state.card.clone();
    let text = line(call, &card);
    call.reply.verbatim(&text);
}

pub fn list(call: &mut Call<'_, '_>) {
    let count = call.arguments.len();
    let all = call.core.shared.registry.all();
    let wanted: Vec<&Arc<Card>> = if count == 2 {
        all.iter().collect()
    } else if count == 4 && call.is(2, "TYPE") {
        let Some(class) = class(call, 3) else { return };
        all.iter().filter(|card| class.holds(card)).collect()
    } else if count > 3 && call.is(2, "ID") {
        let ids: Option<Vec<_>> = call.arguments.from(3).map(integer).collect();
        let Some(ids) = ids else { return call.error("ERR Invalid client ID") };
        if ids.len() > MOST_IDS.max(all.len()) {
            return call.error("ERR more ids than there are clients");
        }
        // The list is sorted by id.
        let find = |id: i64| all.binary_search_by_key(&id, |card| card.id as i64);
        let find = |id: i64| find(id).ok().map(|at| &all[at]);
        ids.into_iter().filter_map(find).collect()
    } else {
        return call.syntax_error();
    };
    let mut text = String::new();
    for card in wanted {
        text += &line(call, card);
        if text.len() > MOST_LISTED {
            return call.error(&format!("ERR more than {MOST_LISTED} bytes of clients; give IDs"));
        }
    }
    call.reply.verbatim(&text);
}

fn line(call: &Call<'_, '_>, card: &Card) -> String {
    card.line(call.core.now, name_of(card.command.load(Relaxed))) + "\n"
}

pub fn kill(call: &mut Call<'_, '_>) {
    let all = call.core.shared.registry.all();
    if call.arguments.len() == 3 {
        // The old form: one address, and a reply that is not a number.
        let address = call.arguments.get(2).unwrap_or_default();
        match all.iter().find(|card| card.address.as_bytes() == address) {
            Some(card) => {
                end(call, card);
                call.reply.ok();
            }
            None => call.error("ERR No such client"),
        }
        return;
    }
    let Some(filter) = filter(call) else { return };
    let own = call.state.card.id;
    let wanted =
        all.iter().filter(|card| filter.holds(card) && !(filter.skip_me && card.id == own));
    let wanted: Vec<_> = wanted.collect();
    wanted.iter().for_each(|card| end(call, card));
    call.reply.integer(wanted.len() as i64);
}

/// A connection ends itself behind its reply; others are their workers' to end.
fn end(call: &mut Call<'_, '_>, card: &Arc<Card>) {
    add(&call.core.shared.counters.connections_killed, 1);
    if card.id == call.state.card.id {
        call.state.closing = true;
    } else {
        card.killed.store(true, Relaxed);
        call.core.shared.send(card.worker, Mail::Kill(card.clone()));
    }
}

#[derive(Default)]
struct Filter<'a> {
    id: Option<u64>,
    class: Option<Class>,
    address: Option<&'a [u8]>,
    local: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
    skip_me: bool,
}

#[derive(Clone, Copy)]
enum Class {
    Normal,
    Pubsub,
    /// Replicas and masters: the hub has none.
    None,
}

fn filter<'a>(call: &mut Call<'a, '_>) -> Option<Filter<'a>> {
    let mut filter = Filter { skip_me: true, ..Filter::default() };
    let arguments = call.arguments;
    for at in (2..arguments.len()).step_by(2) {
        let Some(value) = arguments.get(at + 1) else {
            call.syntax_error();
            return None;
        };
        if call.is(at, "ID") {
            let id = integer(value).filter(|&id| id > 0);
            if id.is_none() {
                call.error("ERR client-id should be greater than 0");
                return None;
            }
            filter.id = id.map(|id| id as u64);
        } else if call.is(at, "TYPE") {
            filter.class = Some(class(call, at + 1)?);
        } else if call.is(at, "ADDR") {
            filter.address = Some(value);
        } else if call.is(at, "LADDR") {
            filter.local = Some(value);
        } else if call.is(at, "USER") {
            if call.core.local.live.users.named(value).is_none() {
                let head: &[u8] = b"ERR No such user '";
                call.error_bytes(&[head, value, b"'"].concat());
                return None;
            }
            filter.user = Some(value);
        } else if call.is(at, "SKIPME") && (call.is(at + 1, "yes") || call.is(at + 1, "no")) {
            filter.skip_me = call.is(at + 1, "yes");
        } else {
            call.syntax_error();
            return None;
        }
    }
    Some(filter)
}

fn class(call: &mut Call<'_, '_>, at: usize) -> Option<Class> {
    match call.arguments.get(at).map(<[u8]>::to_ascii_lowercase).as_deref() {
        Some(b"normal") => Some(Class::Normal),
        Some(b"pubsub") => Some(Class::Pubsub),
        Some(b"replica" | b"slave" | b"master") => Some(Class::None),
        other => {
            let head: &[u8] = b"ERR Unknown client type '";
            let given = call.arguments.get(at).filter(|_| other.is_some()).unwrap_or_default();
            call.error_bytes(&[head, given, b"'"].concat());
            None
        }
    }
}

impl Class {
    fn holds(self, card: &Card) -> bool {
        match self {
            Class::Normal => !card.is_subscribed(),
            Class::Pubsub => card.is_subscribed(),
            Class::None => false,
        }
    }
}

impl Filter<'_> {
    fn holds(&self, card: &Card) -> bool {
        self.id.is_none_or(|id| id == card.id)
            && self.class.is_none_or(|class| class.holds(card))
            && self.user.is_none_or(|user| user == card.user_name().as_bytes())
            && self.address.is_none_or(|address| address == card.address.as_bytes())
            && self.local.is_none_or(|local| local == card.local.as_bytes())
    }
}

pub fn setname(call: &mut Call<'_, '_>) {
    let name = &call.arguments[2];
    if !is_printable(name) {
        return call.error(BAD_NAME);
    }
    if name.len() > LONGEST_NAME {
        return call.error(LONG_NAME);
    }
    *call.state.card.name.lock() = name.into();
    call.reply.ok();
}

pub fn getname(call: &mut Call<'_, '_>) {
    let name = call.state.card.name.lock();
    if name.is_empty() {
        call.reply.null();
    } else {
        call.reply.bulk(&name);
    }
}

pub fn setinfo(call: &mut Call<'_, '_>) {
    let which = match () {
        () if call.is(2, "LIB-NAME") => 0,
        () if call.is(2, "LIB-VER") => 1,
        () => {
            let head: &[u8] = b"ERR Unrecognized option '";
            let text = [head, &call.arguments[2], b"'"].concat();
            return call.error_bytes(&text);
        }
    };
    let value = &call.arguments[3];
    let name = ["lib-name", "lib-ver"][which];
    if !is_printable(value) {
        let text = format!("ERR {name} cannot contain spaces, newlines or special characters.");
        return call.error(&text);
    }
    if value.len() > LONGEST_NAME {
        return call.error(&format!("ERR {name} cannot be longer than {LONGEST_NAME} bytes."));
    }
    call.state.card.library.lock()[which] = value.into();
    call.reply.ok();
}

pub fn no_evict(call: &mut Call<'_, '_>) {
    if let Some(on) = on_or_off(call) {
        call.state.card.no_evict.store(on, Relaxed);
        call.reply.ok();
    }
}

/// Accepted without effect, because nothing here is evicted by last use.
pub fn no_touch(call: &mut Call<'_, '_>) {
    if on_or_off(call).is_some() {
        call.reply.ok();
    }
}

fn on_or_off(call: &mut Call<'_, '_>) -> Option<bool> {
    if call.is(2, "on") || call.is(2, "off") {
        return Some(call.is(2, "on"));
    }
    call.syntax_error();
    None
}

pub fn reply(call: &mut Call<'_, '_>) {
    if call.is(2, "on") {
        call.state.silent = Silent::No;
        call.reply.ok();
    } else if call.is(2, "off") {
        call.state.silent = Silent::Off;
    } else if call.is(2, "skip") {
        if call.state.silent != Silent::Off {
            call.state.silent = Silent::Next;
        }
    } else {
        call.syntax_error();
    }
}

/// Ends the wait of a call of keyed queues: as if its time were over, or by an error.
pub fn unblock(call: &mut Call<'_, '_>) {
    let Some(id) = integer(&call.arguments[2]) else {
        return call.error("ERR value is not an integer or out of range");
    };
    let reason = call.arguments.len() == 4;
    if call.arguments.len() > 4 {
        return call.syntax_error();
    }
    if reason && !call.is(3, "timeout") && !call.is(3, "error") {
        return call.error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
    }
    let error = (reason && call.is(3, "error")).then_some(UNBLOCKED);
    let all = call.core.shared.registry.all();
    let found = all.iter().find(|card| card.id as i64 == id);
    let unblocked = found.is_some_and(|card| queues::unblock(call.core, card, error));
    call.reply.integer(i64::from(unblocked));
}

/// Delays all requests, or only writes (PUBLISH, and functions that change a queue), for a number
/// of ms.
pub fn pause(call: &mut Call<'_, '_>) {
    let writes_only = match call.arguments.len() {
        3 => false,
        4 if call.is(3, "write") => true,
        4 if call.is(3, "all") => false,
        4 => return call.error("ERR CLIENT PAUSE mode must be WRITE or ALL"),
        _ => return call.wrong_count("CLIENT"),
    };
    let Some(timeout) = integer(&call.arguments[2]) else {
        return call.error("ERR timeout is not an integer or out of range");
    };
    let Ok(timeout) = u64::try_from(timeout) else {
        return call.error("ERR timeout is negative");
    };
    let until = call.core.now.saturating_add(timeout.saturating_mul(1000));
    call.core.shared.pause.begin(until, writes_only);
    call.reply.ok();
}

pub fn unpause(call: &mut Call<'_, '_>) {
    call.core.shared.go_on(call.core.shared.pause.end());
    call.reply.ok();
}

/// Sets what happens when the client reads too slowly.
pub fn slow(call: &mut Call<'_, '_>) {
    if call.is(2, "drop") || call.is(2, "close") {
        call.state.drops = call.is(2, "drop");
        call.reply.ok();
    } else {
        call.syntax_error();
    }
}

/// Bytes of one CLIENT LIST, of which a client's names take up to 3 KiB.
const MOST_LISTED: usize = 32 << 20;
/// Ids of one CLIENT LIST, where fewer clients are connected: each asks for a line.
const MOST_IDS: usize = 1_000;

const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
