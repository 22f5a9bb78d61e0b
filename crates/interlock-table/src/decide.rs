//! One step on a row: what is seen of it decides how it changes, and nobody changes it in between.

use std::time::Duration;

use crate::error::Error;
use crate::hash::Key;
use crate::insert::{expired, New};
use crate::memory::Place;
use crate::row::Value;
use crate::schema::Column;
use crate::slot;
use crate::state::State;
use crate::sync::{AtomicU64, Ordering::*};
use crate::table::Table;
use crate::writer::{Wait, Writer};

/// A column, by its place in the schema, and a value that it can hold.
pub type Given<'a> = (usize, Value<'a>);

/// A change of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<'a> {
    /// Makes a row where there is none; columns that are not given are zero or empty. `expires_at`: 0 never.
    Create { given: &'a [Given<'a>], expires_at: u64 },
    /// Makes a row where there is none by raising one column from zero.
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
    /// Expiry and row; `None`: there is no row.
    value: Option<&'a [AtomicU64]>,
    /// The table's time.
    pub now: u64,
}

/// A word of a value, what is set in it, and the column that is all that changes; `None`: the whole word.
type Word<'a> = (usize, u64, Option<&'a Column>);

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

    /// The value of a column; zero or nothing where there is no row.
    #[inline]
    pub fn value(&self, column: &Column) -> Value<'static> {
        let load = |word: usize| self.value.map_or(0, |value| value[1 + word].load(Relaxed));
        if !column.kind.is_sized() {
            return column.decode(load(column.at / 8));
        }
        let words: Vec<u64> = column.words().map(load).collect();
        column.value_of(&words)
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
    /// Changes a row by what it is: `decide` is shown the row of the key, be there one or not, and returns
    /// what changes, if anything does, and what is to be told of it. It may be called again, and must depend
    /// on nothing but the row. Errors: a change of a row that is there where none is, a value that its
    /// column cannot hold, and as [`write`](Table::write).
    #[inline]
    pub fn decide<'c, R>(
        &self,
        key: &[u8],
        mut decide: impl FnMut(&Seen<'_>) -> (Option<Change<'c>>, R),
    ) -> Result<R, Error> {
        let (key, now, mut wait) = (self.key(key)?, self.now(), Wait::default());
        self.writing(|writer| {
            let memory = writer.memory;
            loop {
                let Some((place, before)) = writer.find(&key)? else {
                    let (change, told) = decide(&Seen { value: None, now });
                    let Some(change) = change else { return Ok(told) };
                    if self.create(writer, key, &change, now, &mut wait)? {
                        return Ok(told);
                    }
                    continue;
                };
                if !before.is_open() {
                    writer.wait(memory.word(place.at), before, &mut wait)?;
                    continue;
                }
                let decided = memory.read_under(place.at, before, &mut |value| {
                    let seen = Seen::at(value, now);
                    (seen.is_there(), decide(&seen))
                });
                let Ok((there, (change, told))) = decided else { continue };
                let Some(change) = change else { return Ok(told) };
                let done = match self.one_word(&change) {
                    Some(word) if there => self.set_word(writer, place, before, word?)?,
                    _ => self.rewrite(writer, (place, before), &change, there, now)?,
                };
                if done {
                    self.accessed(memory, place.at, now);
                    return Ok(told);
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
        let new = New { key, expiry, row, now, access: now, evict: self.made().evict };
        writer.insert(&new, wait)
    }

    /// The word that is all that a change changes, if it is.
    #[inline]
    fn one_word(&self, change: &Change<'_>) -> Option<Result<Word<'_>, Error>> {
        let (number, value) = match change {
            Change::Expire { at } => return Some(Ok((0, *at, None))),
            Change::Raise { column, to } => (*column, to),
            Change::Patch { given: [(column, value)] } => (*column, value),
            _ => return None,
        };
        let column = self.schema().columns().get(number)?;
        if column.kind.is_sized() {
            return None;
        }
        Some(column.encode(value).map(|bits| (1 + column.at / 8, bits, Some(column))))
    }

    #[inline]
    fn set_word(
        &self,
        writer: &Writer,
        place: Place,
        before: State,
        (at, bits, column): Word<'_>,
    ) -> Result<bool, Error> {
        let set = |word| Ok((column.map_or(bits, |column| column.insert(word, bits)), ()));
        Ok(writer.write_word(place, before, at, set)?.is_some())
    }

    /// Makes a change of a row as a whole, if its state is exactly this one still. `there`: it has not
    /// expired.
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
                let read = writer.memory.read_under(place.at, before, &mut |value| {
                    slot::load(&value[1..], row);
                    value[0].load(Relaxed)
                });
                let Ok(expiry) = read else { return Ok(false) };
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
    pub fn look<R>(&self, key: &[u8], mut look: impl FnMut(&Seen<'_>) -> R) -> Result<R, Error> {
        let (key, now) = (self.key(key)?, self.now());
        let read = self.read(&key, |value| {
            let seen = Seen::at(value, now);
            (seen.is_there(), look(&seen))
        })?;
        let Some((memory, slot, (there, told))) = read else {
            return Ok(look(&Seen { value: None, now }));
        };
        if there {
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
