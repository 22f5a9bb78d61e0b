//! The state table: typed rows in shared memory, for every process of the machine.
//!
//! Every process that has a table open reads and writes it at the speed of memory: there is neither
//! a server, nor serialisation, nor a lock that a dead or stopped process could keep. It knows
//! nothing of queues.
//!
//! | module | responsibility |
//! |---|---|
//! | `sync` | atomic words, from the platform or from the model checker |
//! | [`fault`] | the steps of the write path, at which tests let writers die |
//! | [`error`] | errors |
//! | [`layout`] | columns and rows as words; a slot's state word; where everything is |
//! | `memory` | the shared words; which processes live; the table's time |
//! | [`protocol`] | the slot protocol: locks, intents, recovery, resizing |
//! | [`region`] | a table's file: making and finding a table; the number of a thread |
//! | [`table`] | the calls |
//! | `models` | the slot protocol under the model checker |
//!
//! A module imports only modules above it in this table; the tables of its folders order theirs likewise.
//!
//! **The write protocol.** A slot's state word has a version, an owner, a kind and a live bit. A
//! writer notes in its participant what it is about to lock, and locks by a compare-and-swap from
//! exactly the unlocked word that it saw. One word of a row is changed in place. A row as a whole
//! is first written to the writer's scratch row: with the lock the write has happened, readers take
//! that image, and the first to find the writer dead copies it in place. A living writer is never
//! overtaken: others wait for it, and after [`Options::patience`] raise [`Error::RowBusy`]. Readers
//! never wait.
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

pub mod error;
pub mod fault;
pub mod layout;
mod memory;
pub mod protocol;
mod sync;

#[cfg(not(loom))]
pub mod region;
#[cfg(not(loom))]
pub mod table;

#[cfg(all(test, loom))]
mod models;

#[cfg(not(loom))]
pub use memory::clock;
#[cfg(not(loom))]
pub use {
    error::Error,
    layout::row::{Row, Value},
    layout::schema::{Column, Form, Kind, Schema},
    protocol::migration::Resized,
    region::{remove, Location},
    table::change::{By, Overflow},
    table::decide::{Change, Given, Seen},
    table::scan::{Scanned, Statistics},
    table::{Options, Table, Ttl, Where, Written},
};
