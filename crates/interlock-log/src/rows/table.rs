//! A table on a node of a log: commands in, replies out.

use interlock_rows::decide::{decide, put};
use interlock_rows::parse::{parse, Rows as Parsed};
use interlock_rows::write::Writer;
use interlock_rows::{Command, Refusal, Reply, Verb, View};
use interlock_table::{Change, Error, Overflow, Ttl, Value};

use super::calls::{self, Call};
use super::far::Writers;
use super::missed::Missed;
use super::store::Changed;
use super::view::{Seen, Viewed};
use super::{Settings, Store, MAX_KEY};
use crate::codec::{self, Damaged, Reader};
use crate::entry;
use crate::stamp::{self, Stamp};
use crate::state::{Late, State};

const FULL: &str =
    "TABLEFULL the table has as many rows as its capacity; delete some, or raise the capacity";

/// Circumstances of a command.
#[derive(Clone, Copy)]
pub struct When<'a> {
    /// The log time, in ms.
    pub time: u64,
    /// A reading above all earlier ones, or the first reading of a lost command that is done late.
    pub reading: u64,
    /// The history under which sums are kept: it changes with each joined history; 0 at first.
    pub lineage: u64,
    /// The command is from a lost entry: it is not refused for lack of capacity, and later values
    /// may stay.
    pub put_back: bool,
    /// Number of the writer that did a lost command first.
    pub writer: Option<u64>,
    /// The command changed something before it was lost, so it counts whatever it finds.
    pub late: bool,
    /// The command was lost: later deletes of its rows count although they found no row.
    pub lost: bool,
    /// Earliest log time at which the command can have been sent, in ms; set only if nothing of its
    /// client was done in this log before.
    pub sent: Option<u64>,
    /// Returns the reading at which a lost command replaces a value with this reading. `None`: the
    /// value stays.
    pub place: &'a dyn Fn(u64) -> Option<u64>,
}

/// All rows of a table, and data derived from them.
#[derive(Clone, Debug)]
pub struct Rows {
    pub(super) settings: Settings,
    pub(super) store: Store,
    /// The history as the log names it, and its number in names of writers.
    pub(super) lineage: (u64, u64),
    /// Name of the writer in this history.
    writer: String,
    pub(super) writers: Writers,
    pub(super) missed: Missed,
    /// A delete of the last command found no row.
    pub(super) has_missed: bool,
    /// Number of rows since `take_short` whose sums of this data centre may be wrong.
    pub(super) short: u64,
}

/// Number of bits that distinguish lineages which begin in the same ms.
const LINEAGE_BITS: u32 = 3;
/// Time in ms since 1970 at which lineage numbers begin; it keeps names short.
const LINEAGES_SINCE: u64 = 1_577_836_800_000;
/// Returns the lowest number of a lineage that begins at a time.
pub(super) fn lineage_at(ms: u64) -> u64 {
    ms.saturating_sub(LINEAGES_SINCE) << LINEAGE_BITS
}

/// Lineage of a table that has had no command since it began or joined another history. No log
/// assigns this number.
const NO_LINEAGE: u64 = u64::MAX;

impl Rows {
    pub fn new(settings: Settings) -> Rows {
        let tombstones = usize::try_from(settings.tombstones).unwrap_or(usize::MAX);
        let store = Store::new(settings.rules.clone(), tombstones);
        let writer = stamp::writer(&settings.dc, 0);
        Rows {
            settings,
            store,
            lineage: (NO_LINEAGE, 0),
            writer,
            writers: Writers::default(),
            missed: Missed::default(),
            has_missed: false,
            short: 0,
        }
    }

    /// Renames the writer if the history begins or is another one: a data centre that has lost
    /// everything must not continue a total under a name that others know. A later history has a
    /// greater number, because sums combine old lineages by number.
    fn follow(&mut self, when: &When) {
        if when.lineage == self.lineage.0 {
            return;
        }
        let ms = when.reading.max(self.store.newest()) >> stamp::COUNTER_BITS;
        let rest = when.lineage & ((1 << LINEAGE_BITS) - 1);
        let number = lineage_at(ms) | rest;
        self.lineage = (when.lineage, number.max(self.lineage.1 + 1));
        self.writer = stamp::writer(&self.settings.dc, self.lineage.1);
        self.writers.adds(self.lineage.1);
    }

