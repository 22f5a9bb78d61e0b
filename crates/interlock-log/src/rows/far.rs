//! Rows of other data centres in a table: joining them, and bringing them back after a loss.

use interlock_rows::Command;

use super::table::{lineage_at, When};
use super::Rows;
use crate::codec::{put_number, Damaged, Reader};
use crate::machine::Centre;
use crate::stamp;
use crate::state::State;

/// Number of rows of a lost history that are examined for one entry, and the size in bytes at which
/// the entry is full.
const LOOKED: usize = 20_000;
const SIZE: usize = 1 << 19;

/// Largest number of writers that are remembered of each kind.
const MOST: usize = 256;

/// Writers of a data centre, divided by the source of their totals.
///
/// A writer is *own* if its totals follow from entries of the log, which can be put back: reports
/// of them by others are ignored. A writer is *joined* if its totals came from others: nothing is
/// added to them, because others may already have the addition. The source that comes first
/// decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writers {
    own: Vec<u64>,
    /// Writers from `own_from` to `own_until` are own unless they are joined: they began with this
    /// log, or the node that began it had their entries. No writer above `own_until` exists yet.
    own_from: u64,
    own_until: u64,
    joined: Vec<u64>,
    /// Writers up to this one are joined unless they are own: joined sums have them combined.
    below: u64,
}

impl Writers {
    pub fn is_own(&self, number: u64) -> bool {
        let is_joined =
            || self.joined.binary_search(&number).is_ok() || (1..=self.below).contains(&number);
        self.own.binary_search(&number).is_ok() || self.is_of_log(number) && !is_joined()
    }

    /// Returns whether a writer began with this log, or the node that began the log had its
    /// entries. After times have fallen, that is so for writers above `own_until`, too.
    fn is_of_log(&self, number: u64) -> bool {
        number >= self.own_from && (number <= self.own_until || self.own_from == 0)
    }

    /// Notes that a log was begun by a node without the entries of writers below a number.
    pub(super) fn begins(&mut self, number: u64) {
        self.own_from = number;
    }

    /// Returns whether the log was begun, not before a number, by a node without the entries of
    /// earlier writers.
    fn is_begun_since(&self, number: u64) -> bool {
        self.own_from >= number.max(1)
    }

    /// Notes that writers up to a number may have begun.
    pub(super) fn reach(&mut self, number: u64) {
        self.own_until = self.own_until.max(number);
    }

    pub fn is_joined(&self, number: u64) -> bool {
        let is_joined = self.joined.binary_search(&number).is_ok();
        is_joined || (1..=self.below).contains(&number) && !self.is_own(number)
    }

    pub fn has_joined(&self) -> bool {
        self.below > 0 || !self.joined.is_empty()
    }

    /// Returns whether a total is of an own writer of the data centre that has these writers; for a
    /// combined total, whether any of its writers is own.
    pub fn has(&self, dc: &[u8], name: &[u8], at: u64) -> bool {
        match stamp::parts(name) {
            Some((of, Some(number))) => of == dc && self.is_own(number),
            Some((of, None)) => of == dc && self.has_up_to(at),
            None => false,
        }
    }

    fn has_up_to(&self, number: u64) -> bool {
        self.is_of_log(number) && number > self.below
            || self.own.first().is_some_and(|first| *first <= number)
    }

    /// Notes that a writer adds, or that a lost entry of it comes back.
    pub(super) fn adds(&mut self, number: u64) {
        if !self.is_joined(number) {
            note(&mut self.own, number);
        }
    }

    /// Notes a total from elsewhere of the data centre that has these writers.
    fn joins(&mut self, dc: &[u8], name: &[u8], at: u64) {
        match stamp::parts(name) {
            Some((of, Some(number))) if of == dc && !self.is_own(number) => {
                note(&mut self.joined, number);
            }
            Some((of, None)) if of == dc => self.below = self.below.max(at),
            _ => {}
        }
    }

    /// Joins the writers of another history of the data centre.
    pub(super) fn inherit(&mut self, other: &Writers) {
        other.joined.iter().filter(|it| self.own.binary_search(it).is_err()).for_each(|it| {
            note(&mut self.joined, *it);
        });
        self.below = self.below.max(other.below);
        self.own_from = self.own_from.min(other.own_from);
        other.own.iter().for_each(|number| self.adds(*number));
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_number(out, self.below);
        put_number(out, self.own_from);
        put_number(out, self.own_until);
        for list in [&self.own, &self.joined] {
            put_number(out, list.len() as u64);
            list.iter().for_each(|number| put_number(out, *number));
        }
    }

