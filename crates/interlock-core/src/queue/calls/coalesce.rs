//! Coalescing (clause 29): a put gives the newest message of its name its payload, unless that is leased.
//!
//! ```
//! use interlock_core::queue::calls::coalesce::Coalesce;
//! use interlock_core::queue::{scheduler::Put, types::Options, Queue};
//!
//! let queue = Queue::new(Options::default());
//! let price = Coalesce { name: b"price:IBM", ..Coalesce::default() };
//! let put = Put { coalesce: Some(&price), ..Put::default() };
//! let first = queue.put(&put, 101).unwrap();
//! let second = queue.put(&put, 102).unwrap();
//! assert!(second.replaced && second.id == first.id);
//! assert_eq!(queue.get(|payload, _| *payload).unwrap().1, 102);
//! ```

use std::collections::BTreeSet;
use std::hash::RandomState;
use std::sync::Arc;

use hashbrown::hash_map::Entry;
use hashbrown::HashMap;

use crate::key::KeyRef;
use crate::queue::calls::carry::Carried;
use crate::queue::parts::counts::Happened;
use crate::queue::parts::feed::Change;
use crate::queue::parts::index::table;
use crate::queue::scheduler::{NoRoom, Placed, Put, Scheduler};
use crate::queue::types::limits::{joined, names_of};
use crate::queue::types::message::LIMITED;
use crate::queue::types::{State, Time};

/// The part of a put that has a coalescing name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Coalesce<'a> {
    /// An exclusive key of the message too, in front of its others.
    pub name: &'a [u8],
    /// µs from each put of the name until the message takes its place; 0: it takes it at once.
    pub debounce: u64,
    /// µs from the first put of the name on, beyond which no debounce delays the message; 0: no bound.
    pub within: u64,
    /// Number of times that its payload was replaced in the queue that it comes from.
    pub revision: u32,
}

/// An unsettled message with a coalescing name.
#[derive(Debug)]
pub struct Named {
    pub name: Arc<[u8]>,
    /// Number of puts that replaced its payload.
    pub revision: u32,
    /// Until when a debounce may delay it; 0: without limit.
    pub latest: Time,
}

/// The unsettled messages with coalescing names, and which of each name was put last.
#[derive(Debug, Default)]
pub(in crate::queue) struct Coalescing {
    newest: HashMap<Arc<[u8]>, u64, RandomState>,
    named: HashMap<u64, Named, RandomState>,
    /// Bytes of the names.
    bytes: usize,
    /// Number of times that a put may have become one that replaces.
    changes: u64,
}

/// Bytes of the head of a name's allocation.
const OF_A_NAME: usize = 32;

impl Coalescing {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// Bytes of the names and tables.
    pub fn memory(&self) -> usize {
        self.bytes
            + self.named.len() * OF_A_NAME
            + table::<(Arc<[u8]>, u64)>(self.newest.capacity())
            + table::<(u64, Named)>(self.named.capacity())
    }

    /// Returns what is known of a message that has a coalescing name.
    pub fn of(&self, id: u64) -> Option<&Named> {
        self.named.get(&id)
    }

    pub fn is_newest(&self, id: u64) -> bool {
        self.of(id).is_some_and(|named| self.newest.get(&named.name) == Some(&id))
    }

    /// Returns whether a message of this name was put last.
    pub fn has_newest(&self, name: &[u8]) -> bool {
        self.newest.contains_key(name)
    }

    /// Adds a message; `newest`: it was put last of its name.
    pub fn insert(&mut self, id: u64, name: &[u8], revision: u32, latest: Time, newest: bool) {
        let name: Arc<[u8]> = name.into();
        self.bytes += name.len();
        self.changes += 1;
        if newest {
            self.newest.insert(name.clone(), id);
        }
        self.named.insert(id, Named { name, revision, latest });
    }

    /// A message was put and settled at once. An older one of its name is not the newest any more.
    pub fn passed(&mut self, name: &[u8]) {
        self.newest.remove(name);
        self.changes += 1;
    }

