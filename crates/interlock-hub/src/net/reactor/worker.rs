//! One worker: its own epoll, and connections that no other thread touches.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::delivery::Line;
use super::output::Output;
use super::poll::{Poll, Wants};
use crate::net::socket;
use crate::net::tls::Tls;
use crate::session::{Session, Step};
use crate::shared::events::Answer;
use crate::shared::mailbox::{Mail, Peer};
use crate::shared::{Core, Local, Shared};
use crate::stores::{Gate, Offers};
use crate::system::time::{now, Time};
use crate::tables::writes::Written;

pub struct Worker {
    pub(in crate::net::reactor) shared: Arc<Shared>,
    pub(in crate::net::reactor) local: Local,
    pub(in crate::net::reactor) poll: Poll,
    pub(in crate::net::reactor) slots: Vec<Slot>,
    pub(in crate::net::reactor) free: Vec<u32>,
    /// Slots with something to send: replies before pushes.
    pub(in crate::net::reactor) replies: Vec<u32>,
    pub(in crate::net::reactor) pushes: Vec<u32>,
    pub(in crate::net::reactor) buffer: Vec<u8>,
    /// Bytes that a connection is read at once in this turn.
    share: usize,
    /// Buffers of replies that were sent.
    pub(in crate::net::reactor) spare: Vec<Vec<u8>>,
    pub(in crate::net::reactor) now: Time,
    pub(in crate::net::reactor) ticked: Time,
    /// Subscribers reached since the last flush.
    pub(in crate::net::reactor) copies: u64,
    /// The time at which the last fan-out had been sent.
    flushed: Option<Instant>,
    /// There was input waiting right after it.
    busy: bool,
    must_drain: bool,
    /// Answers of the controller, for connections that wait.
    pub(in crate::net::reactor) answers: Vec<(u64, Answer)>,
    /// Replies to writes, and the connections that they are for.
    written: Vec<Vec<Written>>,
    reached: Vec<u64>,
    /// Connections whose answers wait for stores.
    gated: Vec<u64>,
    /// A store has gone on.
    progressed: bool,
    pub(in crate::net::reactor) finishing: bool,
    pub(in crate::net::reactor) stopped: bool,
}

/// A place for a connection. The generation tells its guests apart: an event or a word for one
/// that has left must not reach the next.
#[derive(Default)]
pub(in crate::net::reactor) struct Slot {
    pub(in crate::net::reactor) generation: u32,
    pub(in crate::net::reactor) connection: Option<Box<Connection>>,
}

pub(in crate::net::reactor) struct Connection {
    pub(in crate::net::reactor) socket: OwnedFd,
    pub(in crate::net::reactor) peer: Peer,
    pub(in crate::net::reactor) tls: Option<Box<Tls>>,
    pub(in crate::net::reactor) session: Session,
    pub(in crate::net::reactor) output: Output,
    /// Interest last registered with the kernel.
    pub(in crate::net::reactor) wants: Wants,
    /// Its answers wait for these; nothing more is read meanwhile.
    pub(in crate::net::reactor) gates: Vec<Gate>,
    /// Replies to its writes have come.
    pub(in crate::net::reactor) reached: bool,
    /// Waits in `replies` or `pushes`.
    pub(in crate::net::reactor) dirty: bool,
    pub(in crate::net::reactor) closing_since: Option<Time>,
}

impl Worker {
    pub fn new(shared: Arc<Shared>, worker: usize) -> io::Result<Self> {
        let poll = Poll::new()?;
        poll.add(shared.mailboxes[worker].event(), MAILBOX)?;
        let live = shared.live();
        Ok(Worker {
            shared,
            local: Local::new(worker, live),
            poll,
            slots: Vec::new(),
            free: Vec::new(),
            replies: Vec::new(),
            pushes: Vec::new(),
            buffer: vec![0; READ],
            share: READ,
            spare: Vec::new(),
            now: now(),
            ticked: now(),
            copies: 0,
            flushed: None,
            busy: false,
            must_drain: false,
            answers: Vec::new(),
            written: Vec::new(),
            reached: Vec::new(),
            gated: Vec::new(),
            progressed: false,
            finishing: false,
            stopped: false,
        })
    }

    /// Until the hub stops.
    pub fn run(mut self) {
        self.local.offers = Offers::new(self.shared.stores.current(), self.local.worker);
        while !self.stopped {
            let events = self.poll.wait(self.timeout());
            if let Some(flushed) = self.flushed.take() {
                self.busy = events > 0 && flushed.elapsed() < AT_ONCE;
            }
            self.turn(events);
            self.gather();
            self.flush_pushes();
            self.local.count(&self.shared, self.now);
            self.shared.clients_hold(self.local.worker, self.local.held);
            self.tick();
            self.release();
            if self.finishing && self.free.len() == self.slots.len() {
                return;
            }
        }
    }

