//! States: a row with everything needed to join it with another state of its key, as bytes.
//!
//! A state has a *floor*: the stamp of the newest delete before its life. Of two states with
//! different floors the higher one wins as a whole, so a delete wins over concurrent changes. Two
//! states with the same floor are joined column by column. A change is also a state, with only the
//! columns that it changes. A state without a time to live is of a row whose creation has not
//! arrived yet or of a deleted row (a tombstone), and shows no row.
//!
//! Joining is associative, commutative and idempotent, even while nodes forget tombstones, provided
//! that every change reaches all nodes within half of the age at which they forget.
//!
//! A state is a msgpack list: the floor, the stamp of the row's creation, the stamp of its time to
//! live, the expiry time (ms since 1970; 0: never), and the cells of the columns. It is kept in
//! memory in this form: joining two states mostly copies one of them. Equal states have equal
//! bytes.

mod change;
mod check;
mod far;
mod join;
mod late;
mod layout;
mod raise;

use std::cell::RefCell;

use interlock_table::{Schema, Value};
use smallvec::SmallVec;

use crate::column::{Cell, Column, BORN, WIDEST};
use crate::pack::{self, Items};
use crate::stamp;

pub use self::late::Late;
pub use self::layout::Layout;
pub use crate::column::Merge;
pub use interlock_table::Change;

// The cells before those of the columns.
const FLOOR: usize = 0;
const BIRTH: usize = 1;
const ALIVE: usize = 2;
const EXPIRES: usize = 3;
const FIRST: usize = 4;

/// An encoded packed stamp that is before all others.
const NEVER: &[u8] = &[0xC4, 0];

/// A state or a change of one row, made or checked by [`Rules`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State(Vec<u8>);

impl State {
    /// The bytes, as [`Rules::check`] accepts them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes alone, which take less memory.
    pub fn into_bytes(self) -> Box<[u8]> {
        self.0.into()
    }
}

/// The reason why rules or a state are invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid(pub String);

impl std::fmt::Display for Invalid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Invalid {}

/// Rules for the states of one table: how they are made, joined and shown as rows.
#[derive(Clone, Debug)]
pub struct Rules {
    schema: Schema,
    columns: Vec<Column>,
    merges: Vec<Merge>,
    age_ms: u64,
    width: usize,
}

impl Rules {
    /// Creates rules for rows of these columns, each with its merge kind.
    ///
    /// `age_ms`: how long nodes remember a deleted or expired row. All nodes must use the same age,
    /// because it decides how states are joined. Errors: it is 0, or a merge kind does not fit its
    /// column's type.
    pub fn new(schema: Schema, merges: &[Merge], age_ms: u64) -> Result<Rules, Invalid> {
        let declared = schema.columns();
        if age_ms == 0 {
            return Err(Invalid("the age of tombstones is 0; allowed: 1 ms or more".to_owned()));
        }
        if declared.len() != merges.len() {
            let (columns, kinds) = (declared.len(), merges.len());
            return Err(Invalid(format!("{columns} columns, and merge kinds for {kinds}")));
        }
        let mut at = FIRST;
        let mut columns = Vec::with_capacity(merges.len());
        for (column, merge) in declared.iter().zip(merges) {
            if !merge.fits(column.kind) {
                let (name, kind, merge) = (&column.name, column.kind, merge.name());
                return Err(Invalid(format!("column {name}: {kind} cannot be merged as {merge}")));
            }
            columns.push(Column::new(column, *merge, at));
            at += columns[columns.len() - 1].width();
        }
        Ok(Rules { schema, columns, merges: merges.to_vec(), age_ms, width: at })
    }

    /// Parses rules as [`Rules::fingerprint`] writes them.
    pub fn parse(fingerprint: &str) -> Result<Rules, Invalid> {
        let invalid = || Invalid(format!("{fingerprint:?} is not a set of rules of a table"));
        let mut parts = fingerprint.rsplitn(3, "; ");
        let (age, merges, schema) = (parts.next(), parts.next(), parts.next());
        let age = age.and_then(|age| age.strip_suffix(" ms")?.parse().ok()).ok_or_else(invalid)?;
        let merges: Option<Vec<_>> = merges.unwrap_or("").split(", ").map(Merge::of).collect();
        let schema = Schema::parse(schema.unwrap_or("")).map_err(|_| invalid())?;
        Rules::new(schema, &merges.ok_or_else(invalid)?, age)
    }

