//! States of another data centre: who owns which sums, and which parts of a state came from
//! elsewhere.

use super::join::reading;
use super::{Rules, State, ALIVE, BIRTH, EXPIRES, FLOOR};
use crate::column::Cell;
use crate::machine::Centre;
use crate::pack;
use crate::stamp;

impl Rules {
    /// Joins a state of another data centre, like `join_bytes`. If its report follows all before,
    /// its own sums are taken as it reports them: its log may have lost writes that others have
    /// seen.
    ///
    /// A delete by our own data centre that our state lacks was lost here and comes back. Like a
    /// put-back, it does not affect a row that was written later, although others already have the
    /// row's next life.
    ///
    /// # Arguments
    ///
    /// `own` is the name of our data centre.
    ///
    /// `is_of` returns, for a writer and the time of its total, whether the other data centre,
    /// `centre`, knows that total from its entries.
    pub fn join_far(
        &self,
        ours: &[u8],
        theirs: &State,
        own: &[u8],
        centre: Centre<'_>,
        is_of: &dyn Fn(&[u8], u64) -> bool,
    ) -> Option<State> {
        let (one, other) = (self.cells(ours), self.cells(theirs.as_bytes()));
        if one[FLOOR] != other[FLOOR] {
            if self.is_overtaken(&other[FLOOR], &one, own) {
                let mut later = one;
                later[FLOOR] = other[FLOOR].clone();
                let later = self.encode(&later);
                let joined = self.join_far(&later.0, theirs, own, centre, is_of);
                return Some(joined.unwrap_or(later));
            }
            return self.join_bytes(ours, theirs);
        }
        let settled = if centre.is_newest { self.settled(&one, &other, centre.name) } else { None };
        if let Some(settled) = settled {
            let settled = self.encode(&settled);
            let joined = self.join_far(&settled.0, theirs, own, centre, is_of);
            return Some(joined.unwrap_or(settled));
        }
        let sums = || self.columns.iter().filter_map(|column| Some((column, column.joined_at()?)));
        let is_later = |(column, at): (&crate::column::Column, usize)| {
            column.totals(&one[at]).filter(|total| is_of(total.name, total.at)).any(|ours| {
                !column.totals(&other[at]).any(|it| {
                    it.name == ours.name
                        && (it.at > ours.at || (it.at, it.total) == (ours.at, ours.total))
                })
            })
        };
        if !centre.is_newest || !sums().any(is_later) {
            return self.join_bytes(ours, theirs);
        }
        let less = self.without(self.trust(ours.into()), is_of);
        let joined = self.join_bytes(less.as_bytes(), theirs).unwrap_or(less);
        (joined.as_bytes() != ours).then_some(joined)
    }

    /// Returns our cells with the values of the other data centre where both have its stamp and
    /// different values: two of its histories gave the stamp to different writes. `None`: there are
    /// none.
    fn settled<'a>(
        &self,
        ours: &[Cell<'a>],
        theirs: &[Cell<'a>],
        centre: &[u8],
    ) -> Option<Vec<Cell<'a>>> {
        let (mut one, other) = (self.spread(ours), self.spread(theirs));
        let mut has_changed = false;
        let stamps = self.registers().map(|at| (at, at + 1)).chain([(EXPIRES, ALIVE)]);
        for (value, stamp) in stamps {
            let is_same = one[stamp] == other[stamp] && is_of(&one[stamp], centre);
            if is_same && one[value] != other[value] {
                one[value] = other[value].clone();
                has_changed = true;
            }
        }
        has_changed.then(|| {
            self.fold(&mut one);
            one
        })
    }

    /// Returns whether our state has a later stamp by a data centre than the state it sent: it has
    /// lost its own writes.
    pub fn has_more_of(&self, dc: &[u8], ours: &[u8], theirs: &State) -> bool {
        let (one, other) = (self.spread(&self.cells(ours)), self.spread(&self.cells(&theirs.0)));
        let mut stamps = [FLOOR, BIRTH, ALIVE].into_iter().chain(self.registers().map(|at| at + 1));
        stamps.any(|at| is_of(&one[at], dc) && reading(&one[at]) > reading(&other[at]))
    }

    /// Returns whether our own data centre made the delete of this floor and wrote later to a life
    /// below it.
    fn is_overtaken(&self, floor: &Cell<'_>, life: &[Cell<'_>], own: &[u8]) -> bool {
        let deleted = reading(floor);
        let is_own = |cell: &Cell<'_>| is_of(cell, own);
        if &*life[ALIVE] == pack::NIL || reading(&life[FLOOR]) >= deleted || !is_own(floor) {
            return false;
        }
        let life = self.spread(life);
        let stamps = [BIRTH, ALIVE].into_iter().chain(self.registers().map(|at| at + 1));
        let mut later = stamps.map(|at| &life[at]).filter(|cell| reading(cell) > deleted);
        later.any(is_own)
            || self.last_added(&life, |name| stamp::parts(name).is_some_and(|(of, _)| of == own))
                > deleted
    }

    /// Returns the reading of the last addition by some writers to any sum.
    pub(super) fn last_added(&self, cells: &[Cell<'_>], is_of: impl Fn(&[u8]) -> bool) -> u64 {
        let columns = self.columns.iter().filter_map(|it| Some((it, it.joined_at()?)));
        let totals = columns.flat_map(|(column, at)| column.totals(&cells[at]));
        let is_one = |name: &[u8]| name.contains(&stamp::LINEAGE) && is_of(name);
        totals.filter(|total| is_one(total.name)).map(|total| total.at).max().unwrap_or(0)
    }

    /// Calls a function for the writer and time of each total in a state's sums.
    pub fn each_total(&self, state: &State, mut call: impl FnMut(&[u8], u64)) {
        let cells = self.cells(state.as_bytes());
        for (column, at) in self.columns.iter().filter_map(|it| Some((it, it.joined_at()?))) {
            column.totals(&cells[at]).for_each(|total| call(total.name, total.at));
        }
    }

    /// Returns whether others than this data centre may have contributed to a state, or one of its
    /// own writers whose sums its entries alone do not determine.
    pub fn is_of_others(&self, state: &[u8], dc: &[u8], is_joined: &dyn Fn(&[u8]) -> bool) -> bool {
        let cells = self.cells(state);
        let is_foreign = |cell: &Cell<'_>| {
            let writer = pack::bytes(cell).and_then(|stamp| stamp.get(8..)).unwrap_or(&[]);
            reading(cell) > 0 && stamp::parts(writer).is_some_and(|(of, _)| of != dc)
        };
        let stamps = [FLOOR, BIRTH, ALIVE].into_iter().chain(self.registers().map(|at| at + 1));
        if stamps.map(|at| &cells[at]).any(is_foreign) {
            return true;
        }
        self.columns.iter().filter_map(|it| Some((it, it.joined_at()?))).any(|(column, at)| {
            // The greatest value and the bits do not show who set them.
            let is_nameless = !column.is_register() && &*cells[at] != pack::NIL;
            let is_far =
                |name: &[u8]| stamp::parts(name).is_some_and(|(of, _)| of != dc) || is_joined(name);
            is_nameless || column.totals(&cells[at]).any(|total| is_far(total.name))
        })
    }
}

/// Returns whether the cell is a stamp by a writer of a data centre.
fn is_of(cell: &Cell<'_>, dc: &[u8]) -> bool {
    let writer = pack::bytes(cell).and_then(|stamp| stamp.get(8..)).unwrap_or(&[]);
    stamp::parts(writer).is_some_and(|(of, _)| of == dc)
}
