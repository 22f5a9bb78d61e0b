//! The parts of the journal's crate that are needed to copy a journal without a hub.

pub use interlock_journal::copy;
pub use interlock_journal::storage::disk;
