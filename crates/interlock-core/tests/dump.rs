//! A dump and its payloads, and bytes that are not a dump.

use interlock_core::key::KeyRef;
use interlock_core::queue::parts::watch::Watch;
use interlock_core::queue::scheduler::{Put, Scheduler};
use interlock_core::queue::types::{Kind, Options, Retry, RevokeThen, Then};

/// One of everything: leased, waiting, held, delayed, backing off, dead, paused, behind a barrier.
fn everything() -> Scheduler<String> {
    let options = Options { lease: Some(1_000), ..Options::default() };
    let mut scheduler = Scheduler::new(options, Watch::off());
    let (a, b) = (KeyRef::new(b"a"), KeyRef::new(b"a key that is longer than what lies in a lane"));
    for n in 0..6 {
        let shared = [b];
        let put = Put { keys: &[a], shared: &shared, dedup: Some("twice"), ..Put::default() };
        scheduler.put(n, &put, &mut Some(format!("keyed {n}"))).unwrap();
        let put = Put { size: 9, priority: -3, delay: n, ..Put::default() };
        scheduler.put(n, &put, &mut Some(format!("delayed {n}"))).unwrap();
    }
    scheduler
        .put(9, &Put { barrier: true, ..Put::default() }, &mut Some("barrier".into()))
        .unwrap();
    scheduler.put(9, &Put { keys: &[a], ..Put::default() }, &mut Some("behind".into())).unwrap();
    let mut grants = Vec::new();
    scheduler.lease_many(9, Kind::Any, 5, 7, |_, grant| grants.push(*grant));
    scheduler.nack(9, grants[0].handle, Some(50), "again").unwrap();
    scheduler.reject(9, grants[1].handle, "never").unwrap();
    scheduler.revoke(9, grants[2].id, RevokeThen::Hold).unwrap();
    scheduler.pause(9, Some(b));
    scheduler
}

fn fresh() -> Scheduler<String> {
    Scheduler::new(Options::default(), Watch::off())
}

fn dump(scheduler: &Scheduler<String>) -> Vec<u8> {
    let mut bytes = Vec::new();
    scheduler.dump(&mut bytes, |payload, out| out.extend_from_slice(payload.as_bytes()));
    bytes
}

fn text(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

/// A queue of these options, empty.
fn optioned() -> Options {
    Options {
        max_messages: 1,
        max_bytes: 2,
        lease: Some(3),
        retry: Retry {
            attempts: Some(4),
            first: 5,
            factor: 0.0,
            longest: 6,
            jitter: true,
            then: Then::Hold,
        },
        dedup_window: 7,
        max_dead: 8,
        ..Options::default()
    }
}

/// Its options in the first version of a dump.
const OPTIONS: [u8; 19] = [1, 2, 1, 3, 1, 4, 5, 0, 0, 0, 0, 0, 0, 0, 0, 6, 1, 1, 7];
const MAX_DEAD: u8 = 8;

#[test]
fn the_options_of_a_dump_keep_their_places() {
    let options = Options { dead_ttl: 9, ..optioned() };
    let bytes = dump(&Scheduler::new(options, Watch::off()));
    assert_eq!(bytes[2..2 + OPTIONS.len()], OPTIONS);
    assert_eq!(bytes[2 + OPTIONS.len()..][..2], [MAX_DEAD, 9]);
}

#[test]
fn a_dump_of_the_first_version_is_restored_with_the_default_of_a_later_option() {
    // Its counts, and all else that an empty queue has.
    let bytes = [&[1, 0][..], &OPTIONS, &[MAX_DEAD], &[0; 40]].concat();
    let mut end = bytes.len();
    let restored = loop {
        if let Ok(restored) = fresh().restored(&bytes[..end], text) {
            break restored;
        }
        end -= 1;
    };
    assert_eq!(
        restored.options(),
        &Options { dead_ttl: Options::default().dead_ttl, ..optioned() }
    );
}

#[test]
fn a_restored_dump_has_payloads_and_handles() {
    let scheduler = everything();
    let mut restored = fresh().restored(&dump(&scheduler), text).unwrap();
    let payloads = |scheduler: &Scheduler<String>| {
        let mut all = Vec::new();
        scheduler.for_each_payload(|payload| all.push(payload.clone()));
        all.sort();
        all
    };
    assert_eq!(payloads(&restored), payloads(&scheduler));
    assert_eq!(payloads(&restored).len() as u64, restored.unsettled() + 1);
    assert_eq!(restored.leases().count(), 2);
    for id in restored.leased_by(7) {
        assert_eq!(restored.token_of(id), scheduler.token_of(id));
        let handle = restored.handle_of(id).unwrap();
        assert!(restored.ack(10, handle).is_ok());
        assert_eq!(restored.handle_of(id), None);
    }
}

#[test]
fn a_dump_cut_anywhere_is_refused() {
    let bytes = dump(&everything());
    for length in 0..bytes.len() {
        let error = fresh().restored(&bytes[..length], text).unwrap_err();
        assert!(error.at <= length, "{error}");
    }
    let longer = [&bytes[..], &[0]].concat();
    let error = fresh().restored(&longer, text).unwrap_err();
    let text = format!("a queue's dump is damaged at byte {}: no end there", bytes.len());
    assert_eq!(error.to_string(), text);
}

#[test]
fn a_dump_with_any_byte_changed_is_read_or_refused_and_never_a_panic() {
    let bytes = dump(&everything());
    let mut refused = 0;
    for at in 0..bytes.len() {
        for mask in [1, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[at] ^= mask;
            refused += usize::from(fresh().restored(&changed, text).is_err());
        }
    }
    assert!(refused > bytes.len(), "{refused} of {}", 3 * bytes.len());
}

#[test]
fn a_dump_of_a_later_version_is_refused() {
    let mut bytes = dump(&everything());
    bytes[0] += 1;
    let error = fresh().restored(&bytes, text).unwrap_err();
    let text = "a queue's dump is damaged at byte 0: no version that is known there";
    assert_eq!(error.to_string(), text);
}
