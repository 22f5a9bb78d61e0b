//! Flags: bits that are set or cleared; of concurrent changes to a bit, setting wins.
//!
//! The cell lists `writer, code, bits`. The code is twice the clock reading at which that writer
//! last set these bits, plus one if a writer that had seen them set has cleared them since. A bit
//! is on if at least one writer has it set.

use crate::pack::{self, Items};
use crate::stamp::{self, Stamp, READINGS};

/// A writer's last change of some bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry<'a> {
    name: &'a [u8],
    code: u64,
    bits: u64,
}

fn entries(cell: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    let mut items = Items::of(cell);
    std::iter::from_fn(move || {
        let items = items.as_mut()?;
        let (name, code, bits) = (items.next()?, items.next()?, items.next()?);
        Some(Entry {
            name: pack::text(name)?,
            code: pack::unsigned(code)?,
            bits: pack::unsigned(bits)?,
        })
    })
}

pub fn bits_on(cell: &[u8]) -> u64 {
    entries(cell).filter(|entry| entry.code & 1 == 0).fold(0, |bits, entry| bits | entry.bits)
}

/// Writes a change that clears all bits except `kept` and sets `asserted`. Leaves the cell empty if
/// nothing changes.
pub fn change(cell: &mut Vec<u8>, before: &[u8], kept: u64, asserted: u64, stamp: &Stamp) {
    let mut found = Vec::new();
    if asserted != 0 {
        let name = stamp.writer.as_bytes();
        found.push(Entry { name, code: stamp.reading << 1, bits: asserted });
    }
    // The bits that this writer sets differ from those it had set and now clears. A late put-back
    // clears nothing that was set after its stamp.
    found.extend(
        entries(before)
            .filter(|entry| entry.code & 1 == 0 && entry.bits & !kept != 0)
            .filter(|entry| entry.code >> 1 <= stamp.reading)
            .map(|entry| Entry { code: entry.code | 1, bits: entry.bits & !kept, ..entry }),
    );
    if !found.is_empty() {
        put(cell, found);
    }
}

/// Joins two cells: for each writer and bit the later entry wins. `None`: the result is the same as
/// ours.
pub fn join(ours: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    let mut joined = Vec::with_capacity(ours.len() + theirs.len());
    put(&mut joined, entries(ours).chain(entries(theirs)).collect());
    (joined != ours).then_some(joined)
}

fn put(cell: &mut Vec<u8>, mut found: Vec<Entry>) {
    // Sorted by name. For each name the latest entry is first and takes its bits from earlier
    // entries.
    found.sort_unstable_by(|one, other| {
        one.name.cmp(other.name).then_with(|| (other.code, other.bits).cmp(&(one.code, one.bits)))
    });
    let (mut name, mut taken) = (&[][..], 0);
    let mut kept: Vec<Entry> = Vec::with_capacity(found.len());
    for entry in found {
        if entry.name != name {
            (name, taken) = (entry.name, 0);
        }
        let bits = entry.bits & !taken;
        taken |= bits;
        match kept.last_mut() {
            _ if bits == 0 => {}
            Some(last) if (last.name, last.code) == (entry.name, entry.code) => last.bits |= bits,
            _ => kept.push(Entry { bits, ..entry }),
        }
    }
    pack::put_list(cell, kept.len() * 3);
    for entry in kept {
        pack::put_text(cell, entry.name);
        pack::put_integer(cell, entry.code.into());
        pack::put_integer(cell, entry.bits.into());
    }
}

/// Returns whether the cell lists bits up to `most` in canonical form.
pub fn check(cell: &[u8], most: u64) -> bool {
    let Some(count) = Items::of(cell).map(|items| items.left()) else { return false };
    let found: Vec<_> = entries(cell).collect();
    let is_one = |entry: &Entry| {
        stamp::parts(entry.name).is_some() && entry.code < READINGS << 1 && entry.bits <= most
    };
    let mut again = Vec::with_capacity(cell.len());
    put(&mut again, found.clone());
    count > 0 && found.len() * 3 == count && found.iter().all(is_one) && again == cell
}
