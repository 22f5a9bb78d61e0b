//! Totals of each writer since ever: a list of name, total, and the reading of its last addition.
//!
//! The oldest lineages of a data centre may be put together under its bare name, with the last of
//! them in place of a time.

use std::borrow::Cow;
use std::cmp::Ordering;

use crate::pack::{self, Items};
use crate::stamp::{self, READINGS};

/// The total of one writer.
#[derive(Clone, Copy)]
pub struct Total<'a> {
    pub name: &'a [u8],
    /// The total, as an item.
    pub total: &'a [u8],
    /// The reading of its last addition; of a bare data centre its last lineage in here.
    pub at: u64,
}

impl Total<'_> {
    pub fn put(&self, to: &mut Vec<u8>) {
        pack::put_text(to, self.name);
        to.extend_from_slice(self.total);
        pack::put_integer(to, self.at.into());
    }
}

/// The totals of a cell; none of nil.
#[inline]
pub fn all(cell: &[u8]) -> impl Iterator<Item = Total<'_>> {
    let mut items = Items::of(cell);
    std::iter::from_fn(move || {
        let items = items.as_mut()?;
        let (name, total, at) = (items.next()?, items.next()?, items.next()?);
        Some(Total { name: pack::text(name)?, total, at: pack::unsigned(at)? })
    })
}

/// The total of a writer, as an item.
pub fn of<'a>(cell: &'a [u8], writer: &[u8]) -> Option<&'a [u8]> {
    all(cell).find(|total| total.name == writer).map(|total| total.total)
}

/// The reading of an addition: above the writer's last, also of one that is done late.
pub fn after(cell: &[u8], writer: &[u8], reading: u64) -> u64 {
    all(cell).find(|total| total.name == writer).map_or(reading, |own| reading.max(own.at + 1))
}

/// The name that adds: the bare name of a data centre is for its old lineages, put together.
pub fn writer(name: &str) -> Cow<'_, str> {
    if name.as_bytes().contains(&stamp::LINEAGE) {
        name.into()
    } else {
        stamp::writer(name, 0).into()
    }
}

/// Of each writer its later total. `None`: the same as ours.
pub fn join(ours: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    let joined = together(ours, theirs);
    (joined != ours).then_some(joined)
}

/// The cell without the totals of some writers. `None`: it has none of them.
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
    // Of a name the first is its later one.
    let mut found: Vec<_> = all(ours).chain(all(theirs)).collect();
    found.sort_by(|one, other| one.name.cmp(other.name).then_with(|| later(other, one)));
    found.dedup_by(|next, kept| next.name == kept.name);
    // A bare name stands before those with lineages, but not just before: `a`, `a-b`, `a.1`.
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

/// Greater of the one that is later; of two at once that one is left whose total, written out, is.
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

/// Returns whether it is nil, or totals in their only form. `bare`: old lineages may be together.
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
