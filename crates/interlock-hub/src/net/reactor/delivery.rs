//! The sending side of a worker, and connections that are closed for sending.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use interlock_engine::Served;
use interlock_journal::JournalError;

use super::poll::Wants;
use super::worker::{Connection, Worker};
use crate::access::registry::Part;
use crate::net::socket;
use crate::net::socket::PARTS;
use crate::shared::events::{Answer, Level};
use crate::shared::mailbox::Mail;
use crate::shared::queues::connection_of;
use crate::shared::settings::{Live, OutputLimit};
use crate::topics::chunk::Chunk;
use crate::topics::directory::SubscriptionKind;
use crate::watch::counters::add;

/// The line in which a connection waits to be sent to.
#[derive(Clone, Copy)]
pub(in crate::net::reactor) enum Line {
    Replies,
    Pushes,
}

impl Worker {
    /// Before anything is sent: what queues have answered is as safe as they promise. If it cannot be,
    /// nobody learns of it.
    pub(in crate::net::reactor) fn commit(&mut self) {
        if self.local.served.is_empty() && self.local.callers.is_empty() {
            return;
        }
        let served = std::mem::take(&mut self.local.served);
        let mut callers = std::mem::take(&mut self.local.callers);
        match self.shared.queues.durable.as_ref().map_or(Ok(()), |durable| durable.commit()) {
            Ok(()) => {
                callers.clear();
                // For its room.
                self.local.callers = callers;
                if !served.is_empty() {
                    self.serve(served, None);
                }
            }
            Err(refused) => {
                let text = format!("disconnected {} clients: journal: {refused}", callers.len());
                self.shared.events.log(Level::Warning, text);
                for token in callers {
                    if self.connection(token).is_some() {
                        self.close(token as u32);
                    }
                }
                self.serve(served, Some(&refused));
            }
        }
    }

    /// Answers those who waited; with `refused` they are disconnected, for nobody may learn of what was not
    /// stored, and an error would say that it was not done.
    fn serve(&mut self, served: Vec<Served>, refused: Option<&JournalError>) {
        for Served { ticket, reply } in served {
            let (worker, token) = connection_of(ticket);
            let answer = match refused {
                None => Answer::Reply(reply),
                Some(refused) => Answer::Refused(refused.to_string()),
            };
            if worker == self.local.worker {
                self.answers.push((token, answer));
            } else {
                self.shared.send(worker, Mail::Answer(token, answer));
            }
        }
    }

    pub(in crate::net::reactor) fn flush_replies(&mut self) {
        for slot in std::mem::take(&mut self.replies) {
            self.flush(slot, Line::Replies);
        }
    }

    pub(in crate::net::reactor) fn flush_pushes(&mut self) {
        self.copies = 0;
        for slot in std::mem::take(&mut self.pushes) {
            self.flush(slot, Line::Pushes);
        }
    }

    pub(in crate::net::reactor) fn deliver(&mut self, chunk: &Arc<Chunk>) {
        let live = &self.local.live;
        let (mut over, mut reached, mut delivered, mut dropped) = (Vec::new(), 0, 0, 0);
        let mut grown = 0;
        for run in chunk.runs.iter().filter(|run| run.workers >> self.local.worker & 1 == 1) {
            let slots = match run.kind {
                SubscriptionKind::Trace => &self.local.monitors,
                _ => self.local.subscribers.of(run.kind, chunk.name(run)),
            };
            for &slot in slots {
                let Some(connection) = self.slots[slot as usize].connection.as_mut() else {
                    continue;
                };
                if connection.closing_since.is_some() {
                    continue;
                }
                let (messages, length) = (u64::from(run.messages), (run.end - run.start) as usize);
                let resp3 = connection.session.state.resp3;
                reached += messages;
                if connection.session.state.drops && messages > 0 {
                    let (missed, fits) = connection.make_room(&live.pubsub, messages, length);
                    dropped += missed;
                    if fits {
                        connection.output.share(chunk, run.start..run.end, resp3, run.messages);
                    }
                    // Delivered is what was sent: until then it may be missed.
                } else {
                    connection.output.share(chunk, run.start..run.end, resp3, 0);
                    delivered += messages;
                }
                if connection.output.blocked {
                    // No send will tell it.
                    let held = connection.output.held();
                    grown += connection.session.state.card.hold(Part::Owed, held);
                }
                if connection.output.is_over(connection.limit(live), self.now) {
                    over.push(slot);
                } else if !connection.dirty && !connection.output.blocked {
                    connection.dirty = true;
                    self.pushes.push(slot);
                }
            }
        }
        self.copies += reached;
        self.local.delivered += delivered;
        self.local.dropped += dropped;
        self.local.held += grown;
        over.into_iter().for_each(|slot| self.close_over(slot));
    }

