//! The parts of the journal's own crate for those who copy a journal without a hub.

pub use interlock_journal::copy;
pub use interlock_journal::storage::disk;
