//! The wire: requests in (RESP arrays and inline commands), replies out (RESP2 and RESP3).

pub mod inline;
pub mod parse;
pub use interlock_rows::write;
