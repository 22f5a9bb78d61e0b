//! The words of a table: their places and meanings.
//!
//! | module | responsibility |
//! |---|---|
//! | `hash` | keys as words |
//! | `state` | a slot's state word |
//! | `geometry` | where everything is |
//! | [`schema`], [`row`] | columns, and the values in a row's words |
//! | [`header`] | the frozen head of a table |

pub(super) mod geometry;
pub(super) mod hash;
#[cfg(not(loom))]
pub mod header;
#[cfg(not(loom))]
pub mod row;
#[cfg(not(loom))]
pub mod schema;
pub(super) mod state;
