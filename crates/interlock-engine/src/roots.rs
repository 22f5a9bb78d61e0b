//! `il1_roots` and `il1_blocked`: what holds other messages up, and how many.

use interlock_core::key::KeyRef;
use interlock_core::queue::roots::{Behind, Root};
use interlock_core::queue::types::Time;

use crate::args::{refuse, Args, Read, Reader};
use crate::queue::Queue;
use crate::read::Strings;
use crate::wire::codes::Code;
use crate::wire::limits::*;

pub fn roots<A: Args + ?Sized>(
    queue: &Queue,
    from: &mut Reader<'_, A>,
    now: Time,
    out: &mut Vec<u8>,
) -> Read<()> {
    let long = from.natural(0, MAX_SPAN, || "duration".into())?;
    let count = from.natural(1, MAX_BATCH as u64, || "count".into())? as usize;
    from.end()?;
    let found = queue.scheduler.roots(now, long, count);
    let mut told = Strings::default();
    told.number(found.found);
    told.number(found.exact.into());
    for Root { kind, id, key, depth, time, consumer } in &found.told {
        told.text(kind.word().as_bytes());
        told.optional(Some(*id).filter(|&id| id > 0));
        told.text(key);
        told.number(*depth);
        told.optional(*time);
        told.text(queue.consumers.name(*consumer));
    }
    told.end(out);
    Ok(())
}

pub fn blocked<A: Args + ?Sized>(
    queue: &Queue,
    from: &mut Reader<'_, A>,
    out: &mut Vec<u8>,
) -> Read<()> {
    let most = from.natural(1, MAX_WALKED, || "most".into())?;
    let (mut ids, mut keys, mut paused) = (Vec::new(), Vec::new(), false);
    let mut i = 0;
    loop {
        i += 1;
        if i > MAX_BATCH {
            let text = format_args!("more than {MAX_BATCH} roots");
            return refuse(Code::TooBig, from.called, text);
        }
        match from.take(|| format!("roots[{i}]"))? {
            b"id" => ids.push(from.number(|| format!("roots[{i}].id"))?),
            b"key" => match from.text(MAX_KEY_BYTES, || format!("roots[{i}].key"))? {
                b"" => paused = true,
                key => keys.push(KeyRef::new(key)),
            },
            _ => return from.bad(|| format!("roots[{i}]"), "is not id or key"),
        }
        if !from.more() {
            break;
        }
    }
    let behind = Behind { ids: &ids, keys: &keys, queue: paused };
    let (count, exact) = queue.scheduler.blocked(&behind, most);
    let mut told = Strings::default();
    told.number(count);
    told.number(exact.into());
    told.end(out);
    Ok(())
}
