//! A node of the state table across machines: its reads and writes, without Python.
//!
//! Imports point one way: a module imports only modules above it in this table.
//!
//! | module | contents |
//! |---|---|
//! | `reply` | replies of the Redis protocol, parsed as they arrive |
//! | [`connection`] | one non-blocking connection |
//! | [`trouble`] | problems of the engine and its log, in words that say what to do |
//! | [`log`] | the log as the loop sees it, in whichever engine |
//! | [`redis`] | the log in a stream of Redis or Valkey |
//! | [`bridge`] | the log in an engine that other threads talk to |
//! | [`files`] | checkpoints, and the ring of applied entries |
//! | `kept` | the ring in memory, with its file |
//! | `saver` | the thread that writes checkpoints |
//! | [`projection`] | shows the rows in a table in shared memory |
//! | [`ports`] | interfaces between the loop and its surroundings |
//! | [`node`] | the loop between clients, log and state |
//! | [`hub`] | the clients of a node's hub |
//! | [`running`] | a node in its own thread |

#[cfg(not(target_os = "linux"))]
compile_error!("a node runs on Linux only");

pub mod bridge;
pub mod connection;
pub mod events;
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
