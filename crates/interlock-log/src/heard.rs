//! Histories of other data centres from which rows have come.
//!
//! Log times fall and histories fork, so reports are not ordered by time. A data centre keeps the
//! marks of the other one's histories from which its rows came ([`Heard::marks`]) and names them in
//! its own reports ([`Source::told`]). The other one's reports name the marks that they follow
//! ([`Source::checked`]). A report that follows all of them counts in full; any other is only
//! joined. A data centre compares the marks that the other one names with its log: if the log has
//! lost one, both send all rows again.

use crate::codec::{checksum, put_number, Damaged, Reader};
use crate::entry::{Mark, Source};
use crate::stamp::BELIEVED_MS;

/// Largest number of marks in a list.
pub const MOST: usize = 32;

/// In place of marks that a list had no room for: no log has it.
const ANY: Mark = Mark { position: 0, checksum: u64::MAX };

/// Reports of another data centre that this one has taken.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Heard {
    /// Highest log time of its reports, in ms.
    pub time: u64,
    /// Checksum of all its reports.
    pub sum: u64,
    /// Marks of its histories from which rows came, without those that a later report followed.
    pub marks: Vec<Mark>,
    /// Marks of our histories from which it has rows, as its reports name them.
    pub told: Vec<Mark>,
    /// Its last request for all rows; 0 before the first.
    pub asks: u64,
}

/// Note of the last report to another data centre, for the next one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sent {
    pub mark: Mark,
    /// Number of the last change that was sent.
    pub number: u64,
    /// Marks that the other one had named: this mark follows them, or all rows were sent since.
    pub judged: Vec<Mark>,
    /// Marks that the report named.
    pub told: Vec<Mark>,
    /// The last request for all rows that was met.
    pub asks: u64,
}

impl Heard {
    /// Takes a report with or without rows. Returns whether it follows everything heard before.
    pub fn take(&mut self, source: &Source, rows: &[u8], has_rows: bool) -> bool {
        let is_followed = |mark: &Mark| source.checked.contains(mark);
        let is_of_it = |mark: &Mark| source.marks.contains(mark);
        let follows = self.marks.iter().all(|mark| is_followed(mark) || is_of_it(mark));
        self.time = self.time.max(source.time);
        self.sum = checksum(self.sum, rows);
        if has_rows {
            add(&mut self.marks, &source.marks);
        } else if !source.is_returned && self.marks.len() > 1 {
            // It ends a report whose rows have all arrived.
            self.marks.retain(|mark| is_of_it(mark) || !is_followed(mark));
            if self.marks.is_empty() {
                self.marks.clone_from(&source.marks);
            }
        }
        if follows && !source.is_returned {
            self.told.clone_from(&source.told);
        } else {
            add(&mut self.told, &source.told);
        }
        if source.asks != 0 {
            self.asks = source.asks;
        }
        follows
    }

    /// Joins what another history of this data centre has heard.
    pub fn join(&mut self, other: &Heard) {
        self.time = self.time.max(other.time);
        if self.sum != other.sum {
            self.sum = checksum(self.sum, &other.sum.to_le_bytes());
        }
        add(&mut self.marks, &other.marks);
        add(&mut self.told, &other.told);
        self.asks = self.asks.max(other.asks);
    }

    /// Returns whether another history has heard the same rows.
    pub fn is_same(&self, other: &Heard) -> bool {
        self.sum == other.sum
    }

    /// Returns whether another history has heard everything that this one has.
    pub fn is_within(&self, other: &Heard) -> bool {
        self.time < other.time || self.marks.iter().all(|mark| other.marks.contains(mark))
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_number(out, self.time);
        out.extend_from_slice(&self.sum.to_le_bytes());
        put_marks(out, &self.marks);
        put_marks(out, &self.told);
        put_number(out, self.asks);
    }

