//! Batches of a table's rows, in the order of its slots: column by column for Arrow, row by row for NumPy.

use interlock_table::{Column, Kind};

use super::abi::{ArrowArray, ArrowSchema, Buffer};
use crate::table::scan::{Found, Scanning};

/// The part of the rows that is wanted.
pub struct Wanted {
    /// The name of the keys' column.
    pub key: String,
    /// Keys as text, which not every key is.
    pub text_keys: bool,
    pub columns: Vec<Column>,
    /// The name of the column that says when a row expires, if there is to be one.
    pub expiry: Option<String>,
}

impl Wanted {
    pub fn schema(&self) -> ArrowSchema {
        let key = if self.text_keys { "u" } else { "z" };
        let mut fields = vec![ArrowSchema::field(key, &self.key, false)];
        let columns = self.columns.iter();
        fields.extend(columns.map(|c| ArrowSchema::field(c.kind.arrow_format(), &c.name, false)));
        if let Some(name) = &self.expiry {
            fields.push(ArrowSchema::field("tsu:UTC", name, true));
        }
        ArrowSchema::record(fields)
    }
}

/// About as many bytes are in a batch, and never more rows.
const BATCH_BYTES: usize = 16 << 20;
const BATCH_ROWS: usize = 65_536;

impl Scanning {
    /// About as many rows as make a batch; none at the end.
    fn batch(&mut self) -> Vec<Found> {
        let limit = (BATCH_BYTES / self.row_bytes()).clamp(1, BATCH_ROWS);
        self.next(limit)
    }

    /// The next rows as Arrow has them; `None` at the end. Errors: a key that is not text.
    pub fn arrow(&mut self, wanted: &Wanted) -> Result<Option<ArrowArray>, String> {
        let rows = self.batch();
        if rows.is_empty() {
            return Ok(None);
        }
        let mut keys = Values::default();
        for found in &rows {
            if wanted.text_keys {
                text(&found.key)?;
            }
            keys.push(&found.key);
        }
        let mut columns = vec![keys.array()];
        columns.extend(wanted.columns.iter().map(|column| array(column, &rows)));
        if wanted.expiry.is_some() {
            columns.push(expiries(&rows));
        }
        Ok(Some(ArrowArray::record(rows.len(), columns)))
    }

    /// The next rows, one after the other without gaps, in the layout of a packed record of NumPy:
    /// text in four bytes a character; returns their number, 0 at the end. Errors: a key that is
    /// not text.
    pub fn records(&mut self, wanted: &Wanted) -> Result<(usize, Vec<u8>), String> {
        let rows = self.batch();
        let key_size = self.key_size();
        let mut out = Vec::new();
        for found in &rows {
            match wanted.text_keys {
                true => wide(&mut out, text(&found.key)?, key_size),
                false => padded(&mut out, &found.key, key_size),
            }
            for column in &wanted.columns {
                let words = found.row.words();
                match column.kind {
                    Kind::Str(size) => column.bytes_in(words, |bytes| {
                        wide(&mut out, &String::from_utf8_lossy(bytes), size.into());
                    }),
                    Kind::Bytes(size) => {
                        column.bytes_in(words, |bytes| padded(&mut out, bytes, size.into()));
                    }
                    _ => push_number(&mut out, column, words),
                }
            }
            if wanted.expiry.is_some() {
                // The least number is NumPy's for no time.
                out.extend_from_slice(&found.expires.unwrap_or(i64::MIN).to_ne_bytes());
            }
        }
        Ok((rows.len(), out))
    }
}

fn text(key: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(key).map_err(|_| {
        format!("the key b\"{}\" is not UTF-8; ask for keys=\"bytes\"", key.escape_ascii())
    })
}

fn array(column: &Column, rows: &[Found]) -> ArrowArray {
    match column.kind {
        Kind::Bool => {
            let bit = |found: &Found| found.row.words()[column.at / 8] >> (column.at % 8 * 8) & 1;
            let bits = bits(rows.iter().map(|found| bit(found) != 0));
            ArrowArray::column(rows.len(), 0, vec![None, Some(bits)])
        }
        Kind::Str(_) | Kind::Bytes(_) => {
            let mut values = Values::default();
            for found in rows {
                column.bytes_in(found.row.words(), |bytes| match column.kind {
                    // Only whole strings are written; anything else was put there by another
                    // program.
                    Kind::Str(_) => values.push(String::from_utf8_lossy(bytes).as_bytes()),
                    _ => values.push(bytes),
                });
            }
            values.array()
        }
        _ => {
            let mut values = Vec::with_capacity(rows.len() * column.kind.bytes());
            for found in rows {
                push_number(&mut values, column, found.row.words());
            }
            ArrowArray::column(rows.len(), 0, vec![None, Some(values.as_slice().into())])
        }
    }
}

fn expiries(rows: &[Found]) -> ArrowArray {
    let there = bits(rows.iter().map(|found| found.expires.is_some()));
    let nulls = rows.iter().filter(|found| found.expires.is_none()).count();
    let times = rows.iter().flat_map(|found| found.expires.unwrap_or(0).to_ne_bytes());
    let times: Vec<u8> = times.collect();
    ArrowArray::column(rows.len(), nulls, vec![Some(there), Some(times.as_slice().into())])
}

fn bits(values: impl Iterator<Item = bool>) -> Buffer {
    let mut bytes = Vec::new();
    for (at, value) in values.enumerate() {
        if at % 8 == 0 {
            bytes.push(0_u8);
        }
        bytes[at / 8] |= u8::from(value) << (at % 8);
    }
    bytes.as_slice().into()
}

/// A number as the machine has it, a bool in a byte.
fn push_number(out: &mut Vec<u8>, column: &Column, words: &[u64]) {
    let bits = words[column.at / 8] >> (column.at % 8 * 8);
    match column.kind.bytes() {
        1 => out.push(bits as u8),
        2 => out.extend_from_slice(&(bits as u16).to_ne_bytes()),
        4 => out.extend_from_slice(&(bits as u32).to_ne_bytes()),
        _ => out.extend_from_slice(&bits.to_ne_bytes()),
    }
}

fn padded(out: &mut Vec<u8>, bytes: &[u8], size: usize) {
    let end = out.len() + size;
    out.extend_from_slice(bytes);
    out.resize(end, 0);
}

fn wide(out: &mut Vec<u8>, text: &str, size: usize) {
    let end = out.len() + size * 4;
    out.extend(text.chars().take(size).flat_map(|one| u32::from(one).to_ne_bytes()));
    out.resize(end, 0);
}

/// Values of different lengths: where each ends, and their bytes. A batch is far smaller than 2 GiB.
struct Values {
    ends: Vec<u8>,
    bytes: Vec<u8>,
}

impl Default for Values {
    fn default() -> Values {
        Values { ends: 0_i32.to_ne_bytes().to_vec(), bytes: Vec::new() }
    }
}

impl Values {
    fn push(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.ends.extend_from_slice(&(self.bytes.len() as i32).to_ne_bytes());
    }

    fn array(self) -> ArrowArray {
        let length = self.ends.len() / 4 - 1;
        let buffers = [self.ends, self.bytes].map(|bytes| Some(bytes.as_slice().into()));
        ArrowArray::column(length, 0, [None].into_iter().chain(buffers).collect())
    }
}
