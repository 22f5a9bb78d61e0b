//! Totals that each writer has ever added: a list of name, total, and the reading of its last
//! addition.
//!
//! The oldest lineages of a data centre may be combined under its bare name, with the last of them
//! in place of the reading.

use std::borrow::Cow;
use std::cmp::Ordering;

use crate::pack::{self, Items};
use crate::stamp::{self, READINGS};

/// The total of one writer.
#[derive(Clone, Copy)]
pub struct Total<'a> {
    pub name: &'a [u8],
    /// The total, encoded.
    pub total: &'a [u8],
    /// Reading of its last addition; for a bare data centre, the last lineage combined in it.
    pub at: u64,
}

impl Total<'_> {
    pub fn put(&self, to: &mut Vec<u8>) {
        pack::put_text(to, self.name);
        to.extend_from_slice(self.total);
        pack::put_integer(to, self.at.into());
    }
}

/// Iterates over the totals of a cell; nil has none.
#[inline]
pub fn all(cell: &[u8]) -> impl Iterator<Item = Total<'_>> {
    let mut items = Items::of(cell);
    std::iter::from_fn(move || {
        let items = items.as_mut()?;
        let (name, total, at) = (items.next()?, items.next()?, items.next()?);
        Some(Total { name: pack::text(name)?, total, at: pack::unsigned(at)? })
    })
}

/// Returns the encoded total of a writer.
pub fn of<'a>(cell: &'a [u8], writer: &[u8]) -> Option<&'a [u8]> {
    all(cell).find(|total| total.name == writer).map(|total| total.total)
}

/// Returns the reading of an addition, which is above the writer's last one even if the addition is
/// late.
pub fn after(cell: &[u8], writer: &[u8], reading: u64) -> u64 {
    all(cell).find(|total| total.name == writer).map_or(reading, |own| reading.max(own.at + 1))
}

/// Returns the name under which a writer adds: the bare name of a data centre is reserved for its
/// combined old lineages.
pub fn writer(name: &str) -> Cow<'_, str> {
    if name.as_bytes().contains(&stamp::LINEAGE) {
        name.into()
    } else {
        stamp::writer(name, 0).into()
    }
}

/// Joins two cells: the later total of each writer wins. `None`: the result is the same as ours.
pub fn join(ours: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    let joined = together(ours, theirs);
    (joined != ours).then_some(joined)
}

/// Returns the cell without the totals of some writers. `None`: it has no such totals.
pub fn without(cell: &[u8], is_gone: impl Fn(&[u8], u64) -> bool) -> Option<Vec<u8>> {
    let kept: Vec<_> = all(cell).filter(|total| !is_gone(total.name, total.at)).collect();
    if kept.len() == all(cell).count() {
        return None;
    }
    let mut left = Vec::with_capacity(cell.len());
    if kept.is_empty() {
        left.extend_from_slice(pack::NIL);
    } else {
        pack::put_list(&mut left, kept.len() * 3);
        kept.iter().for_each(|total| total.put(&mut left));
    }
    Some(left)
}

fn together(ours: &[u8], theirs: &[u8]) -> Vec<u8> {
    // The later total of each name is first.
    let mut found: Vec<_> = all(ours).chain(all(theirs)).collect();
    found.sort_by(|one, other| one.name.cmp(other.name).then_with(|| later(other, one)));
    found.dedup_by(|next, kept| next.name == kept.name);
    // A bare name sorts before those with lineages, but not always directly: `a`, `a-b`, `a.1`.
    let bare: Vec<_> =
        found.iter().filter(|t| !t.name.contains(&stamp::LINEAGE)).copied().collect();
    if !bare.is_empty() {
        found.retain(|total| match stamp::parts(total.name) {
            Some((dc, Some(lineage))) => {
                !bare.iter().any(|old| old.name == dc && lineage <= old.at)
            }
            _ => true,
        });
    }
    let mut joined = Vec::with_capacity(ours.len() + theirs.len());
    pack::put_list(&mut joined, found.len() * 3);
    found.iter().for_each(|total| total.put(&mut joined));
    joined
}

/// Orders two totals by time, and those of the same time by their totals as text or floats.
fn later(one: &Total, other: &Total) -> Ordering {
    let written = |item: &[u8]| match pack::text(item) {
        Some(text) => format!("'{}'", String::from_utf8_lossy(text)),
        None => pack::integer(item).unwrap_or_default().to_string(),
    };
    one.at.cmp(&other.at).then_with(|| match (pack::float(one.total), pack::float(other.total)) {
        (Some(one), Some(other)) => one.total_cmp(&other),
        _ => written(one.total).cmp(&written(other.total)),
    })
}

/// Returns whether the cell is nil or has totals in canonical form. `bare`: it may have combined
/// lineages.
pub fn check(cell: &[u8], bare: bool, is_total: impl Fn(&[u8]) -> bool) -> bool {
    if cell == pack::NIL {
        return true;
    }
    let Some(count) = Items::of(cell).map(|items| items.left()) else { return false };
    let is_one = |total: &Total| {
        let limit = match stamp::parts(total.name) {
            Some((_, Some(_))) => READINGS,
            Some((_, None)) if bare => u64::MAX,
            _ => return false,
        };
        total.at < limit && is_total(total.total)
    };
    let found: Vec<_> = all(cell).collect();
    count > 0
        && found.len() * 3 == count
        && found.iter().all(is_one)
        && together(cell, pack::NIL) == cell
}
