//! A row as commands see it.

use std::time::Duration;

use interlock_table::{Ttl, Value};

/// The row of a key, whether there is one or not.
pub trait View {
    /// Returns whether there is a row that has not expired.
    fn is_there(&self) -> bool;

    /// The value of a column of a row that is there, by its place in the schema: `Unsigned`, `Signed`,
    /// `Float`, `Bool`, `Str` or `Bytes`, as the column's type is.
    fn value(&self, column: usize) -> Value<'_>;

    /// Time that a row that is there has to live; `None` for ever.
    fn left(&self) -> Option<Duration>;

    /// The time at which a row expires that is to live so long from now, as the owner of the row counts
    /// time; 0 never.
    fn expiry(&self, ttl: Ttl) -> u64;

    /// The value that a column of a row that is there shows once it was raised to `to`: of a column that
    /// merges this may be something else, the greater of both for one.
    fn raised(&self, _column: usize, to: Value<'static>) -> Value<'static> {
        to
    }
}
