//! The hub: a server of several threads in one process that speaks the Redis protocol.
//!
//! A module imports only modules above it in this table, from the bytes of the protocol to the server.
//! The tables of the folders order their modules likewise.
//!
//! | module | responsibility |
//! |---|---|
//! | [`system`] | clocks, memory, signals, wake-ups |
//! | [`resp`] | requests in, replies out |
//! | [`journal`] | the parts of the journal's crate that others need |
//! | [`catalog`] | the arguments of each command, and its category of rights |
//! | [`access`] | users, their rights and connections |
//! | [`topics`] | subscriptions, and messages on their way |
//! | [`tables`] | the state tables |
//! | [`stores`] | the stores of topics |
//! | [`watch`] | counters, statistics, traces |
//! | [`shared`] | state that all workers share, and state of one worker |
//! | [`command`] | the code of each command |
//! | [`session`] | a connection without its socket: bytes and time in, bytes and effects out |
//! | [`net`] | sockets, TLS and epoll |
//! | [`server`] | start, drain, stop |
//!
//! The modules up to `session` use no sockets and read no clock, so that tests can drive them with bytes
//! and times.

#[cfg(not(target_os = "linux"))]
compile_error!("the hub waits with epoll and runs on Linux only");

pub mod access;
pub mod catalog;
pub mod command;
pub mod journal;
pub mod net;
pub mod resp;
pub mod server;
pub mod session;
pub mod shared;
pub mod stores;
pub mod system;
pub mod tables;
pub mod topics;
pub mod watch;

pub use interlock_rows::glob;
