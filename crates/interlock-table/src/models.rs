//! The slot protocol under loom: every order of every word, with what weaker processors than x86 may do.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p interlock-table --lib`. Buckets have two slots here and
//! rows have two words. A writer that dies is a thread that returns from the midst of its call.

use loom::sync::Arc;
use loom::thread;

use crate::error::Error;
use crate::fault::Step;
use crate::layout::hash::Key;
use crate::memory::Memory;
use crate::protocol::insert::New;
use crate::protocol::migration::{Migration, Resized};
use crate::protocol::writer::{Wait, Writer};
use crate::sync::{AtomicU64, Ordering::*};

const SECRET: [u64; 2] = [1, 2];

/// Explores all thread orders with up to this many preemptions: once with the reorderings of weak processors,
/// and once with other threads running at every step.
fn check(preemptions: usize, model: impl Fn(bool) + Sync + Send + 'static) {
    let model = std::sync::Arc::new(model);
    for stepped in [false, true] {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.max_branches = 20_000;
        let model = model.clone();
        builder.check(move || model(stepped));
    }
}

fn key(name: &str) -> Key<'_> {
    Key::new(name.as_bytes(), SECRET)
}

fn writer(memory: &Memory, id: u64, dies_at: Option<Step>) -> Writer<'_> {
    let mut writer = Writer::new(memory, id, std::time::Duration::ZERO);
    writer.dies_at = dies_at;
    writer
}

fn insert(writer: &Writer, name: &str, word: u64) -> Result<bool, Error> {
    let row = [word, word];
    let new = New { key: key(name), expiry: 0, row: &row, now: 1, access: 1, evict: true };
    writer.insert(&new, &mut Wait::default())
}

/// Sets a row that is there.
fn set(writer: &Writer, name: &str, word: u64) -> Result<(), Error> {
    let (memory, mut wait) = (writer.memory, Wait::default());
    loop {
        let (place, before) = memory.find(&key(name)).expect("the row is there");
        if !before.is_open() {
            writer.wait(memory.word(place.at), before, &mut wait)?;
            continue;
        }
        writer.fill(0, &[word, word]);
        if writer.write_row(place, before)? {
            return Ok(());
        }
    }
}

/// Raises the second word of a row that is there.
fn raise(writer: &Writer, name: &str) -> Result<(), Error> {
    let (memory, mut wait) = (writer.memory, Wait::default());
    loop {
        let (place, before) = memory.find(&key(name)).expect("the row is there");
        if !before.is_open() {
            writer.wait(memory.word(place.at), before, &mut wait)?;
            continue;
        }
        if writer.write_word(place, before, 2, |word| Ok((word + 1, ())))?.is_some() {
            return Ok(());
        }
    }
}

fn read(memory: &Memory, name: &str) -> Option<[u64; 2]> {
    let words = |value: &[AtomicU64]| [value[1].load(Relaxed), value[2].load(Relaxed)];
    memory.read(&key(name), words).map(|(_, row)| row)
}

fn whole(memory: &Memory, name: &str) -> u64 {
    let [first, second] = read(memory, name).expect("the row is there");
    assert_eq!(first, second, "torn");
    first
}

/// A memory of three participants with this row in it.
fn with_row(word: u64, stepped: bool) -> Arc<Memory> {
    let memory = Arc::new(Memory::model(3, stepped));
    assert!(insert(&writer(&memory, 1, None), "row", word).unwrap());
    memory
}

/// All slots and insert locks are free, and the rows are counted as they are.
fn nothing_is_held(memory: &Memory) {
    assert_eq!(memory.rows(), memory.visited_rows(0).0);
    for bucket in 0..memory.geometry.buckets() {
        assert!(crate::layout::state::State(memory.insert_lock(bucket).load(Relaxed)).is_open());
        for index in 0..crate::layout::geometry::SLOTS {
            assert!(memory.state(memory.geometry.slot(bucket, index)).is_open());
        }
    }
}

#[test]
fn a_reader_sees_complete_rows_that_never_go_back() {
    check(2, |stepped| {
        let memory = with_row(1, stepped);
        let shared = memory.clone();
        let other = thread::spawn(move || {
            let writer = writer(&shared, 1, None);
            set(&writer, "row", 2).unwrap();
            set(&writer, "row", 3).unwrap();
        });
        let (first, second) = (whole(&memory, "row"), whole(&memory, "row"));
        assert!(first <= second, "{first} {second}");
        other.join().unwrap();
        assert_eq!(whole(&memory, "row"), 3);
        nothing_is_held(&memory);
    });
}

#[test]
fn a_concurrent_set_and_increment_lose_nothing() {
    check(2, |stepped| {
        let memory = with_row(1, stepped);
        let shared = memory.clone();
        let other = thread::spawn(move || raise(&writer(&shared, 1, None), "row").unwrap());
        raise(&writer(&memory, 2, None), "row").unwrap();
        other.join().unwrap();
        assert_eq!(read(&memory, "row"), Some([1, 3]));
        nothing_is_held(&memory);
    });
}