    /// A lease ended: its message may be one whose payload a put replaces.
    #[inline]
    pub fn lease_ended(&mut self) {
        if !self.is_empty() {
            self.changes += 1;
        }
    }

    /// Frees the memory kept for future messages; there are none.
    pub fn compact(&mut self) {
        (self.newest, self.named) = (HashMap::default(), HashMap::default());
    }

    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// A message is settled. An older one of its name does not become the newest.
    pub fn leave(&mut self, id: u64) {
        let Some(Named { name, .. }) = self.named.remove(&id) else { return };
        self.bytes -= name.len();
        if self.newest.get(&name) == Some(&id) {
            self.newest.remove(&name);
        }
        if self.named.len() * 8 < self.named.capacity() && self.named.capacity() > 1024 {
            self.named.shrink_to(self.named.len() * 2);
            self.newest.shrink_to(self.newest.len() * 2);
        }
    }
}

/// The difference between a put and the message whose payload it would replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    Keys,
    Priority,
    Limit,
    Group,
}

impl Difference {
    /// Returns its words in errors.
    pub fn words(self) -> &'static str {
        match self {
            Difference::Keys => "set of keys",
            Difference::Priority => "priority",
            Difference::Limit => "limit",
            Difference::Group => "group",
        }
    }
}

/// The message whose payload would be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Earlier {
    /// It is in the queue, with this id.
    Queued(u64),
    /// It is in the same call, at this place.
    OfCall(usize),
}

/// The reason why the message at a place of a call is refused, and with it the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Differs {
    pub message: usize,
    pub what: Difference,
    pub earlier: Earlier,
}

/// The room that the puts of a call need, counted one put after the other.
#[derive(Debug, Default)]
pub struct Needs<'a> {
    /// New messages.
    pub count: usize,
    /// Bytes of the new payloads, and those by which others become larger.
    pub size: u64,
    /// Bytes of all payloads that stay of the call.
    pub whole: u64,
    stays: HashMap<&'a [u8], Stays<'a>, RandomState>,
}

/// The message that the puts of a name in one call leave.
#[derive(Debug)]
struct Stays<'a> {
    /// The first one, and its place in the call.
    put: Put<'a>,
    message: usize,
    newest: Option<Newest>,
    /// Bytes of the payload that is replaced, and of the last one.
    before: u64,
    size: u64,
}

impl Needs<'_> {
    /// Adds a new message.
    #[inline]
    pub fn add(&mut self, size: u64) {
        self.count += 1;
        self.size = self.size.saturating_add(size);
        self.whole = self.whole.saturating_add(size);
    }

    /// Returns whether room does not matter.
    #[inline]
    pub fn is_nothing(&self) -> bool {
        self.count == 0 && self.size == 0
    }
}

/// The place of a message whose payload a put replaces; valid until the next change.
#[derive(Clone, Copy, Debug)]
pub struct Newest(u32);

impl<P> Scheduler<P> {
    /// The message whose payload a put with this coalescing name replaces.
    pub fn newest(&self, name: &[u8]) -> Option<Newest> {
        let at = self.records.find(*self.coalescing.newest.get(name)?)?;
        (self.records[at].state != Some(State::Leased)).then_some(Newest(at))
    }

    /// Its payload.
    pub fn newest_payload(&self, Newest(at): Newest) -> &P {
        self.records[at].payload.as_ref().expect("an unsettled message has its payload")
    }

