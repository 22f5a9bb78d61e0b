//! The core of Interlock: exact order per key, without sockets and without Python.
//!
//! | module | what it holds |
//! |---|---|
//! | [`limits`] | the bounds and defaults that the declaration of the wire names |
//! | [`key`] | canonical key bytes, the only place where a key's form is decided |
//! | [`wall_clock`] | which time of day to believe when the system's is set |
//! | [`clock`] | the system's time, and one that a test moves by hand |
//! | [`sync`] | lock and parker, from the platform or from the model checker |
//! | [`queue`] | scheduler, queue, leases, explanations, recorded schedules |
//!
//! Imports point one way: a module imports only modules that stand above it in this table.

pub mod clock;
pub mod key;
pub mod limits;
pub mod queue;
pub mod sync;
pub mod wall_clock;
