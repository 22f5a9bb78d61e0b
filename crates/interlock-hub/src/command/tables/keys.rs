//! The commands that Redis has for keys, on rows.

use std::time::Duration;

use interlock_rows::{Command, Reply, Verb};

use super::{answer, one, Named, Refusal};
use crate::command::Call;

pub fn del(call: &mut Call<'_, '_>) {
    count(call, |named| Ok(named.decide(&Command::Delete, 0)? == Reply::Integer(1)));
}

pub fn exists(call: &mut Call<'_, '_>) {
    count(call, |named| Ok(named.table().contains(named.key)?));
}

pub fn touch(call: &mut Call<'_, '_>) {
    count(call, |named| Ok(named.table().touch(named.key)?));
}

/// Of how many of the keys it holds.
fn count(call: &mut Call<'_, '_>, holds: impl Fn(&Named<'_>) -> Result<bool, Refusal>) {
    answer(call, |asked, reply| {
        let keys = 1..asked.arguments.len();
        // All of them first: a key that is none is no reason to do half of it.
        let rows: Result<Vec<_>, _> = keys.map(|index| asked.row(index)).collect();
        let mut count = 0;
        for named in rows? {
            count += i64::from(holds(&named)?);
        }
        reply.integer(count);
        Ok(())
    });
}

/// The name of the type that a row has for clients of Redis.
pub fn kind(call: &mut Call<'_, '_>) {
    answer(call, |asked, reply| {
        let named = asked.row(1)?;
        let there = named.table().contains(named.key)?;
        reply.simple(if there { "hash" } else { "none" });
        Ok(())
    });
}

pub fn persist(call: &mut Call<'_, '_>) {
    one(call, Verb::Persist);
}

pub fn ttl(call: &mut Call<'_, '_>) {
    // To the nearest second, as Redis.
    left(call, |left| (left.as_millis() as i64).saturating_add(500) / 1000);
}

pub fn pttl(call: &mut Call<'_, '_>) {
    left(call, |left| left.as_millis() as i64);
}

pub fn expiretime(call: &mut Call<'_, '_>) {
    let wall = call.core.shared.queues.wall();
    left(call, |left| (since_1970(wall, left) + 500) / 1000);
}

pub fn pexpiretime(call: &mut Call<'_, '_>) {
    let wall = call.core.shared.queues.wall();
    left(call, |left| since_1970(wall, left));
}

/// The time in ms of which so much is left, to the nearest.
fn since_1970(wall: u64, left: Duration) -> i64 {
    let micros = u128::from(wall) + left.as_micros();
    i64::try_from((micros + 500) / 1000).unwrap_or(i64::MAX)
}

fn left(call: &mut Call<'_, '_>, shown: impl Fn(Duration) -> i64) {
    answer(call, |asked, reply| {
        let named = asked.row(1)?;
        reply.integer(match named.table().ttl(named.key)? {
            None => -2,
            Some(None) => -1,
            Some(Some(left)) => shown(left),
        });
        Ok(())
    });
}

pub fn expire(call: &mut Call<'_, '_>) {
    one(call, Verb::Expire);
}

pub fn pexpire(call: &mut Call<'_, '_>) {
    one(call, Verb::Pexpire);
}

pub fn expireat(call: &mut Call<'_, '_>) {
    one(call, Verb::Expireat);
}

pub fn pexpireat(call: &mut Call<'_, '_>) {
    one(call, Verb::Pexpireat);
}