    /// # Errors
    ///
    /// The bytes were not written by `encode`.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let (time, sum) = (from.number()?, from.word()?);
        let (marks, told) = (marks(from)?, marks(from)?);
        if time > BELIEVED_MS {
            return Err(Damaged);
        }
        Ok(Self { time, sum, marks, told, asks: from.number()? })
    }
}

impl Sent {
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.mark.encode(out);
        put_number(out, self.number);
        put_marks(out, &self.judged);
        put_marks(out, &self.told);
        put_number(out, self.asks);
    }

    /// # Errors
    ///
    /// The bytes were not written by `encode`.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let (mark, number, judged) = (Mark::decode(from)?, from.number()?, marks(from)?);
        Ok(Self { mark, number, judged, told: marks(from)?, asks: from.number()? })
    }
}

/// Adds marks to a list.
pub(crate) fn add(list: &mut Vec<Mark>, marks: &[Mark]) {
    for mark in marks {
        if !list.contains(mark) {
            list.push(*mark);
        }
    }
    if list.len() > MOST {
        list.drain(..list.len() - MOST / 2);
        list.insert(0, ANY);
    }
}

pub(crate) fn put_marks(out: &mut Vec<u8>, marks: &[Mark]) {
    put_number(out, marks.len() as u64);
    marks.iter().for_each(|mark| mark.encode(out));
}

pub(crate) fn marks(from: &mut Reader<'_>) -> Result<Vec<Mark>, Damaged> {
    let count = from.count(9)?;
    if count > 3 * MOST {
        return Err(Damaged);
    }
    (0..count).map(|_| Mark::decode(from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(position: u64) -> Mark {
        Mark { position, checksum: position * 7 }
    }

    fn report(at: u64, checked: &[u64]) -> Source {
        let checked = checked.iter().copied().map(mark).collect();
        Source { name: b"west".to_vec(), marks: vec![mark(at)], checked, ..Source::default() }
    }

    #[test]
    fn a_report_follows_only_if_its_sender_knew_every_mark() {
        let mut heard = Heard::default();
        assert!(heard.take(&report(3, &[]), b"a", true));
        assert!(heard.take(&report(3, &[]), b"b", true), "further rows of the same report");
        assert!(!heard.take(&report(5, &[]), b"c", true));
        assert_eq!(heard.marks, [mark(3), mark(5)]);
        assert!(!heard.take(&report(7, &[5]), b"d", true));
        assert!(heard.take(&report(8, &[3, 5, 7]), b"e", true));
        assert_eq!(heard.marks.len(), 4, "rows may still be missing");
        assert!(heard.take(&report(8, &[3, 5, 7]), b"", false));
        assert_eq!(heard.marks, [mark(8)]);
        assert!(heard.take(&report(9, &[8]), b"", false), "it says nothing of rows");
        assert_eq!(heard.marks, [mark(8)]);
    }

    #[test]
    fn a_list_that_has_no_room_keeps_a_mark_that_no_log_has() {
        let mut heard = Heard::default();
        for at in 0..200 {
            heard.take(&report(at, &[]), b"a", true);
            assert!(heard.marks.len() <= MOST);
        }
        assert!(heard.marks.contains(&ANY) && heard.marks.contains(&mark(199)));
        let mut bytes = Vec::new();
        heard.encode(&mut bytes);
        assert_eq!(Heard::decode(&mut Reader::new(&bytes)), Ok(heard));
    }

    #[test]
    fn a_late_report_hides_nothing_that_was_told() {
        let mut heard = Heard::default();
        let told = |source: Source, at| Source { told: vec![mark(at)], ..source };
        heard.take(&told(report(3, &[]), 30), b"a", true);
        heard.take(&told(report(4, &[3]), 40), b"b", true);
        assert_eq!(heard.told, [mark(40)]);
        heard.take(&told(report(2, &[]), 20), b"c", true);
        assert_eq!(heard.told, [mark(40), mark(20)]);
    }
}
