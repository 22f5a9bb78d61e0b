//! Iterates over all rows; figures of a table.

use crate::error::Error;
use crate::layout::geometry::{control, CANDIDATES, KEY, KEY_LENGTH, LEVELS, SLOTS};
use crate::layout::row::Row;
use crate::memory::{process, Memory, Place};
use crate::protocol::insert::expired;
use crate::protocol::slot;
use crate::protocol::writer::Wait;
use crate::sync::Ordering::*;
use crate::table::Table;

/// Bits of a cursor that are a slot's number; in eight above them is how often the table was resized.
const NUMBER_BITS: u32 = 40;
const NUMBERS: u64 = (1 << NUMBER_BITS) - 1;
const GENERATIONS: u64 = 0xFF;

/// A row that a scan came upon.
#[derive(Clone, Debug, PartialEq)]
pub struct Scanned {
    pub key: Vec<u8>,
    pub row: Row,
    /// The time at which it expires, in the table's time, ns; 0 never.
    pub expiry: u64,
}

/// Counts of what a table holds and has done. Counts of events are of all processes since it was made; one
/// that was killed may have left one out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Slots and live rows of each of the four rows of buckets.
    pub levels: [(u64, u64); LEVELS],
    /// Rows that have expired, and are still where they were.
    pub expired: u64,
    /// Rows that made room for another by moving.
    pub moves: u64,
    /// Expired rows whose slot another key got.
    pub overwritten_expired: u64,
    /// Live rows that were overwritten by another key's.
    pub overwritten: u64,
    /// Reads that had to be made again.
    pub retries: u64,
    /// Dead writers whose writes were finished or undone.
    pub recovered: u64,
    /// Slots and insert locks that are held just now.
    pub held: u64,
    /// Threads that have a number, dead ones among them.
    pub writers: u64,
    /// Bytes of memory in all.
    pub bytes: u64,
    /// Bytes that a slot takes, with its tag.
    pub slot_bytes: u64,
}

impl Statistics {
    /// Live rows.
    pub fn rows(&self) -> u64 {
        self.levels.iter().map(|(_, live)| live).sum()
    }

    pub fn slots(&self) -> u64 {
        self.levels.iter().map(|(slots, _)| slots).sum()
    }

    /// The last of the four rows of buckets that holds a row, from 1; 0 in an empty table.
    pub fn highest_level(&self) -> usize {
        self.levels.iter().rposition(|(_, live)| *live > 0).map_or(0, |level| level + 1)
    }
}

impl Table {
    /// Goes on with a scan: calls `each` for up to `limit` rows from the cursor on, 0 at first, and returns
    /// the next cursor, 0 at the end. A row that is there all the time is seen; one that is moved while
    /// others are inserted may be seen twice. If the table was resized since, it begins again.
    pub fn scan(&self, cursor: u64, limit: usize, each: impl FnMut(Scanned)) -> u64 {
        self.scan_within(cursor, limit, u64::MAX, each)
    }

    /// Like `scan`, over at most `slots` slots: in a nearly empty table it returns few rows or none.
    pub fn scan_within(
        &self,
        cursor: u64,
        limit: usize,
        slots: u64,
        mut each: impl FnMut(Scanned),
    ) -> u64 {
        let mut seen = 0;
        self.slots_from(cursor, slots, |memory, place, now| {
            if seen >= limit {
                return false;
            }
            if let Some(row) = self.row_in(memory, place).filter(|row| !expired(row.expiry, now)) {
                seen += 1;
                each(row);
            }
            true
        })
    }

    /// Visits `slots` slots from the cursor on, until `each` refuses one. Returns the next cursor,
    /// 0 at the end.
    fn slots_from(
        &self,
        cursor: u64,
        slots: u64,
        mut each: impl FnMut(&Memory, Place, u64) -> bool,
    ) -> u64 {
        let (memory, now) = (&self.last().region.memory, self.now());
        let generation = memory.control(control::GENERATION).load(Relaxed);
        let generation = (generation & GENERATIONS) << NUMBER_BITS;
        let from = if cursor & !NUMBERS == generation { cursor & NUMBERS } else { 0 };
        let (mut number, end) = (from, from.saturating_add(slots));
        while let Some(place) = memory.slot_of(number.saturating_add(1)) {
            if number >= end || !each(memory, place, now) {
                return generation | number;
            }
            number += 1;
        }
        match self.goes_on_behind(memory) {
            // A row that was not found may be in the next table, where the scan restarts.
            true => generation | NUMBERS,
            false => 0,
        }
    }

    /// Counts the live rows in `slots` slots from the cursor on; returns them with the next cursor,
    /// 0 at the end. If the table was resized since, it begins again.
    pub fn count_within(&self, cursor: u64, slots: u64) -> (u64, u64) {
        let mut rows = 0;
        let next = self.slots_from(cursor, slots, |memory, place, now| {
            let live = memory.state(place.at).is_live() && !memory.has_expired(place.at, now);
            rows += u64::from(live);
            true
        });
        (rows, next)
    }

    /// The memory of the table.
    pub fn bytes(&self) -> u64 {
        self.last().region.memory.geometry.words as u64 * 8
    }

