//! A node keeps checkpoints, reports them in the log, and trims the part of the log that two
//! machines keep. It installs a checkpoint of another node if the log no longer reaches back to its
//! own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use interlock_log::checkpoint::{Checkpoint, Place};
use interlock_log::machine::Machine;
use interlock_log::replica::{Need, Raws};
use interlock_log::ring::Record;
use interlock_stores::disk::Disk;

use super::places::{newer, older, position};
use super::{KeeperTold, Node, ReadingFor};
use crate::files::{Checkpoints, Kept, Point, Report};
use crate::log::{self, Id, Position};
use crate::ports::{Clients, News, Unacknowledged};
use crate::trouble::Trouble;

/// A node's knowledge of checkpoints, its own and those of others.
pub(super) struct Keeping {
    /// Bytes of all entries up to the last applied one; `begun`: up to the newest checkpoint.
    pub(super) bytes: u64,
    begun: u64,
    ended: Option<Instant>,
    /// Another node needs a checkpoint, and this node has none.
    is_wanted: bool,
    /// A checkpoint could not be written: when to retry.
    again: Option<Instant>,
    /// The places looked up in the log, and when.
    asked: Option<(Instant, Vec<Place>)>,
    next: Instant,
    /// Places before which the log could be trimmed, oldest first.
    cuts: Vec<Place>,
    /// The place before which it was last trimmed.
    trimmed: Option<Id>,
    /// The position before which the log may be trimmed, as of the last lookup.
    pub(super) cut: Option<u64>,
    /// The nodes that the log knows, as of the last lookup.
    pub(super) keepers: Arc<[KeeperTold]>,
    /// The newest checkpoint that is in the log.
    pub(super) newest: Option<(u64, Point)>,
}

impl Keeping {
    pub(super) fn new(bytes: u64) -> Keeping {
        let (ended, asked, trimmed, cut, newest) = Default::default();
        let keepers = Arc::default();
        let (cuts, next) = (Vec::new(), Instant::now());
        Keeping {
            bytes,
            begun: bytes,
            ended,
            is_wanted: false,
            again: None,
            asked,
            next,
            cuts,
            trimmed,
            cut,
            keepers,
            newest,
        }
    }

    /// Forgets everything about a history that is no longer the log's.
    pub(super) fn go_back(&mut self, bytes: u64) {
        *self = Keeping { is_wanted: self.is_wanted, again: self.again, ..Keeping::new(bytes) };
    }

    /// Returns the place before which to trim so that `keep` entries before `cut` stay: this `cut`
    /// or one that an earlier call was given.
    fn behind(&mut self, cut: Place, keep: u64) -> Option<Place> {
        if self.cuts.last().is_none_or(|last| last.mark.position < cut.mark.position) {
            self.cuts.push(cut);
        }
        let far = |place: &&Place| place.mark.position.saturating_add(keep) <= cut.mark.position;
        let found = self.cuts.iter().rposition(|place| far(&place))?;
        self.cuts.drain(..found);
        if self.cuts.len() > MOST_CUTS {
            let mut index = 0;
            self.cuts.retain(|_| (index % 2 == 0, index += 1).0);
        }
        Some(self.cuts[0])
    }
}

impl<M: Machine, D: Disk, C: Clients> Node<M, D, C> {
    /// Writes a checkpoint when one is due.
    pub(super) fn save(&mut self, now: Instant) {
        match self.saver.done() {
            Some(Ok(position)) => {
                self.saved = position;
                self.told.ends("checkpoint");
                self.replica.saved(position);
                (self.keeping.ended, self.keeping.next) = (Some(now), now);
                self.keeping.is_wanted = false;
            }
            Some(Err(text)) => {
                self.keeping.ended = Some(now);
                self.unsaved(text, now);
            }
            None => {}
        }
        let place = self.replica.place();
        let keeping = &mut self.keeping;
        let is_due = place.mark.position >= self.begun + self.pace.checkpoint
            || keeping.bytes >= keeping.begun + self.pace.checkpoint_bytes;
        // A large state is not written all the time.
        let rests = keeping.ended.is_some_and(|ended| now < ended + SELDOM * self.saver.took);
        // After a failed write the next attempt comes after a pause, but soon enough even if few
        // entries arrive.
        let is_due = match keeping.again {
            Some(again) => now >= again,
            None => (is_due && !rests) || keeping.is_wanted,
        };
        if !is_due || self.saver.is_busy() || self.is_reading_for != ReadingFor::State {
            return;
        }
        let Some(later) = self.replica.checkpoint_later() else { return };
        self.begun = place.mark.position;
        (keeping.begun, keeping.again) = (keeping.bytes, None);
        let point = Point { place, time: self.replica.state().now, bytes: keeping.bytes };
        let unsynced = self.ring_file().unsynced();
        if let Err(text) = self.saver.begin(point, later, unsynced) {
            self.unsaved(text, now);
        }
    }