    /// Adds a put with a coalescing name to the needs of its call; `message`: its place there.
    ///
    /// # Errors
    ///
    /// If it differs from the message whose payload it would replace in what decides when that is leased.
    pub fn add_named<'a>(
        &self,
        needs: &mut Needs<'a>,
        message: usize,
        put: Put<'a>,
        size: u64,
    ) -> Result<(), Differs> {
        let name = put.coalesce.expect("it has a name").name;
        let differs = |what: Option<Difference>, earlier| {
            what.map_or(Ok(()), |what| Err(Differs { message, what, earlier }))
        };
        let stays = match needs.stays.entry(name) {
            Entry::Occupied(stays) => {
                let stays = stays.into_mut();
                match stays.newest {
                    Some(newest) => differs(self.difference(newest, &put), self.earlier(newest))?,
                    None => {
                        let earlier = Earlier::OfCall(stays.message);
                        differs(difference_of(&stays.put, &put), earlier)?;
                    }
                }
                needs.size -= stays.size.saturating_sub(stays.before);
                needs.whole -= stays.size;
                stays
            }
            Entry::Vacant(vacant) => {
                let newest = self.newest(name);
                if let Some(newest) = newest {
                    differs(self.difference(newest, &put), self.earlier(newest))?;
                }
                needs.count += usize::from(newest.is_none());
                let before = newest.map_or(0, |newest| self.size_of(newest));
                vacant.insert(Stays { put, message, newest, before, size: 0 })
            }
        };
        stays.size = size;
        needs.size = needs.size.saturating_add(size.saturating_sub(stays.before));
        needs.whole = needs.whole.saturating_add(size);
        Ok(())
    }

    fn earlier(&self, Newest(at): Newest) -> Earlier {
        Earlier::Queued(self.records[at].id)
    }

    fn size_of(&self, newest: Newest) -> u64 {
        let weight = self.engine.weight(self.newest_payload(newest)).unwrap_or(0);
        weight + self.records.extra(newest.0).map_or(0, |extra| extra.size)
    }

    fn difference(&self, Newest(at): Newest, put: &Put<'_>) -> Option<Difference> {
        let message = &self.records[at];
        let keys = self.keys_of(at);
        // A message without other keys is the usual case.
        let alone = keys.len() == 1 && put.keys.is_empty() && put.shared.is_empty();
        let sets = || sets(keys.iter().map(|(key, shared)| (key.as_bytes(), *shared)));
        if !alone && sets() != sets_of(put) {
            return Some(Difference::Keys);
        }
        let limit = match message.flags & LIMITED {
            0 => Vec::new(),
            _ => self.gate.names_of(at),
        };
        let group = self.gate.groups.text_of(at);
        other(message.priority == put.priority, limit == limit_of(put), group == put.group)
    }

    /// Checks whether puts find the room that they need.
    pub(in crate::queue) fn room_for(&self, needs: &Needs<'_>) -> Result<(), NoRoom> {
        let bytes = self.options.max_bytes;
        if needs.is_nothing() {
            Ok(())
        } else if bytes > 0 && needs.whole > bytes {
            Err(NoRoom::TooLarge)
        } else {
            self.room(needs.count, needs.size)
        }
    }

    /// A put with a coalescing name, within a call that has begun.
    #[cold]
    pub(in crate::queue) fn put_named(
        &mut self,
        put: &Put<'_>,
        payload: &mut Option<P>,
    ) -> Result<Placed, NoRoom> {
        let mut needs = Needs::default();
        self.add_named(&mut needs, 0, *put, put.size).map_err(NoRoom::Differs)?;
        let room = self.room_for(&needs);
        if !needs.is_nothing() && room != Err(NoRoom::TooLarge) {
            self.room_behind(std::slice::from_ref(put))?;
        }
        room?;
        Ok(self.place_named(put, payload))
    }

    /// Replaces a payload, for which there is room, and leaves the old one in `payload`; or enters as a
    /// new message.
    pub(in crate::queue) fn place_named(
        &mut self,
        put: &Put<'_>,
        payload: &mut Option<P>,
    ) -> Placed {
        let newest = put.coalesce.and_then(|coalesce| self.newest(coalesce.name));
        match (newest, payload.take()) {
            (Some(newest), Some(new)) => {
                let (id, old) = self.replace(newest, put, new);
                *payload = Some(old);
                Placed { id, known: false, replaced: true }
            }
            (_, new) => Placed { id: self.enter_as(put, new, None), known: false, replaced: false },
        }
    }

    /// Enters as a new message, with its name as its first key.
    #[cold]
    #[inline(never)]
    pub(in crate::queue) fn enter_named(
        &mut self,
        put: &Put<'_>,
        payload: Option<P>,
        carried: Option<&Carried<'_>>,
    ) -> u64 {
        let Some(coalesce) = put.coalesce else { return self.enter_at_once(put, payload, carried) };
        let Coalesce { name, debounce, within, revision } = *coalesce;
        let keys: Vec<KeyRef<'_>> =
            std::iter::once(KeyRef::new(name)).chain(put.keys.iter().copied()).collect();
        let (delay, latest) = match (debounce, within) {
            (0, _) => (put.delay, 0),
            (debounce, 0) => (debounce, 0),
            _ => (debounce.min(within), self.now.saturating_add(within)),
        };
        let id = self.enter_at_once(&Put { keys: &keys, delay, ..*put }, payload, carried);
        match self.records.find(id) {
            Some(at) => {
                self.records.add_extra(at);
                self.coalescing.insert(id, name, revision, latest, true);
            }
            // It has gone already, with one that is held.
            None => self.coalescing.passed(name),
        }
        id
    }

    /// Gives a message the payload of a put, and returns its id and its old payload. It keeps all that decides
    /// when it is leased, except the time to which a debounce delays it.
    pub fn replace(&mut self, Newest(at): Newest, put: &Put<'_>, payload: P) -> (u64, P) {
        let id = self.records[at].id;
        let before = self.size_of(Newest(at));
        self.counts.take_bytes(before);
        let old = self.records.replace_payload(at, payload, put.size);
        let size = self.size_of(Newest(at));
        self.counts.add_bytes(size);
        if self.records[at].state == Some(State::Parked) {
            self.parked.resize(before, size);
        }
        self.records.begin_again(at);
        let named = self.coalescing.named.get_mut(&id).expect("it has a name");
        named.revision = named.revision.saturating_add(1);
        let latest = if named.latest == 0 { Time::MAX } else { named.latest };
        let debounce = put.coalesce.map_or(0, |coalesce| coalesce.debounce);
        if debounce > 0 && self.records[at].state == Some(State::Delayed) {
            let due = self.now.saturating_add(debounce).min(latest);
            self.change_delay(at, due);
        }
        self.counts.note(Happened::Coalesced);
        self.note(Change::Replaced, at, 0);
        (id, old)
    }
}

