//! The numbered calls `il1_put`, `il1_lease`, `il1_settle` and `il1_next`: how repeated calls are answered,
//! and what the journal records of a call.

mod carry;
mod explain;
pub(super) mod lease;
mod limits;
mod operate;
pub(super) mod put;
pub(super) mod read;
mod replay;
mod requeue;
mod roots;
pub(super) mod settle;

use interlock_core::queue::scheduler::Budget;
use interlock_core::queue::types::Kind;

use crate::calls::lease::Wanted;
use crate::calls::put::No;
use crate::calls::settle::{Answer, Settlement};
use crate::queue::consumers::Known;
use crate::queue::shared::Context;
use crate::queue::Queue;
use crate::values::args;
use crate::values::args::{refuse, Args, Read, Reader, Refused};
use crate::values::reply;
use crate::waiting::waiters::serve::answer_error;
use crate::waiting::waiters::{Waiter, WaitingPut, Want};
use crate::wire::codes::Code;
use crate::wire::functions::Function;
use crate::wire::limits::*;
use crate::wire::records::Recorded;
use crate::Outcome;

/// The consumer that calls, and the way it calls.
struct Caller<'a> {
    function: Function,
    consumer: &'a [u8],
    call: u64,
    wait: u64,
    /// Position among the parked calls, if this call was parked before and is now repeated.
    place: Option<u64>,
}

/// The outcome for a call that may be a repeat.
enum Repeat<'a> {
    Answered,
    Goes(Caller<'a>, Option<Vec<Answer>>),
}

