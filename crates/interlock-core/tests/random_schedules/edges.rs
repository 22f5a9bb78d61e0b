//! Schedules that chance would not find: many at once, many times over, numbers at their end.

use interlock_core::queue::schedules::trace::{Answer, Call, PutCall, Runner, Step};
use interlock_core::queue::schedules::trace_text::Schedule;
use interlock_core::queue::types::limits::Limits;
use interlock_core::queue::types::rules::Rules;
use interlock_core::queue::types::{Kind, Options, Retry, Time};

use crate::audit::Audit;
use crate::generate::run_one;
use crate::model::Model;
use crate::report;
use crate::schedule::{Plan, Subject};
use crate::tally::Tally;

/// More than fall due, or are readied, in one call.
const MANY: usize = 1_500;

fn endless() -> Options {
    Options {
        retry: Retry { attempts: None, first: 0, jitter: false, ..Retry::default() },
        ..Options::default()
    }
}

fn put(keys: &[&str], shared: &[&str]) -> PutCall {
    let bytes = |keys: &[&str]| keys.iter().map(|key| key.as_bytes().to_vec()).collect();
    PutCall { keys: bytes(keys), shared: bytes(shared), ..PutCall::default() }
}

fn lease(limit: usize) -> Call {
    Call::Lease { kind: Kind::Any, limit }
}

/// Runs calls, each with its time, on scheduler and model.
fn agree(options: Options, calls: Vec<(Time, Call)>) {
    let steps = calls.into_iter().map(|(now, call)| Step { now, call }).collect();
    let plan = Plan::from_schedule(Schedule { options, rules: Rules::current(), steps });
    if let Err(mismatch) = plan.run::<Runner>() {
        let text = report(&mismatch);
        let end = text.lines().rev().take(12).collect::<Vec<_>>();
        panic!("{}", end.into_iter().rev().collect::<Vec<_>>().join("\n"));
    }
}

#[test]
fn a_thousand_failures_without_a_backoff_are_retried_at_once_each_time() {
    let mut calls = vec![(1, Call::Put(put(&["a"], &[])))];
    // The token of a grant at time n is n: tokens are at least the time.
    for now in 1..1_300 {
        calls.push((now, lease(1)));
        calls.push((now, Call::Nack { token: now, delay: None, error: String::new() }));
    }
    agree(endless(), calls);
}

#[test]
fn a_thousand_failures_with_growing_backoff_wait_at_most_the_maximum() {
    let mut options = endless();
    options.retry.first = 1;
    options.retry.longest = 50;
    let mut calls = vec![(1, Call::Put(put(&["a"], &[])))];
    for now in (100..200_000).step_by(150) {
        calls.push((now, lease(1)));
        calls.push((now, Call::Nack { token: now, delay: None, error: String::new() }));
        calls.push((now + 49, Call::Stats));
    }
    agree(options, calls);
}

/// Clauses 8 and 20: whatever else falls due before it, a lease is over at its deadline.
#[test]
fn an_expired_lease_behind_a_thousand_others_is_lost_for_every_settlement() {
    let settle: [fn(u64) -> Call; 6] = [
        |token| Call::Ack { token },
        |token| Call::Nack { token, delay: Some(0), error: String::new() },
        |token| Call::Reject { token, reason: String::new() },
        |token| Call::Release { token },
        |token| Call::Defer { token, delay: 1 },
        |token| Call::Extend { token, by: 50 },
    ];
    for settle in settle {
        for lates in [0, 5] {
            let mut calls: Vec<_> = (0..2 * MANY).map(|_| (1, Call::Put(put(&[], &[])))).collect();
            calls.push((100, lease(2 * MANY)));
            // The token of the nth grant of a call at time 100 is 100 + n.
            for n in 0..20 {
                calls.push((130 + lates, settle(100 + 2 * MANY as u64 - 1 - n)));
            }
            agree(Options { lease: Some(30), ..endless() }, calls);
        }
    }
}

#[test]
fn one_call_applies_at_most_a_thousand_simultaneous_due_events() {
    let mut options = endless();
    options.lease = Some(10);
    let late = PutCall { delay: 30, ..put(&[], &["a"]) };
    let mut calls = vec![
        (1, Call::PutMany(vec![put(&[], &["a"]); MANY])),
        (1, Call::PutMany(vec![late; MANY])),
        (2, lease(300)),
        (2, Call::Stats),
        (100, Call::Stats),
    ];
    calls.extend((101..110).map(|now| (now, Call::Stats)));
    calls.push((110, lease(MANY)));
    calls.push((110, Call::HotKeys { limit: 3 }));
    agree(options, calls);
}