/// The exclusive and the shared keys, as a message has them: each once, and exclusive goes before shared.
type Sets<'k> = [BTreeSet<&'k [u8]>; 2];

fn sets<'k>(keys: impl Iterator<Item = (&'k [u8], bool)>) -> Sets<'k> {
    let mut sets = Sets::default();
    for (key, is_shared) in keys {
        if !is_shared || !sets[0].contains(key) {
            sets[usize::from(is_shared)].insert(key);
        }
    }
    sets
}

fn sets_of<'k>(put: &Put<'k>) -> Sets<'k> {
    let name = put.coalesce.map(|coalesce| coalesce.name);
    let exclusive = name.into_iter().chain(put.keys.iter().map(|key| key.bytes));
    let shared = put.shared.iter().map(|key| (key.bytes, true));
    sets(exclusive.map(|key| (key, false)).chain(shared))
}

fn difference_of(one: &Put<'_>, other_one: &Put<'_>) -> Option<Difference> {
    if sets_of(one) != sets_of(other_one) {
        return Some(Difference::Keys);
    }
    let same_limit = limit_of(one) == limit_of(other_one);
    other(one.priority == other_one.priority, same_limit, one.group == other_one.group)
}

/// The limit names, as a message has them.
fn limit_of(put: &Put<'_>) -> Vec<u8> {
    joined(&names_of(put.limit).unwrap_or_default())
}

/// The first of the other differences.
fn other(same_priority: bool, same_limit: bool, same_group: bool) -> Option<Difference> {
    match (same_priority, same_limit, same_group) {
        (false, ..) => Some(Difference::Priority),
        (_, false, _) => Some(Difference::Limit),
        (.., false) => Some(Difference::Group),
        _ => None,
    }
}
