//! The state table: typed rows in shared memory, for every process of the machine.
//!
//! Whoever has a table open reads and writes it at the speed of memory: there is no server, no
//! serialisation, and no lock that a dead or stopped process could keep. It knows nothing of queues.
//!
//! | module | what it holds |
//! |---|---|
//! | `sync` | atomic words, from the platform or from the model checker |
//! | [`fault`] | the steps of the write path, at which tests let writers die |
//! | [`error`] | what can go wrong |
//! | [`schema`], [`row`] | columns, and the values in a row's words |
//! | `hash`, `state`, `geometry` | keys as words; a slot's state word; where everything lies |
//! | [`header`] | the frozen head of a table |
//! | `process`, [`clock`] | who lives; the table's time |
//! | `mapping`, `memory` | the shared words, and these by name |
//! | `bucket`, `slot` | sixteen tags at once; reading without waiting |
//! | `writer`, `freeze`, `recovery`, `insert` | locks and intents; rows that wait for a resize; what the dead leave; slots for new rows |
//! | [`migration`] | copying the rows to another memory while others write |
//! | `file`, [`region`], `participant` | a table's file; making and finding a table; which number a thread has |
//! | [`table`], [`change`], [`decide`], `expire`, `scan`, `batch`, `resize` | what a user calls |
//! | `models` | the slot protocol under the model checker |
//!
//! Imports point one way: a module imports only modules that stand above it in this table.
//!
//! **The write protocol.** A slot's state word has a version, an owner, a kind and a live bit. A writer
//! says in its participant what it is about to lock, and locks by a compare-and-swap from exactly the
//! unlocked word that it saw. One word of a row is changed in place. A row as a whole is first written to
//! the writer's scratch row: with the lock the write has happened, readers take that image, and whoever
//! finds the writer dead copies it in place. A living writer is never overtaken: others wait for it, and
//! after [`Options::patience`] raise [`Error::RowBusy`]. Readers never wait.
//!
//! **What is promised.** A read returns a row that was set as a whole, with all changes of single columns
//! that ended before it began. A write that returned is there for every process. Of one whose writer was
//! killed, each row is the old or the new one. Nothing survives a power failure but by luck: a table in a
//! file is written back by the kernel when it pleases.
//!
//! **Long keys.** Every slot has room for a key of [`Options::key_size`] bytes, up to 1,024, beside its
//! hash; keys are compared in full, whatever tag and hash say. Longer ones are refused.
//!
//! **What it needs.** Linux 5.3, whose pidfd tells the living from the dead, and `/proc` where it is not
//! to take a pid that was given again for the process that had it.

#![cfg(target_os = "linux")]
// The model checker has the protocol alone; without its tests nothing calls it.
#![cfg_attr(loom, allow(dead_code))]

mod bucket;
pub mod error;
pub mod fault;
mod freeze;
mod geometry;
mod hash;
mod insert;
mod memory;
pub mod migration;
mod recovery;
mod slot;
mod state;
mod sync;
mod writer;

#[cfg(not(loom))]
mod batch;
#[cfg(not(loom))]
pub mod change;
#[cfg(not(loom))]
pub mod clock;
#[cfg(not(loom))]
pub mod decide;
#[cfg(not(loom))]
mod expire;
#[cfg(not(loom))]
mod file;
#[cfg(not(loom))]
pub mod header;
#[cfg(not(loom))]
mod mapping;
#[cfg(not(loom))]
mod participant;
#[cfg(not(loom))]
mod process;
#[cfg(not(loom))]
pub mod region;
#[cfg(not(loom))]
mod resize;
#[cfg(not(loom))]
pub mod row;
#[cfg(not(loom))]
mod scan;
#[cfg(not(loom))]
pub mod schema;
#[cfg(not(loom))]
pub mod table;

#[cfg(all(test, loom))]
mod models;

#[cfg(not(loom))]
pub use {
    change::{By, Overflow},
    decide::{Change, Given, Seen},
    error::Error,
    migration::Resized,
    region::{remove, Location},
    row::{Row, Value},
    scan::{Scanned, Statistics},
    schema::{Column, Kind, Schema},
    table::{Options, Table, Ttl, Where, Written},
};
