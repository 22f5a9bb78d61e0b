//! One worker: its own epoll, and the connections that nobody else touches.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::chunk::Chunk;
use super::mailbox::{Mail, Peer};
use super::output::Output;
use super::poll::{self, Poll, PARTS};
use crate::registry::{Card, Time};
use crate::resp::write::Writer;
use crate::session::{Session, Step};
use crate::settings::OutputLimit;
use crate::shared::{add, Core, Local, Shared};

pub struct Worker {
    shared: Arc<Shared>,
    local: Local,
    poll: Poll,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Slots with something to send: replies before pushes.
    replies: Vec<u32>,
    pushes: Vec<u32>,
    buffer: Vec<u8>,
    /// Buffers of replies that were sent.
    spare: Vec<Vec<u8>>,
    now: Time,
    ticked: Time,
    /// Subscribers reached since the last flush.
    copies: u64,
    /// There was input waiting right after the last fan-out.
    busy: bool,
    finishing: bool,
    stopped: bool,
}

/// A place for a connection. The generation tells its guests apart: an event or a word for one
/// that has left must not reach the next.
#[derive(Default)]
struct Slot {
    generation: u32,
    connection: Option<Box<Connection>>,
}

struct Connection {
    socket: OwnedFd,
    peer: Peer,
    session: Session,
    output: Output,
    /// Waits in `replies` or `pushes`.
    dirty: bool,
    closing_since: Option<Time>,
    /// Messages left out since it was last told.
    missed: u64,
}

impl Worker {
    pub fn new(shared: Arc<Shared>, worker: usize) -> std::io::Result<Self> {
        let poll = Poll::new()?;
        poll.add(shared.mailboxes[worker].event(), MAILBOX)?;
        Ok(Worker {
            shared,
            local: Local::new(worker),
            poll,
            slots: Vec::new(),
            free: Vec::new(),
            replies: Vec::new(),
            pushes: Vec::new(),
            buffer: vec![0; READ],
            spare: Vec::new(),
            now: now(),
            ticked: now(),
            copies: 0,
            busy: false,
            finishing: false,
            stopped: false,
        })
    }

    /// Until the hub stops.
    pub fn run(mut self) {
        while !self.stopped {
            let events = self.poll.wait(self.timeout());
            self.turn(events);
            self.gather();
            self.flush_pushes();
            self.tick();
            if self.finishing && self.free.len() == self.slots.len() {
                return;
            }
        }
    }

    /// Reads what is there, and hands on what was published before anything is answered: who
    /// learns of an answer may rely on the message being in its place.
    fn turn(&mut self, events: usize) {
        self.now = now();
        self.look_into_mailbox();
        let choked = self.is_choked();
        for index in 0..events {
            let event = self.poll.event(index);
            if event.token == MAILBOX {
                self.shared.mailboxes[self.local.worker].silence();
                continue;
            }
            let slot = event.token as u32;
            if event.writable && self.connection(event.token).is_some() {
                self.unblock(slot);
            }
            if event.readable && !choked && self.connection(event.token).is_some() {
                self.read(event.token);
            }
        }
        self.publish();
        // Before the answers: who has one finds itself counted.
        self.local.count(&self.shared.counters);
        self.flush_replies();
    }

    /// Under load a short wait lets more messages share one send; an idle hub never waits.
    fn gather(&mut self) {
        if self.copies == 0 || self.finishing {
            return;
        }
        if self.busy {
            let most = Duration::from_nanos((self.copies * 500).min(50_000));
            let start = Instant::now();
            while start.elapsed() < most && self.copies < GATHERED {
                let events = self.poll.wait(0);
                if events > 0 {
                    self.turn(events);
                }
            }
        }
        self.copies = 0;
        self.flush_pushes();
        let events = self.poll.wait(0);
        self.busy = events > 0;
        if events > 0 {
            self.turn(events);
        }
    }

    fn timeout(&self) -> i32 {
        let mailbox = &self.shared.mailboxes[self.local.worker];
        if !self.replies.is_empty() || !self.pushes.is_empty() || mailbox.is_full() {
            0
        } else if self.is_choked() {
            1
        } else if self.free.len() == self.slots.len() {
            -1
        } else {
            1000
        }
    }

    /// Another worker has not taken its chunks: nothing is read here that would add to them.
    fn is_choked(&self) -> bool {
        let others = self.shared.mailboxes.iter().enumerate();
        others
            .filter(|(worker, _)| *worker != self.local.worker)
            .any(|(_, mailbox)| mailbox.waiting.load(Relaxed) > CHOKED)
    }

