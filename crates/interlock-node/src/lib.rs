//! A node of the state table across machines: what it reads and writes, without Python.
//!
//! Imports point one way: a module imports only modules that stand above it in this table.
//!
//! | module | what it holds |
//! |---|---|
//! | `reply` | replies of the Redis protocol, as they arrive |
//! | [`connection`] | one connection that never waits |
//! | [`trouble`] | what can be wrong with the engine and its log, in words that say what to do |
//! | [`redis`] | the log on a stream of Redis or Valkey |
//! | [`files`] | checkpoints, and a ring of what was applied |
//! | [`node`] | the loop between clients, log and state |

#[cfg(not(target_os = "linux"))]
compile_error!("a node runs on Linux only");

pub mod connection;
pub mod files;
pub mod node;
pub mod redis;
mod reply;
pub mod trouble;
