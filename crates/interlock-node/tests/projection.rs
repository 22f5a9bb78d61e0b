//! A table in shared memory that shows the rows of a node.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use interlock_hub::tables::keeper;
use interlock_hub::tables::keeper::Keeper;
use interlock_log::checkpoint::Place;
use interlock_log::entry::Mark;
use interlock_log::rows::{Rows, Settings, When};
use interlock_log::state::Rules;
use interlock_node::projection::{InTable, Projection};
use interlock_table::{Location, Options, Row, Table, Value};

const NOW: u64 = 1_700_000_000_000;

fn settings() -> Settings {
    let rules = Rules::parse("name: str[8], n: U32, f: F32; last, sum, last; 500 ms").unwrap();
    let (name, dc) = ("t".to_owned(), "main".to_owned());
    // So few tombstones that most are soon forgotten.
    let (capacity, tombstones) = (500, 2);
    Settings { name, dc, rules, capacity, centres: 1, tombstones, key_size: 8, ttl: 0 }
}

fn options(capacity: u64) -> Options {
    Options { capacity, key_size: 8, evict: false, ..Options::default() }
}

struct Shown {
    path: PathBuf,
    rows: Rows,
    now: u64,
    reading: u64,
}

impl Shown {
    fn new(name: &str) -> Shown {
        Shown::of(name, settings())
    }

