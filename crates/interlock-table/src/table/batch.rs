//! Many rows by one call. Their memory is asked for before the first of them is read, so that the waits
//! for it lie upon each other.

use std::ops::Range;

use crate::error::Error;
use crate::layout::hash::Key;
use crate::layout::row::Row;
use crate::memory::Place;
use crate::table::{Table, Ttl, Where, Written};

/// Keys whose memory is asked for at once: more than the processor keeps in mind is of no use.
const AHEAD: usize = 16;

impl Table {
    /// Reads many rows, each by itself: they may be of different moments.
    pub fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Row>>, Error> {
        let mut rows = Vec::with_capacity(keys.len());
        let mut row = Row::new(self.schema());
        self.read_many(keys, 0..self.schema().words(), row.words_mut(), |words| {
            rows.push(words.map(|words| {
                let mut row = Row::new(self.schema());
                row.words_mut().copy_from_slice(words);
                row
            }));
        })?;
        Ok(rows)
    }

    /// Reads some words of many rows, each into those given, and calls `each` in the order of the keys.
    pub fn read_many(
        &self,
        keys: &[&[u8]],
        words: Range<usize>,
        to: &mut [u64],
        mut each: impl FnMut(Option<&[u64]>),
    ) -> Result<(), Error> {
        let now = self.now();
        for keys in keys.chunks(AHEAD) {
            let hashed = self.ahead(keys)?;
            for key in hashed.iter().flatten() {
                let there = self.read_words(key, now, words.clone(), to)?;
                each(there.then_some(&*to));
            }
        }
        Ok(())
    }

    /// Sets many rows, each by itself. An error leaves those before it set.
    pub fn set_many(&self, rows: &[(&[u8], &[u64])], ttl: Ttl) -> Result<Vec<Written>, Error> {
        let mut written = Vec::with_capacity(rows.len());
        self.set_many_on(rows, ttl, &mut written)?;
        Ok(written)
    }

    /// Like `set_many`, but continues after the rows in `written`, so that none is set twice. It adds each row
    /// to `written`, whether or not the call finishes.
    pub fn set_many_on(
        &self,
        rows: &[(&[u8], &[u64])],
        ttl: Ttl,
        written: &mut Vec<Written>,
    ) -> Result<(), Error> {
        let mut writer = self.writer()?;
        if let Some((_, row)) = rows.iter().find(|(_, row)| row.len() != self.schema().words()) {
            return Err(Error::Invalid(format!("a row of {} words", row.len())));
        }
        for rows in rows.get(written.len()..).unwrap_or_default().chunks(AHEAD) {
            let mut keys = [&[][..]; AHEAD];
            rows.iter().zip(&mut keys).for_each(|((key, _), to)| *to = key);
            let hashed = self.ahead(&keys[..rows.len()])?;
            for (key, (_, row)) in hashed.into_iter().flatten().zip(rows) {
                written.push(loop {
                    match self.write_row(&writer, key, row, ttl, Where::Anywhere) {
                        Err(Error::Moved) => writer = self.writer()?,
                        other => break other?,
                    }
                });
            }
        }
        Ok(())
    }

    /// Asks for the memory of up to `AHEAD` keys: tags first, then the slots with their tag.
    fn ahead<'a>(&self, keys: &[&'a [u8]]) -> Result<[Option<Key<'a>>; AHEAD], Error> {
        let memory = self.memory()?;
        let mut hashed = [None; AHEAD];
        for (bytes, to) in keys.iter().zip(&mut hashed) {
            let key = self.key(bytes)?;
            memory.fetch(memory.geometry.tags(memory.geometry.candidate(0, key.hash)));
            *to = Some(key);
        }
        for key in hashed.iter().flatten() {
            let bucket = memory.geometry.candidate(0, key.hash);
            let hits = memory.tagged(bucket, key.tag());
            if hits != 0 {
                let place = Place::new(&memory.geometry, bucket, hits.trailing_zeros() as usize);
                memory.fetch(place.at);
                memory.fetch(place.at + memory.geometry.value);
                memory.fetch(place.at + memory.geometry.value + memory.geometry.value_words - 1);
            } else {
                memory.fetch(memory.geometry.tags(memory.geometry.candidate(1, key.hash)));
            }
        }
        Ok(hashed)
    }
}

#[cfg(test)]
mod tests {
    use crate::layout::geometry::CANDIDATES;
    use crate::layout::schema::Schema;
    use crate::region::{remove, Location};
    use crate::sync::Ordering::Relaxed;
    use crate::table::batch::*;
    use crate::table::Options;

    #[test]
    fn keys_with_equal_hashes_are_told_apart_in_every_slot_of_their_buckets() {
        let location = Location::Name(format!("test-hashes-{}", std::process::id()));
        let options = Options { capacity: 100, evict: false, ..Options::default() };
        let schema = Schema::parse("number: U64").unwrap();
        let table = Table::open(&location, &schema, &options).unwrap();
        remove(&location).unwrap();
        // Of one, two and three words, and beginning alike.
        let names: Vec<_> =
            (10..=10 + CANDIDATES).map(|n| format!("k{n}").repeat(n % 7 + 1)).collect();
        let mut keys = names.iter().map(|name| Key::hashed(name.as_bytes(), 7 << 48 | 5));
        let set = |key, number| {
            let writer = table.writer().unwrap();
            table.write_row(&writer, key, &[number], Ttl::Usual, Where::Anywhere)
        };
        for (key, number) in keys.clone().take(CANDIDATES).zip(0..) {
            assert_eq!(set(key, number).unwrap(), Written::Inserted);
        }
        for (key, number) in keys.clone().take(CANDIDATES).zip(0..) {
            let read = || table.read(&key, |value| value[1].load(Relaxed)).unwrap();
            assert_eq!(read().map(|found| found.2), Some(number));
            assert_eq!(set(key, number + 1000).unwrap(), Written::Replaced);
            assert_eq!(read().map(|found| found.2), Some(number + 1000));
        }
        let last = keys.next_back().unwrap();
        assert!(table.read(&last, |_| ()).unwrap().is_none());
        assert!(matches!(set(last, 0), Err(Error::TableFull)));
    }
}
