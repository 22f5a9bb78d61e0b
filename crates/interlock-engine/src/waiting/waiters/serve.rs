//! Answers parked calls when they can be served or their wait ends.

use interlock_core::queue::types::{Kind, Time};

use super::{Served, Waiter, Want};
use crate::calls::lease::Wanted;
use crate::calls::settles;
use crate::queue::shared::Context;
use crate::queue::Queue;
use crate::values::args::Refused;
use crate::values::reply;

impl Queue {
    /// Answers those who wait and can be answered, in the order in which they came.
    pub fn serve(&mut self, cx: &mut Context<'_>) {
        self.restless = false;
        if self.waiting.wait_for_ends() {
            self.serve_ends(cx);
        }
        if self.scheduler.unsettled() == 0 {
            while let Some(order) = self.waiting.first_for_all() {
                self.end_wait(order, cx);
            }
        }
        if self.waiting.wait_for_room() {
            self.serve_puts(cx);
        }
        self.serve_leases(cx);
        if self.is_over() {
            while let Some(order) = self.waiting.first(|_| true) {
                self.end_wait(order, cx);
            }
        }
    }

    fn serve_leases(&mut self, cx: &mut Context<'_>) {
        let mut dry = [false; 3];
        let kinds = [Kind::Any, Kind::Keyed, Kind::Unkeyed];
        loop {
            let scheduler = &self.scheduler;
            let some = |line: usize| !dry[line] && scheduler.ready(kinds[line]) > 0;
            let Some(order) = self.waiting.first(some) else { return };
            let waiter = self.waiting.get(order).expect("it waits");
            let Want::Lease(mut wanted, _) = waiter.want else {
                unreachable!("it is in that line")
            };
            let name = waiter.consumer.clone();
            let number = self.consumer(&name);
            let mut out = Vec::new();
            let waiter = self.waiting.remove(order).expect("it waits");
            let Want::Lease(_, settled) = &waiter.want else { unreachable!("as just seen") };
            if self.grant(&mut wanted, number, settled.as_deref(), &mut out) {
                self.answer_lease(&waiter, wanted, false, out, cx);
            } else {
                // The ready messages are paused, as far as one call looks; if that is not all, the
                // next continues.
                dry[super::line_of(wanted.kind)] = true;
                self.restless |= self.scheduler.ready(wanted.kind) > 0;
                self.record_set_aside(waiter.function, &waiter.consumer, wanted, cx);
                self.waiting.insert(order, waiter);
            }
        }
    }

    fn answer_lease(
        &mut self,
        waiter: &Waiter,
        wanted: Wanted,
        nothing: bool,
        out: Vec<u8>,
        cx: &mut Context<'_>,
    ) {
        let Waiter { function, consumer, call, ticket, .. } = waiter;
        if *call > 0 {
            let number = self.consumer(consumer);
            match nothing {
                true => self.consumers.keep_light(number, *call, *function, cx.now, &out),
                false => self.consumers.keep(number, *call, *function, cx.now, &out),
            }
        }
        self.record_grant(*function, consumer, *call, wanted, cx);
        answer(cx, *ticket, out);
    }

    /// Applies what is due, and answers whom that concerns and whose wait is over.
    pub fn tick(&mut self, cx: &mut Context<'_>) {
        self.begin(cx);
        self.serve(cx);
        while let Some(order) = self.waiting.over(self.scheduler.last_time().max(cx.now)) {
            self.end_wait(order, cx);
        }
        // The first in line for room may have left.
        self.serve(cx);
    }

    /// A wait is over without what was waited for.
    pub fn end_wait(&mut self, order: u64, cx: &mut Context<'_>) {
        if self.waiting.get(order).is_some_and(|waiter| matches!(waiter.want, Want::Room(_))) {
            self.put_again(order, true, cx);
            return;
        }
        let Some(waiter) = self.waiting.remove(order) else { return };
        let mut out = Vec::new();
        match &waiter.want {
            Want::Lease(wanted, settled) => {
                self.nothing(wanted.kind, settled.as_deref(), &mut out);
                if waiter.call > 0 {
                    let nothing = !settles(settled.as_deref());
                    let wanted = *wanted;
                    return self.answer_lease(&waiter, wanted, nothing, out, cx);
                }
            }
            Want::Room(_) => unreachable!("as just seen"),
            Want::Result(id) => self.tell_result(*id, cx.now, &mut out),
            Want::Join(id) => self.tell_join(*id, &mut out),
        }
        answer(cx, waiter.ticket, out);
    }

    fn serve_ends(&mut self, cx: &mut Context<'_>) {
        let ended: Vec<u64> = self.scheduler.ended().collect();
        for id in ended {
            for order in self.waiting.of_end(id) {
                self.end_wait(order, cx);
            }
        }
        if !self.waiting.wait_for_ends() {
            self.scheduler.note_ended(false);
        }
    }
}

pub fn answer(cx: &mut Context<'_>, ticket: u64, reply: Vec<u8>) {
    cx.served.push(Served { ticket, reply });
}

pub fn answer_error(cx: &mut Context<'_>, ticket: u64, refused: &Refused) {
    let mut reply = Vec::new();
    reply::error(&mut reply, &refused.0);
    answer(cx, ticket, reply);
}

/// The time at which a queue next asks to be ticked.
pub fn alarm_of(queue: &Queue) -> Time {
    match queue.waiting.first_until() {
        None => Time::MAX,
        Some(_) if queue.restless => 0,
        Some(until) => {
            let due = queue.next_due().into_iter().chain(queue.waiting.room.due());
            until.min(due.min().unwrap_or(Time::MAX))
        }
    }
}
