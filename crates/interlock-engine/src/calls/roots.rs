//! `il1_roots` and `il1_blocked`: what holds other messages up, and how many.

use interlock_core::key::KeyRef;
use interlock_core::queue::calls::roots::{Behind, Root, RootKind};
use interlock_core::queue::types::Time;

use crate::calls::read::Strings;
use crate::queue::shared::Cell;
use crate::queue::Queue;
use crate::values::args::{refuse, Args, Read, Reader};
use crate::wire::codes::Code;
use crate::wire::limits::*;
use crate::Engine;

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

/// µs after which the lease of a message is slow, for figures.
const SLOW: u64 = 60_000_000;
/// Roots of a queue that figures look at, and those of them behind which messages are counted.
const LOOKED_AT: usize = 100;
const COUNTED: usize = 5;
/// Queues of which messages are counted behind roots: those in which most wait.
const STALLED: usize = 20;

/// The name of a queue, and figures of it by their names.
pub type Stall = (Box<[u8]>, Vec<(&'static str, u64)>);

impl Engine {
    /// Figures about what holds messages up, for the first `most` queues with any: those that
    /// `Roots.figures` of the Python package has. A queue is locked for one walk through 2,000
    /// messages at a time, six in all.
    pub fn stalls(&self, most: usize, now: Time) -> Vec<Stall> {
        let cells: Vec<(Box<[u8]>, Cell)> = {
            let queues = self.queues.read();
            let first = queues.behind(0).take(most);
            first.filter_map(|(_, name)| Some((name.into(), queues.get(name)?.clone()))).collect()
        };
        let mut stalled = Vec::new();
        for (name, cell) in cells {
            let queue = cell.lock();
            let counts = queue.scheduler.counts();
            if queue.is_dropped() || counts.leased + counts.waiting == 0 {
                continue;
            }
            let roots = queue.scheduler.roots(now, SLOW, LOOKED_AT).told;
            drop(queue);
            if roots.iter().any(|root| root.depth > 0 || root.kind == RootKind::Leased) {
                stalled.push((counts.waiting, name, cell, roots));
            }
        }
        stalled.sort_by_key(|(waiting, ..)| std::cmp::Reverse(*waiting));
        let mut told = Vec::new();
        for (number, (_, name, cell, roots)) in stalled.into_iter().enumerate() {
            let counted = if number < STALLED { COUNTED } else { 0 };
            told.push((name, figures(&cell, &roots, counted)));
        }
        told
    }
}

/// Figures of the roots of a queue; messages behind the first `counted` of them are counted.
fn figures(cell: &Cell, roots: &[Root], counted: usize) -> Vec<(&'static str, u64)> {
    let kinds = [
        ("roots_held", RootKind::Held),
        ("roots_leased", RootKind::Leased),
        ("roots_backing_off", RootKind::BackingOff),
        ("roots_paused", RootKind::Paused),
    ];
    let count = |some: &[Root]| {
        let ids: Vec<u64> = some.iter().filter(|root| root.id > 0).map(|root| root.id).collect();
        let pauses = some.iter().filter(|root| root.id == 0);
        let keys: Vec<_> = pauses.map(|root| KeyRef::new(&root.key)).collect();
        let queue = keys.iter().any(|key| key.bytes.is_empty());
        let behind = Behind { ids: &ids, keys: &keys, queue };
        cell.lock().scheduler.blocked(&behind, MAX_WALKED).0
    };
    let some = &roots[..roots.len().min(counted)];
    let each: Vec<u64> = some.iter().map(|root| count(std::slice::from_ref(root))).collect();
    let mut told = vec![
        ("blocked", if some.is_empty() { 0 } else { count(some) }),
        ("blocked_by_one", each.iter().copied().max().unwrap_or(0)),
        ("slow_leases", roots.iter().filter(|root| root.kind == RootKind::Leased).count() as u64),
    ];
    told.extend(kinds.map(|(name, kind)| {
        let blocks = |root: &&Root| root.kind == kind && root.depth > 0;
        (name, roots.iter().filter(blocks).count() as u64)
    }));
    told
}
