//! Tables that are opened, and tables that are refused without being touched.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{symlink, FileExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::common::{number, row, seed, Place};
use fastrand::Rng;
use interlock_table::table::Options;
use interlock_table::{remove, Error, Location, Schema, Table, Value};

const SCHEMA: &str = "a: U64, token: str[20]";

fn small() -> Options {
    Options { capacity: 100, writers: 4, ..Options::default() }
}

fn path(place: &Place) -> PathBuf {
    place.0.path().unwrap()
}

/// A file of a test's own, on the disk.
fn file(what: &str) -> Place {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("{what}-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
    Place(Location::Path(std::env::temp_dir().join(name)))
}

#[test]
fn rows_set_by_one_handle_are_read_by_another_and_survive_both() {
    for place in [Place::new("shared"), file("shared")] {
        let first = place.open(SCHEMA, &small());
        let second = place.open(SCHEMA, &Options { capacity: 7, ..small() });
        assert_eq!(second.made().capacity, 100);
        let set = row(&first, &[("a", Value::Unsigned(7)), ("token", Value::Str("x".into()))]);
        first.set(b"key", &set).unwrap();
        assert_eq!(second.get(b"key").unwrap().as_ref(), Some(&set));
        drop((first, second));
        let third = Table::attach(&place.0, &Options::default()).unwrap();
        assert_eq!(third.schema().to_string(), SCHEMA);
        assert_eq!(third.get(b"key").unwrap(), Some(set));
        assert_eq!(third.statistics().writers, 0);
        assert!(remove(&place.0).unwrap() && !remove(&place.0).unwrap());
        // Processes that have it open continue, and the name is free.
        assert!(third.contains(b"key").unwrap());
        assert!(!place.open(SCHEMA, &small()).contains(b"key").unwrap());
        let gone = file("none");
        let error = Table::attach(&gone.0, &Options::default());
        assert!(matches!(error, Err(Error::NoTable { .. })));
    }
}

#[test]
fn concurrent_creators_share_one_table() {
    let place = Place::new("at-once");
    std::thread::scope(|scope| {
        for n in 0..8u64 {
            let place = &place;
            scope.spawn(move || {
                let table = place.open(SCHEMA, &small());
                let row = row(&table, &[("a", Value::Unsigned(n))]);
                table.set(&n.to_le_bytes(), &row).unwrap();
            });
        }
    });
    let table = place.open(SCHEMA, &small());
    assert_eq!(table.rows(), 8);
    assert_eq!(table.statistics().writers, 0, "threads that ended gave their numbers back");
}

#[test]
fn another_schema_or_key_size_is_an_error_that_shows_both() {
    let place = Place::new("schema");
    drop(place.open(SCHEMA, &small()));
    let before = fs::read(path(&place)).unwrap();
    for (schema, key_size) in
        [("a: U32, token: str[20]", 32), ("token: str[20], a: U64", 32), (SCHEMA, 16)]
    {
        let options = Options { key_size, ..small() };
        let error = Table::open(&place.0, &Schema::parse(schema).unwrap(), &options).err().unwrap();
        assert!(matches!(error, Error::SchemaMismatch { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(&format!("expected: key[{key_size}], {schema}")), "{text}");
        assert!(text.contains(&format!("found:    key[32], {SCHEMA}")), "{text}");
    }
    assert!(fs::read(path(&place)).unwrap() == before, "it was touched");
}

#[test]
fn random_and_truncated_files_are_refused_without_a_crash() {
    let mut rng = Rng::with_seed(seed());
    let place = Place::new("noise");
    drop(place.open(SCHEMA, &small()));
    let path = path(&place);
    let whole = fs::read(&path).unwrap();
    let schema = Schema::parse(SCHEMA).unwrap();
    for round in 0..number("INTERLOCK_NOISE", 3_000) {
        let mut bytes = whole.clone();
        match rng.u8(..4) {
            0 => bytes.truncate(rng.usize(..whole.len())),
            1 => bytes = (0..rng.usize(..9000)).map(|_| rng.u8(..)).collect(),
            2 => (0..rng.usize(1..9)).for_each(|_| bytes[rng.usize(..4096)] ^= 1 << rng.u8(..8)),
            _ => {
                // As if it were one, up to its checksum.
                let from = rng.usize(8..4000);
                bytes[from..4096].iter_mut().for_each(|byte| *byte = rng.u8(..));
            }
        }
        if bytes == whole {
            continue;
        }
        fs::write(&path, &bytes).unwrap();
        let error = Table::open(&place.0, &schema, &small()).err();
        let refused = matches!(error, Some(Error::NotATable { .. } | Error::Version { .. }));
        assert!(refused, "round {round}: {error:?}");
        assert!(fs::read(&path).unwrap() == bytes, "it was touched");
    }
}

#[test]
fn permissions_are_0600_by_default_and_wider_ones_are_refused() {
    let place = Place::new("rights");
    drop(place.open(SCHEMA, &small()));
    let mode = |mode| fs::set_permissions(path(&place), fs::Permissions::from_mode(mode)).unwrap();
    assert_eq!(fs::metadata(path(&place)).unwrap().permissions().mode() & 0o777, 0o600);
    mode(0o660);
    let error = Table::attach(&place.0, &small()).err().unwrap();
    assert!(matches!(&error, Error::Permissions { why, .. } if why.contains("660")), "{error}");
    Table::attach(&place.0, &Options { mode: 0o660, ..small() }).unwrap();
    mode(0o600);
    Table::attach(&place.0, &small()).unwrap();
    // Who may not write may not read either: the head holds the secret by which keys are hashed.
    for (asked, given) in [(0o640, 0o600), (0o644, 0o600), (0o660, 0o660), (0o664, 0o660)] {
        let told = Place::new(&format!("told{asked:o}"));
        drop(told.open(SCHEMA, &Options { mode: asked, ..small() }));
        assert_eq!(fs::metadata(path(&told)).unwrap().permissions().mode() & 0o777, given);
    }
    // SAFETY: takes no pointer.
    if unsafe { libc::geteuid() } == 0 {
        std::os::unix::fs::chown(path(&place), Some(12_345), None).unwrap();
        let error = Table::attach(&place.0, &small()).err().unwrap();
        assert!(
            matches!(&error, Error::Permissions { why, .. } if why.contains("12345")),
            "{error}"
        );
    }
}

/// Error of another user who opens the table with these rights. A thread becomes that user: to the kernel
/// credentials are a thread's own.
fn as_another_user(place: &Place, mode: u32) -> Option<Error> {
    const NOBODY: libc::c_long = 65_534;
    std::thread::scope(|scope| {
        let opened = scope.spawn(|| {
            // SAFETY: takes no pointer.
            assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) }, 0);
            Table::attach(&place.0, &Options { mode, ..small() }).err()
        });
        opened.join().unwrap()
    })
}

