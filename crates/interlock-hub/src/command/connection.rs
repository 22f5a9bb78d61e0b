//! About one's own connection: greeting, password, farewell.

use std::sync::atomic::Ordering::Relaxed;

use super::Call;
use crate::resp::parse::integer;
use crate::session::Silent;
use crate::topics::Kind;

pub fn ping(call: &mut Call<'_, '_>) {
    if call.arguments.len() > 2 {
        return call.error("ERR wrong number of arguments for 'ping' command");
    }
    let message = call.arguments.get(1);
    // A client of RESP2 that subscribes takes nothing but pushes.
    if call.state.is_subscribed() && !call.state.resp3 {
        call.reply.array(2);
        call.reply.bulk(b"pong");
        return call.reply.bulk(message.unwrap_or_default());
    }
    match message {
        Some(message) => call.reply.bulk(message),
        None => call.reply.simple("PONG"),
    }
}

pub fn echo(call: &mut Call<'_, '_>) {
    let message = call.arguments.get(1).unwrap_or_default();
    call.reply.bulk(message);
}

pub fn hello(call: &mut Call<'_, '_>) {
    let mut resp3 = call.state.resp3;
    if let Some(version) = call.arguments.get(1) {
        resp3 = match integer(version) {
            None => return call.error("ERR Protocol version is not an integer or out of range"),
            Some(2) => false,
            Some(3) => true,
            Some(_) => return call.error("NOPROTO unsupported protocol version"),
        };
    }
    let mut at = 2;
    while at < call.arguments.len() {
        let left = call.arguments.len() - at - 1;
        if call.is(at, "AUTH") && left >= 2 {
            if !is_default(call, at + 1) {
                return call.error(WRONG_PASSWORD);
            }
            at += 3;
        } else if call.is(at, "SETNAME") && left >= 1 {
            let name = &call.arguments[at + 1];
            if !is_printable(name) {
                return call.error(BAD_NAME);
            }
            // At once, as in Redis: it stays although a later option is wrong.
            *call.state.card.name.lock() = name.into();
            at += 2;
        } else {
            let head: &[u8] = b"ERR Syntax error in HELLO option '";
            let text = [head, &call.arguments[at], b"'"].concat();
            return call.error_bytes(&text);
        }
    }
    call.state.resp3 = resp3;
    call.reply.resp3 = resp3;
    call.state.card.resp.store(if resp3 { 3 } else { 2 }, Relaxed);
    let reply = &mut call.reply;
    reply.map(7);
    // Clients look at these: what they know of a Redis 7.0 they may rely on here.
    for (key, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply.bulk(key.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.integer(if resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.integer(call.state.card.id as i64);
    for (key, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(key.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
}

pub fn auth(call: &mut Call<'_, '_>) {
    match call.arguments.len() {
        2 => call.error(NO_PASSWORD),
        3 if is_default(call, 1) => call.reply.ok(),
        3 => call.error(WRONG_PASSWORD),
        _ => call.syntax_error(),
    }
}

/// There are no users yet but the default one, which takes any password.
fn is_default(call: &Call<'_, '_>, at: usize) -> bool {
    &call.arguments[at] == b"default"
}

pub fn select(call: &mut Call<'_, '_>) {
    match integer(&call.arguments[1]) {
        None => call.error("ERR value is not an integer or out of range"),
        Some(0) => call.reply.ok(),
        Some(index) if i32::try_from(index).is_err() => {
            call.error("ERR value is out of range, value must between -2147483648 and 2147483647")
        }
        Some(_) => call.error("ERR DB index is out of range"),
    }
}

pub fn quit(call: &mut Call<'_, '_>) {
    call.reply.ok();
    call.state.closing = true;
}

pub fn reset(call: &mut Call<'_, '_>) {
    for kind in [Kind::Topic, Kind::Pattern, Kind::Shard] {
        for name in call.state.names(kind) {
            call.state.unsubscribe(kind, &name, call.core);
        }
    }
    let state = &mut *call.state;
    state.resp3 = false;
    state.silent = Silent::No;
    state.drops = false;
    state.card.resp.store(2, Relaxed);
    state.card.no_evict.store(false, Relaxed);
    *state.card.name.lock() = Box::default();
    call.reply.simple("RESET");
}

/// What a name may hold: it stands in a line of CLIENT LIST.
pub fn is_printable(name: &[u8]) -> bool {
    name.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

pub const BAD_NAME: &str =
    "ERR Client names cannot contain spaces, newlines or special characters.";
const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the \
     default user. Are you sure your configuration is correct?";
pub const REDIS_VERSION: &str = "7.0.15";
