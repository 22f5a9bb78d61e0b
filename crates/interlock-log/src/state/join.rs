//! Joining two states of a key.

use std::cmp::Ordering;

use super::change::NOTHING;
use super::{Change, Merge, Rules, State, ALIVE, BIRTH, EXPIRES, FLOOR, NEVER};
use crate::column::{Cell, Column, BORN, LIFE, WIDEST};
use crate::pack;
use crate::stamp;

/// Result of joining two states.
pub(super) enum Joined<'a> {
    /// It is the same as ours.
    Ours,
    Theirs,
    New(Vec<Cell<'a>>),
}

impl Rules {
    /// Joins two states of a key. `None`: the result is the same as ours.
    pub fn join(&self, ours: Option<&State>, theirs: &State) -> Option<State> {
        let Some(ours) = ours else { return Some(theirs.clone()) };
        self.join_bytes(&ours.0, theirs)
    }

    /// Like `join`, for the bytes of a state.
    pub fn join_bytes(&self, ours: &[u8], theirs: &State) -> Option<State> {
        if *ours == *theirs.0 {
            return None;
        }
        match self.joined(&self.cells(ours), &self.cells(&theirs.0)) {
            Joined::Ours => None,
            Joined::Theirs => Some(theirs.clone()),
            Joined::New(cells) => Some(self.encode(&cells)),
        }
    }

    /// Like `join_bytes`, but the later value does not always win: `place` returns the readings
    /// with which two values count.
    pub fn join_placed(
        &self,
        ours: &[u8],
        theirs: &State,
        place: &dyn Fn(u64, u64) -> (u64, u64),
    ) -> Option<State> {
        let (mut one, mut other) = (self.cells(ours), self.cells(&theirs.0));
        if one[FLOOR] != other[FLOOR] {
            return self.join_bytes(ours, theirs);
        }
        (one, other) = (self.spread(&one), self.spread(&other));
        for at in std::iter::once(ALIVE).chain(self.registers().map(|at| at + 1)) {
            let (our, their) = (reading(&one[at]), reading(&other[at]));
            if our == 0 || their == 0 || one[at] == other[at] {
                continue;
            }
            let (our_new, their_new) = place(our, their);
            for (cell, before, now) in [(&mut one, our, our_new), (&mut other, their, their_new)] {
                if now != before {
                    let stamp = cell[at].to_mut();
                    stamp[2..10].copy_from_slice(&now.to_be_bytes());
                }
            }
        }
        self.fold(&mut one);
        self.fold(&mut other);
        let one = self.encode(&one);
        let joined = self.join_bytes(&one.0, &self.encode(&other)).unwrap_or(one);
        (*joined.0 != *ours).then_some(joined)
    }

    /// Returns a state without the totals of some writers in its sums.
    pub fn without(&self, state: State, is_gone: impl Fn(&[u8], u64) -> bool) -> State {
        let cells = self.cells(&state.0);
        let mut left: Option<Vec<Cell<'_>>> = None;
        for column in &self.columns {
            let Some(at) = column.joined_at() else { continue };
            if let Some(cell) = column.without(&cells[at], &is_gone) {
                left.get_or_insert_with(|| cells.to_vec())[at] = cell.into();
            }
        }
        left.map(|cells| self.encode(&cells)).unwrap_or(state)
    }

    /// Returns the highest reading that a change would overwrite.
    pub fn latest(&self, before: &[u8], change: &Change) -> u64 {
        let cells = self.spread(&self.cells(before));
        let columns = |numbers: &mut dyn Iterator<Item = usize>| {
            let registers = numbers.map(|n| &self.columns[n]).filter(|c| c.is_register());
            registers.map(|column| reading(&cells[column.at + 1])).max().unwrap_or(0)
        };
        let life = reading(&cells[ALIVE]);
        let all = || columns(&mut (0..self.columns.len()));
        match change {
            Change::Patch { given } => columns(&mut given.iter().map(|(column, _)| *column)),
            // An addition counts whenever it arrives; only a raise of a `last` column overwrites.
            Change::Raise { column, .. } if self.merges[*column] == Merge::Last => {
                columns(&mut std::iter::once(*column))
            }
            Change::Raise { .. } => 0,
            Change::Expire { .. } => life,
            Change::Replace { .. } => life.max(all()),
            Change::Create { .. } | Change::CreateBy { .. } => reading(&cells[FLOOR]),
            // A delete must not remove later additions.
            Change::Delete => {
                reading(&cells[BIRTH]).max(life).max(all()).max(self.last_added(&cells, |_| true))
            }
        }
    }