#[test]
fn one_call_applies_at_most_a_thousand_simultaneous_backoffs() {
    let mut options = endless();
    options.retry.first = 20;
    let mut calls = vec![(1, Call::PutMany(vec![put(&[], &["a"]); MANY])), (1, lease(1_200))];
    let nack = |token| Call::Nack { token, delay: None, error: String::new() };
    calls.extend((1..=1_200).map(|token| (2, nack(token))));
    calls.extend([(22, Call::Stats), (22, Call::Stats), (22, lease(1)), (22, Call::Stats)]);
    agree(options, calls);
}

#[test]
fn numbers_at_their_limits_are_accepted() {
    let far = u64::MAX;
    let mut options = endless();
    options.lease = Some(far);
    options.dedup_window = far;
    options.retry.first = far;
    options.retry.longest = far;
    let named = PutCall { dedup: Some("x".into()), ..put(&["a"], &[]) };
    let calls = vec![
        (1 << 50, Call::Put(PutCall { delay: far, ..put(&["a"], &[]) })),
        (1 << 50, Call::Put(named.clone())),
        (1 << 50, lease(usize::MAX)),
        (1 << 50, Call::Extend { token: 1 << 50, by: far }),
        (1 << 50, Call::Explain { id: 2, limit: usize::MAX }),
        (1 << 50, Call::Nack { token: 1 << 50, delay: None, error: String::new() }),
        (1 << 50, Call::Explain { id: 2, limit: 9 }),
        (1 << 50, Call::Skip { id: 2 }),
        (1 << 51, Call::Put(named)),
        (1 << 51, Call::ExplainKey { key: b"a".to_vec(), limit: usize::MAX }),
        (1 << 51, Call::HotKeys { limit: usize::MAX }),
        (1 << 51, Call::DeadLetters { limit: usize::MAX }),
        (1 << 51, Call::Cancel { id: 1 }),
        (1 << 51, Call::Stats),
    ];
    agree(options, calls);
}

#[test]
fn a_size_beyond_the_limit_is_too_large() {
    let huge = PutCall { size: u64::MAX, ..put(&["a"], &[]) };
    let options = Options { max_bytes: 10, ..endless() };
    let calls = vec![
        (1, Call::Put(PutCall { size: 5, ..put(&["a"], &[]) })),
        (1, Call::Put(huge.clone())),
        // Their sum, were it to wrap around, would fit.
        (1, Call::PutMany(vec![huge, PutCall { size: 2, ..put(&["a"], &[]) }])),
        (1, Call::Stats),
    ];
    agree(options, calls);
}

#[test]
fn a_message_of_many_keys_holds_each_of_them() {
    let names: Vec<String> = (0..900).map(|key| key.to_string()).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let calls = vec![
        (1, Call::Put(put(&all, &[]))),
        (1, Call::Put(put(&[], &["0", "899"]))),
        (1, Call::Put(put(&[], &all))),
        (1, lease(9)),
        (1, Call::Explain { id: 3, limit: 5 }),
        (1, Call::Ack { token: 1 }),
        (1, lease(9)),
        (1, Call::HotKeys { limit: 2 }),
        (1, Call::Stats),
    ];
    agree(endless(), calls);
}

#[test]
fn messages_with_the_maximum_of_keys_run_one_after_another() {
    let names: Vec<String> = (0..4_096).map(|key| key.to_string()).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    drain(put(&all, &[]), put(&all, &[]), 5, None);
    drain(put(&[], &all), put(&all, &[]), 5, None);
    drain(put(&all, &[]), put(&[], &all), 5, None);
}

/// Successors follow, in order and alone; how soon is the scheduler's own affair.
#[test]
fn any_number_of_successors_becomes_ready_after_one_settlement() {
    let fronts = [put(&["a"], &[]), PutCall { barrier: true, ..put(&[], &[]) }];
    let crowds = [put(&[], &["a"]), put(&["a"], &[])];
    for front in &fronts {
        for crowd in &crowds {
            let paused = [None, Some(b"a".to_vec())];
            for key in paused {
                drain(front.clone(), crowd.clone(), MANY, key);
            }
        }
    }
}

