// Made by `make generate` from wire/: change that.

//! The limits of rows.

/// Ms, maximum time to live of a table's row: 500 years; a word holds 584 of them in
/// nanoseconds.
pub const MAX_ROW_TTL: u64 = 15_768_000_000_000;
