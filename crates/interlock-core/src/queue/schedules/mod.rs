//! Recorded calls and saved states of a scheduler.
//!
//! | module | responsibility |
//! |---|---|
//! | `trace` | a schedule: calls with their times and replies; replaying it |
//! | `trace_text` | a schedule as text |
//! | `record` | recording a queue's calls |
//! | `dump`, `restore` | a scheduler as bytes, and back |
//! | `bytes` | reading and writing the bytes |

pub mod bytes;
pub mod dump;
pub mod record;
pub mod restore;
pub mod trace;
pub mod trace_text;
