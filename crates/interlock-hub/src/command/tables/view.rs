//! Rows of a table as commands see them.

use std::time::Duration;

use interlock_rows::write::Writer;
use interlock_rows::{text, View};
use interlock_table::{Schema, Seen, Table, Ttl, Value};

/// A row where it lies: nothing is copied but what a command asks for.
pub struct Shown<'a> {
    pub table: &'a Table,
    pub row: &'a Seen<'a>,
}

impl View for Shown<'_> {
    #[inline]
    fn is_there(&self) -> bool {
        self.row.is_there()
    }

    #[inline]
    fn value(&self, column: usize) -> Value<'_> {
        self.row.value(&self.table.schema().columns()[column])
    }

    #[inline]
    fn is(&self, column: usize, value: &Value<'_>) -> bool {
        let column = &self.table.schema().columns()[column];
        match value {
            Value::Str(text) => self.row.bytes(column, |bytes| bytes == text.as_bytes()),
            Value::Bytes(wanted) => self.row.bytes(column, |bytes| bytes == &wanted[..]),
            value => text::same(&self.row.value(column), value),
        }
    }

    #[inline]
    fn put(&self, column: usize, to: &mut Writer<'_>) {
        let column = &self.table.schema().columns()[column];
        match column.kind.is_sized() {
            true => self.row.bytes(column, |bytes| to.bulk(bytes)),
            false => text::put(to, &self.row.value(column)),
        }
    }

    #[inline]
    fn left(&self) -> Option<Duration> {
        self.row.left()
    }

    #[inline]
    fn expiry(&self, ttl: Ttl) -> u64 {
        self.table.expiry(ttl, self.row.now)
    }
}

/// The words of a row, copied from where it lies.
pub struct Copied<'a> {
    pub schema: &'a Schema,
    pub words: Option<&'a [u64]>,
}

impl View for Copied<'_> {
    fn is_there(&self) -> bool {
        self.words.is_some()
    }

    fn value(&self, column: usize) -> Value<'_> {
        self.schema.columns()[column].read(self.words.unwrap_or_default())
    }

    #[inline]
    fn put(&self, column: usize, to: &mut Writer<'_>) {
        let (column, words) = (&self.schema.columns()[column], self.words.unwrap_or_default());
        match column.kind.is_sized() {
            true => column.bytes_in(words, |bytes| to.bulk(bytes)),
            false => text::put(to, &column.decode(words[column.at / 8])),
        }
    }

    /// The time is not copied.
    fn left(&self) -> Option<Duration> {
        None
    }

    fn expiry(&self, _: Ttl) -> u64 {
        0
    }
}
