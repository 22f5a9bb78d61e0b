//! Changes that were done once and come back to a row that is missing or has changed.

use interlock_table::{By, Given, Value};

use super::change::packed;
use super::join::{end, reading, Joined};
use super::{is_alive, Rules, State, ALIVE, EXPIRES, FLOOR};
use crate::column::{Cell, BORN};
use crate::pack;
use crate::stamp::Stamp;

/// A change that was already done once.
#[derive(Clone, Copy, Debug)]
pub enum Late<'a> {
    /// An addition to a sum.
    Add {
        column: usize,
        by: By,
    },
    Patch(&'a [Given<'a>]),
    Delete,
}

impl Rules {
    /// Returns the state after a late change, even if the row is missing or has changed: the change
    /// waits for its row, and an addition counts whatever the sum is. `None`: the row was deleted
    /// or has expired since, or the change has no effect.
    pub fn apply_late(
        &self,
        before: Option<&[u8]>,
        late: Late<'_>,
        stamp: &Stamp,
        now_ms: u64,
    ) -> Option<State> {
        let cells = before.map(|before| self.cells(before));
        let alive = cells.as_ref().filter(|cells| is_alive(&cells[ALIVE], &cells[EXPIRES], now_ms));
        let is_expired = |cells: &[Cell<'_>]| alive.is_none() && &*cells[ALIVE] != pack::NIL;
        let over = cells.as_ref().map_or(0, |cells| match is_expired(cells) {
            true => end(cells),
            false => reading(&cells[FLOOR]),
        });
        if stamp.reading <= over {
            return None;
        }
        // Cells of the same life, if it has not expired.
        let same = cells.as_ref().filter(|cells| !is_expired(cells));
        let mut delta = match (alive, &cells, late) {
            (_, _, Late::Delete) => {
                let mut delta = self.blank();
                delta[FLOOR] = packed(stamp);
                delta
            }
            (Some(cells), ..) => self.begun(cells),
            (None, cells, _) => {
                let (mut delta, _) = self.born(cells.as_deref(), stamp, 0);
                delta[ALIVE] = pack::NIL.into();
                delta
            }
        };
        let mark = if alive.is_some() { packed(stamp) } else { BORN.into() };
        let of = |at: usize| same.map(|cells| &cells[at..]);
        match late {
            Late::Delete => {}
            Late::Add { column, by } => {
                let column = &self.columns[column];
                let at = column.at;
                if !column.add(&mut delta[at..], of(at), by, stamp) {
                    return None;
                }
            }
            Late::Patch(given) => {
                for (column, value) in given {
                    let column = &self.columns[*column];
                    column.put(&mut delta[column.at..], of(column.at), value, &mark, stamp);
                }
            }
        }
        let Some(cells) = cells else { return Some(self.encode(&delta)) };
        match self.joined(&cells, &delta) {
            Joined::Ours => None,
            Joined::Theirs => Some(self.encode(&delta)),
            Joined::New(joined) => Some(self.encode(&joined)),
        }
    }

    /// Returns the value of a column in a state, whether or not the state shows a row.
    pub fn value_in(&self, state: &State, column: usize) -> Value<'static> {
        let (column, cells) = (&self.columns[column], self.cells(state.as_bytes()));
        interlock_rows::text::owned(column.value(|at| &cells[at]))
    }
}
