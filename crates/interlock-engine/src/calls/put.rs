//! `il1_put`: messages read, room found, places given. What `il1_restore` adds is in `restore`.

pub mod options;
mod restore;
pub(super) mod said;

use std::cell::Cell;
use std::ops::Range;

use hashbrown::HashSet;
use interlock_core::key::KeyRef;
use interlock_core::queue::calls::coalesce::{Coalesce, Differs, Earlier, Needs, Newest};
use interlock_core::queue::scheduler::Put;
use interlock_core::queue::waiting::room::Need;

use crate::calls::put::said::{read_options, Said};
use crate::queue::shared::{Account, Context};
use crate::queue::{Body, Queue};
use crate::values::args::{refuse, Args, Read, Reader, Refused};
use crate::values::reply;
use crate::values::scratch;
use crate::values::scratch::Payload;
use crate::wire::codes::Code;
use crate::wire::limits::*;

/// A put as it was read.
pub struct Messages<'a> {
    list: Vec<Message<'a>>,
    keys: Vec<KeyRef<'a>>,
    /// Coalescing names, each of which is one key more.
    names: usize,
}

struct Message<'a> {
    payload: &'a [u8],
    exclusive: Range<u32>,
    shared: Range<u32>,
    key_bytes: u32,
    /// Few have some.
    said: Option<Box<Said<'a>>>,
}

/// Bytes that a message takes beside its payload and keys: records, and the heads of allocations.
pub const OVERHEAD: u64 = 120;
pub const KEY_OVERHEAD: u32 = 96;
/// Bytes that a retry policy of its own takes, and that a dedup string takes beside itself.
const OF_A_POLICY: u32 = 112;
/// Bytes that limit names take beside themselves, and a group, a coalescing name and a run.
const OF_LIMITS: u32 = 128;
const OF_A_GROUP: u32 = 128;
const OF_A_NAME: u32 = 160;
const OF_A_RUN: u32 = 128;
const OF_A_STRING: u64 = 144;
/// Arguments for which room is made before they are read, at most.
const ROOM: usize = 1 << 12;

impl Message<'_> {
    /// Returns the bytes that it takes of the bound on memory.
    fn weight(&self) -> u64 {
        let dedup = self.dedup().map_or(0, |name| name.len() as u64 + OF_A_STRING);
        u64::from(self.beside()) + self.payload.len() as u64 + dedup
    }

    /// Bytes that its record takes beside its payload; a dedup string is counted where it is kept.
    fn beside(&self) -> u32 {
        let said = self.said.as_ref().map_or(0, |said| {
            let policy = if said.retry.is_some() { OF_A_POLICY } else { 0 };
            let names = beside_names(&said.limit, said.group, said.run);
            policy + names + with(said.coalesce.name, OF_A_NAME)
        });
        OVERHEAD as u32 + self.key_bytes + said
    }

    #[inline]
    fn dedup(&self) -> Option<&str> {
        self.said.as_ref()?.dedup.as_deref()
    }

    #[inline]
    fn coalesces(&self) -> bool {
        self.said.as_ref().is_some_and(|said| said.coalesce().is_some())
    }

    #[inline]
    fn after(&self) -> Option<&str> {
        self.said.as_ref()?.after.as_deref()
    }
}

/// Bytes that the names of a message take beside its payload.
pub(super) fn beside_names(limit: &[u8], group: &[u8], run: &[u8]) -> u32 {
    with(limit, OF_LIMITS) + with(group, OF_A_GROUP) + with(run, OF_A_RUN)
}

fn with(text: &[u8], beside: u32) -> u32 {
    if text.is_empty() {
        return 0;
    }
    text.len() as u32 + beside
}

/// Lists that are not in use.
#[derive(Default)]
struct Lists {
    list: Vec<Message<'static>>,
    keys: Vec<KeyRef<'static>>,
}

thread_local! {
    static LISTS: Cell<Lists> = const { Cell::new(Lists { list: Vec::new(), keys: Vec::new() }) };
}

impl Drop for Messages<'_> {
    fn drop(&mut self) {
        let (list, keys) = (std::mem::take(&mut self.list), std::mem::take(&mut self.keys));
        // A thread that ends has none any more.
        let _ = LISTS.try_with(|lists| {
            lists.set(Lists { list: scratch::emptied(list), keys: scratch::emptied(keys) });
        });
    }
}

