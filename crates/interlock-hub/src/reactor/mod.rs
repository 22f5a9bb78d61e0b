//! Sockets and threads: the thin edge around the sessions.

pub mod chunk;
pub mod mailbox;
pub mod output;
pub mod poll;
pub mod worker;
