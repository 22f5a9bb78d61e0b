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
    /// Writes the ring file. No client is answered before the applied entries are in it and shown
    /// to readers, or that has taken too long.
    pub(super) fn write_ring(&mut self, now: Instant) {
        self.take_answers(now);
        match self.written(now) {
            Ok(()) => {
                if self.disk_bad.take().is_some() {
                    self.told.ends("disk");
                }
                self.acks.written();
                if !self.answers.is_empty() && self.is_shown(now) {
                    self.clients.answer(std::mem::take(&mut self.answers));
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

    /// Returns whether readers of this machine see what was applied, or have not for as long as a
    /// write may take.
    pub(super) fn is_shown(&mut self, now: Instant) -> bool {
        if !self.projection.is_behind() {
            self.unshown_since = None;
            return true;
        }
        now >= *self.unshown_since.get_or_insert(now) + self.pace.timeout
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
        if self.answers.is_empty() {
            return;
        }
        let unknown = |(ticket, answer)| match answer {
            Answer::Done { refused: false, .. } => (ticket, Answer::Unknown),
            _ => (ticket, answer),
        };
        let answers = std::mem::take(&mut self.answers);
        self.clients.answer(answers.into_iter().map(unknown).collect());
    }
}

/// Time between two checks that the folder exists.
const LOOKED: Duration = Duration::from_secs(1);
