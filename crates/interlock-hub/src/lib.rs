//! The hub: a server of several threads in one process that speaks the Redis protocol.
//!
//! Imports point one way: a module imports only modules that stand above it in this table, from the bytes
//! of the protocol to the server.
//!
//! | module | what it holds |
//! |---|---|
//! | [`time`] | the clock of intervals |
//! | `boot_time` | the time of queues over a restart of the hub alone |
//! | [`resp`] | requests in, replies out |
//! | [`memory`] | what the kernel counts for this process |
//! | [`counters`] | what is counted since the start |
//! | [`journal`] | what of the journal's own crate others need |
//! | `wake`, `socket`, `signals` | a descriptor to sleep on; system calls on a socket; signals kept from threads |
//! | [`catalog`] | what each command takes and who may call it |
//! | [`topics`] | who is subscribed: for all workers in short, for each worker in full |
//! | [`users`] | who may do what |
//! | [`writes`] | what is given to the event loop that writes a table's rows, and how that answers |
//! | [`kept`] | what is given to the node that keeps a table, and waits for its answer |
//! | [`line`] | the replies of one connection that wait for others |
//! | [`tables`] | the state tables |
//! | [`stores`] | the stores of topics |
//! | [`settings`] | a hub's settings, at its start and changed while it runs |
//! | [`registry`] | what one connection may know of another: CLIENT LIST, CLIENT KILL |
//! | [`denials`] | who was refused what: ACL LOG |
//! | [`statistics`] | what was called, what failed, and how much comes in just now |
//! | [`tracing`] | the slow log and the lines of MONITOR |
//! | `pause` | CLIENT PAUSE: requests that wait |
//! | [`events`] | what the server says to, and asks of, its controller |
//! | [`chunk`] | what one worker published in one turn |
//! | [`survey`] | a question to all workers, each of which adds what it knows |
//! | [`mailbox`] | the way of a message between workers |
//! | [`queues`] | the keyed queues |
//! | [`relays`] | who brings messages of other hubs, and which have come before |
//! | [`beat`] | whether the workers are alive |
//! | [`shared`] | what all workers share, and what each has for itself |
//! | [`info`] | counters and figures as INFO shows them |
//! | [`pending`] | suspended calls |
//! | [`state`] | what commands may change of their connection |
//! | [`command`] | what each command does |
//! | [`session`] | a connection without its socket: bytes and time in, bytes and effects out |
//! | [`tls`] | what is between such a socket and its session |
//! | [`reactor`] | sockets and epoll |
//! | `listener`, `inherited`, `listeners` | sockets that are bound here, or were handed over |
//! | `acceptor` | the thread that takes connections and deals them |
//! | `stop` | the end of a thread that sleeps between two looks |
//! | `journal_thread` | the thread that keeps the journal |
//! | `clock_thread` | the thread that watches the wall clock |
//! | [`server`] | start, drain, stop |
//!
//! What decides is kept apart from what touches the world: up to `session` nothing knows a socket or
//! reads a clock.

#[cfg(not(target_os = "linux"))]
compile_error!("the hub waits with epoll and runs on Linux only");

mod acceptor;
pub mod beat;
mod boot_time;
pub mod catalog;
pub mod chunk;
mod clock_thread;
pub mod command;
pub mod counters;
pub mod denials;
pub mod events;
pub use interlock_rows::glob;
pub mod info;
mod inherited;
pub mod journal;
mod journal_thread;
pub mod kept;
pub mod line;
mod listener;
mod listeners;
pub mod mailbox;
pub mod memory;
mod pause;
pub mod pending;
pub mod queues;
pub mod reactor;
pub mod registry;
pub mod relays;
pub mod resp;
pub mod server;
pub mod session;
pub mod settings;
pub mod shared;
mod signals;
mod socket;
pub mod state;
pub mod statistics;
mod stop;
pub mod stores;
pub mod survey;
pub mod tables;
pub mod time;
pub mod tls;
pub mod topics;
pub mod tracing;
pub mod users;
pub mod wake;
pub mod writes;