    fn read(&mut self, token: u64) {
        let Some(connection) = self.connection(token) else { return };
        let fd = connection.socket.as_raw_fd();
        if connection.closing_since.is_some() {
            // Only its end is still told.
            return self.close(token as u32);
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        match poll::receive(fd, &mut buffer) {
            Ok(None) => {}
            Ok(Some(0)) | Err(_) => self.close(token as u32),
            Ok(Some(count)) => {
                add(&self.shared.counters.total_net_input_bytes, count as u64);
                // What was sequenced before these bytes were sent comes before their answers.
                if self.shared.mailboxes[self.local.worker].is_full() {
                    self.look_into_mailbox();
                }
                self.feed(token, &buffer[..count]);
            }
        }
        self.buffer = buffer;
    }

    fn feed(&mut self, token: u64, fresh: &[u8]) {
        let (slot, mut at) = (token as u32, 0);
        loop {
            let spare = &mut self.spare;
            let place = &mut self.slots[slot as usize];
            let Some(connection) = place.connection.as_mut() else { return };
            if place.generation != (token >> 32) as u32 {
                return;
            }
            let tail = &mut connection.output.tail;
            if tail.capacity() == 0 {
                *tail = spare.pop().unwrap_or_else(|| Vec::with_capacity(REPLY));
            }
            let mut core = Core { shared: &self.shared, local: &mut self.local, now: self.now };
            let step = connection.session.run(fresh, &mut at, &mut core, tail);
            connection.session.state.card.seen.store(self.now, Relaxed);
            match step {
                Step::Idle => break,
                Step::Sync => self.publish(),
                Step::Close => {
                    self.begin_close(slot);
                    break;
                }
                Step::Cut => return self.close(slot),
            }
        }
        self.answer(slot);
    }

    /// Its replies go out at the end of the turn, unless it is owed too much.
    fn answer(&mut self, slot: u32) {
        let limits = (self.shared.settings.normal, self.shared.settings.pubsub);
        let now = self.now;
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else { return };
        if connection.output.is_over(connection.limit(&limits), now) {
            return self.close_over(slot);
        }
        if connection.output.is_empty() {
            self.keep_spare(slot);
        } else if !connection.dirty && !connection.output.blocked {
            connection.dirty = true;
            self.replies.push(slot);
        }
    }

    fn keep_spare(&mut self, slot: u32) {
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else { return };
        let tail = std::mem::take(&mut connection.output.tail);
        if self.spare.len() < SPARE && (1..=READ).contains(&tail.capacity()) {
            self.spare.push(tail);
        }
    }

    fn publish(&mut self) {
        if !self.local.chunk.is_empty() {
            let chunks = self.local.chunk.take();
            self.shared.sequence(self.local.worker, chunks);
        }
        self.look_into_mailbox();
    }

    fn look_into_mailbox(&mut self) {
        loop {
            let mail = self.shared.mailboxes[self.local.worker].take();
            if mail.is_empty() {
                return;
            }
            for mail in mail {
                match mail {
                    Mail::Chunk(chunk) => self.deliver(&chunk),
                    Mail::Accepted(socket, peer) => self.accept(socket, peer),
                    Mail::Kill(card) => self.kill(&card),
                    Mail::Drain => self.drain(),
                    Mail::Finish => self.finish(),
                    Mail::Stop => self.stop(),
                }
            }
        }
    }

    fn deliver(&mut self, chunk: &Arc<Chunk>) {
        let limits = (self.shared.settings.normal, self.shared.settings.pubsub);
        let (mut over, mut delivered, mut dropped) = (Vec::new(), 0, 0);
        for run in chunk.runs.iter().filter(|run| run.workers >> self.local.worker & 1 == 1) {
            for &slot in self.local.subscribers.of(run.kind, chunk.name(run)) {
                let Some(connection) = self.slots[slot as usize].connection.as_mut() else {
                    continue;
                };
                if connection.closing_since.is_some() {
                    continue;
                }
                let messages = u64::from(run.messages);
                if connection.must_miss(&limits.1, (run.end - run.start) as usize) {
                    connection.missed += messages;
                    dropped += messages;
                    continue;
                }
                let resp3 = connection.session.state.resp3;
                connection.output.share(chunk, run.start, run.end, resp3);
                delivered += messages;
                if connection.output.is_over(connection.limit(&limits), self.now) {
                    over.push(slot);
                } else if !connection.dirty && !connection.output.blocked {
                    connection.dirty = true;
                    self.pushes.push(slot);
                }
            }
        }
        self.copies += delivered;
        add(&self.shared.counters.messages_delivered, delivered);
        add(&self.shared.counters.messages_dropped, dropped);
        over.into_iter().for_each(|slot| self.close_over(slot));
    }

    fn flush_replies(&mut self) {
        for slot in std::mem::take(&mut self.replies) {
            self.flush(slot, false);
        }
    }

    fn flush_pushes(&mut self) {
        self.copies = 0;
        for slot in std::mem::take(&mut self.pushes) {
            self.flush(slot, true);
        }
    }

    /// One send, of a bounded part: then the next connection has its turn.
    fn flush(&mut self, slot: u32, pushes: bool) {
        let limits = (self.shared.settings.normal, self.shared.settings.pubsub);
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else { return };
        connection.dirty = false;
        let mut parts = [&[][..]; PARTS];
        let count = connection.output.pieces(&mut parts, SENT);
        if count > 0 {
            let size: usize = parts[..count].iter().map(|part| part.len()).sum();
            let sent = match poll::send(connection.socket.as_raw_fd(), &parts[..count]) {
                Ok(sent) => sent.unwrap_or(0),
                Err(_) => return self.close(slot),
            };
            add(&self.shared.counters.total_net_output_bytes, sent as u64);
            connection.output.consume(sent);
            if sent < size {
                connection.output.unshare();
            }
        }
        connection.tell_missed(&limits.1);
        connection.session.state.card.owed.store(connection.output.held(), Relaxed);
        if connection.output.blocked {
            self.watch(slot);
        } else if !connection.output.is_empty() {
            connection.dirty = true;
            if pushes { &mut self.pushes } else { &mut self.replies }.push(slot);
        } else if connection.closing_since.is_some() {
            self.close(slot);
        } else {
            self.keep_spare(slot);
        }
    }

    fn unblock(&mut self, slot: u32) {
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else { return };
        if std::mem::take(&mut connection.output.blocked) {
            if !connection.dirty {
                connection.dirty = true;
                self.pushes.push(slot);
            }
            self.watch(slot);
        }
    }

    fn watch(&mut self, slot: u32) {
        let place = &self.slots[slot as usize];
        let Some(connection) = place.connection.as_ref() else { return };
        let token = u64::from(place.generation) << 32 | u64::from(slot);
        let read = connection.closing_since.is_none();
        let write = connection.output.blocked;
        if self.poll.change(connection.socket.as_raw_fd(), token, read, write).is_err() {
            self.close(slot);
        }
    }

    fn accept(&mut self, socket: OwnedFd, peer: Peer) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let place = &mut self.slots[slot as usize];
        let token = u64::from(place.generation) << 32 | u64::from(slot);
        let fd = socket.as_raw_fd();
        if peer.is_tcp {
            poll::no_delay(fd);
        }
        let id = self.shared.registry.next_id();
        let card = Arc::new(Card {
            address: peer.address.clone(),
            local: peer.local.clone(),
            fd,
            ..Card::new(id, self.local.worker, token, self.now)
        });
        self.shared.registry.add(card.clone());
        place.connection = Some(Box::new(Connection {
            socket,
            peer,
            session: Session::new(card, slot),
            output: Output::default(),
            dirty: false,
            closing_since: None,
            missed: 0,
        }));
        add(&self.shared.counters.total_connections_received, 1);
        if self.poll.add(fd, token).is_err() {
            self.close(slot);
        } else if self.finishing {
            self.begin_close(slot);
            self.answer(slot);
        }
    }

