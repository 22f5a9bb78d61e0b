//! The model's coalescing names (clause 29).

use interlock_core::queue::calls::coalesce::{Difference, Differs, Earlier};
use interlock_core::queue::schedules::trace::PutCall;
use interlock_core::queue::types::Time;

use crate::limits::Named;
use crate::model::{leased, Message, Model, Phase};

/// The part of a message that a put which replaces its payload may not change.
struct Shape {
    holds: Vec<(usize, bool)>,
    priority: i8,
    limit: Vec<Vec<u8>>,
    group: Vec<u8>,
}

/// A message that a call leaves, and the size of its last payload.
struct Stays {
    /// Place in the call of the first put with its name.
    first: usize,
    earlier: Option<(u64, u64)>,
    shape: Shape,
    size: u64,
}

impl Model {
    /// The message whose payload a put replaces: the one with its name that was put last.
    fn replaceable(&self, put: &PutCall) -> Option<&Message> {
        let last = *self.newest.get(put.coalesce.as_ref()?)?;
        self.unsettled().find(|message| message.id == last && !leased(message.phase))
    }

    fn shape(&mut self, put: &PutCall) -> Shape {
        let mut holds: Vec<_> = self.holds(put).iter().map(|h| (h.key, h.exclusive)).collect();
        holds.sort_unstable();
        let limit = Named::new(&put.limit).names;
        Shape { holds, priority: put.priority, limit, group: put.group.clone() }
    }

    /// The messages and bytes that puts add, and the bytes of all payloads that stay of them.
    pub(crate) fn needs(
        &mut self,
        puts: &[(usize, &PutCall)],
    ) -> Result<(usize, u64, u64), Differs> {
        let mut stays: Vec<Stays> = Vec::new();
        for &(message, put) in puts {
            let shape = self.shape(put);
            let same_name = |stays: &&mut Stays| {
                let (_, first) =
                    puts.iter().find(|(at, _)| *at == stays.first).expect("it is there");
                put.coalesce.is_some() && first.coalesce == put.coalesce
            };
            if let Some(stays) = stays.iter_mut().find(same_name) {
                if let Some(what) = difference(&stays.shape, &shape) {
                    let queued = stays.earlier.map(|(id, _)| Earlier::Queued(id));
                    let earlier = queued.unwrap_or(Earlier::OfCall(stays.first));
                    return Err(Differs { message, what, earlier });
                }
                stays.size = put.size;
                continue;
            }
            let mut earlier = None;
            if let Some(found) = self.replaceable(put) {
                earlier = Some((found.id, found.size));
                let mut holds: Vec<_> = found.holds.iter().map(|h| (h.key, h.exclusive)).collect();
                holds.sort_unstable();
                let limit = found.limit.names.clone();
                let group = found.group.clone();
                let old = Shape { holds, priority: found.priority, limit, group };
                if let Some(what) = difference(&old, &shape) {
                    return Err(Differs { message, what, earlier: Earlier::Queued(found.id) });
                }
            }
            stays.push(Stays { first: message, earlier, shape, size: put.size });
        }
        let count = stays.iter().filter(|stays| stays.earlier.is_none()).count();
        let more = |stays: &Stays| stays.size.saturating_sub(stays.earlier.map_or(0, |(_, b)| b));
        let size = stays.iter().map(more).fold(0, u64::saturating_add);
        let whole = stays.iter().map(|stays| stays.size).fold(0, u64::saturating_add);
        Ok((count, size, whole))
    }

    /// Returns whether a call could park too much: of a name only the first put counts, unless it replaces.
    pub(crate) fn parks_too_much(&mut self, new: &[(usize, &PutCall)]) -> bool {
        let mut seen: Vec<&[u8]> = Vec::new();
        let mut enter = Vec::new();
        for (_, put) in new {
            let name = put.coalesce.as_deref();
            let again = name.is_some_and(|name| seen.contains(&name));
            seen.extend(name);
            if !again && self.replaceable(put).is_none() && put.delay == 0 && put.debounce == 0 {
                enter.push((put.behind, self.holds(put), put.size));
            }
        }
        self.is_too_much_to_park(&enter)
    }

    /// Replaces a payload, if there is one to be replaced. Returns the id of its message.
    pub(crate) fn replace(&mut self, put: &PutCall) -> Option<u64> {
        let id = self.replaceable(put)?.id;
        self.counts.coalesced += 1;
        let due = self.now.saturating_add(put.debounce);
        let all = self.placed.iter_mut().chain(&mut self.delayed).chain(&mut self.parked);
        let message = all.into_iter().find(|message| message.id == id)?;
        message.size = put.size;
        message.attempt = 1;
        message.suspect = false;
        message.error.clear();
        if put.debounce > 0 && matches!(message.phase, Phase::Delayed { .. }) {
            message.phase = Phase::Delayed { due: due.min(message.latest) };
        }
        Some(id)
    }
}

/// The time at which a new message is due, and the latest to which a debounce delays it.
pub fn due(put: &PutCall, now: Time) -> (Option<Time>, Time) {
    let latest = match put.within {
        0 => Time::MAX,
        within => now.saturating_add(within),
    };
    match (put.debounce, put.delay) {
        (0, 0) => (None, Time::MAX),
        (0, delay) => (Some(now.saturating_add(delay)), Time::MAX),
        (debounce, _) => (Some(now.saturating_add(debounce).min(latest)), latest),
    }
}

fn difference(one: &Shape, other: &Shape) -> Option<Difference> {
    if one.holds != other.holds {
        Some(Difference::Keys)
    } else if one.priority != other.priority {
        Some(Difference::Priority)
    } else if one.limit != other.limit {
        Some(Difference::Limit)
    } else {
        (one.group != other.group).then_some(Difference::Group)
    }
}
