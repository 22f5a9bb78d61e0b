//! The hub: a server of several threads in one process that speaks the Redis protocol.
//!
//! | module | what it holds |
//! |---|---|
//! | [`resp`] | requests in, replies out |
//! | [`glob`] | patterns of topics |
//! | [`settings`] | what a hub is told at its start, and anew while it runs |
//! | [`users`] | who may do what |
//! | [`events`] | what the server says to, and asks of, its controller |
//! | [`counters`] | what is counted since the start |
//! | [`statistics`] | what was called, what failed, and how much comes in just now |
//! | [`denials`] | who was refused what: ACL LOG |
//! | `pause` | CLIENT PAUSE: requests that wait |
//! | [`topics`] | who is subscribed: for all workers in short, for each worker in full |
//! | `journal` | what of the journal's own crate others need |
//! | `keeping` | the thread that keeps the journal |
//! | [`queues`] | the keyed queues, and whom an answer that was waited for goes to |
//! | [`registry`] | what one connection may know of another: CLIENT LIST, CLIENT KILL |
//! | [`command`] | one declaration per command, and what each does |
//! | [`session`] | a connection without its socket: bytes and time in, bytes and effects out |
//! | [`state`] | what commands may change of their connection |
//! | [`tracing`] | the slow log and the lines of MONITOR |
//! | [`tls`] | what is between such a socket and its session |
//! | [`reactor`] | sockets, epoll, and the way of a message between workers |
//! | [`beat`] | whether the workers are alive |
//! | `listening`, `inherited` | sockets that are bound here, or were handed over |
//! | `accepting` | the thread that takes connections and deals them |
//! | [`server`] | start, drain, stop |
//!
//! What decides is kept apart from what touches the world: from `session` down nothing knows a
//! socket or reads a clock. Imports point one way: `server → reactor → session → command →
//! state → topics, registry, users → resp, glob, settings`.

#[cfg(not(target_os = "linux"))]
compile_error!("the hub waits with epoll and runs on Linux only");

mod acceptor;
pub mod beat;
pub mod command;
pub mod counters;
pub mod denials;
pub mod events;
pub mod glob;
pub mod info;
mod inherited;
pub mod journal;
mod journal_thread;
mod listeners;
pub mod memory;
mod pause;
pub mod queues;
pub mod reactor;
pub mod registry;
pub mod resp;
pub mod server;
pub mod session;
pub mod settings;
pub mod shared;
pub mod state;
pub mod statistics;
pub mod tls;
pub mod topics;
pub mod tracing;
pub mod users;