/// Settles one in front, and twice `many` behind it, those put before and after a pause.
fn drain(front: PutCall, crowd: PutCall, many: usize, key: Option<Vec<u8>>) {
    let mut runner = Runner::new(endless());
    let mut audit = Audit::new(endless());
    let mut apply = |call: Call| {
        let step = Step { now: 1, call };
        let answer = Subject::apply(&mut runner, &step);
        audit.observe(&step, &answer).expect("order and exclusion hold");
        answer
    };
    apply(Call::Put(front));
    apply(Call::PutMany(vec![crowd.clone(); many]));
    apply(Call::Pause { key: key.clone() });
    apply(Call::PutMany(vec![crowd; many]));
    apply(Call::Resume { key });
    let mut settled = 0;
    let mut calls_without_a_grant = 0;
    while settled < 1 + 2 * many {
        let Answer::Leased(granted) = apply(lease(100)) else { panic!("a lease answers grants") };
        calls_without_a_grant = if granted.is_empty() { calls_without_a_grant + 1 } else { 0 };
        assert!(calls_without_a_grant < 100, "{settled} settled, and nothing follows");
        for grant in granted {
            assert_eq!(apply(Call::Ack { token: grant.token }), Answer::Done);
            settled += 1;
        }
    }
    let Answer::Stats(stats) = apply(Call::Stats) else { panic!("stats answers stats") };
    assert_eq!((stats.unsettled, stats.acks), (0, 1 + 2 * many as u64));
}

/// Clause 20; the model knows no jitter, so here the scheduler is held against itself.
#[test]
fn a_schedule_with_jitter_replays_with_the_same_answers() {
    for seed in 0..200 {
        let (mut plan, result) = run_one::<Model>(seed, &mut Tally::default());
        result.expect("the model answers as the model does");
        plan.options.retry = Retry { attempts: Some(4), first: 20, ..Retry::default() };
        let (mut first, mut second) =
            (Runner::new(plan.options.clone()), Runner::new(plan.options.clone()));
        for planned in &plan.calls {
            let step = Step { now: planned.now, call: planned.call.clone() };
            let (one, other) = (first.apply(&step), second.apply(&step));
            assert_eq!(one, other, "{step}");
        }
    }
}

#[test]
fn the_text_of_a_schedule_parses_to_the_same_schedule() {
    for seed in 0..200 {
        let (plan, _) = run_one::<Model>(seed, &mut Tally::default());
        let steps = plan.calls.iter();
        let steps = steps.map(|planned| Step { now: planned.now, call: planned.call.clone() });
        let (options, rules) = (plan.options.clone(), Rules::current());
        let schedule = Schedule { options, rules, steps: steps.collect() };
        let text = schedule.to_string();
        assert_eq!(text.parse::<Schedule>().as_ref(), Ok(&schedule), "{text}");
        for step in &schedule.steps {
            assert_eq!(step.to_string().parse::<Step>().as_ref(), Ok(step));
        }
    }
}

/// Messages of several names that are passed until they keep slots, cancelled or paused meanwhile.
#[test]
fn messages_that_are_passed_too_often_keep_slots() {
    let limits = Limits::parse(b"a=1\x1fb=1").expect("it is well formed");
    let mut kept = 0;
    for seed in 0..40 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let options = Options { limits: limits.clone(), ..endless() };
        let mut runner = Runner::new(options.clone());
        let (mut calls, mut leased) = (Vec::new(), Vec::new());
        let (mut last, mut several_named) = (0, Vec::new());
        for now in 1..3_000 {
            let several = rng.usize(0..12) == 0;
            let name = |rng: &mut fastrand::Rng| [b"a", b"b"][rng.usize(0..2)].to_vec();
            // What is freed is taken at once: with two names free, a message with both is not passed.
            let acked = matches!(calls.last(), Some((_, Call::Ack { .. })));
            let call = match rng.u32(0..4_000) {
                _ if acked => lease(1),
                0..=1799 => Call::Put(PutCall {
                    limit: (0..if several { 3 } else { 1 }).map(|_| name(&mut rng)).collect(),
                    keys: if several { vec![b"k".to_vec()] } else { Vec::new() },
                    priority: i8::from(several),
                    ..PutCall::default()
                }),
                1800..=2999 if !leased.is_empty() => {
                    Call::Ack { token: leased.swap_remove(rng.usize(0..leased.len())) }
                }
                3000..=3599 => Call::Explain { id: last, limit: 100 },
                3600..=3601 if !several_named.is_empty() => {
                    Call::Cancel { id: several_named.remove(0) }
                }
                3602 => Call::Pause { key: Some(b"k".to_vec()) },
                3603..=3660 => Call::Resume { key: Some(b"k".to_vec()) },
                _ => lease(1),
            };
            match runner.apply(&Step { now, call: call.clone() }) {
                Answer::Leased(granted) => leased.extend(granted.iter().map(|one| one.token)),
                Answer::Put(puts) if several => several_named.push(puts[0].id),
                Answer::Put(puts) => last = puts[0].id,
                Answer::Explained(Some(explained)) => {
                    let limits = explained.nodes.iter().flat_map(|node| &node.limits);
                    kept += limits.filter(|full| full.keeper.is_some()).count();
                }
                _ => {}
            }
            calls.push((now, call));
        }
        agree(options, calls);
    }
    assert!(kept > 5, "slots were kept {kept} times");
}

