//! Leases, backoffs, delays and dead letters that fall due in the model (clause 20).

use interlock_core::queue::types::Time;

use crate::model::{Message, Model, Phase};

/// Most that falls due in one call.
const DUE_PER_CALL: usize = 1_000;

impl Model {
    /// Clause 20: expired leases, then backoffs, then delays, each by due time and id.
    pub(crate) fn apply_due(&mut self) {
        let mut left = DUE_PER_CALL;
        while left > 0 {
            let expired = first_due(&self.placed, self.now, |phase| match phase {
                Phase::Leased { deadline, .. } => deadline,
                _ => None,
            });
            let Some(at) = expired else { break };
            self.counts.leases_expired += 1;
            if std::mem::replace(&mut self.placed[at].suspect, true) {
                self.fail(at, "lease expired", None);
            } else {
                self.come_again(at, 0);
            }
            self.move_on();
            left -= 1;
        }
        while left > 0 {
            let over = first_due(&self.placed, self.now, |phase| match phase {
                Phase::BackingOff { due } => Some(due),
                _ => None,
            });
            let Some(at) = over else { break };
            self.placed[at].phase = Phase::Queued;
            left -= 1;
        }
        while left > 0 {
            let due = first_due(&self.delayed, self.now, |phase| match phase {
                Phase::Delayed { due } => Some(due),
                _ => None,
            });
            let Some(at) = due else { break };
            // Clause 12: its place is behind everything that has one by now.
            let mut message = self.delayed.remove(at);
            message.phase = Phase::Queued;
            message.sequence = self.draw();
            self.take_place(message);
            self.move_on();
            left -= 1;
        }
        if left > 0 {
            self.drop_old_letters(left);
        }
    }

    /// Clause 10: those that were too old at the mark go a grace later.
    fn drop_old_letters(&mut self, mut left: usize) {
        let ttl = self.options.dead_ttl;
        let over = |model: &Model, time: Time| {
            ttl > 0 && model.dead.first().is_some_and(|one| one.died_at + ttl <= time)
        };
        let passed = self.dead_mark.filter(|mark| mark + ttl.min(600_000_000) <= self.now);
        if let Some(mark) = passed {
            while over(self, mark) {
                if left == 0 {
                    return;
                }
                self.dead.remove(0);
                self.counts.dead_expired += 1;
                left -= 1;
            }
        }
        if !over(self, self.now) {
            self.dead_mark = None;
        } else if self.dead_mark.is_none() || passed.is_some() {
            self.dead_mark = Some(self.now);
        }
    }
}

fn first_due(
    messages: &[Message],
    now: Time,
    due: impl Fn(Phase) -> Option<Time>,
) -> Option<usize> {
    (0..messages.len())
        .filter_map(|at| due(messages[at].phase).map(|due| (due, messages[at].id, at)))
        .filter(|(due, _, _)| *due <= now)
        .min()
        .map(|(_, _, at)| at)
}