    /// One send, of a bounded part: then the next connection has its turn.
    pub(in crate::net::reactor) fn flush(&mut self, slot: u32, line: Line) {
        self.hand_over();
        self.commit();
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else { return };
        connection.dirty = false;
        if connection.is_gated() {
            return;
        }
        match connection.send() {
            Ok(sent) => self.local.sent_bytes += sent as u64,
            Err(error) => return self.broken(slot, &error),
        }
        self.local.delivered += std::mem::take(&mut connection.output.sent_messages);
        let held = connection.output.held();
        self.local.held += connection.session.state.card.hold(Part::Owed, held);
        if connection.output.blocked {
            self.watch(slot);
        } else if !connection.has_nothing_to_send() {
            connection.dirty = true;
            match line {
                Line::Replies => self.replies.push(slot),
                Line::Pushes => self.pushes.push(slot),
            }
        } else if connection.closing_since.is_some() && connection.session.state.line.is_none() {
            self.close(slot);
        } else {
            self.keep_spare(slot);
        }
    }

    /// The socket or its TLS failed.
    pub(in crate::net::reactor) fn broken(&mut self, slot: u32, error: &io::Error) {
        if error.kind() == io::ErrorKind::InvalidData {
            add(&self.shared.counters.tls_errors, 1);
            if let Some(connection) = self.slots[slot as usize].connection.as_ref() {
                let who = connection.session.state.card.who();
                self.shared.events.log(Level::Info, format!("TLS failed: {error}: {who}"));
            }
        }
        self.close(slot);
    }

    pub(in crate::net::reactor) fn unblock(&mut self, slot: u32) {
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else { return };
        if std::mem::take(&mut connection.output.blocked) {
            if !connection.dirty {
                connection.dirty = true;
                self.pushes.push(slot);
            }
            self.watch(slot);
        }
    }

    pub(in crate::net::reactor) fn watch(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize];
        let token = u64::from(place.generation) << 32 | u64::from(slot);
        let Some(connection) = place.connection.as_mut() else { return };
        let wants = Wants {
            read: connection.reads(),
            write: connection.output.blocked,
            // Pending results must not be delivered to a closed connection.
            farewell: connection.session.waits_for_others(),
        };
        if std::mem::replace(&mut connection.wants, wants) == wants {
            return;
        }
        if self.poll.change(connection.socket.as_raw_fd(), token, wants).is_err() {
            self.close(slot);
        }
    }
}

impl Connection {
    /// One send, of a bounded part. How much of what is owed is done with.
    fn send(&mut self) -> io::Result<usize> {
        let fd = self.socket.as_raw_fd();
        // The long array is filled only where there may be more than one piece.
        let (mut one, mut many);
        let parts = if self.output.is_in_one_piece() {
            one = [&[][..]];
            &mut one[..]
        } else {
            many = [&[][..]; PARTS];
            &mut many
        };
        let count = self.output.pieces(parts, SENT);
        let parts = &parts[..count];
        let size: usize = parts.iter().map(|part| part.len()).sum();
        let (sent, full) = match &mut self.tls {
            None if count == 0 => (0, false),
            None => {
                let sent = socket::send(fd, parts)?.unwrap_or(0);
                (sent, sent < size)
            }
            Some(tls) => (tls.send(fd, parts)?, tls.wants_write()),
        };
        self.output.consume(sent);
        if full {
            self.output.unshare();
        }
        Ok(sent)
    }

    pub(in crate::net::reactor) fn has_nothing_to_send(&self) -> bool {
        self.output.is_empty() && !self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    pub(in crate::net::reactor) fn limit<'a>(&self, live: &'a Live) -> &'a OutputLimit {
        if self.session.state.is_pushed_to() {
            &live.pubsub
        } else {
            &live.normal
        }
    }

    /// Returns whether it waits for the controller: nothing is read from it until then.
    pub(in crate::net::reactor) fn is_waiting(&self) -> bool {
        self.session.state.pending.is_some()
    }

    /// Its answers wait for a store.
    pub(in crate::net::reactor) fn is_gated(&self) -> bool {
        !self.gates.is_empty()
    }

    /// Returns whether a request of it is not finished yet.
    pub(in crate::net::reactor) fn is_to_be_answered(&self) -> bool {
        self.is_gated() || self.session.state.line.is_some()
    }

    pub(in crate::net::reactor) fn reads(&self) -> bool {
        self.closing_since.is_none() && !self.is_waiting() && !self.is_gated()
    }

    /// CLIENT SLOW drop: makes room for this many messages of this size by taking out older ones.
    /// Returns how many messages the client misses, and whether the new ones fit.
    pub(in crate::net::reactor) fn make_room(
        &mut self,
        limit: &OutputLimit,
        messages: u64,
        length: usize,
    ) -> (u64, bool) {
        let most = drop_limit(limit);
        if most == 0 {
            return (0, true);
        }
        let resp3 = self.session.state.resp3;
        let (dropped, fits) = self.output.make_room(length, most);
        if fits {
            return (dropped, true);
        }
        self.output.miss_last(messages, resp3);
        (dropped + messages, false)
    }
}

fn drop_limit(limit: &OutputLimit) -> usize {
    if limit.soft > 0 {
        limit.soft
    } else {
        limit.hard
    }
}

/// Bytes sent per connection and turn.
const SENT: usize = 256 << 10;