/// Its group is next, and the line of the limit has another one first (clause 28).
#[test]
fn a_later_message_of_a_group_stays_behind_its_earlier_one_at_a_limit() {
    let limits = Limits::parse(b"bank=1").expect("it is well formed");
    let put = |group: &[u8], limit: &[&[u8]]| {
        let limit = limit.iter().map(|name| name.to_vec()).collect();
        Call::Put(PutCall { group: group.to_vec(), limit, ..PutCall::default() })
    };
    let calls = [
        put(b"a", &[b"bank"]),
        lease(1),
        put(b"a", &[b"bank"]),
        put(b"b", &[b"bank"]),
        lease(1),
        put(b"a", &[]),
        lease(1),
        put(b"b", &[b"bank"]),
        Call::Ack { token: 1 },
        lease(1),
    ];
    agree(Options { limits, ..endless() }, calls.map(|call| (1, call)).to_vec());
}

/// A message of a rate and a limit is passed until it keeps both; then leases, time and operators come in any order.
#[test]
fn messages_that_are_passed_too_often_keep_grants_of_rates() {
    let limits = |text: &str| Limits::parse(text.as_bytes()).expect("it is well formed");
    let others =
        ["a=1/10:1\x1fb=2", "a=1/99:1\x1fb=1", "a=1/10:3\x1fb=1/10:1", "a=1\x1fb=1", "a=2"];
    let mut kept = 0;
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let options = Options { limits: limits("a=1/10:1\x1fb=1"), ..endless() };
        let mut runner = Runner::new(options.clone());
        let (mut calls, mut leased, mut now) = (Vec::new(), Vec::new(), 1);
        let mut take = |now: Time, call: Call| {
            let answer = runner.apply(&Step { now, call: call.clone() });
            calls.push((now, call));
            match answer {
                Answer::Leased(granted) => granted.first().map_or(0, |one| one.token),
                Answer::Put(puts) => puts[0].id,
                Answer::Explained(Some(explained)) => {
                    let limits = explained.nodes.iter().flat_map(|node| &node.limits);
                    limits.filter(|full| full.keeper.is_some()).count() as u64
                }
                _ => 0,
            }
        };
        let put = |names: &[&str], key: &[u8]| {
            let limit = names.iter().map(|name| name.as_bytes().to_vec()).collect();
            Call::Put(PutCall { limit, keys: vec![key.to_vec()], ..PutCall::default() })
        };
        take(now, put(&["b"], b"0"));
        let mut b = take(now, lease(1));
        let both = take(now, put(&["a", "b"], b"k"));
        for n in 0..60u8 {
            take(now, put(&["a"], &[b'a', n]));
            take(now, put(&["b"], &[b'b', n]));
        }
        let other = take(now, put(&["b"], b"last"));
        for _ in 0..32 {
            leased.push(take(now, lease(1)));
            take(now, Call::Ack { token: b });
            b = take(now, lease(1));
            now += 10;
        }
        leased.push(take(now, lease(1)));
        take(now, Call::Ack { token: b });
        kept += take(now, Call::Explain { id: other, limit: 100 });
        for _ in 0..60 {
            let call = match rng.u32(0..24) {
                0..=7 => lease(rng.usize(1..3)),
                8..=12 => Call::Ack { token: leased.swap_remove(rng.usize(0..leased.len())) },
                13..=17 => Call::Explain { id: [both, other][rng.usize(0..2)], limit: 100 },
                18 => Call::Pause { key: Some(b"k".to_vec()) },
                19..=20 => Call::Resume { key: Some(b"k".to_vec()) },
                21 => Call::Limits { limits: limits(others[rng.usize(0..others.len())]) },
                22 => Call::CloseLimit { name: [b"a", b"b"][rng.usize(0..2)].to_vec(), delay: 15 },
                _ => Call::Cancel { id: both },
            };
            let explains = matches!(call, Call::Explain { .. });
            let leases = matches!(call, Call::Lease { .. });
            let answer = take(now, call);
            kept += if explains { answer } else { 0 };
            if leases && answer > 0 {
                leased.push(answer);
            }
            now += [0, 0, 1, 5, 10, 11][rng.usize(0..6)];
        }
        agree(options, calls);
    }
    assert!(kept > 60, "slots or grants were kept {kept} times");
}
