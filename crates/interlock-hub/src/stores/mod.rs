//! The stores of a hub: what is published to their topics is kept.
//!
//! | module | responsibility |
//! |---|---|
//! | [`settings`] | a store's settings |
//! | [`batch`] | messages on their way to a store |
//! | [`queue`] | what waits for a store's thread, bounded in bytes |
//! | [`store`] | a store: its queue and its figures |
//! | [`load`] | messages that a thread has taken, and what is left of them |
//! | [`sink`] | where a thread puts messages |
//! | [`file_sink`], [`network_sink`] | in files; on another server |
//! | [`fan_out_sink`] | in each of several places, or the first that works |
//! | [`retry`] | what failed: when it is tried again, and what is logged |
//! | [`thread`] | threads of stores |
//! | [`spooling`] | a spool, into which one thread puts messages and from which another takes them |
//! | [`pump`] | the thread that takes them out, and delivers them |
//! | [`spool_sink`] | the thread that puts them in |
//! | [`tree`] | sinks, as stores are declared |
//! | [`writer`] | a store's thread |
//! | [`set`] | all stores: begun, changed, drained |
//! | [`reading`] | reading what stores keep |
//! | [`offers`] | what one worker published that stores want |
//!
//! ```text
//! workers ── queue ── writer ── file, null, priority of files
//!                        └───── spool ── pump ── network, priority, multiple, file, null
//! ```
//!
//! A worker reserves room in each store that wants a message before it does anything with it, and hands
//! over at its turn's end, once for each store. So a stalled store fills its own queue and holds up only
//! those who publish to its topics.

pub mod batch;
pub mod fan_out_sink;
pub mod file_sink;
pub mod load;
pub mod network_sink;
pub mod offers;
pub mod pump;
pub mod queue;
pub mod reading;
pub mod retry;
pub mod set;
pub mod settings;
pub mod sink;
pub mod spool_sink;
pub mod spooling;
pub mod store;
pub mod thread;
pub mod tree;
pub mod writer;

pub use offers::{Gate, Offered, Offers};
pub use set::{StoreSet, Stores};
pub use settings::{
    Acknowledgement, Child, FileSettings, Filter, Full, NetworkSettings, SpoolSettings, StoreKind,
    StoreSettings,
};
pub use store::{Host, Store};

/// A set of stores is a word with a bit for each.
pub const MOST_STORES: usize = 64;
