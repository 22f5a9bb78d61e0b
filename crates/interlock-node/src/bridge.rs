//! The log in an engine that is used by other threads and may block: Python's streams.
//!
//! The loop has the [`Bridge`]; the threads have [`Far`] ends of it. One thread takes entries to
//! append and reports the outcome, another delivers entries that it has read, a third does chores
//! that must not delay either.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use interlock_hub::system::wake::WakeUp;

use crate::log::{lost, mark, no_beginning, Entry, Event, Id, Largest, LogPort, Position, LOST};
use crate::trouble::{Kind, Trouble};

/// Makes a bridge. `is_first` returns whether these bytes can be the first entry of a log.
///
/// # Errors
///
/// The process has no descriptors left.
pub fn bridge(is_first: fn(&[u8]) -> bool) -> io::Result<(Bridge, Far)> {
    let (state, asked, room) = (Mutex::new(State::new()), Condvar::new(), Condvar::new());
    let shared = Arc::new(Shared { state, asked, room, wake: WakeUp::new()?, is_first });
    Ok((Bridge { shared: shared.clone() }, Far { shared }))
}

/// The loop's end.
pub struct Bridge {
    shared: Arc<Shared>,
}

/// The threads' end.
#[derive(Clone)]
pub struct Far {
    shared: Arc<Shared>,
}

/// The next write to the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Append these entries in order, then call [`Far::appended`] or [`Far::failed`].
    Append(Vec<Vec<u8>>),
    /// Append the first entry of a log that does not exist yet, then report as above.
    Begin(Vec<u8>),
    /// The bridge is closed.
    End,
}

/// The next lookup or chore beside the entries; [`Far::skipped`] if it is impossible now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chore {
    /// Look up these entries, then call [`Far::looked`].
    Look(Vec<Position>),
    /// Delete everything before the last of these if all of them exist, then call [`Far::trimmed`].
    Trim(Vec<Position>),
    /// Look up the first and the last entry, then call [`Far::ends`].
    Ends,
    /// The bridge is closed.
    End,
}

/// The position after which to read, with a number that the delivered entries refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    pub number: u64,
    pub after: Option<Position>,
}

struct Shared {
    state: Mutex<State>,
    /// There is something to do or to read.
    asked: Condvar,
    /// The loop has taken delivered entries.
    room: Condvar,
    wake: WakeUp,
    is_first: fn(&[u8]) -> bool,
}

struct State {
    is_open: bool,
    is_closed: bool,
    /// Not taken yet, oldest first.
    queue: VecDeque<Waiting>,
    /// Taken; it is unknown whether they are in the log.
    flying: VecDeque<Flying>,
    bytes: usize,
    last: u64,
    /// Requested, and not taken yet.
    look: Option<Vec<Position>>,
    trim: Option<Vec<Position>>,
    wants_ends: bool,
    largest: Option<Largest>,
    untrimmed: Option<Arc<str>>,
    order: u64,
    /// Read the entries after this position; `None`: read nothing now.
    reads: Option<Option<Position>>,
    events: VecDeque<Event>,
    /// Bytes of the entries among the events.
    read: usize,
}

struct Waiting {
    flying: Flying,
    bytes: Vec<u8>,
    is_first: bool,
}

struct Flying {
    number: u64,
    size: usize,
    /// The last id read before the append.
    floor: Option<Id>,
}

impl State {
    fn new() -> State {
        let (queue, flying, events) = Default::default();
        let (bytes, last, order, reads, read) = Default::default();
        let (look, trim, largest, untrimmed) = Default::default();
        let (is_open, is_closed, wants_ends) = Default::default();
        State {
            is_open,
            is_closed,
            queue,
            flying,
            bytes,
            last,
            look,
            trim,
            wants_ends,
            largest,
            untrimmed,
            order,
            reads,
            events,
            read,
        }
    }

    fn id(&self) -> Option<Id> {
        self.reads.flatten().map(|position| position.id)
    }

