//! The file store.
//!
//! A data file is what people read with `tail`, `grep` and `zcat`: each payload and a newline. Beside it
//! is an index, which tells where each message begins, what it is, and whether it is whole.
//!
//! | module | what it holds |
//! |---|---|
//! | [`settings`] | a store's settings |
//! | [`frame`] | 64 bytes of an index |
//! | [`index`] | what an index says, read from its beginning |
//! | [`report`] | what was found when a store was opened |
//! | [`segment`] | a data file and its index, while they are written to |
//! | [`chain`] | the files of a topic, one after the other, and what waits to be written |
//! | [`files`] | those that are not written to any more |
//! | [`compress`] | compression of these |
//! | `store` | taking messages, and writing them |
//! | `rotate`, `upkeep` | the step to the next file; what falls due |
//! | [`listing`] | which files there are |
//! | [`opened`] | a file that is read |
//! | [`missing`] | what cannot be read any more |
//! | `walk` | the files of a store in its folder |
//! | `ending` | where the newest of a chain ends |
//! | [`recovery`] | opening |
//! | `cursor`, `backward` | from one message to the next, and to the one before |
//! | [`reader`] | the rule of all readers; a topic, forward and backward |
//! | [`survey`] | all files in a folder |
//! | `verify` | all of a file compared with its checksums |
//!
//! **On disk.** Data is written, then the index. A record says up to where all was on disk when it was
//! written: what cannot be read before that place is damage, what is behind it was torn off.
//!
//! **Once.** A message of an origin whose number is not above the last one of that origin in the chain is
//! here already. The numbers are in the records, and those of all origins at the head of each index.

mod backward;
pub mod chain;
pub mod compress;
mod cursor;
mod ending;
pub mod files;
pub mod frame;
pub mod index;
pub mod listing;
pub mod missing;
pub mod opened;
pub mod reader;
pub mod recovery;
pub mod report;
mod rotate;
pub mod segment;
pub mod settings;
mod store;
pub mod survey;
pub mod upkeep;
pub mod verify;
mod walk;

pub use backward::Backward;
pub use missing::{Found, Missing};
pub use reader::{Forward, Reader};
pub use report::Report;
pub use settings::{Fsync, Retention, Rotation, Settings};
pub use store::{Counters, FileStore, Taken, TooLong, LONGEST_PAYLOAD, LONGEST_TOPIC};
pub use survey::{survey, Survey, Surveyed};
pub use verify::{verify, verify_all, AllVerified, Verified};
