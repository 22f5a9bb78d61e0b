//! Sockets and threads: the thin edge around the sessions.

pub mod chunk;
mod lifetime;
pub mod mailbox;
pub mod output;
pub mod poll;
mod sending;
pub mod wake;
pub mod worker;
