//! Reading the messages of a store.
//!
//! | module | responsibility |
//! |---|---|
//! | [`listing`] | the existing files |
//! | [`opened`] | a file that is read |
//! | [`missing`] | messages that cannot be read any longer |
//! | `cursor`, `backward` | from one message to the next, and to the one before |
//! | [`reader`] | the rule of all readers; a topic, forward and backward |
//! | [`survey`] | all files in a folder |
//! | [`verify`] | a whole file compared with its checksums |

pub(super) mod backward;
mod cursor;
pub mod listing;
pub mod missing;
pub mod opened;
pub mod reader;
pub mod survey;
pub mod verify;
