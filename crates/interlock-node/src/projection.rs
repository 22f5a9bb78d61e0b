//! The rows of a node in a table in the machine's shared memory, where others read them.
//!
//! The table outlives the node. A node that restarts or goes back has an older state at first: it
//! writes nothing until it has read the log to its end and has put back lost entries. So no reader
//! goes back in time, unless the log has lost entries that nobody puts back.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use interlock_hub::tables::keeper::Keeper;
use interlock_log::checkpoint::Place;
use interlock_log::entry::Mark;
use interlock_log::rows::{Changed, Rows};
use interlock_log::state::View;
use interlock_table::{Error, Table, Ttl, Where};

/// The view of a node's state that readers have.
pub trait Projection<M>: Send {
    /// The place that it already shows, from an earlier run of the node.
    fn shown(&self) -> Option<Mark>;

    /// Shows the state at `place`. `is_settled`: the state is not older than the one shown before.
    ///
    /// # Errors
    ///
    /// The state could not be shown; the next call shows all of it.
    fn show(&mut self, machine: &mut M, place: Place, is_settled: bool) -> Result<(), String>;

    /// Returns whether readers see an older state until the node is settled.
    fn is_behind(&self) -> bool {
        false
    }
}

/// Shows nothing.
impl<M> Projection<M> for () {
    fn shown(&self) -> Option<Mark> {
        None
    }

    fn show(&mut self, _: &mut M, _: Place, _: bool) -> Result<(), String> {
        Ok(())
    }
}

/// Rows in a table that this process keeps and that refuses new rows when full.
///
/// The table is made for few rows and grows with them, up to the capacity of the node, so that a node takes
/// memory for the rows it has. It grows in a thread of its own before it is full: meanwhile rows are read
/// and written as always.
pub struct InTable {
    table: Arc<Table>,
    growth: Option<JoinHandle<()>>,
    /// The capacity that the last growth began with: if that failed, only a full table tries again.
    grown_from: u64,
    words: Vec<u64>,
    before: Vec<u64>,
    /// The words of rows written by one call.
    many: Vec<u64>,
    /// An error left the table partly written.
    is_torn: bool,
    is_behind: bool,
    /// The keeper of the table's hub, which answers no reads while the table does not have the rows to show.
    reads: Option<Arc<Keeper>>,
    is_closed: bool,
}

impl InTable {
    pub fn new(table: Table) -> InTable {
        let words = vec![0; table.schema().words()];
        let (before, many) = (words.clone(), Vec::new());
        InTable {
            table: Arc::new(table),
            growth: None,
            grown_from: 0,
            words,
            before,
            many,
            is_torn: false,
            is_behind: false,
            reads: None,
            is_closed: false,
        }
    }

    /// Makes the table's hub refuse reads until there is something to show, if nothing was ever
    /// shown. Otherwise a client that read from this node before its machine lost its memory would
    /// see an empty table. It also refuses them while the table cannot be written: a client would
    /// not see its own answered writes.
    #[must_use]
    pub fn opens(mut self, reads: Arc<Keeper>) -> InTable {
        self.reads = Some(reads);
        if self.table.position().is_none() {
            self.close();
        }
        self
    }

    fn close(&mut self) {
        if let Some(reads) = &self.reads {
            reads.set_fresh_until(Some(0));
            self.is_closed = true;
        }
    }

    fn try_show(&mut self, rows: &Rows, place: Place) -> Result<(), Error> {
        match rows.store().unshown().filter(|_| !self.is_torn) {
            Some(unshown) => {
                for key in unshown.gone {
                    self.delete(rows, key)?;
                }
                for some in unshown.changed.chunks(MANY) {
                    self.put_many(rows, some)?;
                }
            }
            None => self.show_all(rows)?,
        }
        self.grow_ahead(rows);
        let mark = place.mark;
        // A growing table would lose a position that is set after the copy; the next call sets it.
        if !self.is_growing() && self.table.position() != Some((mark.position, mark.checksum)) {
            self.table.set_position(mark.position, mark.checksum);
        }
        Ok(())
    }

    fn show_all(&mut self, rows: &Rows) -> Result<(), Error> {
        let (mut cursor, mut gone) = (0, Vec::new());
        loop {
            cursor = self.table.scan(cursor, SCANNED, |row| {
                if !rows.store().is_alive(&row.key) {
                    gone.push(row.key);
                }
            });
            if cursor == 0 {
                break;
            }
        }
        for key in gone {
            self.delete(rows, &key)?;
        }
        if rows.store().rows() > self.table.made().capacity {
            self.make_room(rows, Error::TableFull)?;
        }
        // In a table that has never shown anything, no row need be looked up.
        let compares = self.table.position().is_some();
        for row in rows.store().iter() {
            self.put(rows, row.key, row.state, compares)?;
        }
        Ok(())
    }