impl<'a> Messages<'a> {
    /// Adds a message that was read, and its keys.
    #[inline(always)]
    fn push(&mut self, message: Message<'a>, called: &str) -> Read<()> {
        self.names += usize::from(message.coalesces());
        if self.keys.len() + self.names > MAX_BATCH_KEYS {
            let text = format_args!("more than {MAX_BATCH_KEYS} keys, all messages together");
            return refuse(Code::TooBig, called, text);
        }
        self.list.push(message);
        Ok(())
    }
}

impl Messages<'_> {
    /// Calls `see` for each new message; of those with the same dedup string, only for the first.
    fn each_new(&self, queue: &Queue, mut see: impl FnMut(usize, &Message<'_>)) {
        let mut seen: HashSet<&str, std::hash::RandomState> = HashSet::default();
        for (at, message) in self.list.iter().enumerate() {
            let known = |name: &str| queue.scheduler.known(name).is_some() || seen.contains(name);
            match message.dedup() {
                Some(name) if known(name) => continue,
                Some(name) => drop(seen.insert(name)),
                None => {}
            }
            see(at, message);
        }
    }

    /// Returns the room that it needs to wait for, and what may make that less.
    pub fn need(&self, queue: &Queue) -> (Need, Eases) {
        let mut need = Need::default();
        if let Ok(needs) = self.needs(queue) {
            (need.count, need.size) = (needs.count, needs.size);
        }
        let names = self.list.iter().filter_map(Message::dedup);
        let dedup = names.map(|name| queue.waiting.hash_of(name)).collect();
        (need, Eases { dedup, coalesces: self.list.iter().any(Message::coalesces) })
    }

    fn put<'p>(&'p self, message: &'p Message<'p>) -> Put<'p> {
        Put {
            keys: self.keys(&message.exclusive),
            shared: self.keys(&message.shared),
            ..message.said.as_ref().map_or_else(Put::default, |said| said.put())
        }
    }

    fn keys(&self, range: &Range<u32>) -> &[KeyRef<'_>] {
        &self.keys[range.start as usize..range.end as usize]
    }

    /// The room that those need that are not known.
    fn needs(&self, queue: &Queue) -> Result<Needs<'_>, Differs> {
        let (mut needs, mut differs) = (Needs::default(), Ok(()));
        self.each_new(queue, |at, message| {
            let size = message.payload.len() as u64;
            if !message.coalesces() {
                needs.add(size);
            } else if differs.is_ok() {
                let put = self.put(&self.list[at]);
                differs = queue.scheduler.add_named(&mut needs, at, put, size);
            }
        });
        differs.map(|()| needs)
    }
}

pub fn read<'a, A: Args + ?Sized>(from: &mut Reader<'a, A>) -> Read<Messages<'a>> {
    // A message is four arguments at least. More is not taken at once on the word of who calls.
    let most = (from.args.len() - from.at.min(from.args.len())).min(ROOM);
    let mut all = LISTS.with(|lists| {
        let Lists { list, keys } = lists.take();
        Messages { list, keys, names: 0 }
    });
    all.list.reserve(most / 4);
    all.keys.reserve(most / 2);
    loop {
        if all.list.len() == MAX_BATCH {
            return refuse(
                Code::TooBig,
                from.called,
                format_args!("more than {MAX_BATCH} messages"),
            );
        }
        let message = message(from, all.list.len() + 1, &mut all.keys)?;
        all.push(message, from.called)?;
        if !from.more() {
            return Ok(all);
        }
    }
}

