//! A node has the entries that it applies in its ring file before it answers, and reports when it
//! cannot.

use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use interlock_log::apply::Answer;
use interlock_log::machine::Machine;
use interlock_log::ring::{Record, Ring as _};
use interlock_stores::disk::Disk;
use interlock_stores::StoreError;

use super::Node;
use crate::files::Ring;
use crate::ports::{Clients, News};

impl<M: Machine, D: Disk, C: Clients> Node<M, D, C> {
    /// Writes the ring file. A write is confirmed once the applied entries are in it and shown to
    /// readers. If that takes too long, the answer is that the outcome is unknown.
    pub(super) fn write_ring(&mut self, now: Instant) {
        self.take_answers(now);
        match self.written(now) {
            Ok(()) => {
                if self.disk_bad.take().is_some() {
                    self.told.ends("disk");
                }
                self.acks.written();
                if self.behind_since.is_none() {
                    self.answer_with(|answer| answer);
                } else if self.is_behind_too_long(now) {
                    self.answer_with(unconfirmed);
                }
            }
            Err(error) => {
                let text = format!("{error}; writes are not answered until it can");
                if self.disk_bad.is_none() {
                    self.clients.tell(News::Disk(text));
                }
                self.told.begins("disk", error.to_string());
                let since = *self.disk_bad.get_or_insert(now);
                if now >= since + self.pace.timeout {
                    self.answer_unwritten(now);
                }
            }
        }
    }

    /// Notes whether readers of this machine see what was applied, and reports lost entries that
    /// keep them from it for longer than a write may take.
    pub(super) fn watch_readers(&mut self, now: Instant) {
        if !self.projection.is_behind() {
            self.behind_since = None;
            return self.told.ends("lost");
        }
        self.behind_since.get_or_insert(now);
        // A node that is still reading its log is only joining.
        let is_reported = self.told.troubles.iter().any(|one| one.kind == "lost");
        if self.is_behind_too_long(now) && self.serves() && !is_reported {
            self.told.begins("lost", LOST);
            self.clients.tell(News::Lost(LOST.to_owned()));
        }
    }

    fn is_behind_too_long(&self, now: Instant) -> bool {
        self.behind_since.is_some_and(|since| now >= since + self.pace.timeout)
    }

    fn written(&mut self, now: Instant) -> Result<(), StoreError> {
        let is_time = self.disk_bad.is_some() || now >= self.looked_at + LOOKED;
        if is_time {
            self.looked_at = now;
            let looked = self.ring_file().look();
            if looked.is_err() && !self.renewed()? {
                return looked;
            }
        }
        self.ring_file().write()
    }

    /// Rewrites everything if the folder was removed. Returns whether it was.
    fn renewed(&mut self) -> Result<bool, StoreError> {
        if !self.ring_file().renew()? {
            return Ok(false);
        }
        let memory = &self.replica.ring().memory;
        let mut records = Vec::new();
        memory.each(&mut |kept| {
            records.push((kept.position, kept.did.busy, Record::of(kept)));
            true
        });
        let position = self.replica.place().mark.position;
        records.extend(memory.states().into_iter().map(|bytes| {
            let bytes = bytes.to_vec();
            (position, 0, Record::State { position, bytes }.encode())
        }));
        let mut ring = self.ring_file();
        for (position, time, bytes) in records {
            ring.add(position, time, &bytes);
        }
        drop(ring);
        self.saver.checkpoints().are_gone();
        self.keeping.newest = None;
        self.want_checkpoint();
        self.clients.tell(News::Disk("its folder was removed, and is made again".to_owned()));
        Ok(true)
    }

    pub(super) fn ring_file(&self) -> MutexGuard<'_, Ring<D>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers clients that have waited as long as a write may take: the write is done, but may be
    /// lost with this node.
    fn answer_unwritten(&mut self, now: Instant) {
        self.lack_unwritten(now);
        self.answer_with(unconfirmed);
    }

    fn answer_with(&mut self, of: impl Fn(Answer) -> Answer) {
        if !self.answers.is_empty() {
            let answers = std::mem::take(&mut self.answers).into_iter();
            self.clients.answer(answers.map(|(ticket, answer)| (ticket, of(answer))).collect());
        }
    }
}

/// Returns the answer to a write whose effects cannot be confirmed.
fn unconfirmed(answer: Answer) -> Answer {
    match answer {
        Answer::Done { refused: false, .. } => Answer::Unknown,
        _ => answer,
    }
}

/// Time between two checks that the folder exists.
const LOOKED: Duration = Duration::from_secs(1);
/// The reason why a node whose log has lost entries takes no writes.
const LOST: &str = "entries that the log has lost are not back yet: readers see the state from \
                    before the loss, and writes are refused";