    /// Writes rows with distinct keys; those that do not expire are written in one call.
    fn put_many(&mut self, rows: &Rows, changed: &[Changed<'_>]) -> Result<(), Error> {
        let (now, size) = (rows.store().time(), self.words.len());
        let (mut lasting, mut words) =
            (Vec::with_capacity(changed.len()), std::mem::take(&mut self.many));
        words.clear();
        for row in changed {
            let from = words.len();
            words.resize(from + size, 0);
            let columns = self.table.schema().columns();
            let fill = |number: usize, value| columns[number].write(&mut words[from..], &value);
            if rows.settings().rules.each_value(row.state, now, fill)? != Some(0) {
                words.truncate(from);
                self.put(rows, row.key, row.state, false)?;
                continue;
            }
            lasting.push(row.key);
        }
        let lasting: Vec<_> = lasting.into_iter().zip(words.chunks(size)).collect();
        let mut written = Vec::with_capacity(lasting.len());
        while let Err(error) = self.table.set_many_on(&lasting, Ttl::Never, &mut written) {
            self.make_room(rows, error)?;
        }
        self.many = words;
        Ok(())
    }

    fn fill(&self, words: &mut [u64], view: &View<'_>) -> Result<(), Error> {
        let columns = self.table.schema().columns().iter().enumerate();
        columns
            .into_iter()
            .try_for_each(|(number, column)| column.write(words, &view.value(number)))
    }

    /// Grows a full table: expired rows that are not overwritten yet also take space. Errors: the given one
    /// if growing does not help, and those of growing.
    fn make_room(&mut self, rows: &Rows, error: Error) -> Result<(), Error> {
        // It may be full, or a row be locked, only because the table is growing.
        if matches!(error, Error::TableFull | Error::RowBusy { .. }) && self.end_growth() {
            return Ok(());
        }
        if !matches!(error, Error::TableFull) {
            return Err(error);
        }
        // A small table may hold more rows than its guaranteed capacity.
        let held = self.table.statistics().rows().max(self.table.made().capacity);
        let mut wanted = larger(held, rows);
        while wanted < rows.store().rows() {
            wanted = larger(wanted, rows);
        }
        self.table.resize(wanted, false).map(drop)
    }

    /// Starts to grow a table that is soon full, unless it has all the room that the node may need.
    fn grow_ahead(&mut self, rows: &Rows) {
        let held = self.table.made().capacity;
        let is_enough = held >= rows.settings().capacity || rows.store().rows() / 3 < held / 4;
        if is_enough || held == self.grown_from {
            return;
        }
        self.end_growth();
        self.grown_from = held;
        let (table, wanted) = (self.table.clone(), larger(held, rows));
        let grow = move || {
            // Failing, the table is as it was, and the node reports why once it is full.
            let _ = table.resize(wanted, false);
        };
        self.growth = std::thread::Builder::new().name("node-growth".into()).spawn(grow).ok();
    }

    fn is_growing(&self) -> bool {
        self.growth.as_ref().is_some_and(|growth| !growth.is_finished())
    }

    /// Waits for the end of a growth. Returns whether there was one.
    fn end_growth(&mut self) -> bool {
        self.growth.take().is_some_and(|growth| growth.join().is_ok())
    }

    fn delete(&mut self, rows: &Rows, key: &[u8]) -> Result<(), Error> {
        while let Err(error) = self.table.delete(key) {
            self.make_room(rows, error)?;
        }
        Ok(())
    }

    /// `compares`: a row that is already up to date is not written.
    fn put(&mut self, rows: &Rows, key: &[u8], state: &[u8], compares: bool) -> Result<(), Error> {
        let now = rows.store().time();
        let view = rows.settings().rules.view_of(Some(state), now);
        if !view.is_there() {
            return self.delete(rows, key);
        }
        let mut words = std::mem::take(&mut self.words);
        words.fill(0);
        let filled = self.fill(&mut words, &view);
        self.words = words;
        filled?;
        let ttl = ttl(&view, now);
        let is_same = compares
            && ttl == Ttl::Never
            && self.table.get_into(key, &mut self.before)?
            && self.before == self.words;
        if is_same {
            return Ok(());
        }
        loop {
            match self.table.write(key, &self.words, ttl, Where::Anywhere) {
                Err(error) => self.make_room(rows, error)?,
                Ok(_) => return Ok(()),
            }
        }
    }
}

/// The capacity that follows this number of rows.
fn larger(held: u64, rows: &Rows) -> u64 {
    let wanted = rows.settings().capacity;
    if held < wanted {
        held.saturating_mul(GROWS_BY).min(wanted)
    } else {
        held.saturating_mul(2)
    }
}

impl Drop for InTable {
    fn drop(&mut self) {
        self.end_growth();
    }
}

fn ttl(view: &View<'_>, now: u64) -> Ttl {
    match view.expires_at() {
        0 => Ttl::Never,
        at => Ttl::For(Duration::from_millis(at.saturating_sub(now))),
    }
}

impl Projection<Rows> for InTable {
    fn shown(&self) -> Option<Mark> {
        self.table.position().map(|(position, checksum)| Mark { position, checksum })
    }

    fn show(&mut self, rows: &mut Rows, place: Place, is_settled: bool) -> Result<(), String> {
        self.is_behind = !is_settled && (self.is_torn || rows.store().unshown().is_none());
        if self.is_behind {
            return Ok(());
        }
        self.is_torn = match self.try_show(rows, place) {
            Ok(()) => {
                if let Some(reads) = self.reads.as_ref().filter(|_| self.is_closed) {
                    reads.set_fresh_until(None);
                    self.is_closed = false;
                }
                false
            }
            Err(error) => {
                self.close();
                let place = self.table.path().display();
                self.is_torn = true;
                return Err(format!("{place}: {error}; readers of the table see an older state"));
            }
        };
        rows.shown();
        Ok(())
    }

    fn is_behind(&self) -> bool {
        self.is_behind
    }
}

/// Factor by which a table grows: so it takes at most about five times the memory of its rows.
const GROWS_BY: u64 = 4;
/// Maximum rows written by one call.
const MANY: usize = 64;
/// Rows visited in one step of a scan.
const SCANNED: usize = 4096;
