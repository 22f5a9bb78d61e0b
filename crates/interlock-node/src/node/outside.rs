//! Rows to and from places outside of the machine: databases and other data centres.
//!
//! Other threads ask and wait; the loop answers between two turns. The answer shares its bytes with
//! the state, so a turn takes no longer for large rows than for small ones.

use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::time::Instant;

use interlock_log::apply::Whole;
use interlock_log::entry::Mark;
use interlock_log::heard::Sent;
use interlock_log::machine::Machine;
use interlock_log::replica::Report;
use interlock_log::rows::{Held, Image, Rows, Writers};
use interlock_stores::disk::Disk;

use super::Node;
use crate::log::mark;
use crate::ports::Clients;

/// A point in the history of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stand {
    pub mark: Mark,
    /// The number of the last change.
    pub number: u64,
    pub lineage: u64,
    /// The log time, in ms since 1970.
    pub time: u64,
}

/// The rows that a caller outside lacks.
#[derive(Debug)]
pub enum Lacking {
    /// All rows changed after the number, or as many of them as were requested.
    Rows(Vec<Held>),
    /// All rows; the caller lacks those changed after the number.
    Behind(Image),
    /// All rows, to be compared with the outside copy: it has another history, or may have, or rows
    /// that changed since are forgotten.
    All { image: Image, is_known: bool },
}

/// The rows that a caller at a recorded point lacks, and the point it has reached with them.
#[derive(Debug)]
pub struct Changes {
    pub stand: Stand,
    /// The number of the table's last change.
    pub last: u64,
    pub lacking: Lacking,
    /// For another data centre.
    pub report: Option<Reported>,
}

/// Report to another data centre, for the entries with the rows.
#[derive(Debug)]
pub struct Reported {
    pub report: Report,
    /// The writers of this data centre, so that others know whose sums only its entries report.
    pub writers: Writers,
}

/// Reader outside, and the place up to which it has all rows.
#[derive(Clone, Debug)]
pub enum Reader {
    Database {
        mark: Mark,
        number: u64,
    },
    /// Another data centre, and the note of the last report to it.
    Centre {
        dc: String,
        sent: Option<Sent>,
    },
}

/// A request for changes.
#[derive(Debug)]
pub(crate) struct Ask {
    pub reader: Reader,
    pub most: usize,
    pub asked_at: Instant,
    /// End of the wait for a change.
    pub until: Instant,
    pub answer: SyncSender<Changes>,
}

/// Something from outside for all nodes of the log.
#[derive(Debug)]
pub(crate) enum Brought {
    /// Rows to join.
    Rows(Vec<u8>),
    /// A node that will not return.
    Gone(Vec<u8>),
}

#[derive(Debug)]
pub(crate) struct Bring {
    pub what: Brought,
    /// Signalled once the rows are in the state; dropped if that is unknown.
    pub done: SyncSender<()>,
}

/// Requests that wait in the loop.
#[derive(Debug, Default)]
pub(crate) struct Outside {
    asked: Vec<Ask>,
    /// The digests of appended entries that carry states.
    brought: Vec<(u64, SyncSender<()>)>,
    /// A place outside may have rows that this node lacks: it serves no client until it has them.
    pub held: bool,
}

impl Outside {
    /// Notes that an entry was read.
    pub fn read(&mut self, digest: u64) {
        self.brought.retain(|(awaited, done)| {
            if *awaited != digest {
                return true;
            }
            // A caller that no longer waits asks again.
            let _ = done.try_send(());
            false
        });
    }

    /// Notes that appended entries may be lost.
    pub fn lose(&mut self) {
        self.brought.clear();
    }
}

/// Rows from outside are refused while this many entries wait; the caller repeats them.
const MOST_WAITING: usize = 4;

/// Creates a channel for one answer.
pub(crate) fn answer<T>() -> (SyncSender<T>, Receiver<T>) {
    sync_channel(1)
}

impl<M: Machine, D: Disk, C: Clients> Node<M, D, C> {
    /// Serves no client until `release`: rows may come from outside.
    pub fn hold(&mut self) {
        self.outside.held = true;
    }

    pub fn release(&mut self) {
        self.outside.held = false;
    }

    pub(super) fn is_settled(&self) -> bool {
        self.replica.serves() && !self.replica.owes()
    }

    /// Appends what comes from outside, if that is possible now.
    pub(crate) fn bring(&mut self, bring: Bring) {
        if !self.is_settled() || self.is_other || self.waiting.len() >= MOST_WAITING {
            return;
        }
        let entry = match bring.what {
            Brought::Rows(bytes) => self.replica.states(None, bytes),
            Brought::Gone(node) => self.replica.forget(&node),
        };
        self.outside.brought.push((mark(&entry), bring.done));
        self.waiting.push_back(entry);
        self.has_more = true;
    }
}