    fn kill(&mut self, card: &Card) {
        if self.connection(card.token).is_some_and(|c| c.session.state.card.id == card.id) {
            self.close(card.token as u32);
        }
    }

    /// No more is read; what is owed is sent, then it closes.
    fn begin_close(&mut self, slot: u32) {
        let now = self.now;
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else { return };
        connection.closing_since = Some(now);
        if !connection.dirty && !connection.output.blocked {
            connection.dirty = true;
            self.replies.push(slot);
        }
        self.watch(slot);
    }

    fn close_over(&mut self, slot: u32) {
        add(&self.shared.counters.client_output_buffer_limit_disconnections, 1);
        self.close(slot);
    }

    fn close(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize];
        let Some(mut connection) = place.connection.take() else { return };
        place.generation = place.generation.wrapping_add(1);
        self.free.push(slot);
        let mut core = Core { shared: &self.shared, local: &mut self.local, now: self.now };
        connection.session.close(&mut core);
        self.shared.left(&connection.peer);
    }

    fn connection(&self, token: u64) -> Option<&Connection> {
        let place = self.slots.get(token as u32 as usize)?;
        place.connection.as_deref().filter(|_| place.generation == (token >> 32) as u32)
    }

    /// Once a second: who is over its soft limit, idle, or does not take its farewell.
    fn tick(&mut self) {
        if self.now.saturating_sub(self.ticked) < SECOND {
            return;
        }
        self.ticked = self.now;
        let (idle, now) = (self.shared.settings.idle_timeout * SECOND, self.now);
        let limits = (self.shared.settings.normal, self.shared.settings.pubsub);
        for slot in 0..self.slots.len() as u32 {
            let Some(connection) = self.slots[slot as usize].connection.as_mut() else { continue };
            let state = &connection.session.state;
            let unheard = now.saturating_sub(state.card.seen.load(Relaxed));
            let is_idle = idle > 0 && unheard > idle && !state.is_subscribed();
            if connection.closing_since.is_some_and(|since| now - since > FAREWELL) {
                self.close(slot);
            } else if connection.output.is_over(connection.limit(&limits), now) {
                self.close_over(slot);
            } else if is_idle {
                add(&self.shared.counters.idle_disconnections, 1);
                self.close(slot);
            }
        }
    }

    /// Answers what has arrived. Connections close when all workers have done so: until then one of
    /// them may publish to a subscriber of another.
    fn drain(&mut self) {
        for slot in 0..self.slots.len() {
            for _ in 0..DRAINED {
                let place = &self.slots[slot];
                let token = u64::from(place.generation) << 32 | slot as u64;
                let Some(connection) = place.connection.as_ref() else { break };
                if connection.closing_since.is_some() || !poll::has_input(&connection.socket) {
                    break;
                }
                self.read(token);
            }
        }
        if !self.local.chunk.is_empty() {
            let chunks = self.local.chunk.take();
            self.shared.sequence(self.local.worker, chunks);
        }
        self.shared.drained();
    }

    fn finish(&mut self) {
        self.finishing = true;
        for slot in 0..self.slots.len() as u32 {
            self.begin_close(slot);
        }
    }

    fn stop(&mut self) {
        self.stopped = true;
        for slot in 0..self.slots.len() as u32 {
            if self.slots[slot as usize].connection.is_some() {
                add(&self.shared.counters.connections_cut, 1);
                self.close(slot);
            }
        }
    }
}