    /// Returns the settings that all nodes of a cluster must share, as text.
    pub fn fingerprint(&self) -> String {
        format!("{}; {} ms", self.layout(), self.age_ms)
    }

    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    pub fn merges(&self) -> &[Merge] {
        &self.merges
    }

    /// Time for which a deleted or expired row is remembered, in ms.
    pub fn age_ms(&self) -> u64 {
        self.age_ms
    }

    /// Accepts bytes from outside. Errors: these rules could not have written them.
    pub fn check(&self, bytes: &[u8]) -> Result<State, Invalid> {
        if check::is_state(self, bytes) {
            Ok(State(bytes.into()))
        } else {
            Err(Invalid("not the state of a row of this table".to_owned()))
        }
    }

    /// Accepts bytes of a state without a check. Any other bytes show no row or a wrong one.
    pub fn trust(&self, bytes: Box<[u8]>) -> State {
        State(bytes.into())
    }

    /// Returns the row that a state shows at a time, in ms since 1970.
    pub fn view<'a>(&'a self, state: Option<&'a State>, now_ms: u64) -> View<'a> {
        self.view_of(state.map(|state| &*state.0), now_ms)
    }

    /// Like `view`, for the bytes of a state.
    pub fn view_of<'a>(&'a self, state: Option<&'a [u8]>, now_ms: u64) -> View<'a> {
        let cells = state.map_or_else(SmallVec::new, |state| self.raw(state));
        let is_there = !cells.is_empty() && is_alive(cells[ALIVE], cells[EXPIRES], now_ms);
        View { rules: self, cells, is_there, raised: RefCell::default() }
    }

    /// Calls `see` with the value of each column, as `view_of` shows it, until it fails. Returns the expiry of the
    /// row in ms since 1970, 0 for never, or `None` if there is no row.
    pub fn each_value<'a, E>(
        &'a self,
        state: &'a [u8],
        now_ms: u64,
        mut see: impl FnMut(usize, Value<'a>) -> Result<(), E>,
    ) -> Result<Option<u64>, E> {
        let mut items = Items::of(state);
        let mut next = || items.as_mut().and_then(Iterator::next).unwrap_or(pack::NIL);
        let (_, _, alive, expires) = (next(), next(), next(), next());
        if !is_alive(alive, expires, now_ms) {
            return Ok(None);
        }
        for (number, column) in self.columns.iter().enumerate() {
            let mut cells = [pack::NIL; WIDEST];
            cells[..column.width()].fill_with(&mut next);
            see(number, column.value(|at| cells[at - column.at]))?;
        }
        Ok(Some(pack::unsigned(expires).unwrap_or(0)))
    }

    /// Returns the life of a state's row, for any columns.
    pub fn life(&self, state: &[u8]) -> Life {
        let mut items = Items::of(state);
        let mut next = || items.as_mut().and_then(Iterator::next).unwrap_or(pack::NIL);
        let (floor, birth, alive, expires) = (next(), next(), next(), next());
        let stamp = |item| stamp::reading(pack::bytes(item).unwrap_or(&[]));
        let expires_at = pack::unsigned(expires).unwrap_or(0);
        let set = if alive == BORN { birth } else { alive };
        let end = stamp::hybrid(expires_at).max(stamp(set));
        let is_tombstone = alive == pack::NIL && birth == NEVER;
        let forgettable_at = if is_tombstone {
            stamp::ms_above(stamp(floor)).saturating_add(self.age_ms)
        } else if expires_at > 0 {
            stamp::ms_above(end).saturating_add(self.age_ms)
        } else {
            0
        };
        Life { is_made: alive != pack::NIL, is_tombstone, expires_at, forgettable_at }
    }

    /// Returns whether two states have the same life of a row: created, expiring and deleted at the
    /// same times.
    pub fn is_same_life(&self, one: &[u8], other: &[u8]) -> bool {
        let Some(mut items) = Items::of(one) else { return false };
        let length = match items.nth(FIRST) {
            Some(item) => item.as_ptr() as usize - one.as_ptr() as usize,
            None => one.len(),
        };
        other.len() >= length && one[..length] == other[..length]
    }

