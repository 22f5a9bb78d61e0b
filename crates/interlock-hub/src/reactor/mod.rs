//! Sockets and threads: the thin edge around the sessions.

pub mod chunk;
mod delivery;
mod lifetime;
pub mod mailbox;
pub mod output;
pub mod poll;
pub mod wake;
pub mod worker;
