//! Commands on the rows of a state table, as pure functions: no socket, no clock, no shared memory.
//!
//! A command is parsed with its table's schema and decided from the row: the result is a change and
//! a reply. The caller provides the row and applies the change as one atomic step: the hub in
//! shared memory, a node in the states of its log. So both reply the same, also to commands that
//! only read.
//!
//! Imports point one way: a module imports only modules above it in this table.
//!
//! | module | contents |
//! |---|---|
//! | [`limits`] | limits declared in `wire/` |
//! | [`write`] | writes replies in RESP2 or RESP3 |
//! | [`names`] | lookup of commands by name |
//! | [`refusal`] | error replies |
//! | [`glob`] | patterns of topics, rows and columns |
//! | [`text`] | values as clients write and read them |
//! | [`view`] | a row as commands see it |
//! | [`command`] | parsed commands on one row |
//! | [`parse`] | parses commands |
//! | [`decide`] | the change a command makes, and its reply |
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