    /// Notes that this history was begun at a log time by a node without the entries of an earlier
    /// one.
    pub fn is_bare(&mut self, time: u64) {
        self.writers.begins(lineage_at(time));
    }

    /// Number of the last writer.
    pub fn writer(&self) -> u64 {
        self.lineage.1
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Builds a table with only rows from elsewhere, for others to join; they check the states.
    /// Keys of invalid length are left out.
    pub fn of<'a>(settings: Settings, rows: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Rows {
        let mut made = Rows::new(settings);
        for (key, state) in rows.filter(|(key, _)| (1..=MAX_KEY).contains(&key.len())) {
            let newest = stamp::reading(made.settings.rules.newest_of(state));
            let state = made.settings.rules.trust(state.into());
            made.store.put(key, &state, newest);
        }
        made
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Notes that everything here has been shown elsewhere: see [`Store::unshown`].
    pub fn shown(&mut self) {
        self.store.shown();
    }

    /// Looks up the rows of the next commands.
    pub fn look_ahead(&mut self, commands: &[entry::Command]) {
        let keys = commands.iter().map(|command| {
            let mut words = command.arguments.words();
            let first = words.next().unwrap_or(&[]);
            let name = words.nth(usize::from(first.eq_ignore_ascii_case(b"table")));
            let name = name.unwrap_or(&[]);
            let colon = name.iter().position(|byte| *byte == b':');
            colon.map_or(&[][..], |colon| &name[colon + 1..])
        });
        self.store.look_ahead(keys);
    }

    /// Advances the log time: rows expire.
    pub fn pass(&mut self, time: u64) {
        self.store.advance(time);
        self.writers.reach(lineage_at(self.store.time() + 1));
    }

    /// Executes a command and writes its reply in RESP2. Errors: the reply is an error, and nothing
    /// changed.
    pub fn run<T: AsRef<[u8]>>(
        &mut self,
        arguments: &[T],
        when: &When,
        reply: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let mut reply = Writer { out: reply, resp3: false };
        let done = match when.writer {
            None => {
                self.follow(when);
                self.try_run(arguments, when, &mut reply)
            }
            // It counts under its first writer, because others may already have it under that name.
            Some(number) => {
                let first = stamp::writer(&self.settings.dc, number);
                let own = std::mem::replace(&mut self.writer, first);
                let done = self.try_run(arguments, when, &mut reply);
                self.writer = own;
                done
            }
        };
        if let Err(Refusal(text)) = &done {
            reply.error(text);
        }
        done
    }

    fn try_run<T: AsRef<[u8]>>(
        &mut self,
        arguments: &[T],
        when: &When,
        reply: &mut Writer,
    ) -> Result<(), Refusal> {
        let now = when.time.saturating_mul(1000);
        let ahead = self.store.next_ahead();
        match calls::find(arguments)? {
            Call::Of(Verb::Del) => {
                let keys: Result<Vec<_>, _> =
                    arguments[1..].iter().map(|name| self.key(name.as_ref())).collect();
                let (keys, mut count) = (keys?, 0);
                keys.iter().try_for_each(|key| self.fits(key))?;
                for key in keys {
                    let done = self.decide(key, &Command::Delete, when)?;
                    count += i64::from(done == Reply::Integer(1));
                }
                reply.integer(count);
            }
            Call::Of(Verb::TableMset) => {
                self.named(arguments[2].as_ref())?;
                let rules = self.settings.rules.clone();
                let rows = Parsed::parse(rules.schema(), arguments)?;
                let mut given: Vec<_> = rows.given().collect();
                let count = given.len();
                for (key, _) in &given {
                    self.fits(key)?;
                }
                // If a key is given twice, the last one is set: a row changes once at each moment.
                given.reverse();
                given.sort_by(|one, other| one.0.cmp(other.0));
                given.dedup_by(|next, kept| next.0 == kept.0);
                let is_new = |key: &&[u8]| !self.store.is_alive(key);
                let new = given.iter().map(|(key, _)| *key).filter(is_new).count();
                self.room(new as u64, when)?;
                for (key, given) in given {
                    let Some(when) = &self.delete_missed(key, when) else { continue };
                    let place = self.store.place(key);
                    let seen = self.seen(place, when);
                    let viewed = seen.view();
                    let after = self.after(&viewed, &put(given, Ttl::Usual, &viewed), when);
                    drop(viewed);
                    self.take(place, key, after);
                }
                reply.integer(count as i64);
            }
            Call::Of(verb) => {
                let key = self.key(arguments[verb.row_at()].as_ref())?;
                let command = parse(verb, self.settings.rules.schema(), arguments, now)?;
                if command.is_of_row() {
                    self.fits(key)?;
                }
                let place = self.store.place_from(ahead, key);
                self.short += u64::from(self.may_be_counted(place, &command, when));
                match place.and_then(|place| self.raise(place, &command, when)) {
                    Some(raised) => raised.write(reply),
                    None => self.decide_at(place, key, &command, when)?.write(reply),
                }
            }
            Call::Barrier => reply.ok(),
            Call::Time => reply.integer(i64::try_from(when.time).unwrap_or(i64::MAX)),
        }
        Ok(())
    }

    pub(super) fn decide(
        &mut self,
        key: &[u8],
        command: &Command,
        when: &When,
    ) -> Result<Reply, Refusal> {
        self.decide_at(self.store.place(key), key, command, when)
    }

    /// Raises a sum with [`Rules::raise_in_place`], in a fraction of the time that `decide_at`
    /// takes for the same result. `None`: nothing has changed, and `decide_at` must be used.
    fn raise(&mut self, place: u32, command: &Command, when: &When) -> Option<Reply> {
        let (column, by, overflow) = match command {
            Command::Raise { column, by, float: false } => (*column, *by, Overflow::Refuse),
            Command::Increase { column, by, overflow } => (*column, *by, *overflow),
            _ => return None,
        };
        if when.put_back {
            return None;
        }
        let rules = &self.settings.rules;
        let declared = &rules.schema().columns()[column];
        let stamp = Stamp { reading: when.reading, writer: &self.writer };
        let shown = self.store.change_at(place, when.reading, |state| {
            let to = |shown: &Value| declared.raised(shown, by, overflow).ok();
            rules.raise_in_place(state, column, when.time, &stamp, to)
        });
        shown.map(Reply::Sum)
    }

    /// Like `decide`, for a row whose place is known; `None` if the key has no state.
    fn decide_at(
        &mut self,
        place: Option<u32>,
        key: &[u8],
        command: &Command,
        when: &When,
    ) -> Result<Reply, Refusal> {
        let found = self.delete_missed(key, when);
        let (is_over, when) = (found.is_none(), &found.unwrap_or(*when));
        let place = if is_over { self.store.place(key) } else { place };
        let seen = self.seen(place, when);
        let viewed = seen.view();
        let now = when.time.saturating_mul(1000);
        let decided = decide(command, self.settings.rules.schema(), &viewed, now);
        if is_over {
            return decided.map(|(_, reply)| reply);
        }
        if when.late && !matches!(decided, Ok((Some(_), _))) {
            if let Some((after, reply)) = self.late(&seen, command, viewed.is_there()) {
                drop(viewed);
                self.take(place, key, Some((after, when.reading)));
                return Ok(reply);
            }
        }
        let is_delete = matches!(command, Command::Delete | Command::Pop);
        let misses = is_delete && !viewed.is_there() && !when.late;
        let (change, reply) = decided?;
        if misses {
            drop(viewed);
            self.missed.note(key, when.reading);
            self.has_missed = true;
            return Ok(reply);
        }
        let Some(change) = change else { return Ok(reply) };
        if matches!(change, Change::Create { .. } | Change::CreateBy { .. }) {
            self.room(1, when)?;
        }
        let after = self.after(&viewed, &change, when);
        drop(viewed);
        self.take(place, key, after);
        Ok(reply)
    }

    /// Returns the state and reply of a lost command that was done before but has no effect on the
    /// row as it is: the row is missing, or the sum is different.
    fn late(&self, seen: &Seen<'_>, command: &Command, is_there: bool) -> Option<(State, Reply)> {
        let late = match command {
            Command::Raise { column, by, .. } | Command::Increase { column, by, .. } => {
                Late::Add { column: *column, by: *by }
            }
            Command::Patch { pairs } if !is_there => Late::Patch(&pairs.given),
            Command::Delete | Command::Pop if !is_there => Late::Delete,
            _ => return None,
        };
        let rules = &self.settings.rules;
        let after = rules.apply_late(seen.state, late, &seen.stamp, seen.now)?;
        let reply = match (late, command) {
            (Late::Add { column, .. }, Command::Raise { float: true, .. }) => {
                Reply::Text(rules.value_in(&after, column))
            }
            (Late::Add { column, .. }, _) => Reply::Sum(rules.value_in(&after, column)),
            (Late::Patch(_), _) => Reply::Integer(1),
            (Late::Delete, Command::Delete) => Reply::Integer(1),
            (Late::Delete, _) => Reply::Null,
        };
        Some((after, reply))
    }

    /// Returns the state after a change, and the reading of the change. `None`: it changes nothing.
    fn after(&self, seen: &Viewed<'_>, change: &Change, when: &When) -> Option<(State, u64)> {
        let rules = &self.settings.rules;
        let mut reading = when.reading;
        if when.put_back {
            let existing = seen.state.map_or(0, |before| rules.latest(before, change));
            reading = (when.place)(existing)?.max(reading);
        }
        let stamp = Stamp { reading, writer: &self.writer };
        let after = rules.apply_seen(seen.state, &seen.view, change, &stamp, when.time)?;
        Some((after, reading))
    }

    fn take(&mut self, place: Option<u32>, key: &[u8], after: Option<(State, u64)>) {
        if let Some((after, reading)) = after {
            self.store.put_at(place, key, &after, reading);
        }
    }

    fn seen(&self, place: Option<u32>, when: &When) -> Seen<'_> {
        let state = place.and_then(|place| self.store.state_at(place));
        let stamp = Stamp { reading: when.reading, writer: &self.writer };
        Seen { settings: &self.settings, state, stamp, now: when.time }
    }

