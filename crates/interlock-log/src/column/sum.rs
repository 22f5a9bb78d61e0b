//! Sums of integers: a register with the value that was set, and the totals ever added.
//!
//! The register holds the value minus the totals at that time, so nothing is subtracted twice. A
//! writer is one lineage of a data centre's log: a node that has not seen the last addition of a
//! lineage must not continue its total.

use super::totals::{self, Total};
use crate::pack;
use crate::stamp::{self, Stamp};

/// Number of writers that a sum may have before older lineages are combined.
pub const FEW: usize = 8;

pub fn value(base: &[u8], totals: &[u8]) -> i128 {
    pack::number(base).unwrap_or(0).saturating_add(added(totals))
}

fn added(totals: &[u8]) -> i128 {
    totals::all(totals)
        .filter_map(|total| pack::number(total.total))
        .fold(0, |sum: i128, added| sum.saturating_add(added))
}

/// Writes the register of a column that was set: concurrent additions elsewhere are added to it.
pub fn put(cell: &mut Vec<u8>, totals: &[u8], value: i128) {
    pack::put_number(cell, value.saturating_sub(added(totals)));
}

/// Writes this writer's total after an addition.
pub fn add(cell: &mut Vec<u8>, before: &[u8], by: i128, stamp: &Stamp) {
    let writer = totals::writer(stamp.writer);
    let own = totals::of(before, writer.as_bytes()).and_then(pack::number).unwrap_or(0);
    let at = totals::after(before, writer.as_bytes(), stamp.reading);
    pack::put_list(cell, 3);
    pack::put_text(cell, writer.as_bytes());
    pack::put_number(cell, own.saturating_add(by));
    pack::put_integer(cell, at.into());
    if totals::all(before).count() > FEW {
        if let Some(older) = together(before, &writer) {
            if let Some(joined) = totals::join(cell, &older) {
                *cell = joined;
            }
        }
    }
}

/// Like `add`, joined with the totals before. `None`: this writer has not added to the sum before,
/// or lineages are combined. `by` returns the amount to add to the shown value.
pub fn raise(
    base: &[u8],
    before: &[u8],
    stamp: &Stamp,
    by: impl FnOnce(i128) -> i128,
) -> Option<Vec<u8>> {
    let (mut count, mut shown) = (0, pack::number(base).unwrap_or(0));
    let mut own = None;
    for total in totals::all(before) {
        if !total.name.contains(&stamp::LINEAGE) {
            return None;
        }
        let added = pack::number(total.total)?;
        (count, shown) = (count + 1, shown.saturating_add(added));
        own = own.or((total.name == stamp.writer.as_bytes()).then_some((added, total.at)));
    }
    let (added, at) = own.filter(|_| count <= FEW)?;
    let added = added.saturating_add(by(shown));
    let mut cell = Vec::with_capacity(before.len() + 16);
    pack::put_list(&mut cell, count * 3);
    for total in totals::all(before) {
        if total.name != stamp.writer.as_bytes() {
            total.put(&mut cell);
            continue;
        }
        pack::put_text(&mut cell, total.name);
        pack::put_number(&mut cell, added);
        pack::put_integer(&mut cell, stamp.reading.max(at + 1).into());
    }
    Some(cell)
}

/// Combines the older lineages of a writer's data centre, except the newest of them.
fn together(before: &[u8], writer: &str) -> Option<Vec<u8>> {
    let (dc, _) = stamp::parts(writer.as_bytes())?;
    let lineage = |total: &Total| match stamp::parts(total.name)? {
        (of, Some(lineage)) if of == dc && total.name != writer.as_bytes() => Some(lineage),
        _ => None,
    };
    let mut older: Vec<_> = totals::all(before)
        .filter_map(|total| Some((lineage(&total)?, pack::number(total.total)?)))
        .collect();
    older.sort_unstable();
    older.pop()?;
    let (last, _) = older.last()?;
    let put_before = totals::of(before, dc).and_then(pack::number).unwrap_or(0);
    let sum = older.iter().fold(put_before, |sum, (_, added)| sum.saturating_add(*added));
    let (mut total, mut cell) = (Vec::new(), Vec::new());
    pack::put_number(&mut total, sum);
    pack::put_list(&mut cell, 3);
    Total { name: dc, total: &total, at: *last }.put(&mut cell);
    Some(cell)
}

/// Returns whether the item is an integer in canonical form.
pub fn is_number(item: &[u8]) -> bool {
    let Some(number) = pack::number(item) else { return false };
    let mut again = Vec::with_capacity(item.len());
    pack::put_number(&mut again, number);
    again == item
}
