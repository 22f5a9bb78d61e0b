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
//! | `pack` | numbers, texts and lists as msgpack, each in its shortest form |
//! | [`stamp`] | the order of changes: hybrid times and who wrote |
//! | `column` | the merge kinds: how each is set, raised, joined and shown |
//! | [`state`] | one row with all that is needed to join it with another of its key |
//! | [`entry`] | the entries of a log |
//! | [`session`] | which entries of nodes and writes of clients were done |
//! | [`machine`] | what the log drives, and what it is told |
//! | [`apply`] | the one function that applies an entry |
//! | [`checkpoint`] | a state with its place in the log |
//! | [`keepers`] | who keeps checkpoints, and how far the log may be trimmed for them |
//! | [`ring`] | what was applied and could be put back |
//! | [`replica`] | a node between the log and its state: the five rules |
//! | [`rows`] | all rows of a table, as the machine that a log drives |

pub mod apply;
pub mod checkpoint;
pub mod codec;
mod column;
pub mod entry;
pub mod keepers;
pub mod machine;
mod pack;
pub mod replica;
pub mod ring;
pub mod rows;
pub mod session;
pub mod stamp;
pub mod state;
