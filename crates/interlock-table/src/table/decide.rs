//! One step on a row: what is seen of it decides how it changes, and nobody changes it in between.

use std::time::Duration;

use crate::error::Error;
use crate::layout::hash::Key;
use crate::layout::row::Value;
use crate::layout::schema::Column;
use crate::layout::state::State;
use crate::memory::Place;
use crate::protocol::insert::{expired, New};
use crate::protocol::slot;
use crate::protocol::writer::{Wait, Writer};
use crate::sync::{AtomicU64, Ordering::*};
use crate::table::Table;

/// A column, by its place in the schema, and a value that it can hold.
pub type Given<'a> = (usize, Value<'a>);

/// A change of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<'a> {
    /// Creates a row if it is missing; columns that are not given are zero or empty. `expires_at`: 0 for
    /// never.
    Create { given: &'a [Given<'a>], expires_at: u64 },
    /// Creates a missing row by incrementing one column from zero.
    CreateBy { column: usize, value: Value<'static>, expires_at: u64 },
    /// Sets the row that is there as a whole.
    Replace { given: &'a [Given<'a>], expires_at: u64 },
    /// Sets columns of the row that is there.
    Patch { given: &'a [Given<'a>] },
    /// Raises a column of the row that is there, or lowers it, so that it shows this.
    Raise { column: usize, to: Value<'static> },
    /// Has the row that is there expire; 0 never.
    Expire { at: u64 },
    /// Deletes the row that is there.
    Delete,
}

/// A row while it is looked at. Others may change it meanwhile: then what was seen may be nothing that it
/// ever was, what was decided by it is dropped, and it is looked at again.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Expiry and row; `None` if the row is missing.
    value: Option<&'a [AtomicU64]>,
    /// The table's time.
    pub now: u64,
}

/// A word of a value, the bits of it that change, and what they become.
type Word = (usize, u64, u64);

impl<'a> Seen<'a> {
    #[inline]
    fn at(value: &'a [AtomicU64], now: u64) -> Seen<'a> {
        let there = !expired(value[0].load(Relaxed), now);
        Seen { value: there.then_some(value), now }
    }

    #[inline]
    pub fn is_there(&self) -> bool {
        self.value.is_some()
    }

    /// The value of a column; zero or empty if the row is missing.
    #[inline]
    pub fn value(&self, column: &Column) -> Value<'static> {
        if column.kind.is_sized() {
            return self.words(column, |words| column.value_of(words));
        }
        column.decode(self.word(column.at / 8))
    }

    /// Calls with the bytes of a column that has a size.
    #[inline]
    pub fn bytes<R>(&self, column: &Column, call: impl FnOnce(&[u8]) -> R) -> R {
        self.words(column, |words| column.bytes_of(words, call))
    }

    /// Calls with a copy of the words in which a column lies.
    #[inline]
    fn words<R>(&self, column: &Column, call: impl FnOnce(&[u64]) -> R) -> R {
        let (mut small, mut large) = ([0; 8], Vec::new());
        let words = column.words();
        let room = match small.get_mut(..words.len()) {
            Some(room) => room,
            None => {
                large.resize(words.len(), 0);
                &mut large[..]
            }
        };
        room.iter_mut().zip(words).for_each(|(to, word)| *to = self.word(word));
        call(room)
    }

    #[inline]
    fn word(&self, word: usize) -> u64 {
        self.value.map_or(0, |value| value[1 + word].load(Relaxed))
    }

    /// Time that it has to live; `None` for ever.
    #[inline]
    pub fn left(&self) -> Option<Duration> {
        match self.value.map_or(0, |value| value[0].load(Relaxed)) {
            0 => None,
            expiry => Some(Duration::from_nanos(expiry.saturating_sub(self.now))),
        }
    }
}