    /// Reads what is there, and hands on what was published before anything is answered: who
    /// learns of an answer may rely on the message being in its place.
    pub(in crate::net::reactor) fn turn(&mut self, events: usize) {
        self.now = now();
        // If many connections have much input, each is read in part, so that none waits long.
        self.share = (TURN / events.max(1)).clamp(LEAST_READ, READ);
        self.look_into_mailbox();
        let choked = self.is_choked();
        if choked {
            // The kernel reports readable input again at once.
            std::thread::sleep(CHOKED_PAUSE);
        }
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
            if event.readable && !choked {
                let reads = self.connection(event.token).map(Connection::reads);
                if reads == Some(true) {
                    self.read(event.token);
                } else if reads == Some(false) && event.ended {
                    // Input may be from before it was to close, and is left; this is its end.
                    self.close(slot);
                } else if reads == Some(false) {
                    self.watch(slot);
                }
            }
        }
        if std::mem::take(&mut self.progressed) {
            self.go_on();
        }
        self.take_answers();
        self.take_written();
        self.shared.queues.tick(&mut self.local.served);
        if self.shared.pause.rest(self.now).is_some() {
            self.shared.go_on(self.shared.pause.ended(self.now));
        }
        self.end_calls();
        if !self.answers.is_empty() {
            // This turn's calls have served calls that waited: those are answered at once, and first. If
            // requests behind those serve others in turn, the next turn answers them.
            let replies = std::mem::take(&mut self.replies);
            self.take_answers();
            self.replies.extend(replies);
            self.end_calls();
        }
        self.flush_replies();
    }

    /// After requests were read and before any answer is sent: what they have done is seen and
    /// stored as promised.
    fn end_calls(&mut self) {
        self.publish();
        if std::mem::take(&mut self.must_drain) {
            self.drain();
        }
        self.local.writes.give();
        // Before the answers: who has one finds itself counted.
        self.local.count(&self.shared, self.now);
        self.hand_over();
        self.commit();
    }

    fn take_answers(&mut self) {
        for (token, answer) in std::mem::take(&mut self.answers) {
            self.answered(token, answer);
        }
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
                let events = self.poll.wait(Some(0));
                if events > 0 {
                    self.turn(events);
                }
            }
        }
        self.flush_pushes();
        // Whether input waits by now shows in how soon the next wait ends: to look here would cost
        // a system call per fan-out, and what it found would be sent without gathering.
        self.flushed = Some(Instant::now());
    }

    /// Returns how many ms at most to wait for events; `None`: until there are some.
    fn timeout(&self) -> Option<u32> {
        let mailbox = &self.shared.mailboxes[self.local.worker];
        let unanswered = !self.answers.is_empty() || !self.written.is_empty();
        let undone = unanswered || self.progressed || mailbox.is_full();
        if undone || !self.replies.is_empty() || !self.pushes.is_empty() {
            return Some(0);
        }
        if self.is_choked() {
            return Some(1);
        }
        let sooner = |rest: Option<u32>, ms: u32| Some(rest.map_or(ms, |rest| rest.min(ms)));
        let mut rest = (self.free.len() < self.slots.len()).then_some(TICK);
        if let Some(paused) = self.shared.pause.rest(now()) {
            // Rounded up, or it would wake a moment too early, again and again.
            rest = sooner(rest, paused.div_ceil(1000).min(1000) as u32);
        }
        match self.shared.queues.timeout() {
            None => rest,
            Some(due) => sooner(rest, due),
        }
    }

    /// Another worker has not taken its chunks: nothing is read here that would add to them.
    fn is_choked(&self) -> bool {
        let others = self.shared.mailboxes.iter().enumerate();
        others.filter(|(worker, _)| *worker != self.local.worker).any(|(worker, mailbox)| {
            mailbox.waiting.load(Relaxed) > CHOKED && !self.shared.is_broken(worker)
        })
    }

    pub(in crate::net::reactor) fn read(&mut self, token: u64) {
        if !self.connection(token).is_some_and(Connection::reads) {
            return;
        }
        // Messages of other hubs wait for stores together: larger groups wait less in total.
        for _ in 0..RELAYED {
            if !self.read_once(token) || !self.connection(token).is_some_and(Connection::relays) {
                return;
            }
        }
    }

    /// Returns whether it got something, and there may be more.
    fn read_once(&mut self, token: u64) -> bool {
        let place = &mut self.slots[token as u32 as usize];
        let Some(connection) = place.connection.as_mut() else { return false };
        let is_encrypted = connection.tls.is_some();
        let mut more = false;
        let mut buffer = std::mem::take(&mut self.buffer);
        let share = self.share;
        match connection.receive(&mut buffer[..share]) {
            Ok(None) => self.answer(token as u32),
            Ok(Some(0)) => {
                // The client stops sending, but may still read. Messages waiting for the end of the turn must
                // be sent now.
                self.flush(token as u32, Line::Pushes);
                if self.connection(token).is_some_and(Connection::is_to_be_answered) {
                    self.begin_close(token as u32);
                } else {
                    self.close(token as u32);
                }
            }
            Err(error) => self.broken(token as u32, &error),
            Ok(Some(count)) => {
                self.local.received_bytes += count as u64;
                // Messages sequenced before these bytes were sent go before their replies.
                if self.shared.mailboxes[self.local.worker].is_full() {
                    self.look_into_mailbox();
                }
                self.feed(token, &buffer[..count]);
                self.close_ended(token);
                more = is_encrypted || count == share;
            }
        }
        self.buffer = buffer;
        more
    }

    pub(in crate::net::reactor) fn feed(&mut self, token: u64, fresh: &[u8]) {
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
            let mut core =
                Core { shared: &self.shared, local: &mut self.local, now: self.now, clock: now };
            let step = connection.session.run(fresh, &mut at, &mut core, tail);
            connection.session.state.card.seen.store(self.now, Relaxed);
            match step {
                Step::Idle => break,
                Step::Sync => {
                    self.publish();
                    if self.is_over(token) {
                        return self.close_over(slot);
                    }
                }
                Step::Wait => {
                    // Writes are answered soon, and most clients send nothing while a lease waits. Two
                    // system calls each time cost more than one notification of input or of the
                    // client's farewell, which then changes what is watched.
                    let unchanged = self.connection(token).is_some_and(|c| {
                        c.session.waits_for_writes() || c.session.waits_for_queue()
                    });
                    if !unchanged {
                        self.watch(slot);
                    }
                    break;
                }
                Step::Close => {
                    self.begin_close(slot);
                    break;
                }
                Step::Cut => return self.close(slot),
            }
        }
        self.answer(slot);
    }

    /// Returns whether it is owed too much already, in the middle of its requests.
    fn is_over(&mut self, token: u64) -> bool {
        if self.connection(token).is_none() {
            return false;
        }
        let (live, now) = (&self.local.live, self.now);
        let connection = self.slots[token as u32 as usize].connection.as_mut();
        connection.is_some_and(|c| c.output.is_over(c.limit(live), now))
    }

    /// Its replies go out at the end of the turn, unless it is owed too much.
    pub(in crate::net::reactor) fn answer(&mut self, slot: u32) {
        let now = self.now;
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else { return };
        if connection.output.is_over(connection.limit(&self.local.live), now) {
            return self.close_over(slot);
        }
        if connection.has_nothing_to_send() {
            self.keep_spare(slot);
        } else if !connection.dirty && !connection.output.blocked {
            connection.dirty = true;
            self.replies.push(slot);
        }
    }

    pub(in crate::net::reactor) fn keep_spare(&mut self, slot: u32) {
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

    pub(in crate::net::reactor) fn look_into_mailbox(&mut self) {
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
                    Mail::Live(live) => self.renew(live),
                    Mail::Survey(survey) => self.tell(&survey),
                    Mail::Progress => self.progressed = true,
                    Mail::Beat => self.shared.beats.answer(self.local.worker),
                    // Not now: this may be in the middle of a read.
                    Mail::Answer(token, answer) => self.answers.push((token, answer)),
                    Mail::Replies(replies) => {
                        let replies = replies.into_iter();
                        self.answers
                            .extend(replies.map(|(token, reply)| (token, Answer::Reply(reply))));
                    }
                    Mail::Written(replies) => self.written.push(replies),
                    Mail::Drain => {
                        self.must_drain = true;
                        self.shared.go_on(self.shared.pause.end());
                    }
                    Mail::Finish => self.finish(),
                    Mail::Stop => self.stop(),
                }
            }
        }
    }

    /// Hands messages over to the stores. Publishers that wait for storage are answered later.
    #[inline]
    pub(in crate::net::reactor) fn hand_over(&mut self) {
        if self.local.offers.as_ref().is_some_and(|offers| offers.has_any()) {
            self.hand_over_all();
        }
    }

    fn hand_over_all(&mut self) {
        let Some(offers) = &mut self.local.offers else { return };
        for (token, mut gates) in offers.hand_over() {
            for gate in &gates {
                gate.store.queue.watch(self.local.worker);
            }
            gates.retain(|gate| !gate.is_open());
            let place = &mut self.slots[token as u32 as usize];
            let is_there = place.generation == (token >> 32) as u32;
            let Some(connection) = place.connection.as_mut().filter(|_| is_there) else { continue };
            if gates.is_empty() {
                continue;
            }
            if connection.gates.is_empty() {
                self.gated.push(token);
            }
            connection.gates.append(&mut gates);
            self.watch(token as u32);
        }
    }

    /// Stores have gone on: answers that waited for them are sent, and who waited for room tries again.
    fn go_on(&mut self) {
        for token in std::mem::take(&mut self.gated) {
            let slot = token as u32;
            let place = &mut self.slots[slot as usize];
            let is_there = place.generation == (token >> 32) as u32;
            let Some(connection) = place.connection.as_mut().filter(|_| is_there) else { continue };
            for gate in &connection.gates {
                gate.store.queue.watch(self.local.worker);
            }
            connection.gates.retain(|gate| !gate.is_open());
            if connection.is_gated() {
                self.gated.push(token);
                continue;
            }
            if !connection.dirty && !connection.output.blocked {
                connection.dirty = true;
                self.replies.push(slot);
            }
            self.watch(slot);
            self.close_ended(token);
        }
        let waiting = self.local.offers.as_mut().map(|offers| offers.waiting());
        self.answer_turns(waiting.unwrap_or_default());
    }

    /// Frees senders whose connections have ended and whose messages are all handed on: other
    /// connections may continue for them.
    fn release(&mut self) {
        for (sender, id) in std::mem::take(&mut self.local.released) {
            if let Some(next) = self.shared.relays.release(sender, id) {
                let answer = Answer::Reply(Vec::new());
                self.shared.send(next.worker, Mail::Answer(next.token, answer));
            }
        }
    }

    /// Delivers replies to writes, and resumes the connections that waited for them.
    fn take_written(&mut self) {
        for Written { token, number, reply } in
            std::mem::take(&mut self.written).into_iter().flatten()
        {
            let place = &mut self.slots[token as u32 as usize];
            let is_there = place.generation == (token >> 32) as u32;
            let Some(connection) = place.connection.as_mut().filter(|_| is_there) else { continue };
            let mut core =
                Core { shared: &self.shared, local: &mut self.local, now: self.now, clock: now };
            connection.session.written(number, reply, &mut core);
            if !std::mem::replace(&mut connection.reached, true) {
                self.reached.push(token);
            }
        }
        for token in std::mem::take(&mut self.reached) {
            self.catch_up(token);
        }
    }

    /// These connections try again what they could not do.
    pub(in crate::net::reactor) fn answer_turns(&mut self, tokens: Vec<u64>) {
        self.answers.extend(tokens.into_iter().map(|token| (token, Answer::Turn)));
    }

    pub(in crate::net::reactor) fn connection(&self, token: u64) -> Option<&Connection> {
        let place = self.slots.get(token as u32 as usize)?;
        place.connection.as_deref().filter(|_| place.generation == (token >> 32) as u32)
    }
}

impl Connection {
    /// Returns whether the connection brings messages of another hub and may continue.
    fn relays(&self) -> bool {
        self.session.state.relaying.is_some() && self.reads()
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let fd = self.socket.as_raw_fd();
        match &mut self.tls {
            None => socket::receive(fd, buffer),
            Some(tls) => tls.receive(fd, buffer),
        }
    }
}

const MAILBOX: u64 = u64::MAX;
/// Bytes read per connection and turn.
const READ: usize = 64 << 10;
/// Bytes read in a turn, of all connections together, about; and of one connection at least.
const TURN: usize = 1 << 20;
const LEAST_READ: usize = 4 << 10;
const REPLY: usize = 1024;
/// Reads in one turn of a connection that relays.
const RELAYED: usize = 8;
/// ms after which a worker with connections looks after them, though nothing came.
const TICK: u32 = 1000;
const SPARE: usize = 64;
/// A wait that ends so soon had its input there. To sleep and be woken takes longer.
const AT_ONCE: Duration = Duration::from_micros(10);
/// Number of copies that ends the gathering.
const GATHERED: u64 = 1 << 14;
const CHOKED: usize = 32 << 20;
const CHOKED_PAUSE: Duration = Duration::from_micros(200);
