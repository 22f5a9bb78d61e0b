//! The rows of a node in a table of the machine's shared memory, where others read them.
//!
//! The table outlives the node. A node that starts again, or goes back, has an older state at first: it
//! writes nothing before it has read the log to its end and has put back what was lost. So no reader goes
//! back in time, unless the log has lost what nobody puts back.

use std::sync::Arc;
use std::time::Duration;

use interlock_hub::kept::Keeper;
use interlock_log::checkpoint::Place;
use interlock_log::entry::Mark;
use interlock_log::rows::Rows;
use interlock_log::state::View;
use interlock_table::{Error, Table, Ttl, Where};

/// The view that readers have of a node's state.
pub trait Projection<M>: Send {
    /// The place that it shows already, as another run of the node has left it.
    fn shown(&self) -> Option<Mark>;

    /// Shows what was applied up to a place. `is_settled`: it is no older than what was shown before.
    ///
    /// # Errors
    ///
    /// Why it could not; the next call shows it all.
    fn show(&mut self, machine: &mut M, place: Place, is_settled: bool) -> Result<(), String>;
}

/// A node that shows nothing.
impl<M> Projection<M> for () {
    fn shown(&self) -> Option<Mark> {
        None
    }

    fn show(&mut self, _: &mut M, _: Place, _: bool) -> Result<(), String> {
        Ok(())
    }
}

/// Rows in a table that this process keeps, and that refuses rows when it is full.
pub struct InTable {
    table: Table,
    words: Vec<u64>,
    before: Vec<u64>,
    /// It was not shown whole, for an error.
    is_torn: bool,
    /// The keeper that answers no reads until the table has rows to show.
    closed: Option<Arc<Keeper>>,
}

impl InTable {
    pub fn new(table: Table) -> InTable {
        let words = vec![0; table.schema().words()];
        InTable { table, before: words.clone(), words, is_torn: false, closed: None }
    }

    /// Has the hub of a table that nobody has shown anything in refuse reads until there is something to
    /// see: whoever read at this node before its machine lost its memory would go back to nothing.
    #[must_use]
    pub fn opens(mut self, reads: Arc<Keeper>) -> InTable {
        if self.table.position().is_none() {
            reads.set_fresh_until(Some(0));
            self.closed = Some(reads);
        }
        self
    }

    fn try_show(&mut self, rows: &Rows, place: Place) -> Result<(), Error> {
        match rows.store().unshown().filter(|_| !self.is_torn) {
            Some(unshown) => {
                for key in unshown.gone {
                    self.table.delete(key)?;
                }
                for row in unshown.changed {
                    self.put(rows, row.key, row.state, false)?;
                }
            }
            None => self.show_all(rows)?,
        }
        let mark = place.mark;
        if self.table.position() != Some((mark.position, mark.checksum)) {
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
            self.table.delete(&key)?;
        }
        // Of a table in which nothing was shown no row need be looked up.
        let compares = self.table.position().is_some();
        for row in rows.store().iter() {
            self.put(rows, row.key, row.state, compares)?;
        }
        Ok(())
    }

    /// `compares`: a row that is there as it is to be is not written.
    fn put(&mut self, rows: &Rows, key: &[u8], state: &[u8], compares: bool) -> Result<(), Error> {
        let now = rows.store().time();
        let view = rows.settings().rules.view_of(Some(state), now);
        if !view.is_there() {
            self.table.delete(key)?;
            return Ok(());
        }
        let schema = self.table.schema().clone();
        self.words.fill(0);
        for (number, column) in schema.columns().iter().enumerate() {
            column.write(&mut self.words, &view.value(number))?;
        }
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
                // Rows that have expired here and are not overwritten yet need room too.
                Err(Error::TableFull) => {
                    // A small table holds more rows than it is surely good for.
                    let rows = self.table.statistics().rows();
                    self.table.resize(rows.max(self.table.made().capacity) * 2, false)?;
                }
                done => return done.map(|_| ()),
            }
        }
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
        if !is_settled && (self.is_torn || rows.store().unshown().is_none()) {
            return Ok(());
        }
        self.is_torn = match self.try_show(rows, place) {
            Ok(()) => {
                if let Some(reads) = self.closed.take() {
                    reads.set_fresh_until(None);
                }
                false
            }
            Err(error) => {
                self.is_torn = true;
                let place = self.table.path().display();
                return Err(format!("{place}: {error}; readers of the table see an older state"));
            }
        };
        rows.shown();
        Ok(())
    }
}

/// Rows that are looked at in one step of a scan.
const SCANNED: usize = 4096;