impl<D: Disk, C: Clients> Node<Rows, D, C> {
    pub(crate) fn ask(&mut self, ask: Ask) {
        self.outside.asked.push(ask);
    }

    /// Answers the requests that need not wait any longer.
    pub(crate) fn answer(&mut self) {
        if self.outside.asked.is_empty() {
            return;
        }
        let now = Instant::now();
        if self.outside.asked.iter().any(|ask| self.is_ahead(ask)) {
            self.read_now();
        }
        for ask in std::mem::take(&mut self.outside.asked) {
            let found = self.changes(&ask).filter(|changes| {
                let has_rows = !matches!(&changes.lacking, Lacking::Rows(rows) if rows.is_empty());
                let is_due = changes.report.as_ref().is_some_and(|it| it.report.is_due);
                has_rows || is_due || now >= ask.until
            });
            match found {
                Some(changes) => {
                    let _ = ask.answer.try_send(changes);
                }
                None if now < ask.until => self.outside.asked.push(ask),
                None => {}
            }
        }
    }

    /// The moment at which the next request stops waiting.
    pub(crate) fn answer_at(&self) -> Option<Instant> {
        self.outside.asked.iter().map(|ask| ask.until).min()
    }

    /// Returns whether the caller's place may be in the log after this node's: another node that
    /// has read further may have given it rows. Only a node that has read to the end since the
    /// request knows that it is not there.
    fn is_ahead(&self, ask: &Ask) -> bool {
        if self.at_end.is_some_and(|at_end| at_end >= ask.asked_at) {
            return false;
        }
        match &ask.reader {
            Reader::Database { mark, .. } => mark.position > self.replica.place().mark.position,
            Reader::Centre { dc, sent } => self.report(dc, sent.as_ref(), false).is_none(),
        }
    }

    fn report(&self, dc: &str, sent: Option<&Sent>, is_at_end: bool) -> Option<Report> {
        let own = &self.replica.state().machine.as_ref()?.settings().dc;
        self.replica.report(own.as_bytes(), dc.as_bytes(), sent, is_at_end)
    }

    /// Appends an empty entry if nothing is under way, because an idle log is read to its end only
    /// once a second.
    fn read_now(&mut self) {
        if self.is_settled() && !self.is_other && self.can_send() && self.log.under_way().0 == 0 {
            self.waiting.push_back(self.replica.append());
            self.has_more = true;
        }
    }

    fn changes(&self, ask: &Ask) -> Option<Changes> {
        if !self.is_settled() || self.is_other {
            return None;
        }
        let state = self.replica.state();
        let store = state.machine.as_ref()?.store();
        let (mark, last) = (self.replica.place().mark, store.changes());
        let mut stand = Stand { mark, number: last, lineage: state.lineage, time: state.now };
        if self.is_ahead(ask) {
            return None;
        }
        let (is_known, number, report) = match &ask.reader {
            Reader::Database { mark, number } => {
                (self.replica.has_mark(*mark) == Some(true), *number, None)
            }
            Reader::Centre { dc, sent } => {
                let report = self.report(dc, sent.as_ref(), true)?;
                let number = sent.as_ref().map_or(0, |sent| sent.number);
                let writers = state.machine.as_ref()?.writers().clone();
                (report.is_known, number, Some(Reported { report, writers }))
            }
        };
        let is_known = is_known && number <= last;
        let is_theirs = |held: &Held| report.is_some() && held.is_theirs();
        let lacking = match store.held_since(number, ask.most).filter(|_| is_known) {
            Some(mut rows) => {
                if let Some(row) = rows.last().filter(|_| rows.len() >= ask.most) {
                    stand.number = row.number();
                }
                rows.retain(|held| !is_theirs(held));
                Lacking::Rows(rows)
            }
            None => {
                let image = store.image();
                match is_known && !image.forgot_since(number) {
                    true => Lacking::Behind(image),
                    false => Lacking::All { image, is_known },
                }
            }
        };
        Some(Changes { stand, last, lacking, report })
    }
}

/// Encodes rows from outside as the body of an entry of states.
pub(crate) fn encoded(
    settings: &interlock_log::rows::Settings,
    rows: &[(&[u8], &[u8])],
    writers: Writers,
) -> Vec<u8> {
    let mut genesis = Vec::new();
    settings.encode(&mut genesis);
    let rows = Rows::of(settings.clone(), rows.iter().copied()).with_writers(writers);
    let mut bytes = Vec::new();
    Whole::of(genesis, rows).encode(&mut bytes);
    bytes
}
