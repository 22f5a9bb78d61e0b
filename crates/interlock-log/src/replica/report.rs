//! Reports to other data centres, for the entries with rows.

use super::Replica;
use crate::codec::checksum;
use crate::entry::{Mark, Source};
use crate::heard::{add, put_marks, Heard, Sent};
use crate::machine::Machine;
use crate::ring::Ring;

/// The next report to another data centre.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// For the entries with rows, and for one without rows at the end.
    pub source: Source,
    /// The other data centre has all changes up to the number that was noted. If not, all rows
    /// must be sent.
    pub is_known: bool,
    /// The other data centre has rows of entries that this log has lost.
    pub has_lost: bool,
    /// It must be sent even if no row has changed.
    pub is_due: bool,
    /// To be noted once everything is sent, with the number of the last change.
    pub sent: Sent,
}

impl<M: Machine, R: Ring> Replica<M, R> {
    /// Returns the next report to another data centre. `None`: that may have rows from entries that
    /// this node has not read.
    ///
    /// # Arguments
    ///
    /// `own` and `other` are the names of this data centre and of the other one. `before` is what
    /// was noted after the last report. `is_at_end`: the node has read its log to the end.
    pub fn report(
        &self,
        own: &[u8],
        other: &[u8],
        before: Option<&Sent>,
        is_at_end: bool,
    ) -> Option<Report> {
        let (rules, place) = (self.setup.rules, self.place.mark);
        let nothing = Heard::default();
        let heard = self.state.sources.get(other).unwrap_or(&nothing);
        let told = if rules.judges { &heard.told[..] } else { &[] };
        let judged = before.map_or(&[][..], |sent| &sent.judged);
        let mut marks: Vec<Mark> = before.map(|sent| sent.mark).into_iter().collect();
        marks.extend(told.iter().filter(|mark| !judged.contains(mark)));
        if !is_at_end && marks.iter().any(|mark| mark.position > place.position) {
            return None;
        }
        let mut checked = Vec::new();
        for list in [&marks[..], told, judged] {
            add(&mut checked, list);
        }
        let judging = checked.iter().filter(|mark| marks.contains(mark) || told.contains(mark));
        let judged: Vec<Mark> = judging.copied().collect();
        marks.retain(|mark| self.has_mark(*mark) != Some(true));
        let has_lost = !marks.is_empty();
        let asks = if has_lost && rules.asks {
            let mut bytes = Vec::new();
            put_marks(&mut bytes, &marks);
            checksum(place.checksum, &bytes).max(1)
        } else {
            0
        };
        let is_asked = before.is_some_and(|sent| sent.asks != heard.asks);
        let is_known = before.is_some() && !has_lost && !is_asked;
        let told_before = before.map_or(&[][..], |sent| &sent.told);
        let source = Source {
            name: own.to_vec(),
            marks: vec![place],
            time: self.state.now,
            checked,
            told: heard.marks.clone(),
            asks,
            is_returned: false,
        };
        let sent =
            Sent { mark: place, number: 0, judged, told: heard.marks.clone(), asks: heard.asks };
        let is_due = asks != 0 || heard.marks != told_before;
        Some(Report { source, is_known, has_lost, is_due, sent })
    }
}