impl Table {
    /// Changes a row by what it is: `decide` is shown the row of the key, be there one or not, and says what
    /// changes, if anything does; it finds `None` there. It may be called again, and must depend on nothing
    /// but the row. Errors: a change of a row that is there where none is, a value that its column cannot
    /// hold, and as [`write`](Table::write).
    ///
    /// The change is computed in place, because passing it on costs more than deciding it.
    #[inline]
    pub fn decide<'c>(
        &self,
        key: &[u8],
        mut decide: impl FnMut(&Seen<'_>, &mut Option<Change<'c>>),
    ) -> Result<(), Error> {
        let (key, now, mut wait) = (self.key(key)?, self.now(), Wait::default());
        self.writing(|writer| {
            let memory = writer.memory;
            loop {
                let mut change = None;
                let Some((place, before)) = writer.find(&key)? else {
                    decide(&Seen { value: None, now }, &mut change);
                    let Some(change) = &change else { return Ok(()) };
                    if self.create(writer, key, change, now, &mut wait)? {
                        return Ok(());
                    }
                    continue;
                };
                if !before.is_open() {
                    writer.wait(memory.word(place.at), before, &mut wait)?;
                    continue;
                }
                let mut there = false;
                let read = memory.read_under(place.at, before, &mut |value| {
                    let seen = Seen::at(value, now);
                    there = seen.is_there();
                    decide(&seen, &mut change);
                });
                if read.is_err() {
                    continue;
                }
                let Some(change) = &change else { return Ok(()) };
                let done = match self.one_word(change)? {
                    Some((at, mask, bits)) if there => {
                        let set = |word| Ok((word & !mask | bits, ()));
                        writer.write_word(place, before, at, set)?.is_some()
                    }
                    _ => self.rewrite(writer, (place, before), change, there, now)?,
                };
                if done {
                    self.accessed(memory, place.at, now);
                    return Ok(());
                }
            }
        })
    }

    /// Inserts the row that a change makes. Returns whether none was there before.
    fn create(
        &self,
        writer: &Writer,
        key: Key,
        change: &Change<'_>,
        now: u64,
        wait: &mut Wait,
    ) -> Result<bool, Error> {
        let (mut small, mut large) = ([0; ON_STACK], Vec::new());
        let row = self.room(&mut small, &mut large);
        let expiry = self.make(change, row)?;
        let new = New { key, expiry, row, now, access: now, evict: self.kept_settings().evict };
        writer.insert(&new, wait)
    }

    /// The word that is all that a change changes, if it is.
    #[inline]
    fn one_word(&self, change: &Change<'_>) -> Result<Option<Word>, Error> {
        let (number, value) = match change {
            Change::Expire { at } => return Ok(Some((0, u64::MAX, *at))),
            Change::Raise { column, to } => (*column, to),
            Change::Patch { given: [(column, value)] } => (*column, value),
            _ => return Ok(None),
        };
        Ok(match self.schema().columns().get(number) {
            Some(column) if !column.kind.is_sized() => {
                let bits = column.encode(value)?;
                Some((1 + column.at / 8, column.insert(0, u64::MAX), column.insert(0, bits)))
            }
            _ => None,
        })
    }

    /// Rewrites a complete row, if its state is still exactly this one. `there`: it has not expired.
    fn rewrite(
        &self,
        writer: &Writer,
        (place, before): (Place, State),
        change: &Change<'_>,
        there: bool,
        now: u64,
    ) -> Result<bool, Error> {
        let (mut small, mut large) = ([0; ON_STACK], Vec::new());
        let row = self.room(&mut small, &mut large);
        match change {
            Change::Delete if there => return writer.free(place, before),
            Change::Patch { .. } | Change::Raise { .. } if there => {
                // If it is locked from the state as it was before, this is what it was.
                let value = writer.memory.value(place.at);
                slot::load(&value[1..], row);
                let expiry = value[0].load(Relaxed);
                match change {
                    Change::Raise { column, to } => self.column(*column)?.write(row, to)?,
                    Change::Patch { given } => self.fill(given, row)?,
                    _ => {}
                }
                writer.fill(expiry, row);
                return writer.write_row(place, before);
            }
            Change::Replace { given, expires_at } if there => {
                self.fill(given, row)?;
                writer.fill(*expires_at, row);
            }
            change if !there => {
                let expiry = self.make(change, row)?;
                writer.fill(expiry, row);
            }
            _ => return Err(misplaced()),
        }
        let written = writer.write_row(place, before)?;
        if written {
            self.touched(writer.memory, place.at, now);
        }
        Ok(written)
    }

    /// Shows the row of a key to `look`, be there one or not; `look` may be called again. It is an access.
    #[inline]
    pub fn look<R>(&self, key: &[u8], look: impl FnMut(&Seen<'_>) -> R) -> Result<R, Error> {
        self.show(key, true, look)
    }

    /// Like `look`, but does not count as an access.
    #[inline]
    pub fn glance<R>(&self, key: &[u8], look: impl FnMut(&Seen<'_>) -> R) -> Result<R, Error> {
        self.show(key, false, look)
    }

    #[inline]
    fn show<R>(
        &self,
        key: &[u8],
        is_access: bool,
        mut look: impl FnMut(&Seen<'_>) -> R,
    ) -> Result<R, Error> {
        let (key, now, mut there) = (self.key(key)?, self.now(), false);
        let read = self.read(&key, |value| {
            let seen = Seen::at(value, now);
            there = seen.is_there();
            look(&seen)
        })?;
        let Some((memory, slot, told)) = read else {
            return Ok(look(&Seen { value: None, now }));
        };
        if there && is_access {
            self.accessed(memory, slot, now);
        }
        Ok(told)
    }

    /// Room for a row, zeroes: on the stack as long as it is not large.
    #[inline]
    fn room<'r>(&self, small: &'r mut [u64; ON_STACK], large: &'r mut Vec<u64>) -> &'r mut [u64] {
        let words = self.schema().words();
        if words > small.len() {
            large.resize(words, 0);
            return large;
        }
        &mut small[..words]
    }

    /// Fills in a new row, and returns when it expires.
    fn make(&self, change: &Change<'_>, row: &mut [u64]) -> Result<u64, Error> {
        match change {
            Change::Create { given, expires_at } => {
                self.fill(given, row)?;
                Ok(*expires_at)
            }
            Change::CreateBy { column, value, expires_at } => {
                self.column(*column)?.write(row, value)?;
                Ok(*expires_at)
            }
            _ => Err(misplaced()),
        }
    }

    fn fill(&self, given: &[Given<'_>], row: &mut [u64]) -> Result<(), Error> {
        given.iter().try_for_each(|(column, value)| self.column(*column)?.write(row, value))
    }

    #[inline]
    fn column(&self, number: usize) -> Result<&Column, Error> {
        let column = self.schema().columns().get(number);
        column.ok_or_else(|| Error::Invalid(format!("there is no column {number}")))
    }
}

/// Words of a row that is not large.
const ON_STACK: usize = 32;

fn misplaced() -> Error {
    Error::Invalid(
        "a change of a row that is not there, or a new one where there is one".to_owned(),
    )
}
