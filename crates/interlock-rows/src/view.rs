//! A row as commands see it.

use std::time::Duration;

use interlock_table::{Ttl, Value};

use crate::text;
use crate::write::Writer;

/// The row of a key, whether there is one or not.
pub trait View {
    /// Returns whether there is a row that has not expired.
    fn is_there(&self) -> bool;

    /// The value of a column of a row that is there, by its place in the schema: `Unsigned`, `Signed`,
    /// `Float`, `Bool`, `Str` or `Bytes`, as the column's type is.
    fn value(&self, column: usize) -> Value<'_>;

    /// Returns whether a column of a row that is there has this value, to the bit.
    fn is(&self, column: usize, value: &Value<'_>) -> bool {
        text::same(&self.value(column), value)
    }

    /// Writes the value of a column of a row that is there.
    fn put(&self, column: usize, to: &mut Writer<'_>) {
        text::put(to, &self.value(column));
    }

    /// The bytes that `put` writes of a value.
    fn length(&self, column: usize) -> usize {
        match self.value(column) {
            Value::Bytes(bytes) => bytes.len(),
            value => text::text(&value).len(),
        }
    }

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