    /// Slots that a scan has yet to go over behind a cursor. A cursor has 48 bits at most.
    pub fn slots_behind(&self, cursor: u64) -> u64 {
        self.slots().saturating_sub(cursor & NUMBERS)
    }

    /// Slots, and so the most rows.
    pub fn slots(&self) -> u64 {
        self.last().region.memory.geometry.slots()
    }

    fn row_in(&self, memory: &Memory, place: Place) -> Option<Scanned> {
        loop {
            let before = memory.state(place.at);
            if !before.is_live() || before.has_image() && memory.image(before).is_none() {
                return None;
            }
            let length = memory.word(place.at + KEY_LENGTH).load(Relaxed) as usize;
            let words = length.div_ceil(8).min(memory.geometry.key_words);
            let mut key: Vec<u8> = (0..words)
                .flat_map(|n| memory.word(place.at + KEY + n).load(Relaxed).to_le_bytes())
                .collect();
            key.truncate(length);
            let mut row = Row::new(self.schema());
            let read = memory.read_under(place.at, before, &mut |value| {
                slot::load(&value[1..], row.words_mut());
                value[0].load(Relaxed)
            });
            if let Ok(expiry) = read {
                return Some(Scanned { key, row, expiry });
            }
        }
    }

    /// Live rows. It takes as long as `statistics`.
    pub fn rows(&self) -> u64 {
        self.statistics().rows()
    }

    /// Returns the counts. It takes as long for many rows as for few until the earliest expiry that any row
    /// has had. From then on it visits all slots, to tell expired rows from live ones.
    pub fn statistics(&self) -> Statistics {
        self.known_statistics().unwrap_or_else(|| self.visited_statistics())
    }

    /// Like `statistics`; `None` if it would visit all slots.
    pub fn known_statistics(&self) -> Option<Statistics> {
        self.statistics_with(|memory, now| {
            let rows = memory.rows();
            memory.has_none_expired(now).then_some((rows, 0))
        })
    }

    /// Like `statistics`, but always visits all slots.
    pub fn visited_statistics(&self) -> Statistics {
        let visited = self.statistics_with(|memory, now| Some(memory.visited_rows(now)));
        visited.expect("the slots can be visited at any time")
    }

    fn statistics_with(
        &self,
        rows: impl Fn(&Memory, u64) -> Option<([u64; LEVELS], u64)>,
    ) -> Option<Statistics> {
        loop {
            let memory = &self.last().region.memory;
            let statistics = rows(memory, self.now()).map(|rows| self.statistics_of(memory, rows));
            if !self.goes_on_behind(memory) {
                return statistics;
            }
        }
    }

    /// Returns whether a memory is gone and there is one that has taken its place: damaged, it may be gone
    /// for nothing.
    fn goes_on_behind(&self, memory: &Memory) -> bool {
        memory.is_gone() && self.here().is_ok()
    }

    fn statistics_of(&self, memory: &Memory, (rows, expired): ([u64; LEVELS], u64)) -> Statistics {
        let geometry = &memory.geometry;
        let count = |counter| memory.control(counter).load(Relaxed);
        let ids = 1..=memory.participants_used();
        let mut levels = geometry.levels.iter().zip(rows);
        Statistics {
            levels: std::array::from_fn(|_| {
                let (level, rows) = levels.next().expect("as many");
                (u64::from(level.buckets) * SLOTS as u64, rows)
            }),
            expired,
            moves: count(control::MOVES),
            overwritten_expired: count(control::EXPIRED),
            overwritten: count(control::OVERWRITTEN),
            retries: count(control::RETRIES),
            recovered: count(control::RECOVERED),
            held: ids.clone().map(|id| memory.held_by(id)).sum(),
            writers: ids.filter(|id| process::pid(memory.who(*id)) != 0).count() as u64,
            bytes: geometry.words as u64 * 8,
            slot_bytes: geometry.slot_bytes(),
        }
    }

    /// Deletes all rows, and returns their number. Rows that are inserted meanwhile may remain.
    pub fn reset(&self) -> Result<u64, Error> {
        let mut deleted = 0;
        self.reset_on(&mut deleted)?;
        Ok(deleted)
    }

    /// Like `reset`; `deleted` is increased row by row, whether or not the call finishes.
    pub fn reset_on(&self, deleted: &mut u64) -> Result<(), Error> {
        let mut wait = Wait::default();
        self.writing(|writer| {
            let memory = writer.memory;
            for number in 1..=memory.geometry.slots() {
                let Some(place) = memory.slot_of(number) else { continue };
                loop {
                    let before = memory.state(place.at);
                    if !before.is_live() {
                        break;
                    }
                    if !before.is_open() {
                        writer.wait(memory.word(place.at), before, &mut wait)?;
                    } else if writer.free(place, before)? {
                        *deleted += 1;
                        break;
                    }
                }
            }
            match memory.is_gone() {
                true => Err(Error::Moved),
                false => Ok(()),
            }
        })
    }

    /// Candidates that a key has in all.
    pub const CANDIDATES: usize = CANDIDATES;
}