    /// # Errors
    ///
    /// The bytes were not written by `encode`.
    pub fn decode(from: &mut Reader<'_>) -> Result<Writers, Damaged> {
        let (below, own_from, own_until) = (from.number()?, from.number()?, from.number()?);
        let mut writers = Writers { below, own_from, own_until, ..Writers::default() };
        for list in [&mut writers.own, &mut writers.joined] {
            for _ in 0..from.count(1)? {
                list.push(from.number()?);
            }
            if list.len() > MOST || !list.is_sorted_by(|one, next| one < next) {
                return Err(Damaged);
            }
        }
        Ok(writers)
    }
}

fn note(list: &mut Vec<u64>, number: u64) {
    if let Err(at) = list.binary_search(&number) {
        list.insert(at, number);
        if list.len() > MOST {
            list.remove(0);
        }
    }
}

impl Rows {
    /// See [`Machine::takes_back`](crate::machine::Machine::takes_back).
    pub fn takes_back(&self, writer: u64) -> bool {
        !self.writers.is_joined(writer)
    }

    /// See [`Machine::comes_back`](crate::machine::Machine::comes_back).
    pub fn comes_back(&mut self, writer: u64) {
        self.writers.adds(writer);
    }

    /// See [`Machine::of_writers`](crate::machine::Machine::of_writers).
    pub fn of_writers(&self, writers: &[u64]) -> Rows {
        let mut own = Writers::default();
        writers.iter().for_each(|writer| note(&mut own.own, *writer));
        Rows::of(self.settings.clone(), std::iter::empty()).with_writers(own)
    }

    /// Notes that the log has the writes of a writer, maybe under another one. If its sums have
    /// come from elsewhere too, they count twice.
    fn owns(&mut self, writer: u64) {
        if !self.writers.is_own(writer) {
            self.short += u64::from(self.writers.is_joined(writer));
            note(&mut self.writers.own, writer);
        }
    }

    /// The writers of this data centre, by the source of their totals.
    pub fn writers(&self) -> &Writers {
        &self.writers
    }

    /// Returns these rows with the writers of their history.
    #[must_use]
    pub fn with_writers(mut self, writers: Writers) -> Rows {
        self.writers = writers;
        self
    }

    /// Returns the state of a row from elsewhere without the totals of own writers.
    pub(super) fn sifted(&self, state: State, writers: &Writers) -> State {
        let dc = self.settings.dc.as_bytes();
        self.settings.rules.without(state, |name, at| writers.has(dc, name, at))
    }

    /// Returns whether others have larger totals of own writers than this data centre's entries add
    /// up to.
    fn is_short(&self, key: &[u8], theirs: &State, writers: &Writers) -> bool {
        let (rules, dc) = (&self.settings.rules, self.settings.dc.as_bytes());
        let mut known = Vec::new();
        if let Some(ours) = self.store.get(key) {
            rules.each_total(&rules.trust(ours.into()), |name, at| known.push((name.to_vec(), at)));
        }
        let mut is_short = false;
        rules.each_total(theirs, |name, at| {
            let has = known.iter().any(|(of, known)| of == name && *known >= at);
            is_short |= writers.has(dc, name, at) && !has;
        });
        is_short
    }

    /// Returns whether additions of this log to a row may already be in sums from elsewhere: the
    /// node that began the log lacked the earlier entries and did not know which writes were done.
    fn is_doubtful(&self, key: &[u8], theirs: &State, writers: &Writers) -> bool {
        let Some(ours) = self.store.get(key).filter(|_| writers.is_begun_since(0)) else {
            return false;
        };
        let (rules, dc) = (&self.settings.rules, self.settings.dc.as_bytes());
        let (mut known, mut has_added) = (Vec::new(), false);
        rules.each_total(&rules.trust(ours.into()), |name, at| {
            has_added |= writers.has(dc, name, at);
            known.push((name.to_vec(), at));
        });
        let mut is_new = false;
        rules.each_total(theirs, |name, at| {
            let is_of_here = stamp::parts(name).is_some_and(|(of, _)| of == dc);
            is_new |= is_of_here && !known.iter().any(|(of, known)| of == name && *known >= at);
        });
        has_added && is_new
    }

    /// Returns whether the addition of a command may already be in sums of the row from elsewhere:
    /// its client may have sent it before the log was begun.
    pub(super) fn may_be_counted(
        &self,
        place: Option<u32>,
        command: &Command,
        when: &When<'_>,
    ) -> bool {
        let is_old = when.sent.is_some_and(|at| self.writers.is_begun_since(lineage_at(at)));
        let is_raise = matches!(command, Command::Raise { .. } | Command::Increase { .. });
        if !is_old || !is_raise || !self.writers.has_joined() {
            return false;
        }
        let Some(state) = place.and_then(|place| self.store.state_at(place)) else { return false };
        let (rules, dc) = (&self.settings.rules, self.settings.dc.as_bytes());
        let mut has_joined = false;
        rules.each_total(&rules.trust(state.into()), |name, at| {
            let is_of_here = stamp::parts(name).is_some_and(|(of, _)| of == dc);
            has_joined |= is_of_here && !self.writers.has(dc, name, at);
        });
        has_joined
    }