impl Connection {
    fn limit<'a>(&self, limits: &'a (OutputLimit, OutputLimit)) -> &'a OutputLimit {
        if self.session.state.is_subscribed() {
            &limits.1
        } else {
            &limits.0
        }
    }

    /// CLIENT SLOW drop: over its limit it misses messages until half of what it is owed is sent.
    fn must_miss(&self, limit: &OutputLimit, length: usize) -> bool {
        let most = drop_limit(limit);
        self.session.state.drops
            && most > 0
            && (self.missed > 0 || self.output.held() + length > most)
    }

    fn tell_missed(&mut self, limit: &OutputLimit) {
        if self.missed > 0 && self.output.held() <= drop_limit(limit) / 2 {
            let resp3 = self.session.state.resp3;
            let mut push = Writer { out: &mut self.output.tail, resp3 };
            push.push(3);
            push.bulk(b"missed");
            push.bulk(b"");
            push.integer(std::mem::take(&mut self.missed) as i64);
        }
    }
}

fn drop_limit(limit: &OutputLimit) -> usize {
    if limit.soft > 0 {
        limit.soft
    } else {
        limit.hard
    }
}

/// µs, of a clock that does not step back.
pub fn now() -> Time {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    START.elapsed().as_micros() as Time
}

const MAILBOX: u64 = u64::MAX;
/// Bytes read and sent per connection and turn.
const READ: usize = 64 << 10;
const SENT: usize = 256 << 10;
const REPLY: usize = 1024;
const SPARE: usize = 64;
/// Copies after which no more is waited for.
const GATHERED: u64 = 1 << 14;
const CHOKED: usize = 32 << 20;
const SECOND: Time = 1_000_000;
const FAREWELL: Time = 10 * SECOND;
/// Reads of one connection when the hub drains.
const DRAINED: usize = 1024;
