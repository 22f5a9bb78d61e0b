//! Parked puts, which are tried again in their turn when there is room (clause 11).

use interlock_core::queue::scheduler::NoRoom;
use interlock_core::queue::waiting::room::{Load, Need};

use super::serve::{answer, answer_error};
use super::{Waiter, WaitingPut, Want};
use crate::calls::put;
use crate::calls::put::No;
use crate::queue::shared::Context;
use crate::queue::Queue;
use crate::values::args::{Reader, Refused};
use crate::wire::codes::Code;
use crate::wire::functions::Function;

impl Queue {
    /// Returns whether a put must leave room to the first who waits; `place`: its own, if it waits.
    pub fn keeps_room(&mut self, place: Option<u64>) -> bool {
        let Queue { waiting, scheduler, .. } = self;
        let now = scheduler.last_time();
        let load = |need: Need| -> Load { scheduler.load(need) };
        !waiting.room.is_empty() && waiting.room.keeps_from(place, now, load)
    }

    /// A put entered, and `takes` room.
    pub fn took_room(&mut self, takes: bool, place: Option<u64>) {
        if takes && !self.waiting.room.is_empty() {
            self.waiting.room.passed_by(place, self.scheduler.last_time());
        }
    }

    /// Answers those for whom there is room, in the order in which they came.
    pub fn serve_puts(&mut self, cx: &mut Context<'_>) {
        self.serve_eased(cx);
        // A put that enters leaves less room, so all puts behind it are checked again.
        let mut served = true;
        while std::mem::take(&mut served) {
            let mut from = 0;
            while let Some(order) = self.next_for_room(from) {
                served |= self.put_again(order, false, cx);
                from = order + 1;
            }
            self.serve_eased(cx);
        }
    }

    /// Tries those that may need less than they did.
    fn serve_eased(&mut self, cx: &mut Context<'_>) {
        self.waiting.ease_coalescing(self.scheduler.names());
        while let Some(order) = self.waiting.eased.pop_first() {
            self.put_again(order, false, cx);
        }
    }

    /// The first from a place on who would be answered now.
    fn next_for_room(&mut self, from: u64) -> Option<u64> {
        let keeps = self.keeps_room(None);
        let (scheduler, sealed) = (&self.scheduler, self.sealed);
        // A bound may have become lower than what somebody waits for: that is refused at once.
        let answered =
            move |need: Need| sealed || scheduler.room(need.count, need.size) != Err(NoRoom::Full);
        self.waiting.room.fitting(from, keeps && !sealed, answered).next()
    }

    /// Tries the put of a waiter again; whether that was answered, which it is in the end.
    pub fn put_again(&mut self, order: u64, ends: bool, cx: &mut Context<'_>) -> bool {
        let kept = self.keeps_room(Some(order));
        let Some(mut waiter) = self.waiting.remove(order) else { return false };
        let Waiter { want: Want::Room(waiting), consumer, call, ticket, payer, .. } = &mut waiter
        else {
            unreachable!("it is in that line")
        };
        let WaitingPut { args, need, eases } = waiting;
        let mut from = Reader::new("put", &args[..]);
        from.at = 3;
        let Ok(messages) = put::read(&mut from) else { unreachable!("it was read before") };
        let mut out = Vec::new();
        // There was room for it on the disk when it came.
        let put = match cx.accepts(self, &args[..]) {
            Ok(()) => self.put(&messages, kept, payer.as_deref(), cx, &mut out),
            Err(why) => Err(No::Full(Refused::new(Code::CannotStore, "put", why))),
        };
        match put {
            Ok(takes) => {
                drop(messages);
                self.took_room(takes, Some(order));
                if *call > 0 {
                    let number = self.consumer(consumer);
                    self.consumers.keep(number, *call, Function::Put, cx.now, &out);
                }
                cx.record_call(self, Function::Put, &args[..]);
                answer(cx, *ticket, out);
            }
            Err(No::Refused(refused)) => answer_error(cx, *ticket, &refused),
            Err(No::Full(refused)) if ends => answer_error(cx, *ticket, &refused),
            Err(No::Full(_)) => {
                (*need, *eases) = messages.need(self);
                drop(messages);
                self.waiting.insert(order, waiter);
                return false;
            }
        }
        true
    }
}