    /// Reports that a checkpoint could not be written.
    fn unsaved(&mut self, text: String, now: Instant) {
        self.keeping.again = Some(now + UNSAVED.max(SELDOM * self.saver.took));
        let known = self.told.troubles.iter().any(|one| one.kind == "checkpoint");
        self.told.begins("checkpoint", text.clone());
        if !known {
            self.clients.tell(News::Disk(text));
        }
    }

    /// Asks which checkpoints are in the log: its own, and those that other nodes report.
    pub(super) fn keep(&mut self, now: Instant) {
        let waits = self.keeping.asked.as_ref().is_some_and(|(since, _)| now < *since + LOST);
        let is_settled = self.replica.serves() && !self.replica.owes() && !self.is_other;
        if now < self.keeping.next || waits || !is_settled || self.saver.is_busy() {
            return;
        }
        self.keeping.next = now + LOOKED;
        self.keeping.keepers = self.keepers();
        let keepers = self.replica.state().keepers.iter();
        let mut places: Vec<Place> = keepers.filter_map(|(_, keeper)| keeper.kept).collect();
        places.extend(self.saver.checkpoints().kept().map(|(_, point)| point.place));
        places.extend(&self.keeping.cuts);
        places.sort_unstable_by_key(|place| (place.id, place.entry));
        places.dedup();
        let positions: Vec<Position> = places.iter().copied().filter_map(position).collect();
        places.retain(|place| place.id.is_some());
        if self.log.look(&positions) {
            self.keeping.asked = Some((now, places));
        }
    }

