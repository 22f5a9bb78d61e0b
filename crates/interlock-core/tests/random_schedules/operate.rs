//! The model's operators: cancel, revoke, what is held, dead letters, pauses.

use interlock_core::queue::schedules::trace::Answer;
use interlock_core::queue::types::RevokeThen;

use crate::behind::Parking;
use crate::model::{leased, Model, Phase};

impl Model {
    /// Clause 23; nothing is remembered of it (clause 13).
    pub(crate) fn cancel(&mut self, id: u64) -> bool {
        if let Some(at) = self.delayed.iter().position(|message| message.id == id) {
            self.delayed.remove(at);
        } else if let Some(at) = self.parked.iter().position(|message| message.id == id) {
            self.parked.remove(at);
        } else if let Some(at) = self.find(id, |phase| !leased(phase)) {
            self.placed.remove(at);
        } else {
            return false;
        }
        self.counts.cancelled += 1;
        true
    }

    /// Clause 15: what is not leased, ids rising.
    pub(crate) fn cancel_all(&mut self) -> Vec<u64> {
        let unleased = self.unsettled().filter(|message| !leased(message.phase));
        let mut ids: Vec<u64> = unleased.map(|message| message.id).collect();
        ids.sort_unstable();
        for id in &ids {
            assert!(self.cancel(*id), "what is not leased can be cancelled");
        }
        ids
    }

    /// Clause 24.
    pub(crate) fn revoke(&mut self, id: u64, then: RevokeThen) -> bool {
        let Some(at) = self.find(id, leased) else {
            return false;
        };
        self.counts.revoked += 1;
        self.placed[at].error = "revoked".into();
        match then {
            RevokeThen::Retry => self.fail(at, "revoked", None),
            RevokeThen::Hold => self.hold(at),
            RevokeThen::Dead => self.bury_or_hold(at),
            RevokeThen::Skip => {
                self.counts.skipped += 1;
                self.settle(at);
            }
        }
        true
    }

    /// Clause 10, the operator's `retry`: a failure that backs off has its attempt raised already.
    pub(crate) fn retry(&mut self, id: u64) -> bool {
        let Some(at) = self.find(id, stuck) else {
            return false;
        };
        if self.placed[at].phase == Phase::Held {
            self.placed[at].attempt += 1;
        }
        self.placed[at].phase = Phase::Queued;
        self.placed[at].parking.dying = false;
        true
    }

    pub(crate) fn skip(&mut self, id: u64) -> bool {
        let Some(at) = self.find(id, stuck) else {
            return false;
        };
        self.counts.skipped += 1;
        self.settle(at);
        true
    }

    pub(crate) fn bury(&mut self, id: u64) -> bool {
        let Some(at) = self.find(id, stuck) else {
            return false;
        };
        if self.dead_letters_full() || self.placed[at].parking.dying {
            return false;
        }
        self.bury_or_hold(at);
        true
    }

    /// Clause 10: a new message, free of clause 13.
    pub(crate) fn requeue(&mut self, id: u64) -> Answer {
        let Some(at) = self.dead.iter().position(|message| message.id == id) else {
            return Answer::Id(None);
        };
        let size = self.dead[at].size;
        if self.parks_too_much_again(&self.dead[at]) {
            return Answer::Stuck;
        }
        if !self.finds_room(1, size) {
            return Answer::Full;
        }
        self.counts.puts += 1;
        self.counts.requeued += 1;
        let mut message = self.dead.remove(at);
        message.id = self.draw();
        message.dedup = None;
        message.put_at = self.now;
        message.attempt = 1;
        message.suspect = false;
        message.error.clear();
        message.phase = Phase::Queued;
        message.parking = Parking::new(message.parking.own);
        message.sequence = message.id;
        let id = message.id;
        self.enter_ring(&message);
        self.take_place(message);
        Answer::Id(Some(id))
    }

    pub(crate) fn discard(&mut self, id: u64) -> bool {
        let before = self.dead.len();
        self.dead.retain(|message| message.id != id);
        self.dead.len() < before
    }

    /// Clause 22; a pause remains when its key has no messages.
    pub(crate) fn pause(&mut self, key: Option<&[u8]>) -> bool {
        let Some(name) = key else {
            return !std::mem::replace(&mut self.paused, true);
        };
        let key = self.key(name);
        let changed = !self.paused_keys.contains(&key);
        if changed {
            self.paused_keys.push(key);
            self.release_keepers(key);
            self.sweep(key);
        }
        changed
    }

    pub(crate) fn resume(&mut self, key: Option<&[u8]>) -> bool {
        let Some(name) = key else {
            return std::mem::replace(&mut self.paused, false);
        };
        let key = self.key(name);
        for message in self.placed.iter_mut().filter(|message| message.set_aside == Some(key)) {
            message.set_aside = None;
        }
        let before = self.paused_keys.len();
        self.paused_keys.retain(|paused| *paused != key);
        self.paused_keys.len() < before
    }
}

/// Returns whether an operator's `retry`, `skip` and `bury` reach a message in this phase.
fn stuck(phase: Phase) -> bool {
    matches!(phase, Phase::Held | Phase::BackingOff { .. })
}
