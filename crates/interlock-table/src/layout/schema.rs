//! Columns: their types, their order in a row, and the text that two programs compare.
//!
//! A row has whole 64-bit words: columns of eight bytes first, then four, two, one, then those with
//! a size. So no number crosses two words, and setting one changes one word.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use crate::error::Error;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
    Bool,
    /// UTF-8, up to this many bytes.
    Str(u16),
    Bytes(u16),
}

/// The form of a column's values: kinds of one form differ only in their range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Unsigned,
    Signed,
    Float,
    Bool,
    Str,
    Bytes,
}

const NUMBERS: [(&str, Kind); 11] = [
    ("U8", Kind::U8),
    ("U16", Kind::U16),
    ("U32", Kind::U32),
    ("U64", Kind::U64),
    ("I8", Kind::I8),
    ("I16", Kind::I16),
    ("I32", Kind::I32),
    ("I64", Kind::I64),
    ("F32", Kind::F32),
    ("F64", Kind::F64),
    ("bool", Kind::Bool),
];

impl Kind {
    /// Bytes in a row; of what has a size, with two that say how many there are.
    pub fn bytes(self) -> usize {
        match self {
            Kind::U8 | Kind::I8 | Kind::Bool => 1,
            Kind::U16 | Kind::I16 => 2,
            Kind::U32 | Kind::I32 | Kind::F32 => 4,
            Kind::U64 | Kind::I64 | Kind::F64 => 8,
            Kind::Str(size) | Kind::Bytes(size) => 2 + size as usize,
        }
    }

    /// The form of its values, by which they are parsed, shown and merged.
    #[inline]
    pub fn form(self) -> Form {
        match self {
            Kind::U8 | Kind::U16 | Kind::U32 | Kind::U64 => Form::Unsigned,
            Kind::I8 | Kind::I16 | Kind::I32 | Kind::I64 => Form::Signed,
            Kind::F32 | Kind::F64 => Form::Float,
            Kind::Bool => Form::Bool,
            Kind::Str(_) => Form::Str,
            Kind::Bytes(_) => Form::Bytes,
        }
    }

    /// Returns whether it has floats of 32 bits, whose values are shown as floats of 64 bits.
    #[inline]
    pub fn is_narrow(self) -> bool {
        self == Kind::F32
    }

    /// Returns whether it has a size of its own, and so may lie across words.
    pub fn is_sized(self) -> bool {
        matches!(self, Kind::Str(_) | Kind::Bytes(_))
    }

    /// Its format string in Arrow's C data interface.
    pub fn arrow_format(self) -> &'static str {
        match self {
            Kind::U8 => "C",
            Kind::U16 => "S",
            Kind::U32 => "I",
            Kind::U64 => "L",
            Kind::I8 => "c",
            Kind::I16 => "s",
            Kind::I32 => "i",
            Kind::I64 => "l",
            Kind::F32 => "f",
            Kind::F64 => "g",
            Kind::Bool => "b",
            Kind::Str(_) => "u",
            Kind::Bytes(_) => "z",
        }
    }

    fn parse(text: &str) -> Option<Kind> {
        let sized = |prefix: &str| {
            let size = text.strip_prefix(prefix)?.strip_suffix(']')?.parse().ok()?;
            (1..=MAX_SIZE).contains(&size).then_some(size)
        };
        let number = NUMBERS.iter().find(|(name, _)| *name == text).map(|(_, kind)| *kind);
        number.or_else(|| sized("str[").map(Kind::Str)).or_else(|| sized("bytes[").map(Kind::Bytes))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Str(size) => write!(f, "str[{size}]"),
            Kind::Bytes(size) => write!(f, "bytes[{size}]"),
            kind => {
                f.write_str(NUMBERS.iter().find(|(_, known)| known == kind).map_or("", |n| n.0))
            }
        }
    }
}

/// A column and where it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub kind: Kind,
    /// Bytes from the beginning of the row.
    pub at: usize,
}

impl Column {
    /// The word of the row that contains it, if one does.
    #[inline]
    pub fn word(&self) -> Option<usize> {
        let last = (self.at + self.kind.bytes() - 1) / 8;
        (self.at / 8 == last).then_some(last)
    }

    /// The words of the row in which it lies.
    #[inline]
    pub fn words(&self) -> Range<usize> {
        self.at / 8..(self.at + self.kind.bytes()).div_ceil(8)
    }
}

