//! PUBSUB CLIENTS: who is subscribed to what, asked of all workers.
//!
//! Which connections are subscribed is known to their worker only. Each is sent the same survey, adds
//! what it knows, and the last one wakes who asked.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::access::registry::Card;
use crate::topics::directory::{Name, SubscriptionKind};

pub struct Survey {
    pub names: Vec<(SubscriptionKind, Name)>,
    /// Subscriptions that are wanted at most, and that one worker tells at most.
    pub most: usize,
    /// Subscriptions there were when the names were gathered, of these names and of those left out.
    pub total: u64,
    pub asker: Arc<Card>,
    /// Index of a name, and who is subscribed to it.
    found: Mutex<Vec<(usize, Arc<Card>)>>,
    /// A bit for each worker that has not told yet.
    left: AtomicU64,
}

/// The surveys under way: a worker that breaks tells nothing any more.
#[derive(Default)]
pub struct Surveys(Mutex<Vec<Weak<Survey>>>);

impl Survey {
    pub fn new(
        names: Vec<(SubscriptionKind, Name)>,
        most: usize,
        total: u64,
        asker: Arc<Card>,
        workers: usize,
    ) -> Self {
        let left = AtomicU64::new(u64::MAX >> (64 - workers));
        Survey { names, most, total, asker, found: Mutex::default(), left }
    }

    /// Returns whether all workers have told.
    pub fn is_done(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// Adds what a worker knows. Returns whether it was the last one: who asked is to be woken.
    #[must_use]
    pub fn tell(&self, worker: usize, mut known: Vec<(usize, Arc<Card>)>) -> bool {
        self.found.lock().append(&mut known);
        let bit = 1 << worker;
        // Release: who finds that all have told also finds what they told.
        self.left.fetch_and(!bit, Ordering::AcqRel) == bit
    }

    fn has_told(&self, worker: usize) -> bool {
        self.left.load(Ordering::Acquire) >> worker & 1 == 0
    }

    /// Removes and returns the reports, sorted by name and then by age of the connection.
    pub fn take(&self) -> Vec<(usize, Arc<Card>)> {
        let mut found = std::mem::take(&mut *self.found.lock());
        found.sort_unstable_by_key(|(name, card)| (*name, card.id));
        found.truncate(self.most);
        found
    }
}

impl fmt::Debug for Survey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Survey").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Surveys {
    /// Registers a survey before the workers are asked, so that `broke` reports a worker that fails
    /// from now on.
    pub fn begin(&self, survey: &Arc<Survey>) {
        let mut under_way = self.0.lock();
        under_way.retain(|survey| survey.strong_count() > 0);
        under_way.push(Arc::downgrade(survey));
    }

    /// This worker will tell nothing. Returns those that wait for no other.
    #[must_use]
    pub fn broke(&self, worker: usize) -> Vec<Arc<Survey>> {
        let mut under_way: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        under_way.retain(|survey| !survey.has_told(worker) && survey.tell(worker, Vec::new()));
        under_way
    }
}

#[cfg(test)]
mod tests {
    use crate::shared::events::Answer;
    use crate::shared::mailbox::{Mail, Mailbox};
    use crate::shared::settings::Settings;
    use crate::shared::Shared;
    use crate::topics::survey::*;

    #[test]
    fn a_survey_ends_even_if_workers_die_before_or_during_it() {
        let mailboxes = (0..4).map(|_| Mailbox::new().unwrap()).collect();
        let shared = Shared::new(Settings::default(), mailboxes, 0).unwrap();
        let card = |id| Arc::new(Card::new(id, 0, id, 0));
        let name = || (SubscriptionKind::Topic, Name::from(&b"a"[..]));
        let survey = Arc::new(Survey::new(vec![name(), name()], 2, 3, card(9), 4));
        shared.worker_broke(3, "before");
        shared.begin_survey(&survey);
        for worker in 0..3 {
            assert!(matches!(shared.mailboxes[worker].take()[..], [Mail::Survey(_)]), "{worker}");
        }
        assert!(shared.mailboxes[3].take().is_empty());
        shared.tell_survey(&survey, 1, vec![(1, card(1)), (0, card(3)), (0, card(2))]);
        shared.worker_broke(1, "behind its answer");
        shared.worker_broke(2, "instead of it");
        assert!(!survey.is_done());
        assert!(shared.mailboxes[0].take().is_empty());
        shared.tell_survey(&survey, 0, Vec::new());
        assert!(survey.is_done());
        assert!(matches!(shared.mailboxes[0].take()[..], [Mail::Answer(9, Answer::Turn)]));
        let found: Vec<_> = survey.take().iter().map(|(name, card)| (*name, card.id)).collect();
        assert_eq!(found, [(0, 2), (0, 3)]);
    }
}