    fn joined_far(
        &self,
        key: &[u8],
        theirs: &State,
        centre: Centre<'_>,
        writers: &Writers,
    ) -> Option<State> {
        let Some(ours) = self.store.get(key) else { return Some(theirs.clone()) };
        let is_theirs = |name: &[u8], at| writers.has(centre.name, name, at);
        let (rules, own) = (&self.settings.rules, self.settings.dc.as_bytes());
        rules.join_far(ours, theirs, own, centre, &is_theirs)
    }

    /// Notes the writers of the totals in a state from elsewhere.
    pub(super) fn note_joined(&mut self, state: &State) {
        let (rules, dc) = (&self.settings.rules, self.settings.dc.as_bytes());
        let writers = &mut self.writers;
        rules.each_total(state, |name, at| writers.joins(dc, name, at));
    }

    /// Joins rows of another data centre, or such rows from a lost history of this one. Returns the
    /// highest reading.
    pub fn take_far(&mut self, other: &Rows, centre: Centre<'_>) -> u64 {
        if !self.settings.is_same_table(&other.settings) {
            // Their states would be misread.
            return self.store.newest();
        }
        let is_returned = other.settings.dc == self.settings.dc;
        let rules = self.settings.rules.clone();
        // A lost history does not know which totals the other data centre's entries determine.
        let theirs_own = if is_returned { Writers::default() } else { other.writers.clone() };
        if is_returned {
            other.writers.own.iter().for_each(|writer| self.owns(*writer));
        }
        let ours_own = self.writers.clone();
        for row in other.store.all() {
            let whole = rules.trust(row.state.into());
            let theirs = self.sifted(whole.clone(), &ours_own);
            let is_short = theirs != whole && self.is_short(row.key, &whole, &ours_own);
            let is_doubtful = self.is_doubtful(row.key, &theirs, &ours_own);
            self.short += u64::from(is_short || is_doubtful);
            self.note_joined(&theirs);
            if rules.origin(theirs.as_bytes()) == Some(self.settings.dc.as_bytes()) {
                self.delete_before(row.key, &theirs);
            }
            let joined = self.joined_far(row.key, &theirs, centre, &theirs_own);
            let Some(joined) = joined else {
                let ours = self.store.get(row.key).filter(|_| !is_returned);
                let has_more = |ours| rules.has_more_of(centre.name, ours, &theirs);
                if ours.is_some_and(|ours| is_short || has_more(ours)) {
                    self.store.tell_again(row.key);
                }
                continue;
            };
            let newest = stamp::reading(rules.newest(&joined));
            self.store.put(row.key, &joined, newest);
            // If the other data centre has different sums of this one, the row must be sent to it.
            if !is_returned && joined == theirs && !is_short {
                self.store.is_theirs(row.key);
            }
        }
        self.store.saw(other.store.newest());
        self.store.newest()
    }

    /// See [`Machine::far_part`](crate::machine::Machine::far_part).
    pub fn far_part(&self, than: &Rows, name: &[u8], since: u64) -> (Option<u64>, Option<Rows>) {
        if !self.settings.is_same_table(&than.settings) {
            return (None, None);
        }
        let rules = &self.settings.rules;
        let dc = self.settings.dc.as_bytes();
        let is_joined = |name: &[u8]| match stamp::parts(name) {
            Some((of, number)) => of == dc && number.is_none_or(|it| self.writers.is_joined(it)),
            None => false,
        };
        let rows = self.store.changed_since(since, LOOKED);
        let mut found: Vec<(&[u8], State)> = Vec::new();
        let (mut size, mut last) = (0, None);
        for row in rows {
            if size >= SIZE {
                break;
            }
            last = Some(row.number);
            if !rules.is_of_others(row.state, dc, &is_joined) {
                continue;
            }
            let theirs = self.sifted(rules.trust(row.state.into()), &self.writers);
            let theirs = self.sifted(theirs, &than.writers);
            let centre = Centre { name, is_newest: false };
            if than.joined_far(row.key, &theirs, centre, &Writers::default()).is_some() {
                size += row.key.len() + theirs.as_bytes().len();
                found.push((row.key, theirs));
            }
        }
        if found.is_empty() {
            return (last, None);
        }
        let pairs = found.iter().map(|(key, state)| (*key, state.as_bytes()));
        (last, Some(Rows::of(self.settings.clone(), pairs)))
    }
}