/// The columns of a table, in the order in which they were declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    columns: Vec<Column>,
    bytes: usize,
}

/// The largest `str` or `bytes`, in bytes.
pub const MAX_SIZE: u16 = 32_768;
/// The longest row, in bytes.
pub const MAX_ROW: usize = 65_536;
const MAX_NAME: usize = 64;

impl Schema {
    /// Errors: no column, an invalid or repeated name, a size beyond the limit.
    pub fn new<'a>(columns: impl IntoIterator<Item = (&'a str, Kind)>) -> Result<Schema, Error> {
        let columns = columns.into_iter();
        let mut columns: Vec<_> =
            columns.map(|(name, kind)| Column { name: name.to_owned(), kind, at: 0 }).collect();
        let mut names = HashSet::new();
        for Column { name, kind, .. } in &columns {
            let mut letters = name.chars();
            let first = letters.next().is_some_and(|c| c.is_alphabetic() || c == '_');
            if !first || !letters.all(|c| c.is_alphanumeric() || c == '_') || name.len() > MAX_NAME
            {
                return Err(Error::Invalid(format!("{name:?} is not a valid name for a column")));
            }
            if !names.insert(name.clone()) {
                return Err(Error::Invalid(format!("column {name} is declared twice")));
            }
            if matches!(kind, Kind::Str(size) | Kind::Bytes(size) if !(1..=MAX_SIZE).contains(size))
            {
                return Err(Error::Invalid(format!(
                    "column {name}: a size is 1 to {MAX_SIZE} bytes"
                )));
            }
        }
        if columns.is_empty() {
            return Err(Error::Invalid("a row has at least one column".to_owned()));
        }
        let mut order: Vec<_> = (0..columns.len()).collect();
        order.sort_by_key(|n| match columns[*n].kind {
            kind if kind.is_sized() => 9,
            kind => 8 - kind.bytes(),
        });
        let mut bytes = 0;
        for n in order {
            columns[n].at = bytes;
            bytes += columns[n].kind.bytes();
        }
        if bytes > MAX_ROW {
            return Err(Error::Invalid(format!("a row of {bytes} bytes; the limit is {MAX_ROW}")));
        }
        Ok(Schema { columns, bytes })
    }

    /// The schema of a text, as its `Display` writes it.
    pub fn parse(text: &str) -> Result<Schema, Error> {
        let columns = text.split(", ").map(|column| {
            let (name, kind) = column.split_once(": ")?;
            Some((name, Kind::parse(kind)?))
        });
        let columns: Option<Vec<_>> = columns.collect();
        Schema::new(columns.ok_or_else(|| Error::Invalid(format!("{text:?} is not a schema")))?)
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// Bytes of a row.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Words of a row.
    pub fn words(&self) -> usize {
        self.bytes.div_ceil(8)
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, Column { name, kind, .. }) in self.columns.iter().enumerate() {
            let comma = if n > 0 { ", " } else { "" };
            write!(f, "{comma}{name}: {kind}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::layout::schema::*;

    #[test]
    fn a_schema_is_read_back_and_numbers_do_not_cross_words() {
        let text =
            "app_id: U32, background: bool, token: str[32], score: F64, small: I16, raw: bytes[5]";
        let schema = Schema::parse(text).unwrap();
        assert_eq!(schema.to_string(), text);
        assert_eq!(schema.bytes(), 4 + 1 + 34 + 8 + 2 + 7);
        assert_eq!(schema.words(), 7);
        for column in schema.columns().iter().filter(|column| !column.kind.is_sized()) {
            assert_eq!(column.at % column.kind.bytes(), 0, "{column:?}");
            assert!(column.word().is_some());
        }
        assert_eq!(schema.column("score").unwrap().at, 0);
        assert_eq!(schema.column("token").unwrap().word(), None);
        let taken: HashSet<_> =
            schema.columns().iter().flat_map(|c| c.at..c.at + c.kind.bytes()).collect();
        assert_eq!(taken.len(), schema.bytes());
    }

    #[test]
    fn an_invalid_schema_is_refused() {
        for text in [
            "",
            "a",
            "a: U9",
            "a: U8, a: U8",
            "1: U8",
            "a b: U8",
            "a: str[0]",
            "a: str[x]",
            "a: bytes[32769]",
            "a: U8,b: U8",
            "a: str[30000], b: str[30000], c: str[30000]",
        ] {
            assert!(matches!(Schema::parse(text), Err(Error::Invalid(_))), "{text}");
        }
    }
}