/// A writer dies at the step; a reader and a recoverer come.
fn dies_at(step: Step) {
    check(2, move |stepped| {
        let memory = with_row(1, stepped);
        let shared = memory.clone();
        let dying = thread::spawn(move || {
            let died = set(&writer(&shared, 1, Some(step)), "row", 2);
            assert!(matches!(died, Err(Error::Died)));
        });
        let first = whole(&memory, "row");
        dying.join().unwrap();
        let second = whole(&memory, "row");
        assert!(first <= second);
        // With the lock the write has happened.
        assert_eq!(second, if step == Step::ImageFilled { 1 } else { 2 });
        let shared = memory.clone();
        let other = thread::spawn(move || set(&writer(&shared, 2, None), "row", 3).unwrap());
        let third = whole(&memory, "row");
        assert!(third == second || third == 3);
        set(&writer(&memory, 3, None), "row", 4).unwrap();
        other.join().unwrap();
        assert!(whole(&memory, "row") >= 3);
        nothing_is_held(&memory);
    });
}

#[test]
fn a_writer_that_dies_before_publishing_its_image_has_written_nothing() {
    dies_at(Step::ImageFilled);
}

#[test]
fn a_writer_that_dies_after_publishing_its_image_has_written() {
    dies_at(Step::ImageLocked);
}

#[test]
fn a_writer_that_dies_while_copying_has_written() {
    dies_at(Step::ImageHalfCopied);
}

#[test]
fn two_processes_may_finish_a_dead_writer_s_row_at_once() {
    for step in [Step::ImageLocked, Step::ImageHalfCopied, Step::ImageCopied] {
        check(2, move |stepped| {
            let memory = with_row(1, stepped);
            let died = set(&writer(&memory, 1, Some(step)), "row", 2);
            assert!(matches!(died, Err(Error::Died)));
            let shared = memory.clone();
            let other = thread::spawn(move || writer(&shared, 2, None).recover(1, 1).unwrap());
            assert_eq!(whole(&memory, "row"), 2);
            writer(&memory, 3, None).recover(1, 1).unwrap();
            assert_eq!(whole(&memory, "row"), 2);
            other.join().unwrap();
            nothing_is_held(&memory);
        });
    }
}

#[test]
fn a_recoverer_that_dies_is_recovered_in_turn() {
    for step in [Step::RedoFilled, Step::RedoTaken, Step::RedoHalfCopied, Step::RedoCopied] {
        check(1, move |stepped| {
            let memory = with_row(1, stepped);
            let _ = set(&writer(&memory, 1, Some(Step::ImageHalfCopied)), "row", 2);
            let shared = memory.clone();
            let dying = thread::spawn(move || {
                // Unless the other was first.
                let _ = set(&writer(&shared, 2, Some(step)), "row", 3);
            });
            let seen = whole(&memory, "row");
            assert!((2..=3).contains(&seen));
            raise(&writer(&memory, 3, None), "row").unwrap();
            dying.join().unwrap();
            let last = read(&memory, "row").unwrap();
            assert!(last == [2, 3] || last == [3, 3] || last == [3, 4], "{last:?}");
        });
    }
}

/// The first row of buckets is full, so that another insert moves one of its residents.
fn full(stepped: bool) -> Arc<Memory> {
    let memory = Arc::new(Memory::model(3, stepped));
    for (n, name) in
        ["row", "second", "third", "fourth", "fifth", "sixth", "seventh"].iter().enumerate()
    {
        assert!(insert(&writer(&memory, 1, None), name, n as u64 + 1).unwrap());
    }
    // A gap at the end, and none before it: all buckets are everybody's candidates here.
    memory
}

/// A key that is inserted while a row is moved, by a writer that may die; `row` is always there, and once.
fn moves(dies_at: Option<Step>) {
    check(2, move |stepped| {
        let memory = full(stepped);
        let shared = memory.clone();
        let other = thread::spawn(move || {
            let writer = writer(&shared, 1, dies_at);
            match crate::protocol::insert::move_for_model(&writer, &key("row")) {
                Ok(moved) => assert!(moved),
                Err(error) => assert!(matches!(error, Error::Died)),
            }
        });
        assert_eq!(whole(&memory, "row"), 1);
        assert_eq!(whole(&memory, "row"), 1);
        other.join().unwrap();
        assert_eq!(whole(&memory, "row"), 1);
        if dies_at.is_some() {
            // Two recover at once.
            let shared = memory.clone();
            let other = thread::spawn(move || writer(&shared, 2, None).recover(1, 1).unwrap());
            writer(&memory, 3, None).recover(1, 1).unwrap();
            other.join().unwrap();
        }
        assert_eq!(whole(&memory, "row"), 1);
        nothing_is_held(&memory);
        let mut there = 0;
        for bucket in 0..memory.geometry.buckets() {
            for index in 0..crate::layout::geometry::SLOTS {
                let slot = memory.geometry.slot(bucket, index);
                there +=
                    u32::from(memory.state(slot).is_live() && memory.has_key(slot, &key("row")));
            }
        }
        assert_eq!(there, 1);
    });
}

