//! `il1_explain`: why a message waits, or which messages are in front on a key.

use interlock_core::queue::types::{Node, Time};

use crate::calls::operate::key;
use crate::calls::read::Strings;
use crate::queue::Queue;
use crate::values::args::{Args, Read, Reader};
use crate::values::reply;

/// Most messages that an explanation names.
const MOST: u64 = 1000;

pub fn call<A: Args + ?Sized>(
    queue: &Queue,
    from: &mut Reader<'_, A>,
    now: Time,
    out: &mut Vec<u8>,
) -> Read<()> {
    let what = from.take(|| "what".into())?;
    let explained = match what {
        b"id" => {
            let id = from.number(|| "id".into())?;
            let limit = from.natural(1, MOST, || "limit".into())? as usize;
            from.end()?;
            queue.scheduler.explained(now, id, limit)
        }
        b"key" => {
            let key = key(from, || "key".into())?;
            let limit = from.natural(1, MOST, || "limit".into())? as usize;
            from.end()?;
            queue.scheduler.explained_key(now, key, limit)
        }
        _ => return from.bad(|| "what".into(), "is not id or key"),
    };
    let Some(explained) = explained else {
        reply::array(out, 0);
        return Ok(());
    };
    let mut told = Strings::default();
    told.number(explained.truncated.into());
    told.number(explained.nodes.len() as u64);
    explained.nodes.iter().for_each(|node| tell(queue, node, &mut told));
    told.end(out);
    Ok(())
}

fn tell(queue: &Queue, node: &Node, told: &mut Strings) {
    told.number(node.id);
    told.text(node.state.word().as_bytes());
    told.number(node.attempt.into());
    told.number(node.age);
    told.text(queue.consumers.name(node.consumer));
    told.optional(node.held_for);
    told.optional(node.lease_left);
    told.optional(node.due_in);
    told.number(node.paused.len() as u64);
    node.paused.iter().for_each(|key| told.text(key));
    told.number(node.limits.len() as u64);
    for full in &node.limits {
        told.text(&full.name);
        told.optional(full.most.map(u64::from));
        told.number(full.leased.into());
        told.optional(full.keeper);
        told.optional(full.wait);
        told.number(full.holders.len() as u64);
        full.holders.iter().for_each(|&id| told.number(id));
    }
    told.number(node.turn.is_some().into());
    if let Some(turn) = &node.turn {
        told.text(&turn.group);
        told.number(turn.ready);
        told.number(turn.ahead);
    }
    told.number(node.parked.is_some().into());
    if let Some(parked) = &node.parked {
        told.text(&parked.key);
        told.number(parked.age);
        told.number(parked.times.into());
        told.number(parked.ahead as u64);
        told.number(parked.paused.into());
        told.number(parked.behind.len() as u64);
        parked.behind.iter().for_each(|&id| told.number(id));
    }
    told.number(node.blocked.len() as u64);
    for blocker in &node.blocked {
        told.text(blocker.key.as_deref().unwrap_or(b""));
        told.number(blocker.ahead);
        told.number(blocker.exact.into());
        told.number(blocker.holders.len() as u64);
        blocker.holders.iter().for_each(|&id| told.number(id));
    }
}