impl Queue {
    pub fn numbered<A: Args + ?Sized>(
        &mut self,
        function: Function,
        args: &A,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Read<Outcome> {
        let mut from = Reader::new(function.name(), args);
        let (consumer, call) = from.caller()?;
        let wait = match function {
            Function::Settle => 0,
            _ => from.natural(0, MAX_SPAN, || "wait".into())?,
        };
        let caller = Caller { function, consumer, call, wait, place: None };
        match function {
            Function::Put => {
                let messages = put::read(&mut from)?;
                self.put_call(caller, &messages, args, cx, out)
            }
            Function::Lease => {
                let wanted = self.wanted(&mut from, cx)?;
                from.end()?;
                let Repeat::Goes(caller, _) = self.repeated(caller, cx, out)? else {
                    return Ok(Outcome::Done);
                };
                self.begin(cx);
                Ok(self.lease_call(caller, wanted, None, cx, out))
            }
            Function::Settle => {
                let list = settle::read(&mut from)?;
                if list.is_empty() {
                    return from.bad(|| "settlements".into(), "are missing");
                }
                self.settle_call(caller, &list, args, cx, out)
            }
            _ => {
                let wanted = self.wanted(&mut from, cx)?;
                let list = settle::read(&mut from)?;
                self.next_call(caller, wanted, &list, args, cx, out)
            }
        }
    }

    fn put_call<A: Args + ?Sized>(
        &mut self,
        caller: Caller<'_>,
        messages: &put::Messages<'_>,
        args: &A,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Read<Outcome> {
        let Repeat::Goes(caller, _) = self.repeated(caller, cx, out)? else {
            return Ok(Outcome::Done);
        };
        self.begin(cx);
        let from = out.len();
        let waits = caller.wait > 0 && cx.caller.is_some();
        let kept = self.keeps_room(caller.place);
        let payer = cx.payer.map(|payer| &**payer);
        match self.put(messages, kept, payer, cx, out) {
            Ok(takes) => {
                self.took_room(takes, caller.place);
                self.keep(&caller, cx, &out[from..]);
                cx.record_call(self, Function::Put, args);
                Ok(Outcome::Done)
            }
            Err(No::Refused(refused)) => Err(refused),
            Err(No::Full(_)) if waits => {
                let bytes: u64 = (0..args.len()).map(|i| args.get(i).len() as u64 + 16).sum();
                if bytes > cx.free() {
                    return Err(cx.out_of_memory(bytes, "put"));
                }
                let args = (0..args.len()).map(|i| args.get(i).into()).collect();
                let (need, eases) = messages.need(self);
                Ok(self.park(caller, Want::Room(WaitingPut { args, need, eases }), cx))
            }
            Err(No::Full(refused)) => Err(refused),
        }
    }

    fn settle_call<A: Args + ?Sized>(
        &mut self,
        caller: Caller<'_>,
        list: &[Settlement<'_>],
        args: &A,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Read<Outcome> {
        let Repeat::Goes(caller, _) = self.repeated(caller, cx, out)? else {
            return Ok(Outcome::Done);
        };
        self.begin(cx);
        let mut budget = self.budget;
        let answers = self.settle(list, &mut budget);
        let from = out.len();
        reply::array(out, answers.len());
        answers.iter().for_each(|&answer| settle::tell(out, answer));
        self.keep_light(&caller, Some(&answers), cx, &out[from..]);
        cx.record_call(self, Function::Settle, args);
        Ok(Outcome::Done)
    }

    fn next_call<A: Args + ?Sized>(
        &mut self,
        caller: Caller<'_>,
        mut wanted: Wanted,
        list: &[Settlement<'_>],
        args: &A,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Read<Outcome> {
        let Repeat::Goes(caller, half) = self.repeated(caller, cx, out)? else {
            return Ok(Outcome::Done);
        };
        self.begin(cx);
        let again = half.is_some();
        let answers = half.unwrap_or_else(|| {
            let mut budget = self.budget;
            self.settle(list, &mut budget)
        });
        if !self.waiting.is_empty() && !again {
            // The messages they waited for may have been blocked by those just settled. The first
            // part is recorded first, because it was done first.
            self.note_half(&caller, &answers, args, cx);
            self.serve(cx);
            return Ok(self.lease_call(caller, wanted, Some(answers), cx, out));
        }
        if again {
            return Ok(self.lease_call(caller, wanted, Some(answers), cx, out));
        }
        let from = out.len();
        let number = self.consumer(caller.consumer);
        if self.grant(&mut wanted, number, Some(&answers), out) {
            self.keep(&caller, cx, &out[from..]);
            cx.record_next(self, args, wanted.count);
            return Ok(Outcome::Done);
        }
        if self.waits(&caller, cx) {
            self.note_half(&caller, &answers, args, cx);
            self.record_set_aside(caller.function, caller.consumer, wanted, cx);
            return Ok(self.park(caller, Want::Lease(wanted, Some(answers)), cx));
        }
        self.nothing(wanted.kind, Some(&answers), out);
        self.keep_light(&caller, Some(&answers), cx, &out[from..]);
        cx.record_call(self, Function::Next, args);
        Ok(Outcome::Done)
    }

    /// Records that `il1_next` has settled, so that a repeated call settles nothing, whatever its lease does.
    fn note_half<A: Args + ?Sized>(
        &mut self,
        caller: &Caller<'_>,
        answers: &[Answer],
        args: &A,
        cx: &mut Context<'_>,
    ) {
        if caller.call > 0 {
            let number = self.consumer(caller.consumer);
            let now = self.scheduler.last_time();
            self.consumers.keep_half(number, caller.call, now, answers.to_vec());
        }
        if cx.records(self) && (caller.call > 0 || !answers.is_empty()) {
            let named = [0, 1].into_iter().chain(6..args.len());
            let args: Vec<&[u8]> = named.map(|i| args.get(i)).collect();
            cx.record_budget(self);
            cx.record(self, Recorded::Parked, &args);
        }
    }

    /// Reads the number of messages a call asks for. A journal record has the number that was leased, so
    /// limits are not applied again, but where riders are not in that number.
    fn wanted<A: Args + ?Sized>(&self, from: &mut Reader<'_, A>, cx: &Context<'_>) -> Read<Wanted> {
        let mut wanted = lease::read(from)?;
        if cx.replays && !wanted.runs {
            wanted.bytes = u64::MAX;
        }
        Ok(wanted)
    }

    /// Leases ready messages, or parks the call until there are some.
    fn lease_call(
        &mut self,
        caller: Caller<'_>,
        mut wanted: Wanted,
        settled: Option<Vec<Answer>>,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let from = out.len();
        let number = self.consumer(caller.consumer);
        let granted = self.grant(&mut wanted, number, settled.as_deref(), out);
        if !granted {
            let waits = self.waits(&caller, cx);
            if waits || caller.call == 0 {
                self.record_set_aside(caller.function, caller.consumer, wanted, cx);
            }
            if waits {
                return self.park(caller, Want::Lease(wanted, settled), cx);
            }
            self.nothing(wanted.kind, settled.as_deref(), out);
        }
        match granted {
            true => self.keep(&caller, cx, &out[from..]),
            false => self.keep_light(&caller, settled.as_deref(), cx, &out[from..]),
        }
        if granted || caller.call > 0 {
            let Caller { function, consumer, call, .. } = caller;
            self.record_grant(function, consumer, call, wanted, cx);
        }
        Outcome::Done
    }

    pub fn record_grant(
        &self,
        function: Function,
        consumer: &[u8],
        call: u64,
        wanted: Wanted,
        cx: &Context<'_>,
    ) {
        if !cx.records(self) {
            return;
        }
        let (call, count) = (call.to_string(), wanted.count.to_string());
        let duration = wanted.duration.to_string();
        let args = [
            function.name().as_bytes(),
            consumer,
            call.as_bytes(),
            count.as_bytes(),
            duration.as_bytes(),
            kind_name(wanted.kind, wanted.runs),
        ];
        cx.record(self, Recorded::Granted, &args);
    }

    /// Records a call that leased nothing and is not recorded otherwise, if it set messages aside. Without the record,
    /// the next lease would examine them again in a replay, and could lease other messages.
    pub fn record_set_aside(
        &self,
        function: Function,
        consumer: &[u8],
        wanted: Wanted,
        cx: &Context<'_>,
    ) {
        if self.scheduler.has_set_aside() {
            self.record_grant(function, consumer, 0, wanted, cx);
        }
    }

    fn waits(&self, caller: &Caller<'_>, cx: &Context<'_>) -> bool {
        caller.wait > 0 && cx.caller.is_some() && !self.is_over()
    }

    fn park(&mut self, caller: Caller<'_>, want: Want, cx: &mut Context<'_>) -> Outcome {
        let waiter = Waiter {
            ticket: cx.caller.expect("only who has a ticket is parked"),
            until: self.scheduler.last_time().saturating_add(caller.wait),
            function: caller.function,
            consumer: caller.consumer.into(),
            call: caller.call,
            payer: cx.payer.cloned(),
            want,
        };
        match caller.place {
            Some(place) => self.waiting.insert(place, waiter),
            None => self.waiting.enter(waiter),
        }
        Outcome::Parked
    }

    fn keep(&mut self, caller: &Caller<'_>, cx: &Context<'_>, reply: &[u8]) {
        if caller.call > 0 {
            let number = self.consumer(caller.consumer);
            self.consumers.keep(number, caller.call, caller.function, cx.now, reply);
        }
    }

    /// Stores the reply to a call that leased nothing. `settled`: the outcomes of its settlements.
    fn keep_light(
        &mut self,
        caller: &Caller<'_>,
        settled: Option<&[Answer]>,
        cx: &Context<'_>,
        reply: &[u8],
    ) {
        if settles(settled) {
            return self.keep(caller, cx, reply);
        }
        if caller.call > 0 {
            let number = self.consumer(caller.consumer);
            self.consumers.keep_light(number, caller.call, caller.function, cx.now, reply);
        }
    }

    /// Checks whether the call is a repeat. If so, it gets the stored reply, or stays parked in its position.
    fn repeated<'a>(
        &mut self,
        mut caller: Caller<'a>,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Read<Repeat<'a>> {
        if caller.call == 0 {
            return Ok(Repeat::Goes(caller, None));
        }
        if let Some(place) = self.waiting.of_consumer(caller.consumer) {
            let waiter = self.waiting.get(place).expect("it waits");
            let (call, last) = (caller.call, waiter.call);
            if call < last {
                let text = format_args!("call {call} comes after call {last}");
                return refuse(Code::StaleCall, caller.function.name(), text);
            }
            if call == last && waiter.function != caller.function {
                let text = format_args!("call {call} was il1_{}", waiter.function.name());
                return refuse(Code::StaleCall, caller.function.name(), text);
            }
            let waiter = self.waiting.remove(place).expect("it waits");
            if call == last {
                caller.place = Some(place);
            } else {
                let text = format_args!("call {last} comes after call {call}");
                let refused = Refused::new(Code::StaleCall, waiter.function.name(), text);
                answer_error(cx, waiter.ticket, &refused);
            }
        }
        let known = self.consumers.known(caller.consumer, caller.call, caller.function, cx.now)?;
        Ok(match known {
            Known::New => Repeat::Goes(caller, None),
            Known::Half(answers) => Repeat::Goes(caller, Some(answers)),
            Known::Reply => {
                match self.consumers.reply(caller.consumer) {
                    Ok(reply) => out.extend_from_slice(reply),
                    Err(short) => self.lease_again(short, out),
                }
                cx.repeated(self);
                Repeat::Answered
            }
        })
    }

    /// Replays the record of a call that was parked and then served: see `Journal`.
    pub fn replay_granted<A: Args + ?Sized>(&mut self, args: &A, cx: &mut Context<'_>) -> Read<()> {
        let mut from = Reader::new(Recorded::Granted.name(), args);
        let function = match from.take(|| "function".into())? {
            name if name == Function::Next.name().as_bytes() => Function::Next,
            _ => Function::Lease,
        };
        let (consumer, call) = from.caller()?;
        let wanted = self.wanted(&mut from, cx)?;
        let caller = Caller { function, consumer, call, wait: 0, place: None };
        let mut out = Vec::new();
        let Repeat::Goes(caller, half) = self.repeated(caller, cx, &mut out)? else {
            return Ok(());
        };
        self.begin(cx);
        // An unnumbered `il1_next` stores no reply, so its earlier reply is not needed here.
        self.lease_call(caller, wanted, half, cx, &mut out);
        Ok(())
    }

    /// Replays the record of an `il1_next` that settled and was then parked: see `Journal`.
    pub fn replay_parked<A: Args + ?Sized>(&mut self, args: &A, cx: &mut Context<'_>) -> Read<()> {
        let mut from = Reader::new(Recorded::Parked.name(), args);
        let (consumer, call) = from.caller()?;
        let list = settle::read(&mut from)?;
        self.begin(cx);
        let mut budget = self.budget;
        let answers = self.settle(&list, &mut budget);
        if call > 0 {
            let number = self.consumer(consumer);
            self.consumers.keep_half(number, call, cx.now, answers);
        }
        Ok(())
    }
}

impl Context<'_> {
    /// Returns whether calls of this queue are recorded: what they record costs nothing otherwise.
    #[inline]
    fn records(&self, queue: &Queue) -> bool {
        !self.replays && queue.is_durable() && self.shared.settings.journal.is_some()
    }

    pub fn record(&self, queue: &Queue, recorded: Recorded, args: &[&[u8]]) {
        if let Some(journal) = self.shared.settings.journal.as_ref().filter(|_| self.records(queue))
        {
            let (durability, now) = (queue.declared.durability, queue.scheduler.last_time());
            journal.record(&queue.name, durability, now, recorded, args);
        }
    }

    /// Records how many messages the next recorded call may make ready, unless it is the maximum.
    pub fn record_budget(&self, queue: &Queue) {
        let Budget { ready, steps, moves, keys } = queue.budget;
        if queue.budget != Budget::ONE_CALL {
            let counts = [ready, steps, moves, keys].map(|count| count.to_string());
            let counts: Vec<&[u8]> = counts.iter().map(|count| count.as_bytes()).collect();
            self.record(queue, Recorded::Budget, &counts);
        }
    }

    /// Records an `il1_next` that returned fewer than COUNT messages, because their bytes ended it.
    pub fn record_next<A: Args + ?Sized>(&self, queue: &Queue, args: &A, count: usize) {
        if !self.records(queue) || args::integer(args.get(3)) == Some(count as i64) {
            return self.record_call(queue, Function::Next, args);
        }
        let count = count.to_string();
        let told = |i: usize| if i == 3 { count.as_bytes() } else { args.get(i) };
        let args: Vec<&[u8]> = (0..args.len()).map(told).collect();
        self.record_call(queue, Function::Next, &args[..]);
    }

    /// Records a call as one that does not wait.
    pub fn record_call<A: Args + ?Sized>(&self, queue: &Queue, function: Function, args: &A) {
        if !self.records(queue) {
            return;
        }
        self.record_budget(queue);
        let waits = matches!(function, Function::Put | Function::Lease | Function::Next);
        let plain = |i: usize| if waits && i == 2 { &b"0"[..] } else { args.get(i) };
        let args: Vec<&[u8]> = (0..args.len()).map(plain).collect();
        self.record(queue, Recorded::Call(function), &args);
    }
}

/// Returns whether something was settled.
pub fn settles(answers: Option<&[Answer]>) -> bool {
    answers.is_some_and(|all| all.iter().any(|&answer| answer != Answer::Lost))
}

fn kind_name(kind: Kind, runs: bool) -> &'static [u8] {
    match (kind, runs) {
        (Kind::Any, false) => b"any",
        (Kind::Keyed, false) => b"keyed",
        (Kind::Any, true) => b"any+",
        (Kind::Keyed, true) => b"keyed+",
        (Kind::Unkeyed, _) => b"unkeyed",
    }
}