#[test]
fn a_moving_row_is_never_missed() {
    moves(None);
}

#[test]
fn a_row_whose_mover_dies_exists_once() {
    for step in [
        Step::SourceLocked,
        Step::TargetClaimed,
        Step::TargetHalfCopied,
        Step::TargetTagged,
        Step::SourceMoved,
        Step::TargetCounted,
        Step::TargetPublished,
    ] {
        moves(Some(step));
    }
}

/// A writer dies while it inserts or deletes; two recover it at once, and one of them dies of that.
fn dies_counting(step: Step, dying: fn(&Writer) -> Result<bool, Error>, is_full: bool) {
    check(2, move |stepped| {
        let memory = match is_full {
            true => full_to_the_last_slot(stepped),
            false => with_row(1, stepped),
        };
        assert!(matches!(dying(&writer(&memory, 1, Some(step))), Err(Error::Died)));
        let shared = memory.clone();
        let other = thread::spawn(move || {
            let dies_too = Some(Step::RecoveredCounted);
            let _ = writer(&shared, 2, dies_too).recover(1, 1);
        });
        writer(&memory, 3, None).recover(1, 1).unwrap();
        nothing_is_held(&memory);
        other.join().unwrap();
        nothing_is_held(&memory);
        // The next owner of the number counts on.
        assert!(insert(&writer(&memory, 1, None), "other", 1).unwrap());
        nothing_is_held(&memory);
    });
}

#[test]
fn a_row_whose_writer_dies_while_inserting_is_counted_if_it_is_there() {
    use Step::*;
    for step in [SlotClaimed, RowHalfWritten, RowWritten, TagWritten, RowCounted, RowPublished] {
        dies_counting(step, |writer| insert(writer, "new", 7), false);
    }
}

#[test]
fn a_row_whose_overwriter_dies_is_not_counted_any_more() {
    for step in [Step::SlotClaimed, Step::RowWritten, Step::TagWritten, Step::RowPublished] {
        dies_counting(step, |writer| insert(writer, "new", 7), true);
    }
}

#[test]
fn a_row_whose_writer_dies_while_deleting_is_not_counted_any_more() {
    for step in [Step::DeleteClaimed, Step::DeleteUntagged, Step::DeleteCounted] {
        dies_counting(step, delete, false);
    }
}

fn delete(writer: &Writer) -> Result<bool, Error> {
    let (place, before) = writer.memory.find(&key("row")).expect("the row is there");
    writer.free(place, before)
}

/// Rows in all slots, so that another insert overwrites one.
fn full_to_the_last_slot(stepped: bool) -> Arc<Memory> {
    let memory = full(stepped);
    assert!(insert(&writer(&memory, 1, None), "eighth", 8).unwrap());
    memory
}

#[test]
fn two_inserts_of_one_key_see_each_other() {
    check(2, |stepped| {
        let memory = Arc::new(Memory::model(3, stepped));
        let shared = memory.clone();
        let other = thread::spawn(move || insert(&writer(&shared, 1, None), "row", 1).unwrap());
        let own = insert(&writer(&memory, 2, None), "row", 2).unwrap();
        assert_eq!(u32::from(own) + u32::from(other.join().unwrap()), 1);
        assert_eq!(whole(&memory, "row"), if own { 2 } else { 1 });
        nothing_is_held(&memory);
    });
}

/// Changes by a writer in whichever of two memories is the table.
fn in_the_table(
    memories: &[Arc<Memory>; 2],
    writer: impl Fn(&Memory) -> Result<(), Error>,
) -> Result<(), Error> {
    for memory in memories {
        if memory.is_current() {
            match writer(memory) {
                Err(Error::Moved) => {}
                other => return other,
            }
        }
    }
    panic!("one of them is the table");
}

/// Raises a row, if it is there.
fn raise_in(memory: &Memory, id: u64) -> Result<(), Error> {
    let (writer, mut wait) = (writer(memory, id, None), Wait::default());
    loop {
        let (place, before) = memory.find(&key("row")).expect("the row is there");
        if !before.is_open() {
            writer.wait(memory.word(place.at), before, &mut wait)?;
            continue;
        }
        if writer.write_word(place, before, 2, |word| Ok((word + 1, ())))?.is_some() {
            return Ok(());
        }
    }
}

