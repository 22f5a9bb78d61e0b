//! Columns of states: how each merge kind is set, raised, joined and shown.
//!
//! A state is a list in which each column has some cells. A *register* has a value and the stamp at
//! which it was set; the later of two wins. Cells that were never set are nil. A small number can
//! replace a stamp: [`BORN`] the stamp of the row's creation, [`LIFE`] that of its time to live. So
//! a row that was set as a whole has only these two stamps.
//!
//! | kind | cells |
//! |---|---|
//! | last | value, stamp: the value that was last set |
//! | sum | value, stamp, totals: the value that was set, and the total that each writer has ever added |
//! | max | the greatest value; for floats, NaN is less than all numbers, and -0.0 less than 0.0 |
//! | flags | each writer's bits: of concurrent changes to a bit, setting wins |

mod flags;
mod float_sum;
mod sum;
mod totals;

use std::borrow::Cow;
use std::cmp::Ordering;

use interlock_table::{By, Column as Declared, Form, Kind, Value};

pub use self::totals::Total;
use crate::pack::{self, Items};
use crate::stamp::{self, Stamp};

/// One item of a state, as msgpack.
pub type Cell<'a> = Cow<'a, [u8]>;

/// Largest number of cells of a column.
pub const WIDEST: usize = 3;
/// Replaces the stamp of the row's creation.
pub const BORN: &[u8] = &[1];
/// Replaces the stamp of the row's time to live.
pub const LIFE: &[u8] = &[2];

/// Merge kind: the result of two concurrent changes of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// The later one wins. For every type.
    Last,
    /// Both are added. For numbers.
    Sum,
    /// The greater one wins. For numbers and bools.
    Max,
    /// For each bit, setting wins. For unsigned integers.
    Flags,
}

impl Merge {
    /// Returns the kind with this name: `last`, `sum`, `max` or `flags`.
    pub fn of(name: &str) -> Option<Merge> {
        [Merge::Last, Merge::Sum, Merge::Max, Merge::Flags].into_iter().find(|m| m.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Merge::Last => "last",
            Merge::Sum => "sum",
            Merge::Max => "max",
            Merge::Flags => "flags",
        }
    }

    /// Returns whether a column of this type can have this merge kind.
    pub fn fits(self, kind: Kind) -> bool {
        let is_unsigned = kind.form() == Form::Unsigned;
        match self {
            Merge::Last => true,
            Merge::Sum => !kind.is_sized() && kind.form() != Form::Bool,
            Merge::Max => !kind.is_sized(),
            Merge::Flags => is_unsigned,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Last,
    Sum,
    FloatSum,
    Max,
    Flags,
}

/// A writer's part in a sum that is raised.
pub struct Own<'a> {
    /// The value shown afterwards.
    pub shown: Value<'static>,
    /// The writer's total afterwards.
    pub raised: i128,
    /// The encoded total of the writer and its reading as they are now, and the decoded reading.
    pub total: &'a [u8],
    pub at: &'a [u8],
    pub reading: u64,
}

/// A column and the position of its cells.
#[derive(Clone, Debug)]
pub struct Column {
    pub kind: Kind,
    /// Index of its first cell.
    pub at: usize,
    how: How,
    range: (i128, i128),
}

impl Column {
    pub fn new(declared: &Declared, merge: Merge, at: usize) -> Column {
        let is_float = declared.kind.form() == Form::Float;
        let how = match merge {
            Merge::Last => How::Last,
            Merge::Sum if is_float => How::FloatSum,
            Merge::Sum => How::Sum,
            Merge::Max => How::Max,
            Merge::Flags => How::Flags,
        };
        Column { kind: declared.kind, at, how, range: declared.range().unwrap_or((0, 0)) }
    }

    /// Returns whether cells of the other column can be used for this one, provided that the values
    /// fit.
    pub fn is_alike(&self, other: &Column) -> bool {
        let form = |kind: Kind| match kind.form() {
            // Both are packed as integers.
            Form::Signed => Form::Unsigned,
            form => form,
        };
        self.how == other.how && form(self.kind) == form(other.kind)
    }

    /// Number of its cells.
    pub fn width(&self) -> usize {
        match self.how {
            How::Last => 2,
            How::Sum | How::FloatSum => 3,
            How::Max | How::Flags => 1,
        }
    }

