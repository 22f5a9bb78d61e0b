//! The subscribers that a worker reports.

use std::sync::atomic::Ordering::Relaxed;

use super::worker::Worker;
use crate::topics::survey::Survey;

impl Worker {
    /// Tells who of its connections is subscribed, without those whose end is on its way.
    pub(in crate::net::reactor) fn tell(&self, survey: &Survey) {
        let mut known = Vec::new();
        'names: for (index, (kind, name)) in survey.names.iter().enumerate() {
            for &slot in self.local.subscribers.of(*kind, name) {
                if known.len() == survey.most {
                    break 'names;
                }
                let connection = self.slots[slot as usize].connection.as_ref();
                let living = connection.filter(|connection| connection.closing_since.is_none());
                let card = living.map(|connection| &connection.session.state.card);
                known.extend(
                    card.filter(|card| !card.killed.load(Relaxed))
                        .map(|card| (index, card.clone())),
                );
            }
        }
        self.shared.tell_survey(survey, self.local.worker, known);
    }
}
