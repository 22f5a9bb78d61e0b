//! Sockets and threads: the thin edge around the sessions.

mod delivery;
mod lifetime;
pub mod output;
pub mod poll;
mod survey;
pub mod worker;
