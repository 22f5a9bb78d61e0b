//! The client that carries messages to another hub, or to a plain Redis or Valkey.
//!
//! Imports point one way: a module imports only modules that stand above it in this table.
//!
//! | module | what it holds |
//! |---|---|
//! | `settings` | where it goes, and how |
//! | `wire` | requests and replies as bytes |
//! | `secure` | TLS of a client |
//! | `stream` | a connection that never waits, and one that does until a moment |
//! | `failure` | errors that say what to do |
//! | `upstream` | deliveries, in order, pipelined, acknowledged |
//! | `renewal` | leases renewed for a client that cannot do it itself |
//!
//! **What is promised.** To a hub ([`Protocol::Relay`]) messages go with the origin and the number that they
//! have, so one that is sent again after a break is taken once; those behind one that is refused are not
//! taken before it. To others they go at least once.

mod failure;
mod renewal;
mod secure;
mod settings;
mod stream;
mod upstream;
mod wire;

pub use renewal::{now, Peer, Renewals};
pub use secure::{Session, Tls};
pub use settings::{Protocol, Settings};
pub use upstream::{Counters, Undelivered, Upstream};
pub use wire::request;

#[cfg(test)]
mod tests;