fn message<'a, A: Args + ?Sized>(
    from: &mut Reader<'a, A>,
    i: usize,
    keys: &mut Vec<KeyRef<'a>>,
) -> Read<Message<'a>> {
    let payload = from.text(MAX_PAYLOAD, || format!("messages[{i}].payload"))?;
    let exclusive = from.natural(0, MAX_KEYS, || format!("messages[{i}].exclusive"))?;
    let shared = from.natural(0, MAX_KEYS, || format!("messages[{i}].shared"))?;
    let options = from.natural(0, MAX_OPTIONS, || format!("messages[{i}].options"))?;
    if exclusive + shared > MAX_KEYS {
        let text = format_args!("has {} keys; at most {MAX_KEYS}", exclusive + shared);
        return from.bad(|| format!("messages[{i}]"), text);
    }
    let first = keys.len() as u32;
    let mut key_bytes = 0;
    for k in 0..exclusive + shared {
        let what = || match k.checked_sub(exclusive) {
            None => format!("messages[{i}].exclusive[{}]", k + 1),
            Some(k) => format!("messages[{i}].shared[{}]", k + 1),
        };
        let key = from.take(what)?;
        if key.is_empty() {
            return from.bad(what, "is empty");
        }
        if key.len() > MAX_KEY_BYTES {
            let text = format_args!("has {} bytes; at most {MAX_KEY_BYTES}", key.len());
            return from.bad(what, text);
        }
        key_bytes += key.len() as u32 + KEY_OVERHEAD;
        keys.push(KeyRef::new(key));
    }
    let middle = first + exclusive as u32;
    let (exclusive_keys, shared_keys) = (first..middle, middle..keys.len() as u32);
    let mut message =
        Message { payload, exclusive: exclusive_keys, shared: shared_keys, key_bytes, said: None };
    if options > 0 {
        let said = read_options(from, i, options)?;
        if said.barrier && exclusive + shared > 0 {
            let text = "is 1, but the message has keys";
            return from.bad(|| format!("messages[{i}].BARRIER"), text);
        }
        said.check_together(from, i)?;
        if let Some(Coalesce { name, .. }) = said.coalesce() {
            let count = exclusive + shared + 1;
            if count > MAX_KEYS {
                let text = format_args!("has {count} keys; at most {MAX_KEYS}");
                return from.bad(|| format!("messages[{i}]"), text);
            }
            message.key_bytes += name.len() as u32 + KEY_OVERHEAD;
        }
        message.said = Some(said);
    }
    Ok(message)
}

/// Outcomes of a message in the reply.
const QUEUED: u8 = 0;
const KNOWN: u8 = 1;
const REPLACED: u8 = 2;

/// Events after which a put that waits for room may need less.
#[derive(Debug)]
pub struct Eases {
    /// Hashes of dedup strings that may become known.
    pub dedup: Box<[u64]>,
    /// It has a coalescing name, whose newest message may become another.
    pub coalesces: bool,
}

/// The reason why a put was not done at once.
pub enum No {
    /// Not enough room now.
    Full(Refused),
    Refused(Refused),
}

