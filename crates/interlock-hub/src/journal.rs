//! What of the journal's own crate is for those who copy one without a hub.

pub use interlock_journal::copy;
pub use interlock_journal::storage::disk;
