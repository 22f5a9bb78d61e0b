//! A row as commands see it.

use std::time::Duration;

use interlock_table::{Ttl, Value};

use crate::text;
use crate::write::Writer;

/// The row of a key, which may not exist.
pub trait View {
    /// Returns whether the row exists and has not expired.
    fn is_there(&self) -> bool;

    /// Returns the value of a column of an existing row; `column` is its index in the schema. The
    /// variant follows from the column's type: `Unsigned`, `Signed`, `Float`, `Bool`, `Str` or
    /// `Bytes`.
    fn value(&self, column: usize) -> Value<'_>;

    /// Returns whether a column of an existing row has this value, bit for bit.
    fn is(&self, column: usize, value: &Value<'_>) -> bool {
        text::same(&self.value(column), value)
    }

    /// Writes the value of a column of an existing row.
    fn put(&self, column: usize, to: &mut Writer<'_>) {
        text::put(to, &self.value(column));
    }

    /// The number of bytes of the value that `put` writes.
    fn length(&self, column: usize) -> usize {
        match self.value(column) {
            Value::Bytes(bytes) => bytes.len(),
            value => text::text(&value).len(),
        }
    }

    /// The remaining time to live of an existing row; `None`: it never expires.
    fn left(&self) -> Option<Duration>;

    /// The expiry of a row with this time to live from now, on the clock of the row's owner; 0:
    /// never.
    fn expiry(&self, ttl: Ttl) -> u64;

    /// The value that a column of an existing row shows after it was raised to `to`. For a column
    /// that merges this may differ from `to`, for example be the maximum of both.
    fn raised(&self, _column: usize, to: Value<'static>) -> Value<'static> {
        to
    }
}
