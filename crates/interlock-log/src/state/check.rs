//! Checks of bytes from outside: only bytes that these rules could have written are a state.

use super::{Rules, ALIVE, BIRTH, EXPIRES, FLOOR, NEVER};
use crate::column::{is_stamp, BORN, LIFE};
use crate::pack::{self, Items};
use crate::stamp::{self, READINGS};

/// Returns whether the bytes are a state in canonical form, so that every join with it is one too.
pub(super) fn is_state(rules: &Rules, bytes: &[u8]) -> bool {
    let Some(items) = Items::of(bytes) else { return false };
    if items.left() != rules.width || pack::length(bytes) != Some(bytes.len()) {
        return false;
    }
    // The list must have the shortest header.
    let mut head = Vec::with_capacity(5);
    pack::put_list(&mut head, rules.width);
    if !bytes.starts_with(&head) {
        return false;
    }
    let cells = rules.raw(bytes);
    let (floor, birth, alive) = (cells[FLOOR], cells[BIRTH], cells[ALIVE]);
    let Some(expires) = pack::unsigned(cells[EXPIRES]) else { return false };
    let mut again = Vec::with_capacity(9);
    pack::put_integer(&mut again, expires.into());
    let (is_born, is_made) = (birth != NEVER, alive != pack::NIL);
    let right = is_floor(floor)
        && (!is_born || is_stamp(birth))
        && (!is_made || is_born && (alive == BORN || is_stamp(alive)))
        && (is_made || expires == 0)
        // A tombstone has only a floor.
        && (is_born || floor != NEVER && cells[super::FIRST..].iter().all(|c| *c == pack::NIL))
        && again == cells[EXPIRES]
        && expires <= stamp::LATEST_MS
        && rules.columns.iter().all(|column| column.check(&cells, is_made, is_born));
    right && is_folded(rules, &cells)
}

/// Returns whether every stamp that a number can replace is replaced.
fn is_folded(rules: &Rules, cells: &[&[u8]]) -> bool {
    let (birth, alive) = (cells[BIRTH], cells[ALIVE]);
    let is_folded = |mark: &[u8]| match mark {
        pack::NIL | BORN => true,
        LIFE => alive != BORN && alive != pack::NIL,
        stamp => stamp != birth && stamp != alive,
    };
    alive != birth && rules.registers().all(|at| is_folded(cells[at + 1]))
}

/// A floor is empty, a delete's stamp, or the end of an expired life, which has no writer.
fn is_floor(item: &[u8]) -> bool {
    let end = |packed: &[u8]| packed.len() == 8 && stamp::reading(packed) < READINGS;
    item == NEVER
        || is_stamp(item)
        || item.starts_with(&[0xC4, 8]) && pack::bytes(item).is_some_and(end)
}
