//! The commands that Redis has for keys, on rows.

use std::time::Duration;

use interlock_engine::MAX_ROW_TTL;

use super::{answer, Asked, Named, Refusal};
use crate::command::Call;
use crate::resp::parse::integer;

pub fn del(call: &mut Call<'_, '_>) {
    count(call, |named| named.call(|table| table.delete(named.key)));
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
    answer(call, |asked, reply| {
        let named = asked.row(1)?;
        let done = named.call(|table| table.persist(named.key))?;
        reply.integer(done.into());
        Ok(())
    });
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
    expires(call, "expire", 1000, false);
}

pub fn pexpire(call: &mut Call<'_, '_>) {
    expires(call, "pexpire", 1, false);
}

pub fn expireat(call: &mut Call<'_, '_>) {
    expires(call, "expireat", 1000, true);
}

pub fn pexpireat(call: &mut Call<'_, '_>) {
    expires(call, "pexpireat", 1, true);
}

/// `unit`: ms in one of what is given; `since_1970`: it is a time and no duration.
fn expires(call: &mut Call<'_, '_>, name: &str, unit: i64, since_1970: bool) {
    let wall = call.core.shared.queues.wall();
    answer(call, |asked, reply| {
        let named = asked.row(1)?;
        let condition = Condition::of(asked)?;
        let given = integer(&asked.arguments[2]);
        let given = given.ok_or("ERR value is not an integer or out of range")?;
        let wall = i128::from(wall);
        let given = given.checked_mul(unit).map(|given| i128::from(given) * 1000);
        let left = given.map(|given| if since_1970 { given - wall } else { given });
        let left = left.filter(|left| *left <= i128::from(MAX_ROW_TTL) * 1000);
        let left = left.ok_or_else(|| format!("ERR invalid expire time in '{name}' command"))?;
        // What is over has expired at once.
        let left = Duration::from_micros(left.max(0) as u64);
        let done = named.call(|table| {
            table.expire_when(named.key, left, |before| condition.allows(before, left))
        })?;
        reply.integer(done.unwrap_or(false).into());
        Ok(())
    });
}

/// The condition on which another time to live is taken.
#[derive(Default)]
struct Condition {
    without: bool,
    with: bool,
    greater: bool,
    less: bool,
}

impl Condition {
    fn of(asked: &Asked<'_>) -> Result<Condition, Refusal> {
        let mut found = Condition::default();
        for word in asked.arguments.from(3) {
            match &word.to_ascii_lowercase()[..] {
                b"nx" => found.without = true,
                b"xx" => found.with = true,
                b"gt" => found.greater = true,
                b"lt" => found.less = true,
                _ => return Err(Refusal([b"ERR Unsupported option ", word].concat())),
            }
        }
        if found.without && (found.with || found.greater || found.less) {
            let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
            return Err(text.into());
        }
        if found.greater && found.less {
            return Err("ERR GT and LT options at the same time are not compatible".into());
        }
        Ok(found)
    }

    /// For ever is longer than any time.
    fn allows(&self, before: Option<Duration>, left: Duration) -> bool {
        let refused = self.without && before.is_some()
            || self.with && before.is_none()
            || self.greater && before.is_none_or(|before| left <= before)
            || self.less && before.is_some_and(|before| left >= before);
        !refused
    }
}
