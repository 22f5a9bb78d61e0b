//! A worker's connections: how they come, and the ways in which they end.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use super::delivery::Line;
use super::output::Output;
use super::poll::Wants;
use super::worker::{Connection, Slot, Worker};
use crate::access::registry::Card;
use crate::net::socket;
use crate::net::tls::Tls;
use crate::session::Session;
use crate::shared::events::{Answer, Level};
use crate::shared::mailbox::Peer;
use crate::shared::settings::Live;
use crate::shared::Core;
use crate::stores::Offers;
use crate::system::time::now;
use crate::system::time::Time;
use crate::tables::writes::UNKNOWN;
use crate::watch::counters::add;

impl Worker {
    pub(in crate::net::reactor) fn accept(&mut self, socket: OwnedFd, peer: Peer) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let place = &self.slots[slot as usize];
        let token = u64::from(place.generation) << 32 | u64::from(slot);
        let fd = socket.as_raw_fd();
        if peer.is_tcp {
            socket::no_delay(fd);
        }
        let tls = match (peer.speaks_tls, &self.local.live.tls) {
            (false, _) => None,
            (true, config) => match config.clone().and_then(|config| Tls::new(config).ok()) {
                Some(tls) => Some(Box::new(tls)),
                // No certificate, or one that cannot be used: nothing can be said to the client.
                None => {
                    add(&self.shared.counters.tls_errors, 1);
                    self.shared.left(&peer);
                    self.free.push(slot);
                    return;
                }
            },
        };
        let id = self.shared.registry.next_id();
        let card = Arc::new(Card {
            address: peer.address.clone(),
            local: peer.local.clone(),
            fd,
            ..Card::new(id, self.local.worker, token, self.now)
        });
        self.shared.registry.add(card.clone());
        self.slots[slot as usize].connection = Some(Box::new(Connection {
            socket,
            peer,
            tls,
            session: Session::new(card, slot, &self.local.live.users),
            output: Output::default(),
            wants: Wants::FIRST,
            gates: Vec::new(),
            reached: false,
            dirty: false,
            closing_since: None,
        }));
        add(&self.shared.counters.total_connections_received, 1);
        if self.poll.add(fd, token).is_err() {
            self.close(slot);
        } else if self.finishing {
            self.begin_close(slot);
            self.answer(slot);
        }
    }

    /// Other settings hold; who has no place under them is disconnected.
    pub(in crate::net::reactor) fn renew(&mut self, live: Arc<Live>) {
        for slot in 0..self.slots.len() as u32 {
            let Some(connection) = self.slots[slot as usize].connection.as_mut() else { continue };
            let session = &mut connection.session;
            if !session.keeps_its_place(&live.users) {
                add(&self.shared.counters.permission_disconnections, 1);
                let text = format!("disconnected: its rights ended: {}", session.state.card.who());
                self.shared.events.log(Level::Warning, text);
                self.close(slot);
            }
        }
        self.local.live = live;
        // Messages published before this go to the stores that existed then.
        self.hand_over();
        let waiting = self.local.offers.as_mut().map(|offers| offers.waiting());
        self.local.offers = Offers::new(self.shared.stores.current(), self.local.worker);
        // They try again, with those that there are now.
        self.answer_turns(waiting.unwrap_or_default());
    }

    /// Resumes a connection whose request has been decided.
    pub(in crate::net::reactor) fn answered(&mut self, token: u64, answer: Answer) {
        if self.connection(token).is_none() {
            return;
        }
        let slot = token as u32;
        let place = &mut self.slots[slot as usize];
        let Some(connection) = place.connection.as_mut() else { return };
        let mut core =
            Core { shared: &self.shared, local: &mut self.local, now: self.now, clock: now };
        connection.session.answered(answer, &mut core, &mut connection.output.tail);
        if connection.session.state.closing {
            return self.begin_close(slot);
        }
        self.watch(slot);
        self.feed(token, &[]);
        self.close_ended(token);
        self.close_finished(token);
    }

    /// Sends the replies to its writes that have arrived, and resumes the connection if it waited
    /// for them.
    pub(in crate::net::reactor) fn catch_up(&mut self, token: u64) {
        if self.connection(token).is_none() {
            return;
        }
        let slot = token as u32;
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else { return };
        connection.reached = false;
        if connection.closing_since.is_some() {
            connection.session.catch_up(&mut connection.output.tail);
            if !connection.dirty && !connection.output.blocked {
                connection.dirty = true;
                self.replies.push(slot);
            }
        } else if connection.session.catch_up(&mut connection.output.tail) {
            self.watch(slot);
            self.feed(token, &[]);
            self.close_ended(token);
            self.close_finished(token);
        } else {
            self.answer(slot);
        }
    }

    /// The hub stops, and it has done all that it had read.
    fn close_finished(&mut self, token: u64) {
        if self.finishing && self.connection(token).is_some_and(|c| !c.session.waits_for_writes()) {
            self.begin_close(token as u32);
        }
    }

    /// A client of TLS has said that nothing more comes: what it has asked for is done first.
    pub(in crate::net::reactor) fn close_ended(&mut self, token: u64) {
        let ended = |c: &Connection| c.tls.as_ref().is_some_and(|tls| tls.has_ended());
        if self.connection(token).is_some_and(|c| ended(c) && !c.is_waiting() && !c.is_gated()) {
            self.begin_close(token as u32);
        }
    }

    pub(in crate::net::reactor) fn kill(&mut self, card: &Card) {
        if self.connection(card.token).is_some_and(|c| c.session.state.card.id == card.id) {
            self.close(card.token as u32);
        }
    }

    /// No more is read; what is owed is sent, then it closes.
    pub(in crate::net::reactor) fn begin_close(&mut self, slot: u32) {
        let now = self.now;
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else { return };
        connection.closing_since = Some(now);
        if !connection.dirty && !connection.output.blocked {
            connection.dirty = true;
            self.replies.push(slot);
        }
        self.watch(slot);
    }

    pub(in crate::net::reactor) fn close_over(&mut self, slot: u32) {
        // One turn may bring it over its limit in several topics.
        let Some(connection) = self.slots[slot as usize].connection.as_ref() else { return };
        let (card, held) = (&connection.session.state.card, connection.output.held());
        let text = format!(
            "disconnected: reads too slowly, {held} bytes of output pending: {}",
            card.who()
        );
        self.shared.events.log(Level::Warning, text);
        add(&self.shared.counters.client_output_buffer_limit_disconnections, 1);
        self.close(slot);
    }

    pub(in crate::net::reactor) fn close(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize];
        let Some(mut connection) = place.connection.take() else { return };
        if let Some(tls) = &mut connection.tls {
            tls.farewell(connection.socket.as_raw_fd());
        }
        place.generation = place.generation.wrapping_add(1);
        self.free.push(slot);
        let mut core =
            Core { shared: &self.shared, local: &mut self.local, now: self.now, clock: now };
        connection.session.close(&mut core);
        self.shared.left(&connection.peer);
    }

    /// Once a second: who is over its soft limit, idle, or does not take its farewell.
    pub(in crate::net::reactor) fn tick(&mut self) {
        if self.now.saturating_sub(self.ticked) < SECOND {
            return;
        }
        self.ticked = self.now;
        let (live, now) = (self.local.live.clone(), self.now);
        let (idle, login) = (live.idle_timeout * SECOND, live.login_timeout * SECOND);
        for slot in 0..self.slots.len() as u32 {
            let Some(connection) = self.slots[slot as usize].connection.as_mut() else { continue };
            let state = &connection.session.state;
            let unheard = now.saturating_sub(state.card.seen.load(Relaxed));
            let is_idle =
                idle > 0 && unheard > idle && !state.is_pushed_to() && state.pending.is_none();
            let is_idle = is_idle && !connection.is_to_be_answered();
            let is_shaking = connection.tls.as_ref().is_some_and(|tls| tls.is_handshaking());
            let is_unknown = is_shaking || state.user.is_none();
            let is_stranger = login > 0 && is_unknown && now - state.card.created > login;
            let farewell = connection.closing_since.is_some_and(|since| now - since > FAREWELL);
            // Writes are answered in their own time.
            if farewell && state.line.is_none() {
                self.close(slot);
            } else if connection.output.is_over(connection.limit(&live), now) {
                self.close_over(slot);
            } else if is_stranger {
                add(&self.shared.counters.login_timeouts, 1);
                self.close(slot);
            } else if is_idle {
                add(&self.shared.counters.idle_disconnections, 1);
                self.close(slot);
            }
        }
    }

    /// Answers what has arrived. Connections close when all workers have done so: until then one of
    /// them may publish to a subscriber of another.
    pub(in crate::net::reactor) fn drain(&mut self) {
        for slot in 0..self.slots.len() {
            for _ in 0..DRAINED {
                let place = &self.slots[slot];
                let token = u64::from(place.generation) << 32 | slot as u64;
                let Some(connection) = place.connection.as_ref() else { break };
                if !connection.reads() || !socket::has_input(&connection.socket) {
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

    pub(in crate::net::reactor) fn finish(&mut self) {
        self.finishing = true;
        for slot in 0..self.slots.len() as u32 {
            // Writes are answered first.
            let connection = self.slots[slot as usize].connection.as_ref();
            if !connection.is_some_and(|connection| connection.session.waits_for_writes()) {
                self.begin_close(slot);
            }
        }
    }

    /// Fails the writes that will not be answered.
    fn refuse_writes(&mut self) {
        for slot in 0..self.slots.len() as u32 {
            let Some(connection) = self.slots[slot as usize].connection.as_mut() else { continue };
            if connection.session.state.line.is_some() {
                connection.session.give_up_writes(format!("-{UNKNOWN}\r\n").as_bytes());
                connection.session.catch_up(&mut connection.output.tail);
                self.flush(slot, Line::Replies);
            } else if connection.session.waits_for_keeper() {
                connection.session.forget_kept();
                let refused = format!("-{UNKNOWN}\r\n").into_bytes();
                let mut core = Core {
                    shared: &self.shared,
                    local: &mut self.local,
                    now: self.now,
                    clock: now,
                };
                let tail = &mut connection.output.tail;
                connection.session.answered(Answer::Reply(refused), &mut core, tail);
                self.flush(slot, Line::Replies);
            }
        }
    }

    pub(in crate::net::reactor) fn stop(&mut self) {
        self.stopped = true;
        self.refuse_writes();
        for slot in 0..self.slots.len() as u32 {
            if self.slots[slot as usize].connection.is_some() {
                add(&self.shared.counters.connections_cut, 1);
                self.close(slot);
            }
        }
    }
}

/// µs.
const SECOND: Time = 1_000_000;
/// Time limit for sending pending output to a connection that closes.
const FAREWELL: Time = 10 * SECOND;
/// Reads of one connection when the hub drains.
const DRAINED: usize = 1024;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use crate::net::reactor::lifetime::*;
    use crate::shared::mailbox::{Mail, Mailbox};
    use crate::shared::settings::Settings;
    use crate::shared::Shared;

    #[test]
    fn pending_replies_are_sent_before_a_connection_closes_even_if_it_sends_more() {
        let mailboxes = vec![Mailbox::new().unwrap()];
        let shared = Arc::new(Shared::new(Settings::default(), mailboxes, 0).unwrap());
        let mut worker = Worker::new(shared, 0).unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let (address, local) = Default::default();
        let peer = Peer { address, local, is_tcp: false, speaks_tls: false };
        worker.shared.arrive(&peer).unwrap();
        worker.accept(ours.into(), peer);
        theirs.write_all(b"PING\r\n").unwrap();
        worker.poll.wait(None);
        worker.shared.send(0, Mail::Finish);
        let output = &mut worker.slots[0].connection.as_mut().unwrap().output;
        output.tail.extend_from_slice(b"owed");
        worker.turn(1);
        let mut said = [0; 4];
        theirs.read_exact(&mut said).unwrap();
        assert_eq!(said, *b"owed");
    }

    #[test]
    fn a_turn_is_bounded_however_many_clients_send_without_reading() {
        let mailboxes = vec![Mailbox::new().unwrap()];
        let shared = Arc::new(Shared::new(Settings::default(), mailboxes, 0).unwrap());
        let mut worker = Worker::new(shared, 0).unwrap();
        let read = |worker: &Worker| {
            let counted = worker.shared.counters.total_net_input_bytes.load(Relaxed);
            counted + worker.local.received_bytes
        };
        let arrive = |worker: &mut Worker, said: &[u8]| {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            let (address, local) = Default::default();
            let peer = Peer { address, local, is_tcp: false, speaks_tls: false };
            worker.shared.arrive(&peer).unwrap();
            worker.accept(ours.into(), peer);
            theirs.set_nonblocking(true).unwrap();
            theirs.write_all(said).unwrap();
            theirs
        };
        let many = b"PING\r\n".repeat(10_000);
        let deaf: Vec<_> = (0..200).map(|_| arrive(&mut worker, &many)).collect();
        let mut other = arrive(&mut worker, b"PING\r\n");
        // All are in the first turn: it is as long as a turn may be, and answers the other too.
        let events = worker.poll.wait(None);
        assert_eq!(events, deaf.len() + 1);
        worker.turn(events);
        assert!(read(&worker) <= 1 << 20, "{}", read(&worker));
        let mut said = [0; 7];
        other.read_exact(&mut said).unwrap();
        assert_eq!(said, *b"+PONG\r\n");
        // One alone is read as much as there is room for.
        let before = read(&worker);
        worker.turn(1);
        assert!(read(&worker) - before > 50_000);
    }

    #[test]
    fn data_for_a_closed_connection_does_not_reach_the_next_in_its_slot() {
        let mailboxes = vec![Mailbox::new().unwrap()];
        let shared = Arc::new(Shared::new(Settings::default(), mailboxes, 0).unwrap());
        let mut worker = Worker::new(shared, 0).unwrap();
        let arrive = |worker: &mut Worker| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            let peer = Peer {
                address: "s:0".into(),
                local: "s:0".into(),
                is_tcp: false,
                speaks_tls: false,
            };
            worker.shared.arrive(&peer).unwrap();
            worker.accept(ours.into(), peer);
            let card = worker.shared.registry.all().pop().unwrap();
            (theirs, card)
        };
        let (mut first, old) = arrive(&mut worker);
        worker.close(old.token as u32);
        assert_eq!(first.read(&mut [0]).unwrap(), 0);
        let (second, new) = arrive(&mut worker);
        assert_eq!((old.token as u32, worker.shared.connected()), (new.token as u32, 1));
        assert!(worker.connection(old.token).is_none());
        drop(second);
        // The end of the second waits to be read; an event of the first does not read it.
        worker.read(old.token);
        worker.kill(&old);
        assert!(worker.connection(new.token).is_some());
        worker.read(new.token);
        assert!(worker.connection(new.token).is_none());
        assert_eq!(worker.shared.connected(), 0);
    }
}
