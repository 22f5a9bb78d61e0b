//! `il1_limits`: limit names, what is used of each, and how many messages wait for it.

use interlock_core::queue::types::limits::Rate;
use interlock_core::queue::types::Time;

use crate::calls::read::Strings;
use crate::queue::Queue;
use crate::values::args::{Args, Read, Reader};
use crate::wire::limits::MAX_BATCH;

pub fn call<A: Args + ?Sized>(
    queue: &Queue,
    from: &mut Reader<'_, A>,
    now: Time,
    out: &mut Vec<u8>,
) -> Read<()> {
    let count = from.natural(1, MAX_BATCH as u64, || "count".into())? as usize;
    from.end()?;
    let (awaited, found) = queue.scheduler.limits_used(now, count);
    let mut told = Strings::default();
    told.number(awaited as u64);
    for one in &found {
        told.text(&one.name);
        told.optional(one.most.map(u64::from));
        told.optional(one.rate.map(|rate| rate.interval));
        told.optional(one.rate.map(Rate::burst));
        told.number(one.leased.into());
        told.number(one.waiting.into());
        told.optional(one.keeper);
        told.optional(one.wait);
        told.optional(Some(one.closed).filter(|&closed| closed > 0));
    }
    told.end(out);
    Ok(())
}
