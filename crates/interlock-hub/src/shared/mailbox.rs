//! Between workers: a queue, a flag, and an eventfd behind them.
//!
//! The thread that sets the flag writes the wake-up; one that finds it set writes nothing, because
//! the owner has yet to look. So a busy worker is woken once per look, not once per message.

use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::access::registry::Card;
use crate::shared::events::Answer;
use crate::shared::settings::Live;
use crate::system::wake::WakeUp;
use crate::tables::keeper;
use crate::tables::writes;
use crate::tables::writes::Written;
use crate::topics::chunk::Chunk;
use crate::topics::survey::Survey;

pub enum Mail {
    Chunk(Arc<Chunk>),
    /// A new connection of this worker.
    Accepted(OwnedFd, Peer),
    /// Look at this connection's card: it was killed.
    Kill(Arc<Card>),
    /// From now on these hold.
    Live(Arc<Live>),
    /// The answer to what the connection with this token asked for.
    Answer(u64, Answer),
    /// Replies to several, as they go out.
    Replies(Vec<(u64, Vec<u8>)>),
    /// Replies to writes.
    Written(Vec<Written>),
    /// Tell who is subscribed.
    Survey(Arc<Survey>),
    /// A store has room, or is done with something that a connection waits for.
    Progress,
    /// Say that this worker is alive.
    Beat,
    /// Answer what has arrived, then stop reading.
    Drain,
    /// All workers have: close each connection that is owed nothing.
    Finish,
    /// Close the rest.
    Stop,
}

/// The other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    pub address: String,
    pub local: String,
    pub is_tcp: bool,
    pub speaks_tls: bool,
}

impl Peer {
    /// The address without its port.
    pub fn host(&self) -> &str {
        self.address.rsplit_once(':').map_or(&self.address, |(host, _)| host)
    }
}

pub struct Mailbox {
    mail: Mutex<Vec<Mail>>,
    /// Chunk bytes not yet taken.
    pub waiting: AtomicUsize,
    full: AtomicBool,
    event: WakeUp,
}

/// The mailboxes of a hub, for who has an answer.
pub struct Post(pub Arc<[Mailbox]>);

impl keeper::Host for Post {
    fn answer(&self, worker: usize, replies: Vec<(u64, Vec<u8>)>) {
        if self.0[worker].put(Mail::Replies(replies)) {
            self.0[worker].wake();
        }
    }
}

impl writes::Host for Post {
    fn written(&self, worker: usize, replies: Vec<Written>) {
        if self.0[worker].put(Mail::Written(replies)) {
            self.0[worker].wake();
        }
    }
}

impl Mailbox {
    pub fn new() -> io::Result<Self> {
        let (mail, waiting, full) = Default::default();
        Ok(Mailbox { mail, waiting, full, event: WakeUp::new()? })
    }

    /// True: it is the caller's to wake the owner.
    #[must_use]
    pub fn put(&self, mail: Mail) -> bool {
        if let Mail::Chunk(chunk) = &mail {
            self.waiting.fetch_add(chunk.bytes(false).len(), Ordering::Relaxed);
        }
        self.mail.lock().push(mail);
        // Release: who sees the flag also finds the mail.
        !self.full.swap(true, Ordering::AcqRel)
    }

    pub fn wake(&self) {
        self.event.wake();
    }

    /// Returns whether there may be mail.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    /// The owner's: all that is there. Empty: there is nothing until the flag is set again.
    pub fn take(&self) -> Vec<Mail> {
        // The flag first: mail put behind the taking sets it anew and is not overlooked.
        if !self.full.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        let mail = std::mem::take(&mut *self.mail.lock());
        let bytes = mail.iter().map(|mail| match mail {
            Mail::Chunk(chunk) => chunk.bytes(false).len(),
            _ => 0,
        });
        self.waiting.fetch_sub(bytes.sum(), Ordering::Relaxed);
        mail
    }

    pub fn event(&self) -> RawFd {
        self.event.descriptor()
    }

    /// The owner's, once its eventfd was found readable.
    pub fn silence(&self) {
        self.event.silence();
    }
}
