//! The bridge between a loop and the threads that talk to an engine.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use interlock_node::bridge::{bridge, Bridge, Chore, Far, Order, Task};
use interlock_node::log::{mark, Entry, Event, Id, Largest, LogPort, Position};
use interlock_node::trouble::{Kind, Trouble};

fn is_first(bytes: &[u8]) -> bool {
    bytes == b"first"
}

fn made() -> (Bridge, Far) {
    let (mut near, far) = bridge(is_first).unwrap();
    far.opened(None, None);
    assert_eq!(near.event(), Some(Event::Open));
    (near, far)
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn now() -> Instant {
    Instant::now()
}

fn id(number: u64) -> Id {
    Id { ms: 0, number }
}

fn entry(number: u64, bytes: &[u8]) -> Entry {
    Entry { id: id(number), time: 7, bytes: bytes.to_vec() }
}

fn at(number: u64, bytes: &[u8]) -> Position {
    Position { id: id(number), mark: Some(mark(bytes)) }
}

fn trouble() -> Trouble {
    Trouble::new(Kind::Unreachable, "it is away")
}

fn events(near: &mut Bridge) -> Vec<Event> {
    std::iter::from_fn(|| near.event()).collect()
}

/// Waits as the loop does: on the descriptor, not on the clock.
fn woken(near: &mut Bridge) -> Event {
    near.wait(soon()).expect("nothing has woken the loop")
}

#[test]
fn no_write_is_accepted_before_the_engine_is_open_and_then_in_order() {
    let (mut near, far) = bridge(is_first).unwrap();
    assert_eq!((near.append(b"a"), near.begin(b"first")), (None, None));
    assert!(!near.is_open() && !near.ask_ends() && !near.look(&[at(1, b"a")]));
    assert_eq!((near.largest(), near.untrimmed()), (None, None));
    let largest = Largest { bytes: 9, setting: "max".into() };
    far.opened(Some(largest.clone()), Some("never"));
    assert_eq!(woken(&mut near), Event::Open);
    assert_eq!((near.largest(), near.untrimmed().as_deref()), (Some(largest), Some("never")));
    assert!(!near.trim_before(&[at(1, b"a")]), "it never is");
    assert_eq!((near.append(b"a"), near.append(b"b")), (Some(1), Some(2)));
    assert_eq!((near.begin(b"first"), near.append(b"c")), (Some(3), Some(4)));
    assert_eq!(near.under_way(), (4, 8));
    assert_eq!(far.task(now() + TICK), Some(Task::Append(vec![b"a".to_vec(), b"b".to_vec()])));
    far.appended(Some(&[id(1), id(2)]));
    assert_eq!(far.task(now() + TICK), Some(Task::Begin(b"first".to_vec())));
    far.appended(None);
    assert_eq!(far.task(now() + TICK), Some(Task::Append(vec![b"c".to_vec()])));
    assert_eq!(near.under_way(), (1, 1));
    far.appended(None);
    let said: Vec<_> = [(1, Some(id(1))), (2, Some(id(2))), (3, None), (4, None)]
        .map(|(number, id)| Event::Appended { number, id })
        .into();
    assert_eq!((events(&mut near), near.under_way()), (said, (0, 0)));
    assert_eq!(far.task(now() + TICK), None);
}

#[test]
fn accepted_and_waiting_writes_are_unknown_when_the_engine_fails() {
    let (mut near, far) = made();
    near.append(b"a");
    far.task(soon());
    near.append(b"b");
    near.append(b"c");
    far.failed(trouble());
    assert_eq!(woken(&mut near), Event::Unknown { first: 1, last: 3, trouble: trouble() });
    assert_eq!((near.under_way(), near.is_open(), near.append(b"d")), ((0, 0), false, None));
    assert_eq!(far.task(now() + TICK), None, "nothing of it is appended later");
    far.failed(trouble());
    assert_eq!(woken(&mut near), Event::Trouble(trouble()));
    far.opened(None, None);
    assert_eq!((woken(&mut near), near.append(b"d")), (Event::Open, Some(4)));
}

#[test]
fn a_queue_accepts_one_entry_beyond_its_limit_and_passes_on_a_part_at_once() {
    let (mut near, far) = made();
    let large = vec![0; 20 << 20];
    let taken = (0..9).filter_map(|_| near.append(&large)).count();
    assert_eq!(taken, 3, "64 MiB");
    for _ in 0..3 {
        let Some(Task::Append(some)) = far.task(soon()) else { panic!() };
        assert_eq!(some.len(), 1, "8 MiB or one entry");
        assert_eq!(near.append(&large), None);
    }
    far.appended(None);
    assert!(near.append(&vec![0; 65 << 20]).is_some(), "one that is larger than all of it");
    assert_eq!(near.append(b"a"), None);
}

#[test]
fn maintenance_runs_beside_entries_and_is_repeated_if_it_fails() {
    let (mut near, far) = made();
    let places = vec![at(3, b"c"), at(5, b"e")];
    near.append(b"a");
    assert!(near.look(&places) && near.trim_before(&places) && near.ask_ends());
    assert!(!near.look(&[]) && !near.trim_before(&[]));
    assert_eq!(far.chore(now() + TICK), Some(Chore::Look(places.clone())));
    far.looked(vec![true, false]);
    assert_eq!(woken(&mut near), Event::Looked(vec![true, false]));
    assert_eq!(far.chore(now() + TICK), Some(Chore::Trim(places.clone())));
    far.trimmed(Ok(4));
    assert_eq!(woken(&mut near), Event::Trimmed(Ok(4)));
    assert_eq!(far.chore(now() + TICK), Some(Chore::Ends));
    far.ends(Some((entry(1, b"first"), entry(5, b"e"))));
    assert_eq!(woken(&mut near), Event::Ends(Some((entry(1, b"first"), entry(5, b"e")))));
    assert_eq!(far.chore(now() + TICK), None);
    assert!(near.look(&places));
    far.chore(soon());
    far.skipped();
    assert_eq!(woken(&mut near), Event::Looked(Vec::new()));
    far.trimmed(Err(trouble()));
    assert_eq!(woken(&mut near), Event::Trimmed(Err(trouble())));
    // Requests made before the engine failed are not carried out later.
    assert!(near.look(&places) && near.trim_before(&places) && near.ask_ends());
    far.failed(trouble());
    assert_eq!(far.chore(now() + TICK), None);
}

#[test]
fn the_log_is_read_from_the_requested_position_and_older_requests_are_void() {
    let (mut near, far) = made();
    assert_eq!(far.order(now() + TICK), None);
    near.read_from(None);
    let first = far.order(soon()).unwrap();
    assert_eq!(first.after, None);
    let next = far.read(first.number, vec![entry(1, b"first"), entry(4, b"b")], true);
    assert_eq!(next, Some(Order { number: first.number, after: Some(at(4, b"b")) }));
    assert_eq!(far.order(soon()), next, "the next one continues behind it");
    near.read_from(Some(at(1, b"first")));
    assert_eq!(events(&mut near), [], "what was read for the old place is not heard");
    assert_eq!(far.read(first.number, vec![entry(5, b"c")], true), None);
    far.lost(first.number, None);
    assert_eq!(events(&mut near), []);
    let order = far.order(soon()).unwrap();
    assert_eq!(order.after, Some(at(1, b"first")));
    assert!(far.read(order.number, vec![entry(5, b"c")], false).is_some());
    let Event::Read { entries, at_end, .. } = woken(&mut near) else { panic!() };
    assert_eq!((entries, at_end), (vec![entry(5, b"c")], false));
    for wrong in [5, 4] {
        // The same order is given again.
        let next = far.read(order.number, vec![entry(wrong, b"x")], true);
        assert_eq!(next.and_then(|next| next.after), Some(at(5, b"c")));
        let Event::Trouble(found) = woken(&mut near) else { panic!() };
        assert_eq!(found.kind, Kind::NotUnderstood);
    }
}

#[test]
fn a_log_that_lost_its_tail_is_distinguished_from_a_trimmed_or_missing_one() {
    let of = |bytes: &[u8]| entry(9, bytes);
    let ends = |first: Entry, last: Entry| Some((first, last));
    for (found, kind, word) in [
        (None, Kind::Gone, "was deleted"),
        (ends(entry(1, b"first"), of(b"x")), Kind::Forked, "is another now"),
        (ends(entry(1, b"first"), entry(3, b"x")), Kind::Forked, "ends at 3"),
        (ends(entry(8, b"x"), of(b"x")), Kind::Trimmed, "it was trimmed"),
        (ends(entry(8, b"first"), of(b"x")), Kind::Trimmed, "another log begins at 8"),
    ] {
        let (mut near, far) = made();
        near.read_from(Some(at(5, b"e")));
        let order = far.order(soon()).unwrap();
        far.lost(order.number, found);
        let Event::Trouble(trouble) = woken(&mut near) else { panic!() };
        assert!(trouble.kind == kind && trouble.text.contains(word), "{trouble:?}");
        assert_eq!(far.order(now() + TICK), None, "nothing is read until a place is wanted");
        assert_eq!(far.read(order.number, vec![entry(6, b"f")], true), None);
    }
    let (mut near, far) = made();
    near.read_from(None);
    let order = far.order(soon()).unwrap();
    assert_eq!(far.read(order.number, vec![entry(3, b"c")], true), None);
    let Event::Trouble(trouble) = woken(&mut near) else { panic!() };
    assert_eq!(trouble.kind, Kind::Trimmed, "it does not begin with its first entry");
    assert_eq!(far.order(now() + TICK), None);
}

#[test]
fn an_entry_that_was_appended_before_what_had_been_read_shows_a_loss() {
    for (told, is_lost) in [(6, false), (5, true), (3, true)] {
        let (mut near, far) = made();
        near.append(b"before anything was read");
        near.read_from(Some(at(5, b"e")));
        near.append(b"f");
        far.task(soon());
        far.appended(Some(&[id(2), id(told)]));
        let said = events(&mut near);
        let is_fork =
            |event: &Event| matches!(event, Event::Trouble(it) if it.kind == Kind::Forked);
        assert_eq!(said.iter().any(is_fork), is_lost, "{said:?}");
        assert_eq!(far.order(now() + TICK).is_none(), is_lost);
    }
}

#[test]
fn closing_the_bridge_wakes_every_waiter() {
    for by_near in [true, false] {
        let (mut near, far) = made();
        near.read_from(None);
        let order = far.order(soon()).unwrap().number;
        // More is delivered than the loop takes.
        assert!(far
            .read(order, vec![entry(1, b"first"), entry(2, &vec![0; 65 << 20])], false)
            .is_some());
        near.append(b"taken");
        far.task(soon());
        std::thread::scope(|scope| {
            let (a, b, c) = (far.clone(), far.clone(), far.clone());
            let task = scope.spawn(move || a.task(soon()));
            let chore = scope.spawn(move || b.chore(soon()));
            let (tell, told) = std::sync::mpsc::channel();
            let read = scope.spawn(move || {
                tell.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
                c.read(order, vec![entry(3, b"c")], true)
            });
            let stat = std::path::Path::new("/proc").join(told.recv().unwrap()).join("stat");
            let sleeps = || std::fs::read_to_string(&stat).unwrap().contains(") S ");
            while !sleeps() {
                std::thread::yield_now();
            }
            if by_near {
                drop(near);
            } else {
                far.close();
            }
            assert_eq!(task.join().unwrap(), Some(Task::End));
            assert_eq!(chore.join().unwrap(), Some(Chore::End));
            assert_eq!(read.join().unwrap(), None);
        });
        assert!(far.is_closed() && far.order(soon()).is_none());
        // Reports after the close are ignored.
        far.appended(None);
        far.failed(trouble());
        far.unread(trouble());
    }
}

/// A log in memory whose engine sometimes takes only a part or loses a reply, between a loop that
/// sometimes goes back and two threads: the loop gets events about its entries in order, and reads
/// exactly the log.
#[test]
fn the_whole_log_is_read_in_order_over_random_failures() {
    for seed in 0..20 {
        run(seed);
    }
}

fn run(seed: u64) {
    const ENTRIES: u64 = 300;
    let (mut near, far) = bridge(is_first).unwrap();
    let log = Arc::new(Mutex::new(vec![b"first".to_vec()]));
    std::thread::scope(|scope| {
        let (end, kept, mut chance) = (far.clone(), log.clone(), fastrand::Rng::with_seed(seed));
        scope.spawn(move || loop {
            end.opened(None, None);
            while let Some(task) = end.task(soon()) {
                let Task::Append(entries) = task else { return };
                let mut log = kept.lock().unwrap();
                let whole = entries.len();
                let written = if chance.u8(..8) == 0 { chance.usize(..=whole) } else { whole };
                let first = log.len() as u64 + 1;
                log.extend(entries.into_iter().take(written));
                drop(log);
                if written < whole || chance.u8(..10) == 0 {
                    end.failed(trouble());
                    break;
                }
                let ids: Vec<Id> = (first..).take(whole).map(id).collect();
                end.appended(chance.bool().then_some(&ids));
            }
        });
        let (end, kept, mut chance) =
            (far.clone(), log.clone(), fastrand::Rng::with_seed(seed + 99));
        scope.spawn(move || {
            let mut order = None;
            loop {
                order = order.or_else(|| end.order(now() + TICK));
                if end.is_closed() {
                    return;
                }
                let Some(Order { number, after }) = order else { continue };
                let from = after.map_or(0, |after| after.id.number as usize);
                let log = kept.lock().unwrap();
                let some = log[from..].iter().take(chance.usize(1..20)).cloned();
                let some: Vec<Entry> =
                    (from as u64 + 1..).zip(some).map(|(at, bytes)| entry(at, &bytes)).collect();
                let at_end = from + some.len() == log.len();
                drop(log);
                if chance.u8(..20) == 0 {
                    end.unread(trouble());
                }
                order = end.read(number, some, at_end);
            }
        });
        let mut chance = fastrand::Rng::with_seed(seed + 7);
        let (mut next, mut read) = (1_u64, Vec::<Vec<u8>>::new());
        near.read_from(None);
        let mut pending: Vec<(u64, u64)> = Vec::new();
        let until = soon();
        while !(next > ENTRIES && pending.is_empty() && read.len() == log.lock().unwrap().len()) {
            assert!(Instant::now() < until, "{next} {pending:?} {}", read.len());
            if next <= ENTRIES {
                if let Some(number) = near.append(&next.to_le_bytes()) {
                    pending.push((number, next));
                    next += 1;
                }
            }
            let Some(event) = near.wait(now() + TICK) else { continue };
            match event {
                Event::Appended { number, .. } => {
                    assert_eq!(pending.remove(0).0, number, "in the order of appending");
                }
                Event::Unknown { first, last, .. } => {
                    let (lost, left) =
                        pending.iter().partition(|(number, _)| (first..=last).contains(number));
                    let lost: Vec<(u64, u64)> = lost;
                    // The rest was appended after the engine reopened, before this event was taken.
                    (pending, next) = (left, lost.first().map_or(next, |lost| lost.1));
                }
                Event::Read { entries, .. } => {
                    for one in entries {
                        assert_eq!(one.id.number, read.len() as u64 + 1);
                        read.push(one.bytes);
                    }
                    if chance.u8(..30) == 0 && read.len() > 3 {
                        let back = chance.usize(1..read.len());
                        read.truncate(back);
                        near.read_from(Some(at(back as u64, &read[back - 1])));
                    }
                }
                Event::Trouble(found) => assert_eq!(found, trouble()),
                Event::Open => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(read, *log.lock().unwrap(), "seed {seed}");
        drop(near);
    });
}

const TICK: Duration = Duration::from_millis(1);
