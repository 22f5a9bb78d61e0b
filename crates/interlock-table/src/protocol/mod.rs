//! The slot protocol, which changes words that other processes read and write.
//!
//! | module | responsibility |
//! |---|---|
//! | `bucket`, `slot` | sixteen tags at once; reading without waiting |
//! | `writer` | locks and intents |
//! | `count` | the number of rows |
//! | `freeze` | rows that wait for a resize |
//! | `recovery` | what dead writers leave |
//! | `insert` | slots for new rows |
//! | [`migration`] | copying the rows to another memory while others write |

mod bucket;
pub(super) mod count;
mod freeze;
pub(super) mod insert;
pub mod migration;
mod recovery;
pub(super) mod slot;
pub(super) mod writer;
