//! Sums of whole numbers: a register with what the column was set to, and what was added since ever.
//!
//! The register holds the value less what was added by then, so nothing is subtracted twice. A writer
//! is a lineage of a data centre's log: whoever has not seen the last of the one before must not count
//! on in its place.

use super::totals::{self, Total};
use crate::pack;
use crate::stamp::{self, Stamp};

/// Writers that a sum may have before the older lineages are put together.
pub const FEW: usize = 8;

pub fn value(base: &[u8], totals: &[u8]) -> i128 {
    pack::number(base).unwrap_or(0).saturating_add(added(totals))
}

fn added(totals: &[u8]) -> i128 {
    totals::all(totals)
        .filter_map(|total| pack::number(total.total))
        .fold(0, |sum: i128, added| sum.saturating_add(added))
}

/// Notes that the column was set: what is added elsewhere meanwhile comes on top.
pub fn put(cell: &mut Vec<u8>, totals: &[u8], value: i128) {
    pack::put_number(cell, value.saturating_sub(added(totals)));
}

/// Notes what this writer has added in all.
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

/// As `add`, joined with what was there. `None`: this writer has not added to it before, or lineages are put
/// together. `by`: what is added to the value that was there.
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

/// The older lineages of a writer's data centre as one, but for the last of them.
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

/// Returns whether it is a whole number in its only form.
pub fn is_number(item: &[u8]) -> bool {
    let Some(number) = pack::number(item) else { return false };
    let mut again = Vec::with_capacity(item.len());
    pack::put_number(&mut again, number);
    again == item
}
