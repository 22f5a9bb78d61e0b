//! Changing a row in part: one column, several, a sum, an exchange.

use std::ops::Range;

use crate::error::Error;
use crate::layout::row::Value;
use crate::layout::schema::Column;
use crate::protocol::insert::expired;
use crate::protocol::slot;
use crate::protocol::writer::Wait;
use crate::sync::Ordering::*;
use crate::table::Table;

/// The amount by which a column is incremented.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum By {
    Integer(i128),
    Float(f64),
}

/// The fate of a sum beyond the column's range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// An error; the row is as before.
    #[default]
    Refuse,
    /// The sum continues at the other end of the range; floats refuse this.
    Wrap,
    /// The sum becomes the largest or smallest value of the range.
    Saturate,
}

impl Table {
    /// Reads one column; `None` if the row is missing.
    pub fn get_column(&self, key: &[u8], column: &Column) -> Result<Option<Value<'static>>, Error> {
        if !column.kind.is_sized() {
            return Ok(self.get_word(key, column)?.map(|word| column.decode(word)));
        }
        let mut found = vec![0; column.words().len()];
        let there = self.get_words(key, column.words(), &mut found)?;
        Ok(there.then(|| column.value_of(&found)))
    }

    /// Reads the word that contains a column; `None` if the row is missing.
    #[inline]
    pub fn get_word(&self, key: &[u8], column: &Column) -> Result<Option<u64>, Error> {
        let (key, now, word) = (self.key(key)?, self.now(), 1 + column.at / 8);
        let read = self.read(&key, |value| (value[0].load(Relaxed), value[word].load(Relaxed)))?;
        let Some((memory, slot, (expiry, word))) = read else { return Ok(None) };
        if expired(expiry, now) {
            return Ok(None);
        }
        self.accessed(memory, slot, now);
        Ok(Some(word))
    }

    /// Copies some of a row's words. Returns whether it is there.
    #[inline]
    pub fn get_words(
        &self,
        key: &[u8],
        words: Range<usize>,
        to: &mut [u64],
    ) -> Result<bool, Error> {
        self.read_words(&self.key(key)?, self.now(), words, to)
    }

    /// Sets one column. Returns whether there is a row.
    pub fn set_column(&self, key: &[u8], column: &Column, value: &Value) -> Result<bool, Error> {
        match column.kind.is_sized() {
            true => self.patch(key, &[(column, value)]),
            false => self.set_bits(key, column, column.encode(value)?),
        }
    }

    /// Sets one column of a number, from what `Column::encode` returns. Returns whether there is a row.
    #[inline]
    pub fn set_bits(&self, key: &[u8], column: &Column, bits: u64) -> Result<bool, Error> {
        let changed =
            self.change_word(key, 1 + column.at / 8, |word| Ok((column.insert(word, bits), ())))?;
        Ok(changed.is_some())
    }

    /// Sets several columns at once. Returns whether there is a row.
    pub fn patch(&self, key: &[u8], columns: &[(&Column, &Value)]) -> Result<bool, Error> {
        let changed = self.change_row(key, |row| {
            for (column, value) in columns {
                column.write(row, value)?;
            }
            Ok((true, ()))
        })?;
        Ok(changed.is_some())
    }

    /// Adds to a column, and returns the new value; `None` if the row is missing. Errors: a column
    /// of another type, and, if `overflow` says so, a sum beyond its range.
    pub fn incr(
        &self,
        key: &[u8],
        column: &Column,
        by: By,
        overflow: Overflow,
    ) -> Result<Option<Value<'static>>, Error> {
        Ok(self.incr_word(key, column, by, overflow)?.map(|word| column.decode(word)))
    }

    /// Like `incr`, but returns the word that contains the column.
    #[inline]
    pub fn incr_word(
        &self,
        key: &[u8],
        column: &Column,
        by: By,
        overflow: Overflow,
    ) -> Result<Option<u64>, Error> {
        let few = match by {
            By::Integer(by) => i64::try_from(by).ok(),
            By::Float(_) => None,
        };
        self.change_word(key, 1 + column.at / 8, |word| {
            let word = match few.and_then(|by| column.add(word, by)) {
                Some(word) => word,
                None => column.insert(word, column.sum(word, by, overflow)?),
            };
            Ok((word, word))
        })
    }

    /// Like `incr_word`, for a column of integers. Errors: a sum beyond its range; the row is as before.
    #[inline]
    pub fn add(&self, key: &[u8], column: &Column, by: i64) -> Result<Option<u64>, Error> {
        self.change_word(key, 1 + column.at / 8, |word| match column.add(word, by) {
            Some(word) => Ok((word, word)),
            None => Err(Error::Overflow { column: column.name.clone() }),
        })
    }

    /// Sets a column if it is as expected, to the bit. Returns whether it was; `None` if the row is
    /// missing.
    pub fn compare_and_set(
        &self,
        key: &[u8],
        column: &Column,
        expected: &Value,
        value: &Value,
    ) -> Result<Option<bool>, Error> {
        if column.kind.is_sized() {
            return self.change_row(key, |row| {
                let same = column.read(row) == *expected;
                column.write(row, value)?;
                Ok((same, same))
            });
        }
        let (expected, bits) = (column.encode(expected)?, column.encode(value)?);
        self.change_word(key, 1 + column.at / 8, |word| {
            let same = column.insert(word, expected) == word;
            Ok((if same { column.insert(word, bits) } else { word }, same))
        })
    }

    /// Changes one word of a value, of which 0 is the expiry; `None` if the row is missing.
    #[inline]
    pub(crate) fn change_word<R>(
        &self,
        key: &[u8],
        word: usize,
        mut change: impl FnMut(u64) -> Result<(u64, R), Error>,
    ) -> Result<Option<R>, Error> {
        let (key, now, mut wait) = (self.key(key)?, self.now(), Wait::default());
        self.writing(|writer| {
            let memory = writer.memory;
            loop {
                let Some((place, before)) = writer.find(&key)? else { return Ok(None) };
                if !before.is_open() {
                    writer.wait(memory.word(place.at), before, &mut wait)?;
                    continue;
                }
                if memory.has_expired(place.at, now) {
                    if memory.stands(place.at, before) {
                        return Ok(None);
                    }
                    continue;
                }
                if let Some(told) = writer.write_word(place, before, word, &mut change)? {
                    self.accessed(memory, place.at, now);
                    return Ok(Some(told));
                }
            }
        })
    }

    /// Changes a row as a whole depending on its content; `None` if it is missing. `change` may be
    /// called again, with the row as it is then, and returns whether there is something to write.
    pub(crate) fn change_row<R>(
        &self,
        key: &[u8],
        mut change: impl FnMut(&mut [u64]) -> Result<(bool, R), Error>,
    ) -> Result<Option<R>, Error> {
        let (key, now, mut wait) = (self.key(key)?, self.now(), Wait::default());
        // On the stack as long as it is not large.
        let (mut small, mut large) = ([0; 32], Vec::new());
        let row = match small.get_mut(..self.schema().words()) {
            Some(row) => row,
            None => {
                large.resize(self.schema().words(), 0);
                &mut large[..]
            }
        };
        self.writing(|writer| {
            let memory = writer.memory;
            loop {
                let Some((place, before)) = writer.find(&key)? else { return Ok(None) };
                if !before.is_open() {
                    writer.wait(memory.word(place.at), before, &mut wait)?;
                    continue;
                }
                let read = memory.read_under(place.at, before, &mut |value| {
                    slot::load(&value[1..], row);
                    value[0].load(Relaxed)
                });
                let Ok(expiry) = read else { continue };
                if expired(expiry, now) {
                    return Ok(None);
                }
                let (wanted, told) = change(row)?;
                if !wanted {
                    return Ok(Some(told));
                }
                writer.fill(expiry, row);
                if writer.write_row(place, before)? {
                    self.accessed(memory, place.at, now);
                    return Ok(Some(told));
                }
            }
        })
    }
}