#[test]
fn another_user_is_refused_unless_others_may_write_and_touches_nothing() {
    // SAFETY: takes no pointer.
    if unsafe { libc::geteuid() } != 0 {
        println!("only root becomes another user");
        return;
    }
    let (place, mode) = (Place::new("user"), fs::Permissions::from_mode);
    drop(place.open(SCHEMA, &small()));
    let before = fs::read(path(&place)).unwrap();
    let error = as_another_user(&place, 0o600).unwrap();
    assert!(
        matches!(&error, Error::Io { error, .. } if error.raw_os_error() == Some(libc::EACCES)),
        "{error}"
    );
    fs::set_permissions(path(&place), mode(0o666)).unwrap();
    let error = as_another_user(&place, 0o600).unwrap();
    assert!(matches!(&error, Error::Permissions { why, .. } if why.contains("666")), "{error}");
    assert!(fs::read(path(&place)).unwrap() == before, "it was touched");
    // Who lets others write has it opened by them, and opens theirs.
    assert!(as_another_user(&place, 0o666).is_none());
    fs::set_permissions(path(&place), mode(0o604)).unwrap();
    let error = as_another_user(&place, 0o666).unwrap();
    assert!(matches!(&error, Error::Io { .. }), "{error}");
}

#[test]
fn no_link_is_followed_and_nothing_but_a_file_is_opened() {
    let (place, link) = (Place::new("target"), Place::new("link"));
    drop(place.open(SCHEMA, &small()));
    symlink(path(&place), path(&link)).unwrap();
    let error = Table::attach(&link.0, &small()).err().unwrap();
    assert!(matches!(&error, Error::Io { error, .. } if error.raw_os_error() == Some(libc::ELOOP)));
    let folder = Location::Path(std::env::temp_dir());
    assert!(Table::attach(&folder, &small()).is_err());
    for name in ["", "a/b", "..", ".hidden", "a\0b"] {
        let error = Table::attach(&Location::Name(name.into()), &small()).err().unwrap();
        assert!(matches!(error, Error::Invalid(_)), "{name:?}: {error}");
    }
}

