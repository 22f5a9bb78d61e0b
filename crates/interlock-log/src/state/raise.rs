//! Sums raised in place, as counters are all the time.

use interlock_table::Value;

use super::{is_alive, Rules, ALIVE, FIRST};
use crate::column::Own;
use crate::pack::Items;
use crate::stamp::Stamp;

impl Rules {
    /// Raises a column of an existing row by overwriting the numbers of its writer in the state.
    /// `to` returns the new value for the shown one. Returns the value shown afterwards; the state
    /// is the same as after [`Rules::apply`]. `None`: this is not possible, or `to` refuses;
    /// nothing is changed.
    pub fn raise_in_place(
        &self,
        state: &mut [u8],
        column: usize,
        now_ms: u64,
        stamp: &Stamp,
        to: impl FnOnce(&Value) -> Option<Value<'static>>,
    ) -> Option<Value<'static>> {
        let column = &self.columns[column];
        let mut items = Items::of(state)?;
        let (alive, expires) = (items.nth(ALIVE)?, items.next()?);
        if !is_alive(alive, expires, now_ms) {
            return None;
        }
        let (base, totals) = (items.nth(column.at - FIRST)?, items.nth(1)?);
        let Own { shown, raised, total, at, reading } =
            column.own(base, totals, stamp.writer, to)?;
        let place = |item: &[u8]| {
            let from = item.as_ptr() as usize - state.as_ptr() as usize;
            from..from + item.len()
        };
        let (total, at, before) = (place(total), place(at), total.len());
        let reading = stamp.reading.max(reading + 1);
        let mut written = [0; 9];
        written[..before].copy_from_slice(&state[total.clone()]);
        if !crate::pack::write_over(&mut written[..before], raised)
            || !crate::pack::write_over(&mut state[at], reading.into())
        {
            return None;
        }
        state[total].copy_from_slice(&written[..before]);
        Some(shown)
    }
}