    /// Errors: the new rows exceed this data centre's share or the table's capacity.
    fn room(&self, new: u64, when: &When) -> Result<(), Refusal> {
        let own = self.store.rows_of(&self.settings.dc) + new;
        let all = self.store.rows() + new;
        let is_full = own > self.settings.share() || all > self.settings.capacity;
        if new > 0 && is_full && !when.put_back {
            return Err(FULL.into());
        }
        Ok(())
    }

    /// Returns the key of a row named TABLE:KEY.
    fn key<'a>(&self, name: &'a [u8]) -> Result<&'a [u8], Refusal> {
        let Some(colon) = name.iter().position(|byte| *byte == b':') else {
            return Err("ERR a row is named by TABLE:KEY".into());
        };
        self.named(&name[..colon])?;
        Ok(&name[colon + 1..])
    }

    fn named(&self, table: &[u8]) -> Result<(), Refusal> {
        if table == self.settings.name.as_bytes() {
            return Ok(());
        }
        Err(Refusal([b"NOTABLE this hub has no table '", table, b"'"].concat()))
    }

    /// Errors: the length of the key is not allowed.
    fn fits(&self, key: &[u8]) -> Result<(), Refusal> {
        let limit = (self.settings.key_size as usize).min(MAX_KEY);
        match (1..=limit).contains(&key.len()) {
            true => Ok(()),
            false => Err(Error::KeyLength { length: key.len(), limit }.into()),
        }
    }

    /// Joins the state of a row from elsewhere: another data centre, or a database.
    pub fn bring(&mut self, key: &[u8], theirs: &State) {
        let rules = &self.settings.rules;
        let joined = match self.store.get(key) {
            Some(ours) => rules.join_bytes(ours, theirs),
            None => Some(theirs.clone()),
        };
        let newest = stamp::reading(rules.newest(theirs));
        if let Some(joined) = joined {
            self.store.put(key, &joined, newest);
        }
    }

    /// Joins all rows of another history. `place` returns the readings with which two values count.
    /// Returns the highest reading.
    pub fn take_in(&mut self, other: &Rows, place: &dyn Fn(u64, u64) -> (u64, u64)) -> u64 {
        let rules = self.settings.rules.clone();
        if !self.settings.is_same_table(&other.settings) {
            // Their states would be misread.
            return self.store.newest();
        }
        // Rows of a database do not belong to a history, which would show which entries they have.
        let is_history = other.lineage != (NO_LINEAGE, 0);
        self.take_missed(other);
        for row in other.store.all() {
            let mut theirs = rules.trust(row.state.into());
            self.delete_before(row.key, &theirs);
            if !is_history {
                theirs = self.sifted(theirs, &self.writers);
                self.note_joined(&theirs);
            }
            let at = self.store.place(row.key);
            let joined = match at.and_then(|at| self.store.state_at(at)) {
                Some(ours) => rules.join_placed(ours, &theirs, place),
                None => Some(theirs.clone()),
            };
            if let Some(joined) = joined {
                let newest = stamp::reading(rules.newest(&joined));
                self.store.put_at(at, row.key, &joined, newest);
            }
        }
        self.writers.inherit(&other.writers);
        self.begin_lineage(other);
        self.store.saw(other.store.newest());
        self.store.newest()
    }

    /// Becomes another history of the same table, which contains everything done here, at a log
    /// time. Returns the highest reading.
    pub fn become_other(&mut self, other: &Rows, time: u64) -> u64 {
        if !self.settings.is_same_table(&other.settings) {
            return self.store.newest();
        }
        let of_other = |row: &Changed| other.store.get(row.key).is_none();
        let gone: Vec<Box<[u8]>> =
            self.store.all().iter().filter(|row| of_other(row)).map(|row| row.key.into()).collect();
        gone.iter().for_each(|key| self.store.remove(key));
        for row in other.store.all() {
            let theirs = self.settings.rules.trust(row.state.into());
            if self.store.get(row.key) != Some(row.state) {
                self.store.put(
                    row.key,
                    &theirs,
                    stamp::reading(self.settings.rules.newest(&theirs)),
                );
            }
        }
        self.writers.clone_from(&other.writers);
        self.missed.clone_from(&other.missed);
        self.begin_lineage(other);
        self.store.saw(other.store.newest());
        self.store.advance(time);
        self.store.newest()
    }

    /// Makes the next command begin a lineage above those of both histories.
    fn begin_lineage(&mut self, other: &Rows) {
        self.lineage = (NO_LINEAGE, self.lineage.1.max(other.lineage.1));
        self.writer = stamp::writer(&self.settings.dc, self.lineage.1);
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_head(&self.missed, out);
        self.store.encode_part(0, usize::MAX, out);
    }

    /// Returns a snapshot of what [`Rows::write`] would write now, for another thread to write
    /// while the table changes.
    pub fn image(&self) -> impl FnOnce(&mut Vec<u8>) + Send + 'static {
        let (mut head, image) = (Vec::new(), self.store.image());
        self.write_head(&self.missed, &mut head);
        move |out| {
            out.extend_from_slice(&head);
            image.encode(out);
        }
    }

    fn write_head(&self, missed: &Missed, out: &mut Vec<u8>) {
        let mut settings = Vec::new();
        self.settings.encode(&mut settings);
        codec::put_bytes(out, &settings);
        codec::put_number(out, self.lineage.0);
        codec::put_number(out, self.lineage.1);
        self.writers.encode(out);
        missed.encode(out);
    }

    /// Writes at most `most` rows that changed after a number, as a table for others to join.
    /// Returns the number of the last row.
    pub fn write_part(&self, since: u64, most: usize, out: &mut Vec<u8>) -> u64 {
        self.write_head(&Missed::default(), out);
        self.store.encode_part(since, most, out)
    }

    /// # Errors
    ///
    /// The bytes were not written by `write`.
    pub fn read(bytes: &[u8]) -> Result<Rows, Damaged> {
        let mut from = Reader::new(bytes);
        let mut rows = Rows::of_genesis(from.bytes(1 << 22)?)?;
        rows.lineage = (from.number()?, from.number()?);
        rows.writers = Writers::decode(&mut from)?;
        rows.missed = Missed::decode(&mut from)?;
        if rows.lineage.1 > u64::MAX >> 1 {
            return Err(Damaged);
        }
        rows.writer = stamp::writer(&rows.settings.dc, rows.lineage.1);
        let tombstones = usize::try_from(rows.settings.tombstones).unwrap_or(usize::MAX);
        rows.store = Store::decode(rows.settings.rules.clone(), tombstones, &mut from)?;
        (from.left() == 0).then_some(rows).ok_or(Damaged)
    }

    /// # Errors
    ///
    /// This version cannot work with such a log.
    pub fn of_genesis(bytes: &[u8]) -> Result<Rows, Damaged> {
        let mut from = Reader::new(bytes);
        let settings = Settings::decode(&mut from)?;
        (from.left() == 0).then(|| Rows::new(settings)).ok_or(Damaged)
    }
}
