//! The journal: what makes queues durable (clause 18).
//!
//! It knows bytes, records, segments and snapshots, and not what a call means. Its user appends a
//! record for each call that changes a queue, commits at the end of a turn, and sends the replies
//! of that turn after the commit. After a restart the same calls are replayed, in their order, upon
//! the last snapshot.
//!
//! | module | what it holds |
//! |---|---|
//! | [`storage`] | what a journal asks of a disk; the real one, and one that fails as a seed says |
//! | [`record`] | one call as bytes, with its checksum |
//! | [`mod@file`] | names and heads of segments and snapshots |
//! | [`journal`] | appending, group commit, rotation, and what happens when the disk fails or is full |
//! | [`snapshot`] | writing the state of all queues, so that old segments can go |
//! | [`cursor`] | reading records again while others are written |
//! | [`recovery`] | reading it all again: what is whole, what is torn, what is damaged |
//! | [`mod@copy`] | a copy of it while it is written to |
//! | [`scan`] | telling a torn tail from damage |
//! | [`report`] | what a recovery found, or why a journal was not opened, in words |
//!
//! Imports point one way: `recovery → snapshot, copy, cursor, scan → journal → file → record; storage`.
//!
//! **What is promised.** A record that was committed with [`Durability::Always`] is there after any
//! crash. One that was committed otherwise is there after a crash of the process, and after a crash of
//! the machine if a sync came in between. Records come back in the order in which they were appended,
//! each once, without a gap: what is behind a gap is not replayed.
//!
//! **How a torn tail differs from damage.** Each record says up to where the journal was on disk
//! when it was appended. If a record cannot be read and a later one says that it was on disk, the
//! disk has lost what it had confirmed: that is damage, and recovery stops. Else it was never
//! confirmed: the write was under way when the machine stopped, and the tail is cut and reported.
//! No later record covers the very last ones: for that a tick leaves a mark after a pause. Damage
//! to them in the second before is taken for a torn tail.
//!
//! **After a clean stop** a file names the last record. With fewer records the journal is not
//! opened, whatever happened to its files; nor is it with a last segment that is shorter than it
//! was made, after a crash too. A copy that was made during writes has such a file as well.
//!
//! **Time.** The latest time of any record is known when it is opened, so that the queues continue
//! from there: a clock that was set back between two processes must not stop what is due.
//!
//! **Room.** What makes a queue larger is refused while there is still room for what makes it smaller: a
//! quarter of a segment, however fast calls come. See [`Journal::accepts`].

mod condition;
pub mod copy;
pub mod cursor;
pub mod file;
pub mod journal;
pub mod record;
pub mod recovery;
pub mod report;
pub mod scan;
pub mod snapshot;
pub mod storage;
mod writer;

pub use journal::{Durability, Entry, Journal, JournalError, JournalSettings, Standing};
pub use record::Record;
pub use recovery::{open, Repair, Replay};
pub use report::{OpenError, Report};