    fn of(name: &str, settings: Settings) -> Shown {
        let file = format!("interlock-projection-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(file);
        let _ = std::fs::remove_file(&path);
        Shown { path, rows: Rows::new(settings), now: NOW, reading: NOW << 16 }
    }

    fn open(&self, capacity: u64) -> Table {
        self.open_with(&options(capacity))
    }

    fn open_with(&self, options: &Options) -> Table {
        let schema = settings().rules.schema().clone();
        Table::open(&Location::Path(self.path.clone()), &schema, options).unwrap()
    }

    fn run(&mut self, line: &str) {
        self.reading += 16;
        let reading = self.reading;
        let place = |existing| Some(reading).filter(|at| *at > existing);
        let (time, place): (_, &dyn Fn(u64) -> Option<u64>) = (self.now, &place);
        let when = When {
            time,
            reading,
            lineage: 0,
            put_back: false,
            writer: None,
            late: false,
            lost: false,
            sent: None,
            place,
        };
        let words: Vec<_> = line.split(' ').collect();
        let _ = self.rows.run(&words, &when, &mut Vec::new());
    }

    /// Shows a position, again as long as the table grows: until that ends it keeps the one before.
    fn show_position(&mut self, projection: &mut InTable, reader: &Table, position: u64) {
        let until = Instant::now() + Duration::from_secs(20);
        while reader.position() != Some((position, position * 7)) {
            assert!(Instant::now() < until, "it keeps {:?}", reader.position());
            projection.show(&mut self.rows, place(position), true).unwrap();
        }
    }

    fn random(&mut self, random: &mut Rng) {
        let key = random.u16(..600);
        match random.u8(..10) {
            0..3 => self.run(&format!("HSET t:k{key} name x{} f {}", random.u8(..9), random.f32())),
            3..6 => self.run(&format!("HINCRBY t:k{key} n {}", random.u8(..9))),
            6..8 => self.run(&format!("DEL t:k{key}")),
            8 => self.run(&format!("PEXPIRE t:k{key} {}", random.u32(100_000..900_000))),
            _ => {
                self.now += random.u64(..300_000);
                self.reading = self.reading.max(self.now << 16);
                self.rows.pass(self.now);
            }
        }
    }

    /// The rows of the state, as the table should have them.
    fn wanted(&self) -> Vec<(Vec<u8>, Row)> {
        let (store, rules) = (self.rows.store(), &self.rows.settings().rules);
        let schema = Arc::new(rules.schema().clone());
        let shown = |key: &[u8], state: &[u8]| {
            let view = rules.view_of(Some(state), store.time());
            let mut row = Row::new(&schema);
            for (number, value) in view.values()?.into_iter().enumerate() {
                row.set(&schema.columns()[number].name, &value).unwrap();
            }
            Some((key.to_vec(), row))
        };
        let mut wanted: Vec<_> =
            store.all().into_iter().filter_map(|row| shown(row.key, row.state)).collect();
        wanted.sort_by(|one, other| one.0.cmp(&other.0));
        wanted
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn rows_of(table: &Table) -> Vec<(Vec<u8>, Row)> {
    let mut found = Vec::new();
    let mut cursor = 0;
    loop {
        cursor = table.scan(cursor, 1000, |row| found.push((row.key, row.row)));
        if cursor == 0 {
            break;
        }
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

fn place(position: u64) -> Place {
    Place { mark: Mark { position, checksum: position * 7 }, ..Place::default() }
}

#[test]
fn the_shared_table_has_the_rows_of_the_state_whatever_it_had_before() {
    let (mut shown, mut random) = (Shown::new("random"), Rng::new());
    println!("seed {}", random.get_seed());
    // A small table, so that it has to grow.
    let reader = shown.open(8);
    let mut projection = InTable::new(shown.open(8));
    for round in 1..400 {
        for _ in 0..random.usize(..100) {
            shown.random(&mut random);
        }
        if random.u8(..20) == 0 {
            // The node restarts from a checkpoint of its current state.
            let mut bytes = Vec::new();
            shown.rows.write(&mut bytes);
            shown.rows = Rows::read(&bytes).unwrap();
            projection = InTable::new(shown.open(8));
            assert_eq!(projection.shown(), Some(place(round - 1).mark).filter(|_| round > 1));
        }
        projection.show(&mut shown.rows, place(round), true).unwrap();
        // A scan may find a row twice while the table grows.
        shown.show_position(&mut projection, &reader, round);
        assert_eq!(rows_of(&reader), shown.wanted(), "round {round}");
    }
    assert!(reader.made().capacity > 8, "it has grown");
}

#[test]
fn a_table_grows_with_the_rows_up_to_the_capacity_of_the_node() {
    let mut shown = Shown::new("grows");
    let (reader, mut projection) = (shown.open(8), InTable::new(shown.open(8)));
    let mut capacities = vec![8];
    for key in 0..500 {
        shown.run(&format!("HSET t:{key} n 1"));
        projection.show(&mut shown.rows, place(key + 1), true).unwrap();
        let (rows, held) = (key + 1, *capacities.last().unwrap());
        // From three quarters on it grows in another thread.
        let until = Instant::now() + Duration::from_secs(20);
        while rows * 4 >= held * 3 && held < 500 && reader.made().capacity == held {
            assert!(Instant::now() < until, "{rows} rows in a table for {held}");
            std::thread::yield_now();
        }
        let found = reader.made().capacity;
        capacities.extend((found != held).then_some(found));
        assert_eq!(rows_of(&reader).len() as u64, rows);
    }
    assert_eq!(capacities, [8, 32, 128, 500]);
    assert_eq!(rows_of(&reader), shown.wanted());
}

#[test]
fn the_position_of_a_table_never_goes_back_while_it_grows() {
    for turn in 0..100 {
        let mut shown = Shown::new(&format!("position{turn}"));
        let (reader, mut projection) = (shown.open(8), InTable::new(shown.open(8)));
        (0..6).for_each(|key| shown.run(&format!("HSET t:{key} n 1")));
        let (mut at, mut seen) = (0, None);
        let until = Instant::now() + Duration::from_secs(20);
        while reader.made().capacity == 8 {
            assert!(Instant::now() < until, "it does not grow");
            at += 1;
            projection.show(&mut shown.rows, place(at), true).unwrap();
            // Mostly the growth ends here, behind a call and before the next.
            for _ in 0..100 {
                let found = reader.position();
                assert!(found >= seen, "{found:?} after {seen:?}");
                seen = found;
            }
        }
        shown.show_position(&mut projection, &reader, at);
    }
}

#[test]
fn rows_are_deleted_while_a_growth_has_them_locked_for_longer_than_a_writer_waits() {
    for turn in 0..5 {
        let capacity = 100_000;
        let mut shown = Shown::of(&format!("locked{turn}"), Settings { capacity, ..settings() });
        let reader = shown.open(20_000);
        let options = Options { patience: Duration::ZERO, ..options(20_000) };
        let mut projection = InTable::new(shown.open_with(&options));
        (0..15_000).for_each(|key| shown.run(&format!("HSET t:k{key} n 1")));
        for key in 0..5000 {
            projection.show(&mut shown.rows, place(key + 1), true).unwrap();
            shown.run(&format!("DEL t:k{key}"));
        }
        shown.show_position(&mut projection, &reader, 6000);
        assert_eq!(rows_of(&reader), shown.wanted());
    }
}

#[test]
fn a_table_that_never_served_is_readable_once_it_has_rows() {
    let mut shown = Shown::new("closed");
    let reads = Keeper::new(keeper::Limits::default()).unwrap();
    let is_read = || reads.is_fresh(|| 1);
    let mut projection = InTable::new(shown.open(8)).opens(reads.clone());
    assert!(!is_read());
    shown.run("HSET t:a n 1");
    projection.show(&mut shown.rows, place(1), false).unwrap();
    assert!(!is_read(), "it has not caught up");
    projection.show(&mut shown.rows, place(2), true).unwrap();
    assert!(is_read());
    // After a restart readers still see the rows from before.
    let reads = Keeper::new(keeper::Limits::default()).unwrap();
    let _again = InTable::new(shown.open(8)).opens(reads.clone());
    assert!(reads.is_fresh(|| 1));
}

#[test]
fn a_table_that_cannot_be_written_is_not_read() {
    let mut shown = Shown::new("unwritable");
    let reads = Keeper::new(keeper::Limits::default()).unwrap();
    // Longer keys do not fit.
    let options = Options { key_size: 2, ..options(8) };
    let mut projection = InTable::new(shown.open_with(&options)).opens(reads.clone());
    shown.run("HSET t:a n 1");
    projection.show(&mut shown.rows, place(1), true).unwrap();
    assert!(reads.is_fresh(|| 1));
    shown.run("HSET t:long n 1");
    projection.show(&mut shown.rows, place(2), true).unwrap_err();
    assert!(!reads.is_fresh(|| 1));
}

#[test]
fn an_older_state_is_not_shown_before_it_has_caught_up() {
    let mut shown = Shown::new("older");
    let (reader, mut projection) = (shown.open(100), InTable::new(shown.open(100)));
    shown.run("HSET t:a n 1");
    projection.show(&mut shown.rows, place(1), false).unwrap();
    assert_eq!(reader.position(), None);
    let mut older = Vec::new();
    shown.rows.write(&mut older);
    shown.run("HSET t:a n 5");
    shown.run("HSET t:b n 5");
    projection.show(&mut shown.rows, place(3), true).unwrap();

    let n = |key: &[u8]| reader.get(key).unwrap().and_then(|row| row.get("n"));
    shown.rows = Rows::read(&older).unwrap();
    projection.show(&mut shown.rows, place(1), false).unwrap();
    assert_eq!((n(b"a"), reader.position()), (Some(Value::Unsigned(5)), Some((3, 21))));
    shown.run("HSET t:a n 6");
    projection.show(&mut shown.rows, place(4), true).unwrap();
    // Afterwards rows that the state lacks are gone.
    assert_eq!((n(b"a"), n(b"b")), (Some(Value::Unsigned(6)), None));
    // From then on the table follows, even while the node reads.
    shown.run("HSET t:a n 7");
    projection.show(&mut shown.rows, place(5), false).unwrap();
    assert_eq!(n(b"a"), Some(Value::Unsigned(7)));
}
