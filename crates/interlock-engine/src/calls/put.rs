//! `il1_put`: messages read, room found, places given. What `il1_restore` adds is in `restore`.

pub mod options;
mod restore;

use std::borrow::Cow;
use std::cell::Cell;
use std::ops::Range;

use hashbrown::HashSet;
use interlock_core::key::KeyRef;
use interlock_core::queue::scheduler::Put;
use interlock_core::queue::types::limits::{joined, names_of, BETWEEN};
use interlock_core::queue::types::{RetryPart, Then};
use interlock_core::queue::waiting::room::Need;

use crate::queue::declare::OneOf;
use crate::queue::shared::{Account, Context};
use crate::queue::{Body, Queue};
use crate::values::args::{refuse, Args, Read, Reader, Refused, What};
use crate::values::reply;
use crate::values::scratch;
use crate::values::scratch::Payload;
use crate::values::words::to_text;
use crate::wire::codes::Code;
use crate::wire::limits::*;
use crate::wire::options::MessageOption;

/// A put as it was read.
pub struct Messages<'a> {
    list: Vec<Message<'a>>,
    keys: Vec<KeyRef<'a>>,
}

struct Message<'a> {
    payload: &'a [u8],
    exclusive: Range<u32>,
    shared: Range<u32>,
    key_bytes: u32,
    /// Few have some.
    said: Option<Box<Said<'a>>>,
}

/// The options that a message comes with.
#[derive(Default)]
struct Said<'a> {
    priority: i8,
    delay: u64,
    barrier: bool,
    result: u64,
    quiet: bool,
    dedup: Option<Cow<'a, str>>,
    /// A dedup string without which the put is refused; it is not kept.
    after: Option<Cow<'a, str>>,
    window: Option<u64>,
    retry: Option<Box<RetryPart>>,
    /// Limit names, sorted and joined; empty: none.
    limit: Vec<u8>,
    /// Its group; empty: none.
    group: &'a [u8],
}

/// Bytes that a message takes beside its payload and keys: records, and the heads of allocations.
pub const OVERHEAD: u64 = 120;
pub const KEY_OVERHEAD: u32 = 96;
/// Bytes that a retry policy of its own takes, and that a dedup string takes beside itself.
const OF_A_POLICY: u32 = 112;
/// Bytes that limit names take beside themselves, and a group.
const OF_LIMITS: u32 = 128;
const OF_A_GROUP: u32 = 128;
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
            let with = |text: &[u8], beside| match text.len() as u32 {
                0 => 0,
                bytes => bytes + beside,
            };
            let policy = if said.retry.is_some() { OF_A_POLICY } else { 0 };
            policy + with(&said.limit, OF_LIMITS) + with(said.group, OF_A_GROUP)
        });
        OVERHEAD as u32 + self.key_bytes + said
    }

    #[inline]
    fn dedup(&self) -> Option<&str> {
        self.said.as_ref()?.dedup.as_deref()
    }

    #[inline]
    fn after(&self) -> Option<&str> {
        self.said.as_ref()?.after.as_deref()
    }
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

impl Messages<'_> {
    /// Calls `see` for each new message; of those with the same dedup string, only for the first.
    fn each_new(&self, queue: &Queue, mut see: impl FnMut(&Message<'_>)) {
        let mut seen: HashSet<&str, std::hash::RandomState> = HashSet::default();
        for message in &self.list {
            let known = |name: &str| queue.scheduler.known(name).is_some() || seen.contains(name);
            match message.dedup() {
                Some(name) if known(name) => continue,
                Some(name) => drop(seen.insert(name)),
                None => {}
            }
            see(message);
        }
    }

    /// Returns the room that it needs to wait for; and the dedup strings, by their hashes, that
    /// make it less if they become known.
    pub fn need(&self, queue: &Queue) -> (Need, Box<[u64]>) {
        let mut need = Need::default();
        self.each_new(queue, |message| {
            need.count += 1;
            need.size += message.payload.len() as u64;
        });
        let names = self.list.iter().filter_map(Message::dedup);
        (need, names.map(|name| queue.waiting.hash_of(name)).collect())
    }
}

pub fn read<'a, A: Args + ?Sized>(from: &mut Reader<'a, A>) -> Read<Messages<'a>> {
    // A message is four arguments at least. More is not taken at once on the word of who calls.
    let most = (from.args.len() - from.at.min(from.args.len())).min(ROOM);
    let mut all = LISTS.with(|lists| {
        let Lists { list, keys } = lists.take();
        Messages { list, keys }
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
        if all.keys.len() > MAX_BATCH_KEYS {
            let text = format_args!("more than {MAX_BATCH_KEYS} keys, all messages together");
            return refuse(Code::TooBig, from.called, text);
        }
        all.list.push(message);
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
        message.said = Some(said);
    }
    Ok(message)
}