impl Queue {
    /// Places all messages, or none. What is due was applied. `kept`: room is kept for another put.
    /// Returns whether anything was new.
    pub fn put(
        &mut self,
        all: &Messages<'_>,
        kept: bool,
        payer: Option<&Account>,
        cx: &Context<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool, No> {
        if self.sealed {
            return Err(No::Refused(sealed("put")));
        }
        let known = |name: &str| self.scheduler.known(name).is_some();
        if !all.list.iter().filter_map(Message::after).all(known) {
            return Err(No::Refused(unknown()));
        }
        let (mut count, mut bytes, mut weight) = (0u64, 0u64, 0u64);
        let mut coalesces = false;
        all.each_new(self, |_, message| {
            count += 1;
            bytes += message.payload.len() as u64;
            weight += message.weight();
            coalesces |= message.coalesces();
        });
        let mut whole = bytes;
        if coalesces {
            let needs = all.needs(self).map_err(|why| No::Refused(differs(why)))?;
            (count, bytes, whole) = (needs.count as u64, needs.size, needs.whole);
        }
        if count > 0 || bytes > 0 {
            self.too_large(count, whole, "put").map_err(No::Refused)?;
            if self.scheduler.is_attentive() {
                self.room_to_park(self.parking_of(all), "put").map_err(No::Refused)?;
            }
            if let Some(full) = self.no_room(count, bytes, "put") {
                return Err(No::Full(full));
            }
            if kept {
                return Err(No::Full(room_is_kept("put")));
            }
            if weight > cx.free_of_all() {
                self.drop_events(weight, cx);
            }
            if weight > cx.free_for(payer) {
                return Err(No::Refused(cx.out_of_memory_for(payer, weight, "put")));
            }
        }
        reply::array(out, 2 * all.list.len());
        for message in &all.list {
            let (id, became) = match message.dedup().and_then(|name| self.scheduler.known(name)) {
                Some(id) => {
                    self.scheduler.deduplicated();
                    (id, KNOWN)
                }
                None => self.enter_or_replace(all, message),
            };
            self.note_cancelled();
            reply::placed(out, id, became);
        }
        Ok(count > 0 || bytes > 0)
    }

    /// Counts the messages that could be parked, and their bytes.
    #[cold]
    fn parking_of(&self, all: &Messages<'_>) -> (u64, u64) {
        let puts = all.list.iter().map(|message| (all.put(message), message.payload.len() as u64));
        self.scheduler.parking_of(puts)
    }

    #[inline]
    fn enter_or_replace(&mut self, all: &Messages<'_>, message: &Message<'_>) -> (u64, u8) {
        let coalesce = message.said.as_ref().and_then(|said| said.coalesce());
        match coalesce.and_then(|coalesce| self.scheduler.newest(coalesce.name)) {
            None => (self.enter(all, message), QUEUED),
            Some(newest) => (self.replace_payload(newest, all, message), REPLACED),
        }
    }

    /// Gives a message the payload of a put, and returns its id.
    fn replace_payload(
        &mut self,
        newest: Newest,
        all: &Messages<'_>,
        message: &Message<'_>,
    ) -> u64 {
        let before = self.scheduler.newest_payload(newest);
        let said = message.said.as_ref().map_or(0, |said| said.result);
        let body = Body {
            data: Payload::new(message.payload, before.data.beside),
            result: before.result.max(said),
        };
        self.weight += body.weight();
        let (id, old) = self.scheduler.replace(newest, &all.put(message), body);
        self.weight -= old.weight();
        id
    }

    fn enter(&mut self, all: &Messages<'_>, message: &Message<'_>) -> u64 {
        let (keys, shared) = (all.keys(&message.exclusive), all.keys(&message.shared));
        let body = Body {
            data: Payload::new(message.payload, message.beside()),
            result: message.said.as_ref().map_or(0, |said| said.result),
        };
        self.weight += body.weight();
        let put = Put { keys, shared, ..Put::default() };
        let Some(said) = &message.said else { return self.scheduler.enter(&put, Some(body)) };
        self.enter_said(Put { keys, shared, ..said.put() }, body)
    }

    fn enter_said(&mut self, put: Put<'_>, body: Body) -> u64 {
        if let Some(name) = put.dedup {
            self.waiting.became_known(name);
        }
        self.scheduler.enter(&put, Some(body))
    }

    /// Refuses what there will never be room for.
    pub fn too_large(&self, count: u64, bytes: u64, called: &str) -> Read<()> {
        let (size, most) = (self.declared.max_size, self.declared.max_bytes);
        if size > 0 && count > size {
            return refuse(
                Code::TooBig,
                called,
                format_args!("{count} messages; MAXSIZE is {size}"),
            );
        }
        if most > 0 && bytes > most {
            return refuse(Code::TooBig, called, format_args!("{bytes} bytes; MAXBYTES is {most}"));
        }
        Ok(())
    }

    /// Refuses messages that could be parked while too much is. `could`: their number and their bytes.
    pub fn room_to_park(&self, could: (u64, u64), called: &str) -> Read<()> {
        self.scheduler.room_to_park(could).or_else(|_| {
            let text = format_args!(
                "{} messages wait on a paused or stuck key, and half of the bound is parked",
                could.0
            );
            refuse(Code::Stuck, called, text)
        })
    }

    /// Returns the refusal of this many more messages and bytes, if there is not enough room now.
    #[inline]
    pub fn no_room(&self, count: u64, bytes: u64, called: &str) -> Option<Refused> {
        let (size, most) = (self.declared.max_size, self.declared.max_bytes);
        if size == 0 && most == 0 {
            return None;
        }
        let (held, held_bytes) = (self.scheduler.unsettled(), self.scheduler.bytes());
        let text = if size > 0 && held + count > size {
            format!("{held} messages are unsettled; MAXSIZE is {size}")
        } else if most > 0 && held_bytes + bytes > most {
            format!("{held_bytes} bytes are unsettled; MAXBYTES is {most}")
        } else {
            return None;
        };
        Some(Refused::new(Code::Full, called, text))
    }
}

/// There is room, for another (clause 11).
pub fn room_is_kept(called: &str) -> Refused {
    let text = "room is reserved for an earlier put that needs more";
    Refused::new(Code::Full, called, text)
}

pub fn sealed(called: &str) -> Refused {
    Refused::new(Code::Sealed, called, "the queue accepts no messages until il1_reopen")
}

/// A message that would replace another differs in what decides when that is leased.
#[cold]
fn differs(Differs { message, what, earlier }: Differs) -> Refused {
    let earlier = match earlier {
        Earlier::Queued(id) => format!("message {id}"),
        Earlier::OfCall(at) => format!("messages[{}]", at + 1),
    };
    let (i, what) = (message + 1, what.words());
    let text =
        format!("messages[{i}] has another {what} than {earlier}, whose payload it would replace");
    Refused::new(Code::Differs, "put", text)
}

#[cold]
fn unknown() -> Refused {
    Refused::new(Code::Unknown, "put", "the queue does not know the dedup string of AFTER")
}