    fn keepers(&self) -> Arc<[KeeperTold]> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let keepers = self.replica.state().keepers.iter().filter(|(_, keeper)| !keeper.is_gone);
        let told = keepers.map(|(node, keeper)| KeeperTold {
            node: text(node),
            machine: text(&keeper.machine),
            kept: keeper.kept.map(|place| place.mark.position),
        });
        told.collect()
    }

    /// Reports the checkpoints that it keeps, and trims the log.
    pub(super) fn looked(&mut self, there: &[bool]) {
        let Some((_, places)) = self.keeping.asked.take() else { return };
        if there.len() != places.len() || self.saver.is_busy() {
            return;
        }
        let is_there = |place: &Place| {
            places.iter().zip(there).any(|(one, is_there)| *is_there && one == place)
        };
        let mut checkpoints = self.saver.checkpoints();
        checkpoints.are_lost(|point| !is_there(&point.place));
        let kept: Vec<_> = checkpoints.kept().filter(|(_, it)| is_there(&it.place)).collect();
        drop(checkpoints);
        self.keeping.newest = kept.last().copied();
        if !self.waiting.is_empty() {
            return;
        }
        let oldest = kept.first().map(|(_, point)| point.place);
        self.waiting.extend(self.replica.reports(oldest));
        if self.log.untrimmed().is_some() {
            return;
        }
        let mut rests_on = self.replica.cut(is_there);
        self.keeping.cut = rests_on.last().map(|place| place.mark.position);
        let Some(cut) = rests_on.last().copied() else { return };
        let Some(before) = self.keeping.behind(cut, self.pace.keep) else { return };
        let to = position(before).map(|position| position.id);
        if to > self.keeping.trimmed && is_there(&before) {
            rests_on.push(before);
            let rests_on: Vec<Position> = rests_on.into_iter().filter_map(position).collect();
            if self.log.trim_before(&rests_on) {
                self.keeping.trimmed = to;
            }
        }
    }

    pub(super) fn trimmed(&mut self, done: Result<u64, Trouble>) {
        match done {
            Ok(_) => self.told.ends("trim"),
            Err(trouble) => {
                (self.keeping.asked, self.keeping.trimmed) = Default::default();
                self.keeping.next = Instant::now() + LATER;
                self.told.begins("trim", trouble.text.clone());
                self.clients.tell(News::Trouble(trouble));
            }
        }
    }

    /// Returns the file of the newest checkpoint that is in the log, for another node.
    pub fn newest(&self) -> Option<(String, Place)> {
        let newest = self.keeping.newest;
        newest.map(|(number, point)| (Checkpoints::<D>::path(number), point.place))
    }

    /// Requests a checkpoint now unless one is in the log.
    pub fn want_checkpoint(&mut self) {
        self.keeping.is_wanted |= self.keeping.newest.is_none();
    }

    /// Installs another node's checkpoint from a file in this node's folder, if the node needs one.
    pub fn install(&mut self, path: &str) {
        if !self.needs_snapshot() {
            return;
        }
        let adopted = self.saver.checkpoints().adopt(path);
        let found = adopted.and_then(|saved| match Checkpoint::decode(&saved.bytes) {
            Ok(found) => Ok((saved, found)),
            Err(_) => {
                let _ = self.saver.checkpoints().remove(saved.number);
                Err("the received checkpoint was written by another version of the program"
                    .to_owned())
            }
        });
        match found {
            Ok((saved, found)) => {
                self.tried = saved.number;
                self.go_on(Some(found), saved.point.bytes);
            }
            Err(text) => self.clients.tell(News::NotInstalled(text)),
        }
    }

    /// Returns whether it can continue only from a checkpoint of another node.
    pub fn needs_snapshot(&self) -> bool {
        matches!(self.replica.need(), Need::Snapshot)
    }

    /// Continues on its own if its ring has the entries between one of its checkpoints and the
    /// log's first entry.
    pub(super) fn continue_from(&mut self, first: &log::Entry) {
        if !self.needs_snapshot() {
            return;
        }
        let (mut raws, mut reports, mut before) = (Raws::default(), Vec::new(), u64::MAX);
        let see = |one: Kept| {
            if let Ok(Record::Read(raw, _)) = Record::decode(&one.bytes) {
                raws.add(raw);
            }
        };
        let read = self.ring_file().each(see);
        if let Err(error) = read {
            self.clients.tell(News::Disk(error.to_string()));
        }
        let first = ((first.id.ms, first.id.number), &first.bytes[..]);
        loop {
            let found = older::<M, D>(&self.saver.checkpoints(), before, &mut reports);
            let Ok(Some((number, point, checkpoint))) = found else { return };
            if self.replica.continue_from(checkpoint, &raws, first) {
                self.tried = number;
                self.clients.tell(News::GoesOn(self.replica.place().mark.position));
                return self.reads_on(point.bytes);
            }
            before = number;
        }
    }

    /// After a resync, continues from its oldest checkpoint that was not tried: the log lacks what
    /// comes before. Otherwise nodes that are resynced at the same time would wait for one another.
    pub(super) fn continue_from_oldest(&mut self) -> bool {
        let Some(after) = self.resynced.take() else { return false };
        let mut reports = Vec::new();
        let found = newer::<M, D>(&self.saver.checkpoints(), after, &mut reports);
        for Report { path, text } in reports {
            self.clients.tell(News::Disk(format!("{path}: {text}")));
        }
        let found = found.unwrap_or_else(|error| {
            self.clients.tell(News::Disk(error.to_string()));
            None
        });
        let Some((number, point, found)) = found else { return false };
        (self.tried, self.resynced) = (number, Some(number));
        self.go_on(Some(found), point.bytes);
        true
    }

    /// Continues from a checkpoint, its own or another node's.
    pub(super) fn go_on(&mut self, found: Option<Checkpoint<M>>, bytes: u64) {
        // `true` assumes that the log still has its beginning; reading it shows whether that holds.
        self.replica.go_back(found, true);
        self.reads_on(bytes);
    }

    fn reads_on(&mut self, bytes: u64) {
        self.keeping.go_back(bytes);
        self.told.ends("stuck");
        let place = self.replica.place();
        self.waiting.clear();
        self.outside.lose();
        self.lack_all(Unacknowledged::Lost);
        (self.is_greeted, self.knows_time, self.is_genesis_under_way) = Default::default();
        self.saved = place.mark.position;
        self.begun = self.saved;
        self.again = Some(Instant::now());
        self.is_reading_for = ReadingFor::State;
        self.log.read_from(position(place));
    }
}

/// Time between two lookups of the checkpoints in the log.
const LOOKED: Duration = Duration::from_secs(1);
/// Time after which a trim that the engine refused is retried.
const LATER: Duration = Duration::from_secs(10);
/// Minimum time after which a failed checkpoint is retried.
const UNSAVED: Duration = Duration::from_secs(2);
/// Time after which a lookup without an answer is considered lost.
const LOST: Duration = Duration::from_secs(30);
/// Pause between two checkpoints, in multiples of the time that one takes.
const SELDOM: u32 = 10;
/// Maximum places remembered to which the log could be trimmed.
const MOST_CUTS: usize = 64;
