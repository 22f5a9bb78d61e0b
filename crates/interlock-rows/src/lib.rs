//! Commands on the rows of a state table, as pure functions: no socket, no clock, no shared memory.
//!
//! A command is parsed with the schema of its table, and decided by what a row is: what changes, and the
//! reply. Who calls shows the row and makes the change, as one step: the hub in shared memory, a node in
//! the states of its log. So both answer the same, and so they do where a command only reads.
//!
//! Imports point one way: a module imports only modules that stand above it in this table.
//!
//! | module | what it holds |
//! |---|---|
//! | [`limits`] | what is declared in `wire/` |
//! | [`write`] | replies, worded in RESP2 or RESP3 |
//! | [`names`] | commands found by their names |
//! | [`refusal`] | the texts of errors |
//! | [`glob`] | patterns of topics, rows and columns |
//! | [`text`] | values as clients write and read them |
//! | [`view`] | a row as commands see it |
//! | [`command`] | commands on one row, as they were asked for |
//! | [`parse`] | commands from what a client sent |
//! | [`decide`] | the change that a command makes, and its reply |
//! | [`read`] | commands that read a row, and their replies |

pub mod command;
pub mod decide;
pub mod glob;
pub mod limits;
pub mod names;
pub mod parse;
pub mod read;
pub mod refusal;
pub mod text;
pub mod view;
pub mod write;

pub use command::{Command, Condition, Life, Pairs};
pub use decide::{decide, decide_to, Reply};
pub use interlock_table::{Change, Given};
pub use parse::{parse, Arguments, Verb};
pub use read::{Query, Read};
pub use refusal::Refusal;
pub use view::View;