    pub(super) fn joined<'a>(&self, ours: &[Cell<'a>], theirs: &[Cell<'a>]) -> Joined<'a> {
        if ours[FLOOR] != theirs[FLOOR] || ours[BIRTH] != theirs[BIRTH] {
            return self.joined_apart(ours, theirs);
        }
        if &*theirs[ALIVE] != pack::NIL && theirs[ALIVE] != ours[ALIVE] {
            return differing(self.joined_whole(ours, theirs), ours);
        }
        self.joined_columns(ours, theirs)
    }

    /// Joins states with the same creation and time to live, or theirs without a time to live.
    fn joined_columns<'a>(&self, ours: &[Cell<'a>], theirs: &[Cell<'a>]) -> Joined<'a> {
        let mut joined: Option<Vec<Cell<'a>>> = None;
        for column in &self.columns {
            let at = column.at;
            if column.is_register() {
                let (mark, our_mark) = (&theirs[at + 1], &ours[at + 1]);
                if &**mark == pack::NIL || mark == our_mark {
                } else if is_later(
                    stamp_of(mark, theirs).as_ref(),
                    stamp_of(our_mark, ours).as_ref(),
                ) {
                    let joined = joined.get_or_insert_with(|| ours.to_vec());
                    joined[at] = theirs[at].clone();
                    joined[at + 1] =
                        folded(stamp_of(mark, theirs).clone(), &ours[BIRTH], &ours[ALIVE]);
                }
            }
            let Some(at) = column.joined_at().filter(|at| &*theirs[*at] != pack::NIL) else {
                continue;
            };
            let cell = if &*ours[at] == pack::NIL {
                Some(theirs[at].clone())
            } else {
                column.join(&ours[at], &theirs[at])
            };
            if let Some(cell) = cell {
                joined.get_or_insert_with(|| ours.to_vec())[at] = cell;
            }
        }
        joined.map_or(Joined::Ours, Joined::New)
    }

    /// Returns the cells of a column of an existing row that differ after it is joined with a
    /// change. The change has its own stamp.
    pub(super) fn joined_column<'a>(
        &self,
        column: &Column,
        cells: &[&'a [u8]],
        mut delta: [Cell<'a>; WIDEST],
    ) -> [Option<Cell<'a>>; WIDEST] {
        let mut joined = [None, None, None];
        let mut take = |n: usize| std::mem::replace(&mut delta[n], NOTHING);
        let at = column.at;
        if column.is_register() {
            let (value, mark) = (take(0), take(1));
            let is_set = *mark != *pack::NIL && *mark != *cells[at + 1];
            let before: &&[u8] = stamp_of(&cells[at + 1], cells);
            if is_set && is_later(&mark, before) {
                joined[0] = Some(value);
                joined[1] = Some(folded(mark, cells[BIRTH], cells[ALIVE]));
            }
        }
        if let Some(joined_at) = column.joined_at() {
            let n = joined_at - at;
            let cell = take(n);
            if *cell != *pack::NIL {
                joined[n] = if cells[joined_at] == pack::NIL {
                    Some(cell)
                } else {
                    column.join(cells[joined_at], &cell)
                };
            }
        }
        joined
    }

    /// Joins states with the same floor and any other stamps.
    fn joined_whole<'a>(&self, ours: &[Cell<'a>], theirs: &[Cell<'a>]) -> Vec<Cell<'a>> {
        let mut joined = self.spread(ours);
        let other = self.spread(theirs);
        if is_later(&other[BIRTH], &joined[BIRTH]) {
            joined[BIRTH] = other[BIRTH].clone();
        }
        if is_later(&other[ALIVE], &joined[ALIVE]) {
            joined[ALIVE] = other[ALIVE].clone();
            joined[EXPIRES] = other[EXPIRES].clone();
        }
        for column in &self.columns {
            let at = column.at;
            if column.is_register() && is_later(&other[at + 1], &joined[at + 1]) {
                joined[at] = other[at].clone();
                joined[at + 1] = other[at + 1].clone();
            }
            let Some(at) = column.joined_at().filter(|at| &*other[*at] != pack::NIL) else {
                continue;
            };
            if &*joined[at] == pack::NIL {
                joined[at] = other[at].clone();
            } else if let Some(cell) = column.join(&joined[at], &other[at]) {
                joined[at] = cell;
            }
        }
        self.fold(&mut joined);
        joined
    }

    /// Joins states of different lives, or with two creations of one life.
    fn joined_apart<'a>(&self, ours: &[Cell<'a>], theirs: &[Cell<'a>]) -> Joined<'a> {
        if ours[FLOOR] == theirs[FLOOR] {
            let ours_is_older = order(&ours[BIRTH], &theirs[BIRTH]) != Ordering::Greater;
            let (older, newer) = if ours_is_older { (ours, theirs) } else { (theirs, ours) };
            // The newer row was created by a node that had forgotten the older one.
            if expires(older) > 0 && self.is_out_of_force(end(older), newer) {
                return if ours_is_older { Joined::Theirs } else { Joined::Ours };
            }
            return differing(self.joined_whole(ours, theirs), ours);
        }
        let ours_is_lower = order(&ours[FLOOR], &theirs[FLOOR]) == Ordering::Less;
        let (lower, higher) = if ours_is_lower { (ours, theirs) } else { (theirs, ours) };
        let (all_lower, all_higher) = if ours_is_lower {
            (Joined::Ours, Joined::Theirs)
        } else {
            (Joined::Theirs, Joined::Ours)
        };
        if !self.is_out_of_force(reading(&higher[FLOOR]), lower) {
            return all_higher;
        }
        // The lower row was created by a node that had forgotten the delete; both may be alive.
        if &*higher[ALIVE] == pack::NIL && &*higher[BIRTH] == NEVER {
            return all_lower;
        }
        if expires(higher) > 0 && self.is_out_of_force(end(higher), lower) {
            return all_lower;
        }
        let mut joined = lower.to_vec();
        joined[FLOOR] = higher[FLOOR].clone();
        differing(self.joined_whole(&joined, higher), ours)
    }

    /// Returns whether a row was created so long after the end of a life that this end no longer
    /// affects it.
    fn is_out_of_force(&self, end: u64, cells: &[Cell<'_>]) -> bool {
        &*cells[BIRTH] != NEVER
            && reading(&cells[BIRTH]) >= end.saturating_add(stamp::hybrid(self.age_ms))
    }

    /// Returns the cells with every replaced stamp restored.
    pub(super) fn spread<'a>(&self, cells: &[Cell<'a>]) -> Vec<Cell<'a>> {
        let mut found = cells.to_vec();
        found[ALIVE] = stamp_of(&cells[ALIVE], cells).clone();
        for at in self.registers() {
            found[at + 1] = stamp_of(&cells[at + 1], cells).clone();
        }
        found
    }

    /// Replaces repeated stamps with their numbers.
    pub(super) fn fold(&self, cells: &mut [Cell<'_>]) {
        for at in self.registers() {
            let stamp = std::mem::replace(&mut cells[at + 1], pack::NIL.into());
            cells[at + 1] = folded(stamp, &cells[BIRTH], &cells[ALIVE]);
        }
        if cells[ALIVE] == cells[BIRTH] {
            cells[ALIVE] = BORN.into();
        }
    }
}