impl Column {
    /// The bits of what is in this word and `by`.
    #[cold]
    fn sum(&self, word: u64, by: By, overflow: Overflow) -> Result<u64, Error> {
        self.encode(&self.raised(&self.decode(word), by, overflow)?)
    }

    /// The sum of a value of this column and `by`. Errors: a column of another type, and, if so told, a sum
    /// beyond its range.
    #[inline]
    pub fn raised(&self, now: &Value, by: By, overflow: Overflow) -> Result<Value<'static>, Error> {
        let beyond = || Error::Overflow { column: self.name.clone() };
        let other = || self.refuse(format!("it is {}, and is raised by {by:?}", self.kind));
        if let (Some((least, most)), By::Integer(by)) = (self.range(), by) {
            let now = match now {
                Value::Unsigned(now) => i128::from(*now),
                Value::Signed(now) => i128::from(*now),
                _ => return Err(other()),
            };
            let sum = now.saturating_add(by);
            let bits = match overflow {
                _ if (least..=most).contains(&sum) => sum as u64,
                Overflow::Refuse => return Err(beyond()),
                // The bits beyond the column are cut off.
                Overflow::Wrap => now.wrapping_add(by) as u64,
                Overflow::Saturate => sum.clamp(least, most) as u64,
            };
            return Ok(self.decode(self.insert(0, bits)));
        }
        let by = match by {
            By::Integer(by) => by as f64,
            By::Float(by) => by,
        };
        let Value::Float(now) = *now else { return Err(other()) };
        let (most, sum) = match self.kind.is_narrow() {
            true => (f64::from(f32::MAX), f64::from((now + by) as f32)),
            false => (f64::MAX, now + by),
        };
        match sum {
            // Which nan machines make of two infinities differs.
            sum if sum.is_nan() => Ok(Value::Float(f64::NAN)),
            sum if sum.is_finite() || !now.is_finite() || !by.is_finite() => Ok(Value::Float(sum)),
            sum if overflow == Overflow::Saturate => Ok(Value::Float(sum.clamp(-most, most))),
            _ => Err(beyond()),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::layout::schema::Schema;
    use crate::table::change::*;

    #[test]
    fn a_sum_of_integers_is_the_same_by_the_short_way_and_by_the_general_one() {
        let kinds = "a: U8, b: I8, c: U16, d: I16, e: U32, f: I32, g: U64, h: I64, i: F64, k: bool";
        let schema = Schema::parse(kinds).unwrap();
        let edges = [0, 1, 2, 127, 128, 255, 256, 32_767, 65_535, u64::MAX >> 33, u64::MAX >> 32];
        let words = edges.into_iter().chain(edges.map(u64::wrapping_neg));
        let words = words.chain([u64::MAX >> 1, 1 << 63, 0x0123_4567_89AB_CDEF]);
        for (column, word) in
            schema.columns().iter().flat_map(|one| words.clone().map(move |word| (one, word)))
        {
            for by in words.clone().map(|by| by as i64) {
                let sum = column.sum(word, By::Integer(by.into()), Overflow::Refuse);
                let wanted = sum.ok().map(|bits| column.insert(word, bits));
                let is_whole = column.range().is_some();
                assert_eq!(
                    column.add(word, by),
                    wanted.filter(|_| is_whole),
                    "{column:?} {word:x} {by}"
                );
            }
        }
    }
}
