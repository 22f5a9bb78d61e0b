//! RELAY: messages of another hub, each with its origin, its number and its time.

use interlock_stores::Message;

use super::{fan_out, stand};
use crate::command::pending::Pending;
use crate::command::state::{Relaying, State};
use crate::command::Call;
use crate::resp::write::Writer;
use crate::shared::events::{Answer, Level};
use crate::shared::mailbox::Mail;
use crate::shared::Core;
use crate::topics::relays::{counts_hubs, Opened, Way};
use crate::watch::counters::add;

pub fn relay(call: &mut Call<'_, '_>) {
    if call.arguments.len() == 3 && call.is(1, "OPEN") {
        return open(call);
    }
    let refusal = match call.arguments.len() {
        6 => carry(call),
        _ => Err("ERR wrong number of arguments for 'relay' command".into()),
    };
    if let Err(text) = refusal {
        // Later messages have higher numbers: if they were accepted, this one would be taken for an old one.
        call.state.relaying = call.state.relaying.take().map(Relaying::refused);
        call.error(&text);
    }
}

fn open(call: &mut Call<'_, '_>) {
    let Some(sender) = hexadecimal(&call.arguments[2]) else {
        return call.error("ERR RELAY OPEN takes a sender: 32 hexadecimal digits, not all 0");
    };
    close(call.state, call.core);
    let shared = call.core.shared;
    let card = &call.state.card;
    call.state.relaying = Some(Relaying::of(sender));
    match shared.relays.open(sender, card, |card| shared.is_broken(card.worker)) {
        Opened::Now => call.reply.simple("OK"),
        Opened::Behind { holder, superseded } => {
            if let Some(card) = superseded {
                let answer = Answer::Refused(SUPERSEDED.into());
                shared.send(card.worker, Mail::Answer(card.token, answer));
            }
            let text = format!(
                "disconnected: sender {sender:032x} uses another connection, {}: {}",
                call.state.card.address,
                holder.who()
            );
            shared.events.log(Level::Info, text);
            shared.send(holder.worker, Mail::Kill(holder.clone()));
            call.state.pending = Some(Box::new(Pending::Relay));
        }
    }
}

/// The connection before has ended, or another came.
pub fn answered(answer: Answer, state: &mut State, core: &mut Core<'_>, mut reply: Writer<'_>) {
    match answer {
        Answer::Refused(text) => {
            state.relaying = None;
            core.count_error(text.as_bytes());
            reply.error(text.as_bytes());
        }
        _ => reply.simple("OK"),
    }
}

/// The connection no longer brings messages.
pub fn close(state: &mut State, core: &mut Core<'_>) {
    if let Some(relaying) = state.relaying.take() {
        core.local.released.push((relaying.sender, state.card.id));
    }
}

fn carry(call: &mut Call<'_, '_>) -> Result<(), String> {
    let Some(relaying) = call.state.relaying.as_mut() else {
        return Err("ERR RELAY OPEN comes first".into());
    };
    if relaying.is_refused {
        return Err(
            "ERR a message before this one was refused: continue there after RELAY OPEN".into()
        );
    }
    let arguments = call.arguments;
    let origin = hexadecimal(&arguments[1])
        .ok_or("ERR RELAY takes an origin: 32 hexadecimal digits, not all 0")?;
    let number = decimal(&arguments[2])
        .filter(|number| *number > 0)
        .ok_or("ERR RELAY takes a number of a message: from 1 to 18446744073709551615")?;
    let time = decimal(&arguments[3])
        .ok_or("ERR RELAY takes a time: microseconds since 1970, up to 18446744073709551615")?;
    if !counts_hubs(relaying.sender, origin) {
        return Err("ERR the last two digits of an origin count hubs, from 00 to 10".into());
    }
    let (topic, payload) = (&arguments[4], &arguments[5]);
    let shared = call.core.shared;
    let known = match relaying.way(origin, &shared.relays) {
        Way::Known(known) => known,
        way => {
            // This hub had it before, and its publisher was answered then.
            add(&shared.counters.relay_circles, 1);
            if way == Way::Around {
                shared.events.log(Level::Warning, AROUND.into());
            }
            call.reply.simple("OK");
            return Ok(());
        }
    };
    if let Some(offers) = &mut call.core.local.offers {
        // A clock that is ahead there must not set this hub's time.
        let time = time.min(shared.queues.wall());
        let message = Message { topic, payload, time, origin: known, number };
        let offered = offers.relay(call.state.card.token, &message);
        if !stand(call.state, offered)? {
            return Ok(());
        }
    }
    // Stores know by themselves which they have, and for longer.
    if shared.relays.is_new(known, number) {
        add(&shared.counters.messages_relayed, 1);
        fan_out(call.core, topic, payload);
    } else {
        add(&shared.counters.messages_relayed_again, 1);
    }
    call.reply.simple("OK");
    Ok(())
}

fn hexadecimal(text: &[u8]) -> Option<u128> {
    let is_whole = text.len() == 32 && text.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(text).ok().filter(|_| is_whole)?;
    u128::from_str_radix(text, 16).ok().filter(|value| *value != 0)
}

fn decimal(text: &[u8]) -> Option<u64> {
    let is_whole = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| is_whole)?.parse().ok()
}

const AROUND: &str =
    "a message was dropped: it came through 16 hubs, so they relay in a circle; exclude its \
     topic from a store of one of them";
const SUPERSEDED: &str = "ERR the sender has opened another connection";
