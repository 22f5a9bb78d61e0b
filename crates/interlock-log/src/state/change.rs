//! Changes: what a write does to a row, as a state that is joined with what there is.

use interlock_table::{Change, Given};

use super::join::{end, Joined};
use super::{is_alive, Rules, State, ALIVE, BIRTH, EXPIRES, FLOOR, NEVER};
use crate::column::{Cell, BORN, LIFE};
use crate::pack;
use crate::stamp::Stamp;

impl Rules {
    /// The change as a state, which others join. `None`: there is no row that it could change.
    ///
    /// A row that is not given as a whole, and that somebody makes elsewhere at the same time, has what is
    /// given there.
    ///
    /// `stamp` is a new one: later than all that were joined here.
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

    /// The state after a change. `None`: it changes nothing.
    pub fn apply(
        &self,
        before: Option<&[u8]>,
        change: &Change,
        stamp: &Stamp,
        now_ms: u64,
    ) -> Option<State> {
        let Some(before) = before else {
            return self.changed(None, change, stamp, now_ms).map(|cells| self.encode(&cells));
        };
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
                    column.put(&mut delta, before, value, &BORN.into(), stamp);
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
                column.raise(&mut delta, Some(cells), (&shown, to), &mark, stamp);
                delta
            }
            (Change::CreateBy { column, value: to, expires_at }, None) => {
                let column = &self.columns[*column];
                let (mut delta, before) = self.born(before, stamp, *expires_at);
                column.raise(&mut delta, before, (&column.zero(), to), &BORN.into(), stamp);
                delta
            }
            (Change::Patch { given }, Some(cells)) => {
                let (mut delta, mark) = (self.begun(cells), packed(stamp));
                for (column, value) in *given {
                    self.columns[*column].put(&mut delta, Some(cells), value, &mark, stamp);
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
            column.put(&mut delta, Some(cells), value, &LIFE.into(), stamp);
        }
        delta
    }

    /// A change that makes a row, and what it has of before in the same life.
    fn born<'a, 'c>(
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
                // All who see the expired row make the next on the same floor.
                delta[FLOOR] = packed(&Stamp { reading: end(cells), writer: "" });
            }
        }
        delta[BIRTH] = packed(stamp);
        delta[ALIVE] = BORN.into();
        delta[EXPIRES] = number(expires_at);
        (delta, before)
    }

    fn begun<'a>(&self, cells: &[Cell<'a>]) -> Vec<Cell<'a>> {
        let mut delta = self.blank();
        delta[FLOOR] = cells[FLOOR].clone();
        delta[BIRTH] = cells[BIRTH].clone();
        delta
    }

    fn blank<'a>(&self) -> Vec<Cell<'a>> {
        let mut cells = vec![Cell::Borrowed(pack::NIL); self.width];
        cells[FLOOR] = NEVER.into();
        cells[BIRTH] = NEVER.into();
        cells[EXPIRES] = Cell::Borrowed(&[0]);
        cells
    }
}

fn packed<'a>(stamp: &Stamp) -> Cell<'a> {
    let mut item = Vec::with_capacity(2 + 8 + stamp.writer.len());
    item.extend([0xC4, 8 + stamp.writer.len() as u8]);
    item.extend(stamp.reading.to_be_bytes());
    item.extend(stamp.writer.as_bytes());
    item.into()
}

fn number<'a>(number: u64) -> Cell<'a> {
    let mut item = Vec::with_capacity(9);
    pack::put_integer(&mut item, number.into());
    item.into()
}
