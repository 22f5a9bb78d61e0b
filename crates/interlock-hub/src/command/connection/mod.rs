//! About one's own connection, until its farewell.

pub(super) mod client;
pub(super) mod login;

use std::sync::atomic::Ordering::Relaxed;

use super::topics::relay;
use super::Call;
use crate::command::state::Silent;
use crate::resp::parse::integer;
use crate::topics::directory::SubscriptionKind;

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

/// A command of Redis Cluster, which a hub does not support.
pub fn readonly(call: &mut Call<'_, '_>) {
    call.error("ERR This instance has cluster support disabled");
}

/// Every command of every connection from now on, this one's own too.
pub fn monitor(call: &mut Call<'_, '_>) {
    call.state.monitor(call.core);
    call.reply.ok();
}

pub fn quit(call: &mut Call<'_, '_>) {
    call.reply.ok();
    call.state.closing = true;
}

pub fn reset(call: &mut Call<'_, '_>) {
    for kind in [SubscriptionKind::Topic, SubscriptionKind::Pattern, SubscriptionKind::Shard] {
        for name in call.state.names(kind) {
            call.state.unsubscribe(kind, &name, call.core);
        }
    }
    call.state.stop_monitoring(call.core);
    relay::close(call.state, call.core);
    let state = &mut *call.state;
    state.resp3 = false;
    state.silent = Silent::No;
    state.drops = false;
    state.backup = None;
    let anonymous = call.core.local.live.users.anonymous().cloned();
    state.become_user(anonymous, false);
    state.card.resp.store(2, Relaxed);
    state.card.no_evict.store(false, Relaxed);
    *state.card.name.lock() = Box::default();
    call.reply.simple("RESET");
}

/// Returns whether a name has only printable characters, since it appears in a line of CLIENT LIST.
pub fn is_printable(name: &[u8]) -> bool {
    name.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

/// The name is part of each line about the connection, and is stored with its slow commands.
pub const LONGEST_NAME: usize = 1024;
pub const LONG_NAME: &str = "ERR Client names cannot be longer than 1024 bytes.";
pub const BAD_NAME: &str =
    "ERR Client names cannot contain spaces, newlines or special characters.";
