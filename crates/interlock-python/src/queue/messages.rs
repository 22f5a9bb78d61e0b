//! Lists messages in the order of their puts. Copies them a few at a time, each time under the lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use interlock_core::key::KeyRef;
use interlock_core::queue::calls::read::Seen;
use interlock_core::queue::scheduler::Scheduler;
use interlock_core::queue::types::Behind;
use interlock_core::queue::Queue;
use interlock_core::sync::RawLock;

/// An unsettled message.
pub struct Listed<P> {
    pub id: u64,
    pub payload: P,
    /// Each with whether it is shared.
    pub keys: Vec<(Vec<u8>, bool)>,
    pub priority: i8,
    pub attempt: u32,
    pub state: &'static str,
    pub error: String,
    /// Its limit names, joined.
    pub limit: Vec<u8>,
    /// Empty: it has none.
    pub group: Vec<u8>,
    pub coalesce: Option<Arc<[u8]>>,
    /// Its own value of what happens to it behind a failure.
    pub behind: Option<&'static str>,
}

/// Ids, or places, looked at under one lock.
const STEPS: u32 = 4096;

/// The first `limit` messages behind an id, of those in this state and with this key.
pub fn messages<P, L: RawLock>(
    core: &Queue<P, L>,
    limit: usize,
    state: Option<&str>,
    key: Option<&[u8]>,
    after: u64,
    copy: impl Fn(&P) -> P,
) -> Vec<Listed<P>> {
    let listed = |scheduler: &Scheduler<P>, seen: &Seen<'_, P>| -> Option<Listed<P>> {
        let word = seen.state.word();
        if state.is_some_and(|state| state != word) {
            return None;
        }
        if let Some(key) = key {
            let mut carries = false;
            scheduler.keys_seen(seen, |one, _| carries |= one == key);
            if !carries {
                return None;
            }
        }
        let mut keys = Vec::new();
        scheduler.keys_seen(seen, |key, shared| keys.push((key.to_vec(), shared)));
        let Seen { id, priority, attempt, .. } = *seen;
        let error = seen.error.unwrap_or_default().to_owned();
        Some(Listed {
            id,
            payload: copy(seen.payload),
            keys,
            priority,
            attempt,
            state: word,
            error,
            limit: scheduler.limit_names(seen),
            group: scheduler.group(seen).to_vec(),
            coalesce: scheduler.coalesced(seen).map(|named| named.name.clone()),
            behind: seen.behind.map(Behind::word),
        })
    };
    let (unsettled, most) = core.call(|scheduler, now| {
        scheduler.tick(now);
        (scheduler.unsettled(), scheduler.at_most(state, key.map(KeyRef::new)))
    });
    // A page is no longer than what there is, and need not be looked for behind the last of it.
    let limit = limit.min(usize::try_from(most).unwrap_or(usize::MAX));
    let mut found = Vec::new();
    let (mut from, mut steps) = (after.saturating_add(1), 0);
    while from > 0 && found.len() < limit && steps < 4 * unsettled + 16 * u64::from(STEPS) {
        from = core.call(|scheduler, _| {
            scheduler.list(from, STEPS, |seen| {
                found.extend(listed(scheduler, &seen));
                found.len() < limit
            })
        });
        steps += u64::from(STEPS);
    }
    if from == 0 || found.len() == limit {
        return found;
    }
    // One is old and the rest came long after: rather than all numbers between, all messages.
    let (mut rest, mut place) = (BTreeMap::new(), 0);
    loop {
        // Not dropped under the lock: theirs may be the last reference to a payload.
        let mut left_out = Vec::new();
        place = core.call(|scheduler, _| {
            scheduler.scan(place, STEPS as usize, |seen| {
                let last = rest.last_key_value().map_or(u64::MAX, |(&id, _)| id);
                let full = found.len() + rest.len() >= limit;
                if seen.id >= from && !(full && seen.id > last) {
                    rest.extend(listed(scheduler, &seen).map(|one| (one.id, one)));
                }
                if found.len() + rest.len() > limit {
                    left_out.extend(rest.pop_last());
                }
                true
            })
        });
        if place == 0 {
            found.extend(rest.into_values());
            return found;
        }
    }
}