#[cold]
fn read_options<'a, A: Args + ?Sized>(
    from: &mut Reader<'a, A>,
    i: usize,
    count: u64,
) -> Read<Box<Said<'a>>> {
    let (mut said, mut seen) = (Box::<Said<'a>>::default(), 0u32);
    for _ in 0..count {
        let name = from.take(|| format!("messages[{i}].options"))?;
        let Some(option) = MessageOption::of_name(name) else {
            let text = format_args!("holds a name that is not {}", MessageOption::TOLD);
            return from.bad(|| format!("messages[{i}].options"), text);
        };
        if seen & 1 << option as u32 != 0 {
            let what = || format!("messages[{i}].options");
            return from.bad(what, format_args!("name {} twice", option.name()));
        }
        seen |= 1 << option as u32;
        said.read(option, from, || format!("messages[{i}].{}", option.name()))?;
    }
    Ok(said)
}

impl<'a> Said<'a> {
    fn read<A: Args + ?Sized>(
        &mut self,
        option: MessageOption,
        from: &mut Reader<'a, A>,
        what: impl What,
    ) -> Read<()> {
        let (least, most) = option.range();
        let mut number = || from.whole(least, most, what);
        match option {
            MessageOption::Priority => self.priority = number()? as i8,
            MessageOption::Delay => self.delay = number()? as u64,
            MessageOption::Dedup => self.dedup = Some(name(from, what)?),
            MessageOption::After => self.after = Some(name(from, what)?),
            MessageOption::Window => self.window = Some(number()? as u64),
            MessageOption::Barrier => self.barrier = number()? == 1,
            MessageOption::Result => self.result = number()? as u64,
            MessageOption::Quiet => self.quiet = number()? == 1,
            MessageOption::Limit => self.limit = limit_names(from, what)?,
            MessageOption::Group => self.group = group(from, what)?,
            MessageOption::Attempts => {
                let attempts = number()? as u32;
                self.policy().attempts = Some(Some(attempts).filter(|&most| most > 0));
            }
            MessageOption::First => self.policy().first = Some(number()? as u64),
            MessageOption::Factor => self.policy().factor = Some(number()? as f64 / 1000.0),
            MessageOption::Longest => self.policy().longest = Some(number()? as u64),
            MessageOption::Jitter => self.policy().jitter = Some(number()? == 1),
            MessageOption::Then => self.policy().then = Some(Then::read(from, what)?),
        }
        Ok(())
    }

    fn policy(&mut self) -> &mut RetryPart {
        self.retry.get_or_insert_default()
    }
}

/// Reads the limit names of a message.
fn limit_names<A: Args + ?Sized>(from: &mut Reader<'_, A>, what: impl What) -> Read<Vec<u8>> {
    let text = from.text(MAX_TEXT, what)?;
    if text.is_empty() {
        return from.bad(what, "is empty");
    }
    let Some(names) = names_of(text) else {
        return from.bad(what, "has an empty name");
    };
    let count = 1 + text.iter().filter(|&&byte| byte == BETWEEN).count();
    if count > MAX_LIMIT_NAMES {
        return from.bad(what, format_args!("has {count} names; at most {MAX_LIMIT_NAMES}"));
    }
    Ok(joined(&names))
}

/// Reads the group of a message.
fn group<'a, A: Args + ?Sized>(from: &mut Reader<'a, A>, what: impl What) -> Read<&'a [u8]> {
    let text = from.text(MAX_TEXT, what)?;
    if text.is_empty() {
        return from.bad(what, "is empty");
    }
    if text.contains(&BETWEEN) {
        return from.bad(what, "has the byte 0x1F");
    }
    Ok(text)
}

/// Reads a dedup string.
fn name<'a, A: Args + ?Sized>(from: &mut Reader<'a, A>, what: impl What) -> Read<Cow<'a, str>> {
    let text = from.text(MAX_TEXT, what)?;
    if text.is_empty() {
        return from.bad(what, "is empty");
    }
    Ok(to_text(text))
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
        all.each_new(self, |message| {
            count += 1;
            bytes += message.payload.len() as u64;
            weight += message.weight();
        });
        if count > 0 {
            self.too_large(count, bytes, "put").map_err(No::Refused)?;
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
            let (id, known) = match message.dedup().and_then(|name| self.scheduler.known(name)) {
                Some(id) => {
                    self.scheduler.deduplicated();
                    (id, true)
                }
                None => (self.enter(all, message), false),
            };
            reply::placed(out, id, known);
        }
        Ok(count > 0)
    }

    fn enter(&mut self, all: &Messages<'_>, message: &Message<'_>) -> u64 {
        let keys = |range: &Range<u32>| &all.keys[range.start as usize..range.end as usize];
        let body = Body {
            data: Payload::new(message.payload, message.beside()),
            result: message.said.as_ref().map_or(0, |said| said.result),
        };
        self.weight += body.weight();
        let put =
            Put { keys: keys(&message.exclusive), shared: keys(&message.shared), ..Put::default() };
        let Some(said) = &message.said else { return self.scheduler.enter(&put, Some(body)) };
        self.enter_said(put, said, body)
    }

    fn enter_said(&mut self, put: Put<'_>, said: &Said<'_>, body: Body) -> u64 {
        let put = Put {
            priority: said.priority,
            delay: said.delay,
            dedup: said.dedup.as_deref(),
            barrier: said.barrier,
            quiet: said.quiet,
            retry: said.retry.as_deref(),
            window: said.window,
            limit: &said.limit,
            group: said.group,
            ..put
        };
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

#[cold]
fn unknown() -> Refused {
    Refused::new(Code::Unknown, "put", "the queue does not know the dedup string of AFTER")
}
