//! Sums of floats, whose differences are not exact.
//!
//! The register holds the value, followed by the total of each writer at that time: so the column
//! shows exactly the value it was set to, however large the totals are. Older lineages are not
//! combined.

use super::totals::{self, Total};
use crate::pack::{self, Items};
use crate::stamp::{self, Stamp};

const F32_MOST: f64 = f32::MAX as f64;

pub fn value(base: &[u8], totals: &[u8]) -> f64 {
    let mut found = Items::of(base).and_then(|mut base| pack::float(base.next()?)).unwrap_or(0.0);
    for total in totals::all(totals) {
        let of = pack::float(total.total).unwrap_or(0.0);
        let added = of - observed(base, total.name);
        // inf - inf is NaN, although nothing was added.
        found += if added.is_nan() && !of.is_nan() { 0.0 } else { added };
    }
    found
}

/// Returns a writer's total when the column was set.
fn observed(base: &[u8], writer: &[u8]) -> f64 {
    let Some(mut items) = Items::of(base) else { return 0.0 };
    items.next();
    while let (Some(name), Some(total)) = (items.next(), items.next()) {
        if pack::text(name) == Some(writer) {
            return pack::float(total).unwrap_or(0.0);
        }
    }
    0.0
}

/// Writes the register of a column that was set, with the totals at that time.
pub fn put(cell: &mut Vec<u8>, totals: &[u8], value: f64) {
    pack::put_list(cell, 1 + 2 * totals::all(totals).count());
    pack::put_float(cell, value);
    for total in totals::all(totals) {
        pack::put_text(cell, total.name);
        cell.extend_from_slice(total.total);
    }
}

/// Writes this writer's total after an addition. Returns false if the total is not finite: nothing
/// could be added to it any more.
pub fn add(cell: &mut Vec<u8>, before: &[u8], by: f64, stamp: &Stamp) -> bool {
    let writer = totals::writer(stamp.writer);
    let own = totals::of(before, writer.as_bytes()).and_then(pack::float).unwrap_or(0.0);
    if !(own + by).is_finite() {
        return false;
    }
    let mut total = Vec::with_capacity(9);
    pack::put_float(&mut total, own + by);
    pack::put_list(cell, 3);
    let at = totals::after(before, writer.as_bytes(), stamp.reading);
    Total { name: writer.as_bytes(), total: &total, at }.put(cell);
    true
}

/// Returns the nearest 32-bit float; values out of range become the greatest or least.
pub fn narrow(number: f64) -> f64 {
    let narrow = f64::from(number as f32);
    if narrow.is_infinite() && number.is_finite() {
        F32_MOST.copysign(number)
    } else {
        narrow
    }
}

/// Returns whether the item is a float in canonical form.
pub fn is_float(item: &[u8]) -> bool {
    let Some(number) = pack::float(item) else { return false };
    item.len() == 9 && (!number.is_nan() || item[1..] == pack::NAN.to_be_bytes())
}

/// Returns whether the item is a register's value as `put` writes it.
pub fn check_base(item: &[u8], is_value: impl Fn(&[u8]) -> bool) -> bool {
    let Some(items) = Items::of(item) else { return false };
    let mut rest = items.clone();
    let mut last: &[u8] = &[];
    let mut again = Vec::with_capacity(item.len());
    pack::put_list(&mut again, items.left());
    let Some(value) = rest.next() else { return false };
    again.extend_from_slice(value);
    while let Some(name) = rest.next() {
        let Some(name) = pack::text(name) else { return false };
        let Some(total) = rest.next() else { return false };
        let is_writer = matches!(stamp::parts(name), Some((_, Some(_))));
        if name <= last || !is_writer || !is_float(total) {
            return false;
        }
        pack::put_text(&mut again, name);
        again.extend_from_slice(total);
        last = name;
    }
    is_value(value) && again == item
}
