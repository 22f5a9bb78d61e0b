//! Repeats the calls of a journal.

use interlock_core::queue::scheduler::Budget;
use interlock_core::queue::types::rules::Rules;
use interlock_core::queue::types::Time;

use crate::queue::declare::Durability;
use crate::queue::shared::Context;
use crate::queue::{Presence, Queue};
use crate::values::args;
use crate::values::args::{Args, Refused};
use crate::wire::functions::Function;
use crate::wire::records::Recorded;
use crate::Engine;

impl Engine {
    /// Repeats a call that a [`Journal`](crate::Journal) recorded, by the rules it was made by.
    pub fn replay<A: Args + ?Sized>(
        &self,
        name: &[u8],
        recorded: Recorded,
        args: &A,
        now: Time,
        rules: &'static Rules,
    ) -> Result<(), Refused> {
        let cell = self.cell(name);
        let mut queue = cell.lock_arc();
        queue.presence = Presence::There;
        let in_force = Rules::last_of(self.rules());
        queue.scheduler.set_rules(rules);
        // With room for most replies, or it would grow in steps.
        let (mut served, mut out) = (Vec::new(), Vec::with_capacity(256));
        let shared = &self.shared;
        let mut cx =
            Context { now, caller: None, served: &mut served, shared, replays: true, payer: None };
        let done = match recorded {
            Recorded::Budget => {
                let part = |i: usize| args::integer(args.get(i)).unwrap_or_default() as u32;
                let Budget { mut moves, mut keys, .. } = Budget::ONE_CALL;
                if args.len() > 2 {
                    (moves, keys) = (part(2), part(3));
                }
                queue.budget = Budget { ready: part(0), steps: part(1), moves, keys };
                queue.scheduler.set_rules(in_force);
                return Ok(());
            }
            Recorded::Tick => {
                queue.scheduler.start(now);
                queue.drop_expired_dead();
                queue.note_cancelled();
                queue.results.forget_old(now, 1000);
                Ok(())
            }
            Recorded::Granted => queue.replay_granted(args, &mut cx),
            Recorded::Parked => queue.replay_parked(args, &mut cx),
            Recorded::Purged => queue.replay_purged(args, &mut cx),
            Recorded::State => queue.replace(args),
            Recorded::Call(Function::Drop) => {
                queue.replay_drop(&mut cx);
                self.let_go(&mut queue, &cell, now, true);
                Ok(())
            }
            Recorded::Forgotten => {
                let fresh = Queue::new(name, Durability::None);
                *queue = Queue { presence: Presence::Dropped, ..fresh.instead_of(&mut queue) };
                self.queues.write().remove(name);
                Ok(())
            }
            Recorded::Call(function) => queue.run(function, args, &mut cx, &mut out).map(drop),
        };
        queue.budget = Budget::ONE_CALL;
        queue.scheduler.set_rules(in_force);
        if queue.is_blank() && !queue.is_dropped() {
            self.let_blank_go(&mut queue, &cell, now, true);
        }
        self.after(&mut queue);
        done
    }
}
