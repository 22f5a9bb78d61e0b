//! SCAN and DBSIZE: over all tables that a user has a right to.

use std::sync::Arc;

use super::{answer, Asked, Refusal};
use crate::command::Call;
use crate::glob;
use crate::resp::parse::integer;
use crate::tables::served::ServedTable;

/// A cursor holds a table's id and the slot to continue with.
const SLOT_BITS: u32 = 48;
/// Slots looked at in one call, and rows, at most: others wait meanwhile.
pub const MOST_SLOTS: u64 = 8_192;
pub const MOST_ROWS: usize = 1_000;
/// Bytes compared with a pattern in one call, about.
const COMPARED: usize = 4 << 20;
/// The cost of a look at a key, as bytes compared.
const OF_A_KEY: usize = 64;

/// Rows of the tables that the user has a right to; of a large one as they were last counted.
pub fn dbsize(call: &mut Call<'_, '_>) {
    answer(call, |asked, reply| {
        let counted = asked.tables.all().iter().filter(|table| asked.may_see(table));
        let rows: u64 =
            counted.filter_map(|table| table.statistics()).map(|found| found.rows()).sum();
        reply.integer(rows as i64);
        Ok(())
    });
}

pub fn scan(call: &mut Call<'_, '_>) {
    answer(call, |asked, reply| {
        let options = Options::of(asked, 2, true)?;
        let cursor = cursor(&asked.arguments[1])?;
        let (cursor, keys) =
            if options.hashes { walk(asked, cursor, &options)? } else { (0, vec![]) };
        reply.array(2);
        reply.bulk(cursor.to_string().as_bytes());
        reply.array(keys.len());
        keys.iter().for_each(|key| reply.bulk(key));
        Ok(())
    });
}

pub fn cursor(text: &[u8]) -> Result<u64, Refusal> {
    let text = std::str::from_utf8(text).ok().filter(|text| !text.starts_with('+'));
    text.and_then(|text| text.parse().ok()).ok_or("ERR invalid cursor".into())
}

/// Returns the next cursor, and the keys that were found.
fn walk(
    asked: &Asked<'_>,
    cursor: u64,
    options: &Options<'_>,
) -> Result<(u64, Vec<Vec<u8>>), Refusal> {
    let (from, mut slot) = (cursor >> SLOT_BITS, cursor & ((1 << SLOT_BITS) - 1));
    let (mut keys, mut left, mut rows) = (Vec::new(), MOST_SLOTS, options.count);
    let tables = asked.tables.all().iter().filter(|table| table.id >= from);
    for served in tables.filter(|table| asked.may_see(table) && options.may_match(table)) {
        let at = served.id << SLOT_BITS;
        if served.id != from {
            slot = 0;
        }
        if left == 0 || rows == 0 {
            return Ok((at | slot, keys));
        }
        asked.fresh(served)?;
        let table = served.table();
        // Each is compared with the pattern.
        let each = OF_A_KEY
            + options.pattern.len() * (served.name.len() + 1 + table.made().key_size as usize);
        let limit = rows.min((COMPARED / each).max(1));
        let mut seen = 0;
        let next = table.scan_within(slot, limit, left, |row| {
            seen += 1;
            let key = [served.name.as_bytes(), b":", &row.key].concat();
            if glob::matches(options.pattern, &key) {
                keys.push(key);
            }
        });
        if next != 0 {
            return Ok((at | next, keys));
        }
        left = left.saturating_sub(table.slots_behind(slot));
        rows = if limit < rows { 0 } else { rows.saturating_sub(seen) };
    }
    Ok((0, keys))
}

/// Options of a scan beside its cursor.
pub struct Options<'a> {
    pattern: &'a [u8],
    /// Rows to look at.
    pub count: usize,
    /// False: it is for keys of a type that no row has.
    hashes: bool,
}

impl<'a> Options<'a> {
    /// `of_keys`: MATCH and TYPE are allowed too.
    pub fn of(asked: &Asked<'a>, from: usize, of_keys: bool) -> Result<Options<'a>, Refusal> {
        let mut options = Options { pattern: b"*", count: 10, hashes: true };
        let mut words = asked.arguments.from(from);
        while let Some(word) = words.next() {
            let value = words.next().ok_or("ERR syntax error")?;
            match &word.to_ascii_lowercase()[..] {
                b"count" => {
                    let count = integer(value);
                    let count = count.ok_or("ERR value is not an integer or out of range")?;
                    if count < 1 {
                        return Err("ERR syntax error".into());
                    }
                    options.count = usize::try_from(count).unwrap_or(MOST_ROWS).min(MOST_ROWS);
                }
                b"match" if of_keys => options.pattern = value,
                b"type" if of_keys => options.hashes = value.eq_ignore_ascii_case(b"hash"),
                _ => return Err("ERR syntax error".into()),
            }
        }
        match glob::refusal(options.pattern) {
            Some(text) => Err(text.into()),
            None => Ok(options),
        }
    }

    /// Returns whether a key of this table may match, by what the pattern begins with.
    fn may_match(&self, table: &ServedTable) -> bool {
        let prefix = &self.pattern[..glob::literal_prefix(self.pattern)];
        let own = table.name.bytes().chain([b':']);
        prefix.iter().zip(own).all(|(wanted, own)| *wanted == own)
    }
}

impl Asked<'_> {
    pub(super) fn may_see(&self, table: &Arc<ServedTable>) -> bool {
        self.user.is_some_and(|user| user.tables.hold(table.name.as_bytes()))
    }
}