fn differing<'a>(joined: Vec<Cell<'a>>, ours: &[Cell<'a>]) -> Joined<'a> {
    if joined == ours {
        Joined::Ours
    } else {
        Joined::New(joined)
    }
}

/// Returns a register's stamp as a state keeps it.
fn folded<'a>(stamp: Cell<'a>, birth: &[u8], alive: &[u8]) -> Cell<'a> {
    if *stamp == *pack::NIL {
        stamp
    } else if *stamp == *birth {
        BORN.into()
    } else if *stamp == *alive {
        LIFE.into()
    } else {
        stamp
    }
}

/// Returns the stamp of a cell, looked up if a number replaces it.
fn stamp_of<'c, C: AsRef<[u8]>>(mark: &'c C, cells: &'c [C]) -> &'c C {
    match mark.as_ref() {
        BORN => &cells[BIRTH],
        LIFE if cells[ALIVE].as_ref() == BORN => &cells[BIRTH],
        LIFE => &cells[ALIVE],
        _ => mark,
    }
}

/// Orders two stamps; nil is before all others.
fn order(one: &[u8], other: &[u8]) -> Ordering {
    pack::bytes(one).cmp(&pack::bytes(other))
}

fn is_later(one: &[u8], than: &[u8]) -> bool {
    order(one, than) == Ordering::Greater
}

pub(super) fn reading(item: &[u8]) -> u64 {
    stamp::reading(pack::bytes(item).unwrap_or(&[]))
}

pub(super) fn expires(cells: &[Cell<'_>]) -> u64 {
    pack::unsigned(&cells[EXPIRES]).unwrap_or(0)
}

/// Returns the end of a life that expires, as a reading.
///
/// A time to live that was already over when it was set ends when it was set. Otherwise the next
/// life, which begins on this floor, could come before the life that it follows.
pub(super) fn end(cells: &[Cell<'_>]) -> u64 {
    stamp::hybrid(expires(cells)).max(reading(stamp_of(&cells[ALIVE], cells).as_ref()))
}