    /// Cancels the current order for this reason.
    fn stop(&mut self, trouble: Trouble) {
        self.reads = None;
        self.order += 1;
        self.events.push_back(Event::Trouble(trouble));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports an event to the loop.
    fn tell(&self, state: &mut State, event: Event) {
        state.events.push_back(event);
        self.wake.wake();
    }
}

impl Bridge {
    fn add(&mut self, bytes: &[u8], is_first: bool) -> Option<u64> {
        let mut state = self.shared.lock();
        let has_room = state.bytes + bytes.len() <= MOST || state.bytes == 0;
        if !state.is_open || !has_room {
            return None;
        }
        state.last += 1;
        state.bytes += bytes.len();
        let flying = Flying { number: state.last, size: bytes.len(), floor: state.id() };
        let number = flying.number;
        state.queue.push_back(Waiting { flying, bytes: bytes.to_vec(), is_first });
        drop(state);
        self.shared.asked.notify_all();
        Some(number)
    }
}

impl LogPort for Bridge {
    fn append(&mut self, bytes: &[u8]) -> Option<u64> {
        self.add(bytes, false)
    }

    fn begin(&mut self, bytes: &[u8]) -> Option<u64> {
        self.add(bytes, true)
    }

    fn under_way(&self) -> (usize, usize) {
        let state = self.shared.lock();
        (state.queue.len() + state.flying.len(), state.bytes)
    }

    fn is_open(&self) -> bool {
        self.shared.lock().is_open
    }

    fn read_from(&mut self, position: Option<Position>) {
        let mut state = self.shared.lock();
        state.order += 1;
        state.reads = Some(position);
        // Entries read earlier that are not read any more say nothing about the log's present
        // state: an entry under way may rightly get a lower id.
        let read = position.map(|position| position.id);
        let State { flying, queue, .. } = &mut *state;
        for one in flying.iter_mut().chain(queue.iter_mut().map(|one| &mut one.flying)) {
            one.floor = read.min(one.floor);
        }
        // Entries read for the old position must not be delivered.
        state.events.retain(|event| !matches!(event, Event::Read { .. }));
        state.read = 0;
        drop(state);
        self.shared.asked.notify_all();
        self.shared.room.notify_all();
    }

    fn ask_ends(&mut self) -> bool {
        let mut state = self.shared.lock();
        state.wants_ends |= state.is_open;
        self.shared.asked.notify_all();
        state.is_open
    }

    fn largest(&self) -> Option<Largest> {
        self.shared.lock().largest.clone()
    }

    fn untrimmed(&self) -> Option<Arc<str>> {
        self.shared.lock().untrimmed.clone()
    }

    fn look(&mut self, positions: &[Position]) -> bool {
        let mut state = self.shared.lock();
        let is_asked = state.is_open && !positions.is_empty();
        if is_asked {
            state.look = Some(positions.to_vec());
        }
        self.shared.asked.notify_all();
        is_asked
    }

    fn trim_before(&mut self, positions: &[Position]) -> bool {
        let mut state = self.shared.lock();
        let is_asked = state.is_open && state.untrimmed.is_none() && !positions.is_empty();
        if is_asked {
            state.trim = Some(positions.to_vec());
        }
        self.shared.asked.notify_all();
        is_asked
    }

