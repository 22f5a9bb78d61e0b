//! Reads options, retry policies and dead letters of a dump.

use crate::key::Key;
use crate::queue::parts::dead::Dead;
use crate::queue::schedules::bytes::{Damaged, Reader};
use crate::queue::schedules::dump::{BEFORE_GROUPS, BEFORE_LIMITS, BEFORE_PARKED, BEFORE_RUNS};
use crate::queue::types::limits::{Limits, Weights};
use crate::queue::types::options::NUMBERS;
use crate::queue::types::{Behind, Options, Retry, RetryPart, Then};

/// Keys in the order the put named them, with whether they are shared.
pub(super) fn read_keys(reader: &mut Reader<'_>) -> Result<Vec<(Key, bool)>, Damaged> {
    let mut keys = Vec::new();
    for _ in 0..reader.number("count of keys")? {
        let shared = reader.byte("mode of a key")? != 0;
        keys.push((Key::new(reader.string("key")?), shared));
    }
    Ok(keys)
}

pub(super) fn read_options(reader: &mut Reader<'_>, version: u8) -> Result<Options, Damaged> {
    let mut options = Options {
        max_messages: reader.small("bound of messages")?,
        max_bytes: reader.number("bound of bytes")?,
        lease: reader.option("length of a lease")?,
        retry: read_retry(reader)?,
        ..Options::default()
    };
    for one in NUMBERS.iter().filter(|one| one.since <= version) {
        if !(one.set)(&mut options, reader.number(one.name)?) {
            return reader.damaged(one.name);
        }
    }
    if version > BEFORE_LIMITS {
        options.limits = Limits::restored(reader, "limits")?;
    }
    if version > BEFORE_GROUPS {
        options.weights = Weights::restored(reader, "weights")?;
    }
    if version > BEFORE_PARKED {
        options.behind = Behind::restored(reader, "BEHIND")?;
    }
    Ok(options)
}

pub(super) fn read_retry(reader: &mut Reader<'_>) -> Result<Retry, Damaged> {
    let attempts = match reader.option("attempts")? {
        Some(most) => match u32::try_from(most) {
            Ok(most) => Some(most),
            Err(_) => return reader.damaged("attempts"),
        },
        None => None,
    };
    Ok(Retry {
        attempts,
        first: reader.number("first backoff")?,
        factor: f64::from_bits(reader.word("factor")?),
        longest: reader.number("longest backoff")?,
        jitter: reader.byte("jitter")? != 0,
        then: if reader.byte("end of a policy")? == 0 { Then::Dead } else { Then::Hold },
    })
}

pub(super) fn read_retry_part(reader: &mut Reader<'_>) -> Result<RetryPart, Damaged> {
    let attempts = match reader.byte("attempts")? {
        0 => None,
        _ => match reader.option("attempts")?.map(u32::try_from).transpose() {
            Ok(attempts) => Some(attempts),
            Err(_) => return reader.damaged("attempts"),
        },
    };
    let then = |holds: u64| if holds == 0 { Then::Dead } else { Then::Hold };
    Ok(RetryPart {
        attempts,
        first: reader.option("first backoff")?,
        factor: reader.option("factor")?.map(f64::from_bits),
        longest: reader.option("longest backoff")?,
        jitter: reader.option("jitter")?.map(|jitter| jitter != 0),
        then: reader.option("end of a policy")?.map(then),
    })
}

pub(super) fn read_dead(reader: &mut Reader<'_>, version: u8) -> Result<Dead<()>, Damaged> {
    let mut dead = Dead {
        id: reader.number("id of a dead letter")?,
        keys: read_keys(reader)?,
        attempts: reader.small("attempts of a dead letter")?,
        error: reader.text("error of a dead letter")?.into(),
        priority: reader.byte("priority of a dead letter")? as i8,
        barrier: reader.byte("barrier of a dead letter")? != 0,
        quiet: reader.byte("quiet of a dead letter")? != 0,
        size: reader.number("size of a dead letter")?,
        put_at: reader.number("put time of a dead letter")?,
        died_at: reader.number("time of a dead letter")?,
        retry: None,
        limit: Vec::new(),
        group: Vec::new(),
        behind: None,
        run: Vec::new(),
        payload: (),
    };
    if reader.byte("policy of a dead letter")? != 0 {
        dead.retry = Some(read_retry_part(reader)?);
    }
    if version > BEFORE_LIMITS {
        dead.limit = reader.string("limit names of a dead letter")?.to_vec();
    }
    if version > BEFORE_GROUPS {
        dead.group = reader.string("group of a dead letter")?.to_vec();
    }
    if version > BEFORE_PARKED {
        dead.behind = match reader.byte("BEHIND of a dead letter")? {
            0 => None,
            number => match Behind::ALL.get(usize::from(number) - 1) {
                Some(&behind) => Some(behind),
                None => return reader.damaged("BEHIND of a dead letter"),
            },
        };
    }
    if version > BEFORE_RUNS {
        dead.run = reader.string("run of a dead letter")?.to_vec();
    }
    Ok(dead)
}
