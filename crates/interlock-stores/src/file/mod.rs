//! The file store.
//!
//! A data file is what people read with `tail`, `grep` and `zcat`: each payload and a newline. Beside it
//! is an index, which tells where each message begins, what it is, and whether it is whole.
//!
//! A module imports only modules above it in this table; the tables of its folders order theirs likewise.
//!
//! | module | responsibility |
//! |---|---|
//! | [`settings`] | a store's settings |
//! | [`frame`] | 64 bytes of an index |
//! | [`index`] | the contents of an index, read from its beginning |
//! | [`report`] | findings when a store was opened |
//! | [`files`] | files that are complete |
//! | [`compress`] | compression of these |
//! | [`reading`] | reading messages, in any process |
//! | [`writing`] | taking and writing messages, opening and repairing a store |
//!
//! **On disk.** Data is written, then the index. A record says up to where all was on disk when it was
//! written: what cannot be read before that place is damage, what is behind it was torn off.
//!
//! **Once.** A message of an origin whose number is not above the last one of that origin in the chain is
//! here already. The numbers are in the records, and those of all origins at the head of each index.

pub mod compress;
pub mod files;
pub mod frame;
pub mod index;
pub mod reading;
pub mod report;
pub mod settings;
pub mod writing;

pub use reading::backward::Backward;
pub use reading::missing::{Found, Missing};
pub use reading::reader::{Forward, Reader};
pub use reading::survey::{survey, Survey, Surveyed};
pub use reading::verify::{verify, verify_all, AllVerified, Verified};
pub use report::Report;
pub use settings::{Fsync, Retention, Rotation, Settings};
pub use writing::store::{Counters, FileStore, Taken, TooLong, LONGEST_PAYLOAD, LONGEST_TOPIC};
