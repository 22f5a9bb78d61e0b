//! The rows of a table as a machine that a log drives.

mod store;

pub use store::{Changed, Store, MAX_KEY};
