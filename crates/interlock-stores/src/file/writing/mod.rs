//! Writing messages, and opening a store.
//!
//! | module | responsibility |
//! |---|---|
//! | [`segment`] | a data file and its index, while they are written to |
//! | [`chain`] | the files of a topic, one after the other, and messages that wait to be written |
//! | `store` | taking messages, and writing them |
//! | `rotate`, [`upkeep`] | the step to the next file; what falls due |
//! | `walk` | the files of a store in its folder |
//! | `ending` | the end of the newest file of a chain |
//! | [`recovery`] | opening |

pub mod chain;
mod ending;
pub mod recovery;
mod rotate;
pub mod segment;
pub(super) mod store;
pub mod upkeep;
mod walk;
