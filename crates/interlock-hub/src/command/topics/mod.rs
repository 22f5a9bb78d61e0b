//! Publish and subscribe.

pub(super) mod channels;
pub mod relay;
pub(super) mod subscribers;

use super::Call;
use crate::access::users::Patterns;
use crate::command::pending::Pending;
use crate::command::state::State;
use crate::shared::Core;
use crate::stores::Offered;
use crate::topics::directory::SubscriptionKind;
use crate::watch::counters::add;

pub fn publish(call: &mut Call<'_, '_>) {
    if call.core.local.offers.is_some() && !is_offered(call) {
        return;
    }
    let (topic, message) = (&call.arguments[1], &call.arguments[2]);
    let receivers = fan_out(call.core, topic, message);
    call.state.answer_publish(receivers, &mut call.reply);
}

/// Sends a message to all who are subscribed to its topic; returns how many they are.
#[inline]
pub fn fan_out(core: &mut Core<'_>, topic: &[u8], message: &[u8]) -> i64 {
    let mut receivers = i64::from(send(core, SubscriptionKind::Topic, topic, message));
    let chunk = &mut core.local.chunk;
    core.shared.directory.matching(topic, |pattern, interest| {
        receivers += i64::from(interest.receivers);
        chunk.add(SubscriptionKind::Pattern, pattern, topic, message, interest);
    });
    receivers
}

pub fn spublish(call: &mut Call<'_, '_>) {
    if call.core.local.offers.is_some() && !is_offered(call) {
        return;
    }
    let (topic, message) = (&call.arguments[1], &call.arguments[2]);
    let receivers = send(call.core, SubscriptionKind::Shard, topic, message);
    call.state.answer_publish(i64::from(receivers), &mut call.reply);
}

/// Offers a message to the stores. False: it goes no further, now or at all.
fn is_offered(call: &mut Call<'_, '_>) -> bool {
    let (topic, message) = (&call.arguments[1], &call.arguments[2]);
    let shared = call.core.shared;
    let Some(offers) = &mut call.core.local.offers else { return true };
    let offered = offers.offer(call.state.card.token, topic, message, || shared.queues.wall());
    match stand(call.state, offered) {
        Ok(goes_on) => goes_on,
        Err(text) => {
            call.error(&text);
            false
        }
    }
}

/// Returns whether an offered message can proceed; if it has to wait, so does its connection. The
/// error is the reason why no store can ever take it.
pub fn stand(state: &mut State, offered: Offered) -> Result<bool, String> {
    match offered {
        Offered::Taken => Ok(true),
        Offered::Full => {
            state.pending = Some(Box::new(Pending::Room));
            Ok(false)
        }
        Offered::Refused(text) => Err(text),
    }
}

fn send(core: &mut Core<'_>, kind: SubscriptionKind, topic: &[u8], message: &[u8]) -> u32 {
    core.local.published += 1;
    let interest = core.shared.directory.interest(kind, topic);
    if interest.receivers > 0 {
        core.local.chunk.add(kind, topic, topic, message, interest);
    }
    interest.receivers
}

pub fn subscribe(call: &mut Call<'_, '_>) {
    join(call, SubscriptionKind::Topic, "subscribe");
}

pub fn psubscribe(call: &mut Call<'_, '_>) {
    join(call, SubscriptionKind::Pattern, "psubscribe");
}

pub fn ssubscribe(call: &mut Call<'_, '_>) {
    join(call, SubscriptionKind::Shard, "ssubscribe");
}

pub fn unsubscribe(call: &mut Call<'_, '_>) {
    leave(call, SubscriptionKind::Topic, "unsubscribe");
}

pub fn punsubscribe(call: &mut Call<'_, '_>) {
    leave(call, SubscriptionKind::Pattern, "punsubscribe");
}

pub fn sunsubscribe(call: &mut Call<'_, '_>) {
    leave(call, SubscriptionKind::Shard, "sunsubscribe");
}

fn join(call: &mut Call<'_, '_>, kind: SubscriptionKind, word: &str) {
    let names = call.arguments;
    let most = call.core.local.live.subscriptions;
    if let Some(text) = call.state.too_many(kind, names.from(1), most) {
        add(&call.core.shared.counters.subscriptions_refused, 1);
        return call.error(&text);
    }
    for name in names.from(1) {
        call.state.subscribe(kind, name, call.core);
        confirm(call, kind, word, Some(name));
    }
}

fn leave(call: &mut Call<'_, '_>, kind: SubscriptionKind, word: &str) {
    let names = call.arguments;
    if names.len() > 1 {
        for name in names.from(1) {
            call.state.unsubscribe(kind, name, call.core);
            confirm(call, kind, word, Some(name));
        }
        return;
    }
    let all = call.state.names(kind);
    for name in &all {
        call.state.unsubscribe(kind, name, call.core);
        confirm(call, kind, word, Some(name));
    }
    if all.is_empty() {
        confirm(call, kind, word, None);
    }
}

fn confirm(call: &mut Call<'_, '_>, kind: SubscriptionKind, word: &str, name: Option<&[u8]>) {
    call.reply.push(3);
    call.reply.bulk(word.as_bytes());
    match name {
        Some(name) => call.reply.bulk(name),
        None => call.reply.null(),
    }
    call.reply.integer(call.state.count(kind) as i64);
}

pub fn numsub(call: &mut Call<'_, '_>) {
    numbers(call, SubscriptionKind::Topic);
}

pub fn shardnumsub(call: &mut Call<'_, '_>) {
    numbers(call, SubscriptionKind::Shard);
}

fn numbers(call: &mut Call<'_, '_>, kind: SubscriptionKind) {
    let user = call.state.user.clone();
    call.reply.array((call.arguments.len() - 2) * 2);
    for name in call.arguments.from(2) {
        // A topic that the user has no right to is as one without subscribers.
        let is_seen = user.as_ref().is_some_and(|user| user.may_see(name));
        let interest = call.core.shared.directory.interest(kind, name);
        call.reply.bulk(name);
        call.reply.integer(if is_seen { i64::from(interest.receivers) } else { 0 });
    }
}

pub fn numpat(call: &mut Call<'_, '_>) {
    let directory = &call.core.shared.directory;
    let count = match call.state.user.as_ref().map(|user| &user.subscribe) {
        Some(Patterns::All) => directory.pattern_count(),
        None => 0,
        Some(own) => {
            let patterns = directory.receivers(SubscriptionKind::Pattern, 0);
            patterns.iter().filter(|(pattern, _)| own.hold_all_of(pattern)).count()
        }
    };
    call.reply.integer(count as i64);
}
