//! One step on a row: what is seen of it decides how it changes, and nobody changes it in between.

use std::time::Duration;

use crate::error::Error;
use crate::insert::{expired, New};
use crate::row::Value;
use crate::schema::Column;
use crate::slot;
use crate::sync::{AtomicU64, Ordering::*};
use crate::table::Table;
use crate::writer::Wait;

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

/// A row that is there, while it is looked at. Others may change it meanwhile: then what was seen may be
/// nothing that it ever was, what was decided by it is dropped, and it is looked at again.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Expiry and row.
    value: &'a [AtomicU64],
    now: u64,
}

/// A word of a value, what is set in it, and the column that is all that changes; `None`: the whole word.
type Word<'a> = (usize, u64, Option<&'a Column>);

impl Seen<'_> {
    #[inline]
    pub fn value(&self, column: &Column) -> Value<'static> {
        if !column.kind.is_sized() {
            return column.decode(self.value[1 + column.at / 8].load(Relaxed));
        }
        let words = column.words();
        let from = &self.value[1 + words.start..1 + words.end];
        let words: Vec<u64> = from.iter().map(|word| word.load(Relaxed)).collect();
        column.value_of(&words)
    }

    /// Time that it has to live; `None` for ever.
    pub fn left(&self) -> Option<Duration> {
        match self.value[0].load(Relaxed) {
            0 => None,
            expiry => Some(Duration::from_nanos(expiry.saturating_sub(self.now))),
        }
    }
}

impl Table {
    /// Changes a row by what it is: `decide` is shown the row, `None` if there is none, and returns what
    /// changes, if anything does, and what is to be told of it. It may be called again, and must depend on
    /// nothing but the row. Errors: a change of a row that is there where none is, a value that its column
    /// cannot hold, and as [`write`](Table::write).
    #[inline]
    pub fn decide<'c, R>(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Option<Seen<'_>>) -> (Option<Change<'c>>, R),
    ) -> Result<R, Error> {
        let (key, now, mut wait) = (self.key(key)?, self.now(), Wait::default());
        let (mut small, mut large) = ([0; 32], Vec::new());
        self.writing(|writer| {
            let memory = writer.memory;
            loop {
                let Some((place, before)) = writer.find(&key)? else {
                    let (change, told) = decide(None);
                    let Some(change) = change else { return Ok(told) };
                    let row = self.room(&mut small, &mut large);
                    let expiry = self.make(&change, row)?;
                    let evict = self.made().evict;
                    let new = New { key, expiry, row, now, access: now, evict };
                    if writer.insert(&new, &mut wait)? {
                        return Ok(told);
                    }
                    continue;
                };
                if !before.is_open() {
                    writer.wait(memory.word(place.at), before, &mut wait)?;
                    continue;
                }
                let row = self.room(&mut small, &mut large);
                let decided = memory.read_under(place.at, before, &mut |value| {
                    let expiry = value[0].load(Relaxed);
                    let there = !expired(expiry, now);
                    let (change, told) = decide(there.then_some(Seen { value, now }));
                    if there && matches!(change, Some(Change::Patch { .. })) {
                        slot::load(&value[1..], row);
                    }
                    (there, expiry, change, told)
                });
                let Ok((there, expiry, change, told)) = decided else { continue };
                let Some(change) = change else { return Ok(told) };
                let word = match &change {
                    Change::Expire { at } if there => Some((0, *at, None)),
                    Change::Raise { column, to } if there => self.one_word(*column, to)?,
                    Change::Patch { given: [(column, value)] } if there => {
                        self.one_word(*column, value)?
                    }
                    _ => None,
                };
                if let Some((at, bits, column)) = word {
                    let set =
                        |word| Ok((column.map_or(bits, |c: &Column| c.insert(word, bits)), ()));
                    if writer.write_word(place, before, at, set)?.is_none() {
                        continue;
                    }
                    self.accessed(memory, place.at, now);
                    return Ok(told);
                }
                match &change {
                    Change::Delete if there => {
                        if writer.free(place, before)? {
                            return Ok(told);
                        }
                    }
                    Change::Patch { given } if there => {
                        self.fill(given, row)?;
                        writer.fill(expiry, row);
                        if writer.write_row(place, before)? {
                            self.accessed(memory, place.at, now);
                            return Ok(told);
                        }
                    }
                    Change::Replace { given, expires_at } if there => {
                        row.fill(0);
                        self.fill(given, row)?;
                        writer.fill(*expires_at, row);
                        if writer.write_row(place, before)? {
                            self.touched(memory, place.at, now);
                            return Ok(told);
                        }
                    }
                    change if !there => {
                        let expiry = self.make(change, row)?;
                        writer.fill(expiry, row);
                        if writer.write_row(place, before)? {
                            self.touched(memory, place.at, now);
                            return Ok(told);
                        }
                    }
                    _ => return Err(misplaced()),
                }
            }
        })
    }

    /// Shows a row to `look`, `None` if there is none, which may be called again.
    #[inline]
    pub fn look<R>(
        &self,
        key: &[u8],
        mut look: impl FnMut(Option<Seen<'_>>) -> R,
    ) -> Result<R, Error> {
        let (key, now) = (self.key(key)?, self.now());
        let read = self.read(&key, |value| {
            let there = !expired(value[0].load(Relaxed), now);
            (there, look(there.then_some(Seen { value, now })))
        })?;
        let Some((memory, slot, (there, told))) = read else { return Ok(look(None)) };
        if there {
            self.accessed(memory, slot, now);
        }
        Ok(told)
    }

    /// Room for a row: on the stack as long as it is not large.
    #[inline]
    fn room<'r>(&self, small: &'r mut [u64; 32], large: &'r mut Vec<u64>) -> &'r mut [u64] {
        let words = self.schema().words();
        if words > small.len() {
            large.resize(words, 0);
            return large;
        }
        &mut small[..words]
    }

    /// Fills in a new row, and returns when it expires.
    fn make(&self, change: &Change<'_>, row: &mut [u64]) -> Result<u64, Error> {
        row.fill(0);
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

    /// The word that a column lies in with others, and its bits; `None` of what has a size.
    #[inline]
    fn one_word(&self, column: usize, value: &Value<'_>) -> Result<Option<Word<'_>>, Error> {
        let column = self.column(column)?;
        if column.kind.is_sized() {
            return Ok(None);
        }
        Ok(Some((1 + column.at / 8, column.encode(value)?, Some(column))))
    }

    #[inline]
    fn column(&self, number: usize) -> Result<&Column, Error> {
        let column = self.schema().columns().get(number);
        column.ok_or_else(|| Error::Invalid(format!("there is no column {number}")))
    }
}

fn misplaced() -> Error {
    Error::Invalid(
        "a change of a row that is not there, or a new one where there is one".to_owned(),
    )
}
