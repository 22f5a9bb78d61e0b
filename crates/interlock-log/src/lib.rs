//! The state table on several machines: a log that every node reads and applies.
//!
//! The log of a data centre orders all writes. Each node, including the writer, reads it and
//! applies each command to its own state with one deterministic function. This crate implements
//! what a node does between the log and its state. It uses no sockets, files, clocks or threads:
//! time and bytes are passed in as values, and actions are returned as values.
//!
//! | module | contents |
//! |---|---|
//! | [`codec`] | numbers and byte strings as bytes, and a decoder that does not trust its input |
//! | `pack` | numbers, texts and lists as msgpack, each in its shortest form |
//! | [`stamp`] | the order of changes: hybrid times and their writers |
//! | `column` | the merge kinds: how a column of each kind is set, raised, joined and shown |
//! | [`state`] | one row with everything needed to join it with another state of its key |
//! | [`entry`] | the entries of a log |
//! | [`heard`] | what data centres know of each other's histories |
//! | [`session`] | records of the entries of nodes and the writes of clients that were done |
//! | [`machine`] | the interface of the state machine that a log drives |
//! | [`apply`] | the one function that applies an entry |
//! | [`checkpoint`] | a state with its place in the log |
//! | [`keepers`] | the nodes that keep checkpoints, and how far the log may be trimmed because of them |
//! | [`ring`] | applied entries that can be put back |
//! | [`replica`] | a node between the log and its state: the five rules |
//! | [`rows`] | all rows of a table, as the machine that a log drives |

pub mod apply;
pub mod checkpoint;
pub mod codec;
mod column;
mod digest;
pub mod entry;
pub mod heard;
pub mod keepers;
pub mod machine;
mod pack;
pub mod replica;
pub mod ring;
pub mod rows;
pub mod session;
pub mod stamp;
pub mod state;
