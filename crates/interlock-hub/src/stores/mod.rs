//! The stores of a hub: what is published to their topics is kept.
//!
//! | module | what it holds |
//! |---|---|
//! | [`settings`] | what a store is told |
//! | [`batch`] | messages on their way to a store |
//! | [`queue`] | what waits for a store's thread, bounded in bytes |
//! | [`store`] | a store: its queue and its figures |
//! | [`sink`] | where its thread puts messages |
//! | [`writer`] | that thread |
//! | [`set`] | all stores: begun, changed, drained |
//! | [`reading`] | reading what stores keep |
//! | [`offers`] | what one worker published that stores want |
//!
//! A worker reserves room in each store that wants a message before it does anything with it, and hands
//! over at its turn's end, once for each store. So a stalled store fills its own queue and holds up only
//! those who publish to its topics.

pub mod batch;
pub mod offers;
pub mod queue;
pub mod reading;
pub mod set;
pub mod settings;
pub mod sink;
pub mod store;
pub mod writer;

pub use offers::{Gate, Offered, Offers};
pub use set::{StoreSet, Stores};
pub use settings::{Acknowledgement, FileSettings, Full, StoreKind, StoreSettings};
pub use store::{Host, Store};

/// A set of stores is a word with a bit for each.
pub const MOST_STORES: usize = 64;
