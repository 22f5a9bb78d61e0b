//! The state table on several machines: a log that every node reads and applies.
//!
//! The log of a data centre orders all writes. Each node, the writer included, reads it and applies
//! each command to its own state with one deterministic function. This crate holds what a node does
//! between the log and its state. It knows no sockets, files, clocks and threads: time and bytes come
//! in as values, and what is to be done goes out as values.
//!
//! | module | what it holds |
//! |---|---|
//! | [`codec`] | numbers and byte strings as bytes, and back without trust |

pub mod codec;
