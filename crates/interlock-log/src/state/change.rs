//! Changes: the effect of a write on a row, as a state that is joined with the row's state.

use interlock_table::{Change, Given, Value};
use smallvec::SmallVec;

use super::join::{end, Joined};
use super::{is_alive, Raised, Rules, State, View, ALIVE, BIRTH, EXPIRES, FLOOR, NEVER};
use crate::column::{Cell, Column, BORN, LIFE, WIDEST};
use crate::pack;
use crate::stamp::Stamp;

pub(super) const NOTHING: Cell<'static> = Cell::Borrowed(pack::NIL);

impl Rules {
    /// Returns a change as a state for others to join. `None`: the row to change does not exist.
    ///
    /// If the same row is created elsewhere at the same time, columns that are not given here have
    /// the values given there.
    ///
    /// `stamp` must be later than all stamps that were joined here.
    pub fn delta(
        &self,
        before: Option<&[u8]>,
        change: &Change,
        stamp: &Stamp,
        now_ms: u64,
    ) -> Option<State> {
        let cells = before.map(|before| self.cells(before));
        self.changed(cells.as_deref(), change, stamp, now_ms).map(|cells| self.encode(&cells))
    }

    /// Returns the state after a change. `None`: it changes nothing.
    pub fn apply(
        &self,
        before: Option<&[u8]>,
        change: &Change,
        stamp: &Stamp,
        now_ms: u64,
    ) -> Option<State> {
        self.apply_seen(before, &self.view_of(before, now_ms), change, stamp, now_ms)
    }

    /// Like `apply`, with the row that the state before shows at this time.
    pub fn apply_seen(
        &self,
        before: Option<&[u8]>,
        view: &View<'_>,
        change: &Change,
        stamp: &Stamp,
        now_ms: u64,
    ) -> Option<State> {
        let Some(before) = before else {
            return self.changed(None, change, stamp, now_ms).map(|cells| self.encode(&cells));
        };
        let is_of_columns = matches!(change, Change::Patch { .. } | Change::Raise { .. });
        // The cells that a state lacks are not in its bytes.
        let is_whole = |last: &&[u8]| before.as_ptr_range().contains(&last.as_ptr());
        if is_of_columns && view.is_there && view.cells.last().is_some_and(is_whole) {
            return self.patched(before, view, change, stamp);
        }
        self.apply_whole(before, change, stamp, now_ms)
    }

