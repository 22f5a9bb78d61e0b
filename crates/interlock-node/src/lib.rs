//! A node of the state table across machines: what it reads and writes, without Python.
//!
//! Imports point one way: a module imports only modules that stand above it in this table.
//!
//! | module | what it holds |
//! |---|---|
//! | `reply` | replies of the Redis protocol, as they arrive |
//! | [`connection`] | one connection that never waits |
//! | [`trouble`] | what can be wrong with the engine and its log, in words that say what to do |
//! | [`log`] | the log as the loop sees it, whichever engine keeps it |
//! | [`redis`] | the log on a stream of Redis or Valkey |
//! | [`bridge`] | the log on an engine to which other threads speak |
//! | [`files`] | checkpoints, and a ring of what was applied |
//! | `kept` | the ring in memory, with its file |
//! | `saver` | the thread that writes checkpoints |
//! | [`projection`] | the rows in a table of the machine's shared memory |
//! | [`ports`] | the ways between the loop and those around it |
//! | [`node`] | the loop between clients, log and state |
//! | [`hub`] | the clients of a hub |
//! | [`running`] | a node in a thread of its own |

#[cfg(not(target_os = "linux"))]
compile_error!("a node runs on Linux only");

pub mod bridge;
pub mod connection;
pub mod files;
pub mod hub;
mod kept;
pub mod log;
pub mod node;
pub mod ports;
pub mod projection;
pub mod redis;
mod reply;
pub mod running;
mod saver;
pub mod trouble;