    fn descriptors(&self, polled: &mut Vec<libc::pollfd>) {
        let fd = self.shared.wake.descriptor();
        polled.push(libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    }

    fn wake_at(&self) -> Instant {
        Instant::now() + FAR
    }

    fn drive(&mut self, _: Instant) -> bool {
        // Before the check, so that a later event wakes the loop again.
        self.shared.wake.silence();
        !self.shared.lock().events.is_empty()
    }

    fn event(&mut self) -> Option<Event> {
        let mut state = self.shared.lock();
        let event = state.events.pop_front()?;
        if let Event::Read { entries, .. } = &event {
            state.read -= size(entries);
            drop(state);
            self.shared.room.notify_all();
        }
        Some(event)
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Shared {
    fn close(&self) {
        self.lock().is_closed = true;
        self.asked.notify_all();
        self.room.notify_all();
    }
}

impl Far {
    /// Closes the bridge: the loop waits no longer.
    pub fn close(&self) {
        self.shared.close();
    }

    pub fn is_closed(&self) -> bool {
        self.shared.lock().is_closed
    }

    /// Reports that the engine takes entries, and the largest. `untrimmed`: the reason why the log
    /// cannot be trimmed.
    pub fn opened(&self, largest: Option<Largest>, untrimmed: Option<&str>) {
        let mut state = self.shared.lock();
        state.is_open = true;
        (state.largest, state.untrimmed) = (largest, untrimmed.map(Arc::from));
        self.shared.tell(&mut state, Event::Open);
    }

    /// Waits for something to append until a moment.
    pub fn task(&self, until: Instant) -> Option<Task> {
        self.next(until, Task::End, next_task)
    }

    /// Waits for a chore until a moment.
    pub fn chore(&self, until: Instant) -> Option<Chore> {
        self.next(until, Chore::End, next_chore)
    }

    fn next<T>(&self, until: Instant, end: T, next: fn(&mut State) -> Option<T>) -> Option<T> {
        let mut state = self.shared.lock();
        loop {
            if state.is_closed {
                return Some(end);
            }
            if let Some(found) = next(&mut state) {
                return Some(found);
            }
            state = wait(&self.shared.asked, state, until)?;
        }
    }

    /// Reports that all entries taken are in the log, with these ids if the engine reports them.
    pub fn appended(&self, ids: Option<&[Id]>) {
        let mut state = self.shared.lock();
        let flying = std::mem::take(&mut state.flying);
        for (at, Flying { number, size, floor }) in flying.into_iter().enumerate() {
            state.bytes -= size;
            let id = ids.and_then(|ids| ids.get(at).copied());
            self.shared.tell(&mut state, Event::Appended { number, id });
            let Some((id, floor)) = id.zip(floor).filter(|(id, floor)| id <= floor) else {
                continue;
            };
            if state.reads.is_some() {
                let text = format!(
                    "an entry was appended as {id}, though {floor} had been read before: {LOST}"
                );
                state.stop(Trouble::new(Kind::Forked, text));
            }
        }
    }

    /// Reports that the engine is unreachable: it is unknown which of the entries to append are in
    /// the log.
    pub fn failed(&self, trouble: Trouble) {
        let mut state = self.shared.lock();
        state.is_open = false;
        (state.look, state.trim, state.wants_ends, state.bytes) = Default::default();
        let flying = std::mem::take(&mut state.flying).into_iter();
        let waiting = std::mem::take(&mut state.queue).into_iter().map(|one| one.flying);
        let numbers: Vec<u64> = flying.chain(waiting).map(|one| one.number).collect();
        let event = match (numbers.first(), numbers.last()) {
            (Some(&first), Some(&last)) => Event::Unknown { first, last, trouble },
            _ => Event::Trouble(trouble),
        };
        self.shared.tell(&mut state, event);
    }

    pub fn ends(&self, ends: Option<(Entry, Entry)>) {
        self.shared.tell(&mut self.shared.lock(), Event::Ends(ends));
    }

    /// Reports for each looked-up entry whether it exists unchanged.
    pub fn looked(&self, there: Vec<bool>) {
        self.shared.tell(&mut self.shared.lock(), Event::Looked(there));
    }

    /// Reports that a lookup or trim is impossible now; the loop repeats the request.
    pub fn skipped(&self) {
        self.looked(Vec::new());
    }

    /// Reports the number of deleted entries, or why none were.
    pub fn trimmed(&self, done: Result<u64, Trouble>) {
        self.shared.tell(&mut self.shared.lock(), Event::Trimmed(done));
    }

    /// Waits until there is something to read, or until a moment. The order stays the same until
    /// another position is requested: the reader continues after the entries it has delivered.
    pub fn order(&self, until: Instant) -> Option<Order> {
        let mut state = self.shared.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(after) = state.reads {
                return Some(Order { number: state.order, after });
            }
            state = wait(&self.shared.asked, state, until)?;
        }
    }

    /// Delivers the entries that follow those delivered before for an order. Blocks while many are
    /// not taken yet. Returns the current order if it is still the same.
    pub fn read(&self, order: u64, entries: Vec<Entry>, at_end: bool) -> Option<Order> {
        let mut state = self.shared.lock();
        while state.read > MOST && state.order == order && !state.is_closed {
            state = self.shared.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let after = state.reads.filter(|_| state.order == order && !state.is_closed)?;
        let mut before = after.map(|position| position.id);
        for one in &entries {
            if before.is_some_and(|before| one.id <= before) {
                let text = "its stream gave entries that are not in order";
                self.shared
                    .tell(&mut state, Event::Trouble(Trouble::new(Kind::NotUnderstood, text)));
                return Some(Order { number: order, after });
            }
            before = Some(one.id);
        }
        if let (None, Some(first)) = (after, entries.first()) {
            if !(self.shared.is_first)(&first.bytes) {
                state.stop(Trouble::new(Kind::Trimmed, no_beginning(first.id)));
                self.shared.wake.wake();
                return None;
            }
        }
        let last = entries.last().map(|it| Position { id: it.id, mark: Some(mark(&it.bytes)) });
        let after = last.or(after);
        state.reads = Some(after);
        state.read += size(&entries);
        self.shared.tell(&mut state, Event::Read { entries, at_end, as_of: Instant::now() });
        Some(Order { number: order, after })
    }

    /// Reports that the entry before the ones to read is missing or was replaced; `ends`: the log's
    /// first and last entry.
    pub fn lost(&self, order: u64, ends: Option<(Entry, Entry)>) {
        let mut state = self.shared.lock();
        let Some(after) = state.reads.filter(|_| state.order == order) else { return };
        let id = after.map(|position| position.id).unwrap_or_default();
        let is_other = ends.as_ref().is_some_and(|(first, last)| first.id <= id && id <= last.id);
        state.stop(lost(id, is_other, ends.as_ref(), self.shared.is_first));
        self.shared.wake.wake();
    }

    /// Reports that the log could not be read; the reader retries.
    pub fn unread(&self, trouble: Trouble) {
        self.shared.tell(&mut self.shared.lock(), Event::Trouble(trouble));
    }
}

/// Removes and returns the next maintenance task.
fn next_chore(state: &mut State) -> Option<Chore> {
    if let Some(positions) = state.look.take() {
        return Some(Chore::Look(positions));
    }
    if let Some(positions) = state.trim.take() {
        return Some(Chore::Trim(positions));
    }
    std::mem::take(&mut state.wants_ends).then_some(Chore::Ends)
}

/// Removes and returns the next entries to append.
fn next_task(state: &mut State) -> Option<Task> {
    let first = state.queue.front();
    if first.is_some_and(|first| first.is_first) {
        let begin = state.queue.pop_front()?;
        state.flying.push_back(begin.flying);
        return Some(Task::Begin(begin.bytes));
    }
    if first.is_some() {
        let (mut entries, mut bytes) = (Vec::new(), 0);
        while let Some(one) = state.queue.pop_front() {
            if one.is_first || (bytes > 0 && bytes + one.bytes.len() > AT_ONCE) {
                state.queue.push_front(one);
                break;
            }
            bytes += one.bytes.len();
            entries.push(one.bytes);
            state.flying.push_back(one.flying);
        }
        return Some(Task::Append(entries));
    }
    None
}

/// Waits to be woken; `None`: the time is over.
fn wait<'a>(
    asked: &Condvar,
    state: MutexGuard<'a, State>,
    until: Instant,
) -> Option<MutexGuard<'a, State>> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return None;
    }
    Some(asked.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0)
}

fn size(entries: &[Entry]) -> usize {
    entries.iter().map(|one| one.bytes.len() + SMALL).sum()
}

/// Maximum bytes waiting on either side before one more entry.
const MOST: usize = 64 << 20;
/// Maximum bytes appended at once, unless one entry is larger.
const AT_ONCE: usize = 8 << 20;
/// Overhead in bytes of an entry.
const SMALL: usize = 64;
/// Wait while there is nothing to do.
const FAR: Duration = Duration::from_secs(60);