    /// Returns the value that a column of a row shows after it is raised.
    pub fn raised(
        &self,
        view: &View<'_>,
        number: usize,
        to: &Value<'static>,
        stamp: &Stamp,
    ) -> Value<'static> {
        let column = &self.columns[number];
        let cells = self.raised_cells(&view.cells, column, to, stamp);
        let value = column.value(|at| match &cells[at - column.at] {
            Some(cell) => cell,
            None => view.cells[at],
        });
        let value = interlock_rows::text::owned(value);
        let (to, reading) = (to.clone(), stamp.reading);
        *view.raised.borrow_mut() = Some(Raised { column: number, to, reading, cells });
        value
    }

    /// Returns the cells that differ after a column of an existing row is raised.
    fn raised_cells(
        &self,
        cells: &[&[u8]],
        column: &Column,
        to: &Value,
        stamp: &Stamp,
    ) -> [Option<Vec<u8>>; WIDEST] {
        if let Some(cell) = column.raised(cells, to, stamp) {
            return [None, None, Some(cell)];
        }
        let (mut delta, mark) = ([NOTHING; WIDEST], marked(stamp));
        let shown = column.value(|at| cells[at]);
        let mark = Cell::Borrowed(&mark[..]);
        column.raise(&mut delta, Some(&cells[column.at..]), (&shown, to), &mark, stamp);
        self.joined_column(column, cells, delta).map(|cell| cell.map(Cell::into_owned))
    }

    /// Returns the state after some columns of an existing row change. All other cells are copied
    /// unchanged.
    fn patched(
        &self,
        before: &[u8],
        view: &View<'_>,
        change: &Change,
        stamp: &Stamp,
    ) -> Option<State> {
        let cells = &view.cells[..];
        let mut state = Vec::with_capacity(before.len() + 32);
        let mut copied = 0;
        let begin = before.as_ptr() as usize;
        let mut patch = |column: &Column, joined: [Option<&[u8]>; WIDEST]| {
            for (at, cell) in (column.at..).zip(joined) {
                let Some(cell) = cell else { continue };
                let from = cells[at].as_ptr() as usize - begin;
                state.extend_from_slice(&before[copied..from]);
                state.extend_from_slice(cell);
                copied = from + cells[at].len();
            }
        };
        match change {
            Change::Patch { given } => {
                let mark = marked(stamp);
                let mark = Cell::Borrowed(&mark[..]);
                for (n, column) in self.columns.iter().enumerate() {
                    if !given.iter().any(|(of, _)| *of == n) {
                        continue;
                    }
                    let mut delta = [NOTHING; WIDEST];
                    for (_, value) in given.iter().filter(|(of, _)| *of == n) {
                        column.put(&mut delta, Some(&cells[column.at..]), value, &mark, stamp);
                    }
                    let joined = self.joined_column(column, cells, delta);
                    patch(column, joined.each_ref().map(|cell| cell.as_deref()));
                }
            }
            Change::Raise { column: number, to } => {
                let column = &self.columns[*number];
                let known = view.raised.take().filter(|raised| {
                    raised.column == *number && raised.to == *to && raised.reading == stamp.reading
                });
                let joined = match known {
                    Some(raised) => raised.cells,
                    None => self.raised_cells(cells, column, to, stamp),
                };
                patch(column, joined.each_ref().map(|cell| cell.as_deref()));
            }
            _ => {}
        }
        if copied == 0 {
            return None;
        }
        state.extend_from_slice(&before[copied..]);
        Some(State(state))
    }

    /// Like `apply`, for every kind of change.
    fn apply_whole(
        &self,
        before: &[u8],
        change: &Change,
        stamp: &Stamp,
        now_ms: u64,
    ) -> Option<State> {
        let cells = self.cells(before);
        let delta = self.changed(Some(&cells), change, stamp, now_ms)?;
        match self.joined(&cells, &delta) {
            Joined::Ours => None,
            Joined::Theirs => Some(self.encode(&delta)),
            Joined::New(joined) => Some(self.encode(&joined)),
        }
    }

    fn changed<'a>(
        &self,
        before: Option<&[Cell<'a>]>,
        change: &Change,
        stamp: &Stamp,
        now_ms: u64,
    ) -> Option<Vec<Cell<'a>>> {
        let alive = before.filter(|cells| is_alive(&cells[ALIVE], &cells[EXPIRES], now_ms));
        Some(match (change, alive) {
            (
                Change::Create { given, expires_at } | Change::Replace { given, expires_at },
                Some(cells),
            ) => self.replaced(cells, given, stamp, *expires_at),
            (
                Change::Create { given, expires_at } | Change::Replace { given, expires_at },
                None,
            ) => {
                let (mut delta, before) = self.born(before, stamp, *expires_at);
                for (column, value) in *given {
                    let column = &self.columns[*column];
                    column.put(
                        &mut delta[column.at..],
                        of(before, column),
                        value,
                        &BORN.into(),
                        stamp,
                    );
                }
                delta
            }
            (
                Change::Raise { column, to } | Change::CreateBy { column, value: to, .. },
                Some(cells),
            ) => {
                let column = &self.columns[*column];
                let shown = column.value(|at| &cells[at]);
                let (mut delta, mark) = (self.begun(cells), packed(stamp));
                column.raise(
                    &mut delta[column.at..],
                    of(Some(cells), column),
                    (&shown, to),
                    &mark,
                    stamp,
                );
                delta
            }
            (Change::CreateBy { column, value: to, expires_at }, None) => {
                let column = &self.columns[*column];
                let (mut delta, before) = self.born(before, stamp, *expires_at);
                let zero = column.zero();
                column.raise(
                    &mut delta[column.at..],
                    of(before, column),
                    (&zero, to),
                    &BORN.into(),
                    stamp,
                );
                delta
            }
            (Change::Patch { given }, Some(cells)) => {
                let (mut delta, mark) = (self.begun(cells), packed(stamp));
                for (column, value) in *given {
                    let column = &self.columns[*column];
                    column.put(
                        &mut delta[column.at..],
                        of(Some(cells), column),
                        value,
                        &mark,
                        stamp,
                    );
                }
                delta
            }
            (Change::Expire { at }, Some(cells)) => {
                let mut delta = self.begun(cells);
                delta[ALIVE] = packed(stamp);
                delta[EXPIRES] = number(*at);
                delta
            }
            (Change::Delete, Some(_)) => {
                let mut delta = self.blank();
                delta[FLOOR] = packed(stamp);
                delta
            }
            (
                Change::Patch { .. }
                | Change::Raise { .. }
                | Change::Expire { .. }
                | Change::Delete,
                None,
            ) => return None,
        })
    }

    fn replaced<'a>(
        &self,
        cells: &[Cell<'a>],
        values: &[Given<'_>],
        stamp: &Stamp,
        expires_at: u64,
    ) -> Vec<Cell<'a>> {
        let mut delta = self.begun(cells);
        delta[ALIVE] = packed(stamp);
        delta[EXPIRES] = number(expires_at);
        for (n, column) in self.columns.iter().enumerate() {
            let given = values.iter().rfind(|(number, _)| *number == n);
            let zero = column.zero();
            let value = given.map_or(&zero, |(_, value)| value);
            column.put(
                &mut delta[column.at..],
                of(Some(cells), column),
                value,
                &LIFE.into(),
                stamp,
            );
        }
        delta
    }

    /// Returns a change that creates a row, and the earlier cells of the same life.
    pub(super) fn born<'a, 'c>(
        &self,
        cells: Option<&'c [Cell<'a>]>,
        stamp: &Stamp,
        expires_at: u64,
    ) -> (Vec<Cell<'a>>, Option<&'c [Cell<'a>]>) {
        let mut delta = self.blank();
        let mut before = None;
        if let Some(cells) = cells {
            if &*cells[ALIVE] == pack::NIL {
                delta[FLOOR] = cells[FLOOR].clone();
                before = Some(cells);
            } else {
                // All nodes that see the expired row create the next one on the same floor.
                delta[FLOOR] = packed(&Stamp { reading: end(cells), writer: "" });
            }
        }
        delta[BIRTH] = packed(stamp);
        delta[ALIVE] = BORN.into();
        delta[EXPIRES] = number(expires_at);
        (delta, before)
    }

    pub(super) fn begun<'a>(&self, cells: &[Cell<'a>]) -> Vec<Cell<'a>> {
        let mut delta = self.blank();
        delta[FLOOR] = cells[FLOOR].clone();
        delta[BIRTH] = cells[BIRTH].clone();
        delta
    }

    pub(super) fn blank<'a>(&self) -> Vec<Cell<'a>> {
        let mut cells = vec![Cell::Borrowed(pack::NIL); self.width];
        cells[FLOOR] = NEVER.into();
        cells[BIRTH] = NEVER.into();
        cells[EXPIRES] = Cell::Borrowed(&[0]);
        cells
    }
}

/// Returns the cells of a column and those after it.
fn of<'c, 'a>(cells: Option<&'c [Cell<'a>]>, column: &Column) -> Option<&'c [Cell<'a>]> {
    cells.map(|cells| &cells[column.at..])
}

pub(super) fn packed<'a>(stamp: &Stamp) -> Cell<'a> {
    marked(stamp).into_vec().into()
}

/// Encodes a stamp as an item.
fn marked(stamp: &Stamp) -> SmallVec<[u8; 64]> {
    let mut item = SmallVec::new();
    item.extend_from_slice(&[0xC4, 8 + stamp.writer.len() as u8]);
    item.extend_from_slice(&stamp.reading.to_be_bytes());
    item.extend_from_slice(stamp.writer.as_bytes());
    item
}

fn number<'a>(number: u64) -> Cell<'a> {
    let mut item = Vec::with_capacity(9);
    pack::put_integer(&mut item, number.into());
    item.into()
}