    /// Returns the data centre in which the row was created. `None`: the row does not exist.
    pub fn origin<'a>(&self, state: &'a [u8]) -> Option<&'a [u8]> {
        let birth = pack::bytes(Items::of(state)?.nth(BIRTH)?)?;
        stamp::parts(birth.get(8..)?).map(|(dc, _)| dc)
    }

    /// Returns the newest stamp of a state, packed, which a clock must see.
    pub fn newest<'a>(&self, state: &'a State) -> &'a [u8] {
        self.newest_of(&state.0)
    }

    /// Like `newest`, for the bytes of a state.
    pub fn newest_of<'a>(&self, state: &'a [u8]) -> &'a [u8] {
        let cells = self.raw(state);
        let at = [FLOOR, BIRTH, ALIVE].into_iter().chain(self.registers().map(|at| at + 1));
        at.filter_map(|at| pack::bytes(cells[at])).max().unwrap_or(&[])
    }

    /// Returns the items of a state, with nil for missing ones.
    #[inline]
    fn raw<'a>(&self, state: &'a [u8]) -> Cells<'a> {
        let mut cells = SmallVec::from_elem(pack::NIL, self.width);
        if let Some(mut items) = Items::of(state) {
            for cell in &mut cells {
                let Some(item) = items.next() else { break };
                *cell = item;
            }
        }
        cells
    }

    fn cells<'a>(&self, state: &'a [u8]) -> Vec<Cell<'a>> {
        let mut cells = Vec::with_capacity(self.width);
        let items = Items::of(state).into_iter().flatten().take(self.width);
        cells.extend(items.map(Cell::Borrowed));
        cells.resize(self.width, pack::NIL.into());
        cells
    }

    fn encode(&self, cells: &[Cell<'_>]) -> State {
        let size: usize = cells.iter().map(|cell| cell.len()).sum();
        let mut state = Vec::with_capacity(size + if self.width < 16 { 1 } else { 3 });
        pack::put_list(&mut state, cells.len());
        cells.iter().for_each(|cell| state.extend_from_slice(cell));
        State(state)
    }

    fn registers(&self) -> impl Iterator<Item = usize> + '_ {
        self.columns.iter().filter(|column| column.is_register()).map(|column| column.at)
    }
}

/// The life of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// It was created, and exists unless it has expired.
    pub is_made: bool,
    /// It is the state after a delete.
    pub is_tombstone: bool,
    /// In ms since 1970; 0: never, or no row.
    pub expires_at: u64,
    /// Time from which a node may forget it, in ms since 1970; 0: never. Nodes that have forgotten
    /// a state and nodes that have not reach the same rows.
    pub forgettable_at: u64,
}

impl Life {
    /// Returns whether there is a row.
    pub fn is_alive(&self, now_ms: u64) -> bool {
        self.is_made && !(self.expires_at > 0 && self.expires_at <= now_ms)
    }
}

/// The row that a state shows at a time.
#[derive(Clone, Debug)]
pub struct View<'a> {
    rules: &'a Rules,
    cells: Cells<'a>,
    is_there: bool,
    /// Cells that [`Rules::raised`] computed last: a reply shows their value, then they go into the
    /// state.
    raised: RefCell<Option<Raised>>,
}

/// The cells of a state; those of most tables need no heap memory.
type Cells<'a> = SmallVec<[&'a [u8]; 24]>;

/// Cells of a column that differ after it is raised to a value.
#[derive(Clone, Debug)]
struct Raised {
    column: usize,
    to: Value<'static>,
    reading: u64,
    cells: [Option<Vec<u8>>; WIDEST],
}

impl<'a> View<'a> {
    /// Returns whether there is a row.
    pub fn is_there(&self) -> bool {
        self.is_there
    }

    /// Returns the value of a column by number; zero or empty if the row does not exist.
    pub fn value(&self, column: usize) -> Value<'a> {
        self.value_of(&self.rules.columns[column])
    }

    fn value_of(&self, column: &Column) -> Value<'a> {
        if self.is_there {
            column.value(|at| self.cells[at])
        } else {
            column.zero()
        }
    }

    /// Time at which the row expires, in ms since 1970; 0: never, or no row.
    pub fn expires_at(&self) -> u64 {
        if self.is_there {
            pack::unsigned(self.cells[EXPIRES]).unwrap_or(0)
        } else {
            0
        }
    }

    /// Returns the values of all columns. `None`: the row does not exist.
    pub fn values(&self) -> Option<Vec<Value<'a>>> {
        self.is_there.then(|| (0..self.rules.columns.len()).map(|n| self.value(n)).collect())
    }

    /// Returns whether the column has 32-bit floats, whose values are returned as 64-bit floats.
    pub fn is_narrow(&self, column: usize) -> bool {
        self.rules.columns[column].kind.is_narrow()
    }
}

#[inline]
fn is_alive(alive: &[u8], expires: &[u8], now_ms: u64) -> bool {
    alive != pack::NIL && !(1..=now_ms).contains(&pack::unsigned(expires).unwrap_or(0))
}