/// Reads the row in whichever is the table.
fn read_there(memories: &[Arc<Memory>; 2]) -> [u64; 2] {
    let memory = memories.iter().find(|memory| memory.is_current()).expect("one is the table");
    read(memory, "row").expect("the row is there")
}

fn hand_over(memories: &[Arc<Memory>; 2], dies_at: Option<Step>) -> Result<Resized, Error> {
    let [from, to] = memories;
    let (from, to) = (writer(from, 1, dies_at), writer(to, 1, None));
    let mut wait = Wait::default();
    let word = from.begin_resize(&mut wait)?;
    from.at(Step::ResizeBegun)?;
    let mut migration = Migration::new(&from, &to, false);
    migration.copy(1, &mut Wait::default())?;
    from.at(Step::ResizeCopied)?;
    let resized = migration.finish(1, &mut wait)?;
    from.at(Step::ResizeFrozen)?;
    assert!(from.memory.end(word), "it was not given up");
    from.at(Step::ResizeEnded)?;
    Ok(resized)
}

/// Two memories, of which the first is the table and holds the row.
fn two(stepped: bool) -> [Arc<Memory>; 2] {
    [with_row(1, stepped), Arc::new(Memory::model(3, stepped))]
}

#[test]
fn an_increment_during_a_resize_is_not_lost() {
    check(2, |stepped| {
        let memories = two(stepped);
        let shared = memories.clone();
        let other = thread::spawn(move || {
            in_the_table(&shared, |memory| raise_in(memory, 2)).unwrap();
            let [_, count] = read_there(&shared);
            assert_eq!(count, 2, "what this thread has written is there");
        });
        let resized = hand_over(&memories, None).unwrap();
        assert_eq!(resized, Resized { moved: 1, expired: 0, dropped: 0 });
        other.join().unwrap();
        assert_eq!(read_there(&memories), [1, 2]);
        assert!(!memories[0].is_current());
    });
}

#[test]
fn an_insert_or_delete_during_a_resize_is_not_lost() {
    check(2, |stepped| {
        let memories = two(stepped);
        let shared = memories.clone();
        let other = thread::spawn(move || {
            let put = |memory: &Memory| insert(&writer(memory, 2, None), "new", 7).map(|_| ());
            in_the_table(&shared, put).unwrap();
            let gone = |memory: &Memory| {
                let (writer, mut wait) = (writer(memory, 2, None), Wait::default());
                loop {
                    let (place, before) = memory.find(&key("row")).expect("the row is there");
                    if !before.is_open() {
                        writer.wait(memory.word(place.at), before, &mut wait)?;
                    } else if writer.free(place, before)? {
                        return Ok(());
                    }
                }
            };
            in_the_table(&shared, gone).unwrap();
        });
        hand_over(&memories, None).unwrap();
        other.join().unwrap();
        assert_eq!(read(&memories[1], "new"), Some([7, 7]));
        assert_eq!(read(&memories[1], "row"), None);
    });
}

#[test]
fn a_resize_that_dies_leaves_the_old_table_or_the_new_one() {
    for step in [Step::ResizeBegun, Step::ResizeFreezing, Step::ResizeFrozen, Step::ResizeEnded] {
        check(2, move |stepped| {
            let memories = two(stepped);
            let shared = memories.clone();
            let dying = thread::spawn(move || {
                assert!(matches!(hand_over(&shared, Some(step)), Err(Error::Died)));
            });
            in_the_table(&memories, |memory| raise_in(memory, 2)).unwrap();
            dying.join().unwrap();
            in_the_table(&memories, |memory| raise_in(memory, 3)).unwrap();
            assert_eq!(read_there(&memories), [1, 3]);
            assert_eq!(memories[0].is_current(), step != Step::ResizeEnded);
        });
    }
}

/// Two who come upon what a dead resizer froze, one of whom resizes in turn.
#[test]
fn a_late_unfreeze_does_not_unfreeze_a_later_resize() {
    check(2, |stepped| {
        let memories = two(stepped);
        let died = hand_over(&memories, Some(Step::ResizeFrozen));
        assert!(matches!(died, Err(Error::Died)));
        memories[0].vacate(1, 1);
        let fresh = [memories[0].clone(), Arc::new(Memory::model(3, stepped))];
        let shared = fresh.clone();
        let other = thread::spawn(move || {
            in_the_table(&shared, |memory| raise_in(memory, 2)).unwrap();
        });
        let (from, to) = (writer(&fresh[0], 3, None), writer(&fresh[1], 1, None));
        let mut wait = Wait::default();
        let word = from.begin_resize(&mut wait).unwrap();
        let mut migration = Migration::new(&from, &to, false);
        migration.finish(1, &mut wait).unwrap();
        assert!(fresh[0].end(word));
        other.join().unwrap();
        assert_eq!(read_there(&fresh), [1, 2]);
    });
}