#[test]
fn a_failed_creation_is_an_error_and_leaves_no_file() {
    let schema = Schema::parse(SCHEMA).unwrap();
    let place = Place::new("large");
    for options in [
        Options { capacity: 0, ..small() },
        Options { capacity: u64::MAX, ..small() },
        Options { key_size: 0, ..small() },
        Options { key_size: 1025, ..small() },
        Options { writers: 0, ..small() },
        Options { writers: 4096, ..small() },
    ] {
        let error = Table::open(&place.0, &schema, &options).err().unwrap();
        assert!(matches!(error, Error::Invalid(_)), "{error}");
        assert!(!path(&place).exists());
    }
    // More than there is: refused when it is made, not by a signal when it is written.
    let options = Options { capacity: 10_000_000_000, key_size: 1024, ..small() };
    let error = Table::open(&place.0, &schema, &options).err().unwrap();
    assert!(matches!(error, Error::NoRoom { .. }), "{error}");
    assert!(!path(&place).exists());
}

#[test]
fn keys_of_one_byte_to_a_kilobyte_are_distinct_and_longer_ones_refused() {
    let place = Place::new("keys");
    let table = place.open("a: U64", &Options { key_size: 1024, capacity: 4000, ..small() });
    let key = |length: usize, last: u8| [vec![b'k'; length - 1], vec![last]].concat();
    for length in 1..=1024 {
        for last in 0..2 {
            let value = Value::Unsigned(length as u64 * 2 + u64::from(last));
            table.set(&key(length, last), &row(&table, &[("a", value)])).unwrap();
        }
    }
    for length in 1..=1024 {
        for last in 0..2 {
            let found = table.get(&key(length, last)).unwrap().unwrap().get("a");
            assert_eq!(found, Some(Value::Unsigned(length as u64 * 2 + u64::from(last))));
        }
        assert!(!table.contains(&key(length, 2)).unwrap());
    }
    for length in [0, 1025] {
        let error = table.contains(&vec![1; length]).unwrap_err();
        assert!(matches!(error, Error::KeyLength { .. }), "{error}");
    }
}

/// Words of the control page, as `geometry` has them.
const PID_NAMESPACE: u64 = 4096;
const BOOT: u64 = 4096 + 16;

fn change(place: &Place, at: u64) {
    let file: File = OpenOptions::new().read(true).write(true).open(path(place)).unwrap();
    let mut word = [0; 8];
    file.read_exact_at(&mut word, at).unwrap();
    word[0] ^= 0x55;
    file.write_all_at(&word, at).unwrap();
}

#[test]
fn another_pid_namespace_or_boot_is_refused_while_open_there_and_taken_over_afterwards() {
    for at in [PID_NAMESPACE, PID_NAMESPACE + 8, BOOT] {
        let place = file("namespace");
        let table = place.open(SCHEMA, &small());
        let set = row(&table, &[("a", Value::Unsigned(7))]);
        table.set(b"key", &set).unwrap();
        change(&place, at);
        let error = Table::attach(&place.0, &small()).err().unwrap();
        assert!(matches!(error, Error::Namespace { .. }), "{error}");
        assert_eq!(table.get(b"key").unwrap(), Some(set.clone()));
        drop(table);
        let table = Table::attach(&place.0, &small()).unwrap();
        assert_eq!(table.get(b"key").unwrap(), Some(set));
        assert_eq!(table.statistics().writers, 0);
        drop(Table::attach(&place.0, &small()).unwrap());
    }
}

#[test]
fn time_in_a_file_continues_after_a_reboot_even_if_the_clock_was_set_back() {
    let place = file("clock");
    let table = place.open(SCHEMA, &small());
    let latest = table.now() + 3_600_000_000_000;
    let words = OpenOptions::new().write(true).open(path(&place)).unwrap();
    drop(table);
    // As if the last boot's clock had been an hour ahead.
    words.write_all_at(&latest.to_le_bytes(), 4096 + 5 * 8).unwrap();
    change(&place, BOOT);
    assert!(Table::attach(&place.0, &small()).unwrap().now() >= latest);
}
