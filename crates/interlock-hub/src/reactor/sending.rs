//! What a worker sends, and to whom it sends no more.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;

use super::poll::{self, PARTS};
use super::worker::{Connection, Worker};
use crate::resp::write::Writer;
use crate::settings::OutputLimit;
use crate::shared::add;

impl Worker {
    pub(super) fn flush_replies(&mut self) {
        for slot in std::mem::take(&mut self.replies) {
            self.flush(slot, false);
        }
    }

    pub(super) fn flush_pushes(&mut self) {
        self.copies = 0;
        for slot in std::mem::take(&mut self.pushes) {
            self.flush(slot, true);
        }
    }

    /// One send, of a bounded part: then the next connection has its turn.
    pub(super) fn flush(&mut self, slot: u32, pushes: bool) {
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

    pub(super) fn unblock(&mut self, slot: u32) {
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else { return };
        if std::mem::take(&mut connection.output.blocked) {
            if !connection.dirty {
                connection.dirty = true;
                self.pushes.push(slot);
            }
            self.watch(slot);
        }
    }

    pub(super) fn watch(&mut self, slot: u32) {
        let place = &self.slots[slot as usize];
        let Some(connection) = place.connection.as_ref() else { return };
        let token = u64::from(place.generation) << 32 | u64::from(slot);
        let read = connection.closing_since.is_none();
        let write = connection.output.blocked;
        if self.poll.change(connection.socket.as_raw_fd(), token, read, write).is_err() {
            self.close(slot);
        }
    }
}

impl Connection {
    pub(super) fn limit<'a>(&self, limits: &'a (OutputLimit, OutputLimit)) -> &'a OutputLimit {
        if self.session.state.is_subscribed() {
            &limits.1
        } else {
            &limits.0
        }
    }

    /// CLIENT SLOW drop: over its limit it misses messages until half of what it is owed is sent.
    pub(super) fn must_miss(&self, limit: &OutputLimit, length: usize) -> bool {
        let most = drop_limit(limit);
        self.session.state.drops
            && most > 0
            && (self.missed > 0 || self.output.held() + length > most)
    }

    pub(super) fn tell_missed(&mut self, limit: &OutputLimit) {
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

/// Bytes sent per connection and turn.
const SENT: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use super::*;
    use crate::reactor::mailbox::Peer;
    use crate::reactor::output::Output;
    use crate::registry::Card;
    use crate::session::Session;

    #[test]
    fn who_misses_messages_is_told_before_it_gets_the_next() {
        let mut connection = Connection {
            socket: UnixStream::pair().unwrap().0.into(),
            peer: Peer { address: String::new(), local: String::new(), is_tcp: false },
            session: Session::new(Arc::new(Card::new(1, 0, 0, 0)), 0),
            output: Output::default(),
            dirty: false,
            closing_since: None,
            missed: 0,
        };
        let limit = OutputLimit { soft: 100, soft_seconds: 60, hard: 0 };
        connection.output.tail = vec![b'x'; 80];
        assert!(!connection.must_miss(&limit, 30), "it has not asked for it");
        connection.session.state.drops = true;
        assert!(!connection.must_miss(&limit, 20));
        assert!(connection.must_miss(&limit, 21));
        connection.missed = 1;
        assert!(connection.must_miss(&limit, 1), "there is room, but it was not told yet");
        connection.tell_missed(&limit);
        assert_eq!((connection.missed, connection.output.held()), (1, 80), "too much is owed");
        connection.output.consume(80);
        connection.tell_missed(&limit);
        assert_eq!(connection.output.tail, b"*3\r\n$6\r\nmissed\r\n$0\r\n\r\n:1\r\n");
        assert!(!connection.must_miss(&limit, 20));
    }
}
