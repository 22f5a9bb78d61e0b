//! The commands that Redis has for keys, on rows.

use interlock_rows::{Command, Read, Reply, Verb};

use super::{answer, one, read, Named, Refusal};
use crate::command::Call;

pub fn del(call: &mut Call<'_, '_>) {
    count(call, |named| {
        let mut told = Reply::Null;
        named.decide(&Command::Delete, 0, &mut told)?;
        Ok(told == Reply::Integer(1))
    });
}

pub fn exists(call: &mut Call<'_, '_>) {
    count(call, |named| Ok(named.table().contains(named.key)?));
}

pub fn touch(call: &mut Call<'_, '_>) {
    count(call, |named| Ok(named.table().touch(named.key)?));
}

/// Replies with the number of keys for which `holds` is true.
fn count(call: &mut Call<'_, '_>, holds: impl Fn(&Named<'_>) -> Result<bool, Refusal>) {
    answer(call, |asked, reply| {
        let keys = 1..asked.arguments.len();
        // Parse all keys first: a bad key must not leave half of the command done.
        let rows: Result<Vec<_>, _> = keys.map(|index| asked.row(index)).collect();
        let mut count = 0;
        for named in rows? {
            count += i64::from(holds(&named)?);
        }
        reply.integer(count);
        Ok(())
    });
}

pub fn kind(call: &mut Call<'_, '_>) {
    read(call, Read::Type);
}

pub fn persist(call: &mut Call<'_, '_>) {
    one(call, Verb::Persist);
}

pub fn ttl(call: &mut Call<'_, '_>) {
    read(call, Read::Ttl);
}

pub fn pttl(call: &mut Call<'_, '_>) {
    read(call, Read::Pttl);
}

pub fn expiretime(call: &mut Call<'_, '_>) {
    read(call, Read::Expiretime);
}

pub fn pexpiretime(call: &mut Call<'_, '_>) {
    read(call, Read::Pexpiretime);
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