    /// Returns whether it begins with a value and a stamp, of which the later wins.
    #[inline]
    pub fn is_register(&self) -> bool {
        !matches!(self.how, How::Max | How::Flags)
    }

    /// Index of the cell that `join` handles; `None` if the column is only a register.
    #[inline]
    pub fn joined_at(&self) -> Option<usize> {
        match self.how {
            How::Last => None,
            How::Sum | How::FloatSum => Some(self.at + 2),
            How::Max | How::Flags => Some(self.at),
        }
    }

    /// The value shown if the column was never set.
    pub fn zero(&self) -> Value<'static> {
        match self.kind.form() {
            Form::Float => Value::Float(0.0),
            Form::Bool => Value::Bool(false),
            Form::Str => Value::Str("".into()),
            Form::Bytes => Value::Bytes([].as_slice().into()),
            Form::Unsigned => Value::Unsigned(0),
            Form::Signed => Value::Signed(0),
        }
    }

    /// Returns the value as the table shows it.
    pub fn value<'a>(&self, cell: impl Fn(usize) -> &'a [u8]) -> Value<'a> {
        match self.how {
            How::Last | How::Max => self.decode(cell(self.at)).unwrap_or_else(|| self.zero()),
            How::Sum => self.integer(sum::value(cell(self.at), cell(self.at + 2))),
            How::FloatSum => {
                let sum = float_sum::value(cell(self.at), cell(self.at + 2));
                Value::Float(if self.kind.is_narrow() { float_sum::narrow(sum) } else { sum })
            }
            How::Flags => Value::Unsigned(flags::bits_on(cell(self.at))),
        }
    }

    /// Writes into a change that the column was set.
    ///
    /// `delta` and `before` begin with the column's first cell; `before` has the cells of the same
    /// life of the row; `mark` is the stamp as a state keeps it.
    pub fn put<'a, C: AsRef<[u8]>>(
        &self,
        delta: &mut [Cell<'a>],
        before: Option<&[C]>,
        value: &Value,
        mark: &Cell<'a>,
        stamp: &Stamp,
    ) {
        let there = |at: usize| before.map_or(pack::NIL, |cells| cells[at].as_ref());
        let mut cell = Vec::with_capacity(16);
        match self.how {
            How::Last | How::Max => put_value(&mut cell, value),
            How::Sum => sum::put(&mut cell, there(2), whole(value)),
            How::FloatSum => float_sum::put(&mut cell, there(2), real(value)),
            How::Flags => {
                let bits = whole(value) as u64;
                flags::change(&mut cell, there(0), bits, bits, stamp);
                if cell.is_empty() {
                    return;
                }
            }
        }
        delta[0] = cell.into();
        if self.is_register() {
            delta[1] = mark.clone();
        }
    }

    /// Writes into a change that the column was raised from the shown value to `value`.
    ///
    /// A row that does not exist shows zero, whatever `before` contains.
    pub fn raise<'a, C: AsRef<[u8]>>(
        &self,
        delta: &mut [Cell<'a>],
        before: Option<&[C]>,
        (shown, value): (&Value, &Value),
        mark: &Cell<'a>,
        stamp: &Stamp,
    ) {
        let there = |at: usize| before.map_or(pack::NIL, |cells| cells[at].as_ref());
        let mut cell = Vec::with_capacity(48);
        match self.how {
            How::Last | How::Max => return self.put(delta, before, value, mark, stamp),
            How::Sum => {
                let by = whole(value) - whole(shown);
                sum::add(&mut cell, there(2), by, stamp);
            }
            How::FloatSum => {
                let by = real(value) - real(shown);
                if !float_sum::add(&mut cell, there(2), by, stamp) {
                    // Later additions and later values count as usual.
                    return self.put(delta, before, value, mark, stamp);
                }
            }
            How::Flags => {
                let (value, shown) = (whole(value) as u64, whole(shown) as u64);
                flags::change(&mut cell, there(0), value | !shown, value & !shown, stamp);
                if cell.is_empty() {
                    return;
                }
            }
        }
        delta[self.joined_at().unwrap_or(self.at) - self.at] = cell.into();
    }

    /// Writes into a change that an amount was added, whatever the resulting sum is. Returns false
    /// if the column is not a sum, or if the total would not be finite.
    pub fn add<'a, C: AsRef<[u8]>>(
        &self,
        delta: &mut [Cell<'a>],
        before: Option<&[C]>,
        by: By,
        stamp: &Stamp,
    ) -> bool {
        let totals = before.map_or(pack::NIL, |cells| cells[2].as_ref());
        let mut cell = Vec::with_capacity(48);
        match (self.how, by) {
            (How::Sum, By::Integer(by)) => sum::add(&mut cell, totals, by, stamp),
            (How::FloatSum, By::Float(by)) if float_sum::add(&mut cell, totals, by, stamp) => {}
            _ => return false,
        }
        delta[2] = cell.into();
        true
    }

    /// Returns the totals of a sum after it is raised to a value, as `raise` followed by `join`
    /// would. `None`: both calls are needed.
    pub fn raised(&self, cells: &[&[u8]], to: &Value, stamp: &Stamp) -> Option<Vec<u8>> {
        if self.how != How::Sum {
            return None;
        }
        let (base, before) = (cells[self.at], cells[self.at + 2]);
        sum::raise(base, before, stamp, |shown| whole(to) - whole(&self.integer(shown)))
    }

    /// Returns the totals of the cell at `joined_at`; none if the column is not a sum.
    pub fn totals<'c>(&self, cell: &'c [u8]) -> impl Iterator<Item = Total<'c>> {
        let is_sum = matches!(self.how, How::Sum | How::FloatSum);
        totals::all(if is_sum { cell } else { pack::NIL })
    }

    /// Returns a writer's part in a sum of integers after the shown value is raised to the result
    /// of `to`. `None`: it is not such a sum, it has combined lineages or more than 64 bits, the
    /// writer has not added to it before, or `to` refuses.
    pub fn own<'a>(
        &self,
        base: &[u8],
        totals: &'a [u8],
        writer: &str,
        to: impl FnOnce(&Value) -> Option<Value<'static>>,
    ) -> Option<Own<'a>> {
        if self.how != How::Sum {
            return None;
        }
        let mut items = Items::of(totals)?;
        if items.left() > 3 * sum::FEW {
            return None;
        }
        let mut shown = if base == pack::NIL { 0 } else { pack::integer(base)? };
        let mut own = None;
        while let Some(name) = items.next() {
            let (name, total, at) = (pack::text(name)?, items.next()?, items.next()?);
            let added = pack::integer(total)?;
            shown += added;
            if name == writer.as_bytes() {
                own = Some((added, total, at));
            } else if !name.contains(&stamp::LINEAGE) {
                return None;
            }
        }
        let (added, total, at) = own?;
        let before = self.integer(shown);
        let by = whole(&to(&before)?) - whole(&before);
        let (shown, raised) = (self.integer(shown + by), added + by);
        Some(Own { shown, raised, total, at, reading: pack::unsigned(at)? })
    }

    /// Returns the cell of a sum without the totals of some writers. `None`: it is not a sum, or
    /// has no such totals.
    pub fn without(&self, cell: &[u8], is_gone: impl Fn(&[u8], u64) -> bool) -> Option<Vec<u8>> {
        match self.how {
            How::Sum | How::FloatSum => totals::without(cell, is_gone),
            _ => None,
        }
    }

    /// Joins two cells at `joined_at`, which must not be nil. `None`: the result is the same as
    /// ours.
    pub fn join<'a>(&self, ours: &[u8], theirs: &Cell<'a>) -> Option<Cell<'a>> {
        if ours == &**theirs {
            return None;
        }
        match self.how {
            How::Last => None,
            How::Max => (self.order(theirs, ours) == Ordering::Greater).then(|| theirs.clone()),
            How::Sum | How::FloatSum => totals::join(ours, theirs).map(Cow::Owned),
            How::Flags => flags::join(ours, theirs).map(Cow::Owned),
        }
    }

    fn order(&self, one: &[u8], other: &[u8]) -> Ordering {
        match (pack::float(one), pack::float(other)) {
            // NaN is less than all numbers.
            (Some(one), Some(other)) => {
                (!one.is_nan()).cmp(&!other.is_nan()).then_with(|| one.total_cmp(&other))
            }
            _ if self.kind.form() == Form::Bool => one.cmp(other),
            _ => pack::integer(one).cmp(&pack::integer(other)),
        }
    }

    /// Returns whether this version could have written these cells, in canonical form.
    ///
    /// `lives`: the state has a time to live, whose stamp [`LIFE`] may replace.
    pub fn check<C: AsRef<[u8]>>(&self, cells: &[C], lives: bool, born: bool) -> bool {
        let cell = |at: usize| cells[self.at + at].as_ref();
        if self.is_register() {
            let (value, mark) = (cell(0), cell(1));
            let is_mark = match mark {
                BORN => born,
                LIFE => lives,
                _ => is_stamp(mark),
            };
            let is_unset = value == pack::NIL && mark == pack::NIL;
            let is_value = || match self.how {
                How::FloatSum => float_sum::check_base(value, |float| self.is_value(float)),
                How::Sum => sum::is_number(value),
                _ => self.is_value(value),
            };
            let is_set = is_mark && is_value();
            if !is_unset && !is_set {
                return false;
            }
        }
        match self.how {
            How::Last => true,
            How::Max => cell(0) == pack::NIL || self.is_value(cell(0)),
            How::Sum => totals::check(cell(2), true, sum::is_number),
            How::FloatSum => totals::check(cell(2), false, float_sum::is_float),
            How::Flags => cell(0) == pack::NIL || flags::check(cell(0), self.range.1 as u64),
        }
    }

    /// Returns whether the item is a value that the column can hold, in canonical form.
    fn is_value(&self, item: &[u8]) -> bool {
        let Some(value) = self.decode(item) else { return false };
        let fits = match (&value, self.kind) {
            (Value::Str(text), Kind::Str(size)) => text.len() <= usize::from(size),
            (Value::Bytes(bytes), Kind::Bytes(size)) => bytes.len() <= usize::from(size),
            (Value::Float(number), kind) if kind.is_narrow() => {
                number.is_nan() || f64::from(*number as f32) == *number
            }
            (Value::Unsigned(_) | Value::Signed(_), _) => {
                pack::integer(item).is_some_and(|n| self.range.0 <= n && n <= self.range.1)
            }
            _ => true,
        };
        let mut again = Vec::with_capacity(item.len());
        put_value(&mut again, &value);
        fits && again == item
    }

    fn decode<'a>(&self, item: &'a [u8]) -> Option<Value<'a>> {
        Some(match self.kind.form() {
            Form::Float => Value::Float(pack::float(item)?),
            Form::Bool => Value::Bool(pack::boolean(item)?),
            Form::Str => Value::Str(std::str::from_utf8(pack::text(item)?).ok()?.into()),
            Form::Bytes => Value::Bytes(pack::bytes(item)?.into()),
            Form::Unsigned | Form::Signed => self.integer(pack::integer(item)?),
        })
    }

    /// Clamps a number to the column's range.
    fn integer(&self, number: i128) -> Value<'static> {
        let number = number.clamp(self.range.0, self.range.1);
        match self.kind.form() {
            Form::Signed => Value::Signed(number as i64),
            _ => Value::Unsigned(number as u64),
        }
    }
}

/// Returns whether the item is a packed stamp.
pub fn is_stamp(item: &[u8]) -> bool {
    item.first() == Some(&0xC4) && pack::bytes(item).is_some_and(crate::stamp::is_packed)
}

/// Writes a value in canonical form.
pub fn put_value(to: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Unsigned(number) => pack::put_integer(to, (*number).into()),
        Value::Signed(number) => pack::put_integer(to, (*number).into()),
        Value::Float(number) => pack::put_float(to, *number),
        Value::Bool(is) => pack::put_boolean(to, *is),
        Value::Str(text) => pack::put_text(to, text.as_bytes()),
        Value::Bytes(bytes) => pack::put_bytes(to, bytes),
    }
}

fn whole(value: &Value) -> i128 {
    match value {
        Value::Unsigned(number) => (*number).into(),
        Value::Signed(number) => (*number).into(),
        _ => 0,
    }
}

fn real(value: &Value) -> f64 {
    match value {
        Value::Float(number) => *number,
        _ => 0.0,
    }
}
