//! The state of a node, for status pages, metrics, and callers that decide whether to use it.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use interlock_log::checkpoint::Place;
use interlock_log::entry::{Body, Entry};
use interlock_log::machine::Machine;
use interlock_stores::disk::Disk;

use super::{Clients, Node};
use crate::log::Largest;

#[derive(Clone, Debug, Default)]
pub struct Standing {
    pub place: Place,
    /// The log time, in ms since 1970.
    pub time: u64,
    /// True if it has read the log to its end since it started or last went back, and takes writes.
    pub serves: bool,
    /// There may be lost entries that it must put back.
    pub owes: bool,
    /// Clients wait for replies.
    pub is_awaited: bool,
    /// True if it no longer takes writes.
    pub drains: bool,
    /// The last moment whose log readers see completely.
    pub at_end: Option<Instant>,
    /// True if it has read nothing since, and waits for more.
    pub is_at_end: bool,
    /// The position of the newest checkpoint.
    pub saved: u64,
    /// Rows merged as the last resort since the node started.
    pub merged: u64,
    /// Entries that it keeps for putting them back.
    pub ring: u64,
    /// Records of clients that number their writes.
    pub clients: u64,
    /// Writes that wait for other machines, and writes that were answered without them.
    pub unacknowledged: u64,
    pub lacked: u64,
    /// The largest entry of the log, the setting that limits it, and the reason why nodes do not
    /// trim the log.
    pub largest: Option<Largest>,
    pub untrimmed: Option<Arc<str>>,
    /// The nodes that have ever reported checkpoints of this log, without those that are gone for
    /// good.
    pub keepers: Arc<[KeeperTold]>,
    /// The position before which the log may be trimmed.
    pub cut: Option<u64>,
    pub told: Told,
}

/// A node, and the checkpoint to which it would go back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeeperTold {
    pub node: String,
    pub machine: String,
    /// The position of its oldest checkpoint, if any.
    pub kept: Option<u64>,
}

/// Counters since the node's start, and everything that hinders its work now.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Number of times it went back because the log had lost entries.
    pub went_back: u64,
    /// Number of times it went back because it was asked to.
    pub resyncs: u64,
    /// Lost entries that it has put back.
    pub put_back: u64,
    /// Entries that it has appended, and their bytes.
    pub entries: u64,
    pub bytes: u64,
    pub troubles: Vec<Standstill>,
}

/// The reason why a node cannot do all of its work, for as long as that lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standstill {
    /// `engine`, `append`, `trim`, `disk`, `checkpoint`, `table`, `lost`, `stuck` or `settings`.
    pub kind: &'static str,
    pub text: String,
    /// Start in ms since 1970, by the machine's clock.
    pub since: u64,
}

impl Told {
    pub(super) fn begins(&mut self, kind: &'static str, text: impl Into<String>) {
        let text = text.into();
        match self.troubles.iter_mut().find(|one| one.kind == kind) {
            Some(known) => known.text = text,
            None => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                self.troubles.push(Standstill { kind, text, since: since.as_millis() as u64 });
            }
        }
    }

    pub(super) fn ends(&mut self, kind: &'static str) {
        self.troubles.retain(|one| one.kind != kind);
    }

    pub(super) fn appended(&mut self, entry: &[u8]) {
        self.entries += 1;
        self.bytes += entry.len() as u64;
    }

    /// Counts the entries that put back lost ones.
    pub(super) fn puts_back(&mut self, entries: &[Vec<u8>]) {
        let is_one = |bytes: &&Vec<u8>| {
            Entry::decode(bytes).is_ok_and(|entry| matches!(entry.body, Body::PutBack(_)))
        };
        self.put_back += entries.iter().filter(is_one).count() as u64;
    }
}

impl<M: Machine, D: Disk, C: Clients> Node<M, D, C> {
    pub fn standing(&self) -> Standing {
        let state = self.replica.state();
        Standing {
            place: self.replica.place(),
            time: state.now,
            serves: self.serves(),
            owes: self.replica.owes(),
            is_awaited: self.replica.is_awaited()
                || !self.answers.is_empty()
                || self.acks.count() > 0,
            unacknowledged: self.acks.count() as u64,
            lacked: self.acks.lacked,
            drains: self.drains,
            at_end: self.at_end,
            is_at_end: self.is_at_end,
            saved: self.saved,
            merged: self.replica.merged(),
            ring: self.replica.ring().memory.count() as u64,
            clients: state.sessions.clients.len() as u64,
            largest: Some(self.largest()),
            untrimmed: self.log.untrimmed(),
            keepers: self.keeping.keepers.clone(),
            cut: self.keeping.cut,
            told: self.told.clone(),
        }
    }

    /// Returns whether nothing will be due within this time: no client waits, nothing is under way,
    /// and no row expires.
    pub fn rests(&self, time: Duration) -> bool {
        let by = (self.read_at.elapsed() + time).as_millis() as u64;
        let due = self.replica.state().machine.as_ref().and_then(M::next_due);
        due.is_none_or(|due| self.replica.deadline(by, 0) < due)
            && self.takes()
            && self.log.under_way().0 == 0
            && self.answers.is_empty()
            && self.acks.count() == 0
            && !self.replica.is_awaited()
            && !self.replica.is_asked()
            && !self.saver.is_busy()
    }

    /// Forgets the history and reads the log anew: from its beginning or, if it was trimmed, from the
    /// oldest of the node's checkpoints that is in it.
    pub fn resync(&mut self) {
        self.tried = 0;
        self.replica.last_is(None);
        let before = self.told.went_back;
        self.go_back();
        // The log has not lost anything.
        self.told.resyncs += self.told.went_back - before;
        self.told.went_back = before;
        self.resynced = Some(0);
    }
}
