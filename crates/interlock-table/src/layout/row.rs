//! Rows and values: what is in the words.

use std::borrow::Cow;
use std::sync::Arc;

use crate::error::Error;
use crate::layout::hash::word;
use crate::layout::schema::{Column, Form, Kind, Schema};

/// The value of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    Str(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
}

/// A row outside the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    schema: Arc<Schema>,
    words: Vec<u64>,
}

impl Row {
    /// Zeroes, and nothing in what has a size.
    pub fn new(schema: &Arc<Schema>) -> Row {
        Row { schema: schema.clone(), words: vec![0; schema.words()] }
    }

    pub fn words(&self) -> &[u64] {
        &self.words
    }

    pub fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }

    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Returns `None` if the column does not exist.
    pub fn get(&self, name: &str) -> Option<Value<'static>> {
        Some(self.schema.column(name)?.read(&self.words))
    }

    /// Errors: no such column, or a value that it cannot hold.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<(), Error> {
        let column = self.schema.column(name);
        let column = column.ok_or_else(|| Error::Invalid(format!("there is no column {name}")))?;
        column.write(&mut self.words, value)
    }

    /// Like `set`, but returns the row.
    pub fn with(mut self, name: &str, value: &Value) -> Result<Row, Error> {
        self.set(name, value)?;
        Ok(self)
    }
}

impl Schema {
    /// Calls with the bytes in which a row lies.
    #[inline]
    pub fn with_bytes<R>(&self, words: &[u64], call: impl FnOnce(&[u8]) -> R) -> R {
        with_all_bytes(words, |all| call(&all[..self.bytes()]))
    }

    /// Fills a row's words from its bytes. Errors: a wrong number of bytes, or values that no row
    /// can have.
    pub fn fill(&self, words: &mut [u64], bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() != self.bytes() {
            let why = format!("a row of {} bytes; the table's have {}", bytes.len(), self.bytes());
            return Err(Error::Invalid(why));
        }
        // The bytes are checked, and not the words: those that were just written cannot be read in other parts
        // until all earlier writes are done.
        self.columns().iter().try_for_each(|column| column.check(bytes))?;
        let (eights, rest) = bytes.as_chunks::<8>();
        let (whole, last) = words.split_at_mut(eights.len());
        whole.iter_mut().zip(eights).for_each(|(word, eight)| *word = u64::from_le_bytes(*eight));
        if let Some(last) = last.first_mut() {
            *last = word(rest);
        }
        Ok(())
    }
}

/// Calls with the bytes of words.
#[inline]
fn with_all_bytes<R>(words: &[u64], call: impl FnOnce(&[u8]) -> R) -> R {
    if cfg!(target_endian = "big") {
        let all: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        return call(&all);
    }
    // SAFETY: words are bytes, and on a little-endian machine lie as they are numbered.
    call(unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), words.len() * 8) })
}

/// Calls with the bytes of words, to change them.
#[inline]
fn with_bytes_mut(words: &mut [u64], call: impl FnOnce(&mut [u8])) {
    // Bytes are numbered from the lowest of a word, as a little-endian machine has them.
    words.iter_mut().for_each(|word| *word = word.to_le());
    // SAFETY: words are bytes, and the borrow is the only one.
    call(unsafe {
        std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), words.len() * 8)
    });
    words.iter_mut().for_each(|word| *word = u64::from_le(*word));
}

impl Column {
    /// Reads the column in the words of a row.
    pub fn read(&self, words: &[u64]) -> Value<'static> {
        self.value_of(&words[self.words()])
    }

    /// Like `read`, from only the words that have the column.
    pub fn value_of(&self, words: &[u64]) -> Value<'static> {
        match self.kind {
            Kind::Str(_) => {
                // Only whole strings are written; anything else was put there by another program.
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                Value::Str(self.bytes_of(words, text).into())
            }
            Kind::Bytes(_) => Value::Bytes(self.bytes_of(words, <[u8]>::to_vec).into()),
            _ => self.decode(words[0]),
        }
    }

    /// Calls with the bytes of a column that has a size.
    #[inline]
    pub fn bytes_in<R>(&self, words: &[u64], call: impl FnOnce(&[u8]) -> R) -> R {
        self.bytes_of(&words[self.words()], call)
    }

    /// Like `bytes_in`, from only the words that have the column.
    #[inline]
    pub fn bytes_of<R>(&self, words: &[u64], call: impl FnOnce(&[u8]) -> R) -> R {
        let (at, limit) = (self.at % 8, self.kind.bytes() - 2);
        with_all_bytes(words, |all| {
            let length = usize::from(u16::from_le_bytes([all[at], all[at + 1]]));
            call(&all[at + 2..][..length.min(limit)])
        })
    }

    /// Writes the column in the words of a row; bytes behind what has a size become zero.
    pub fn write(&self, words: &mut [u64], value: &Value) -> Result<(), Error> {
        let bytes: &[u8] = match (self.kind, value) {
            (Kind::Str(_), Value::Str(text)) => text.as_bytes(),
            (Kind::Bytes(_), Value::Bytes(bytes)) => bytes,
            _ => {
                let word = &mut words[self.at / 8];
                *word = self.insert(*word, self.encode(value)?);
                return Ok(());
            }
        };
        self.check_size(bytes.len())?;
        let limit = self.kind.bytes() - 2;
        let (words, at) = (&mut words[self.words()], self.at % 8);
        with_bytes_mut(words, |all| {
            let (length, rest) = all[at..at + 2 + limit].split_at_mut(2);
            length.copy_from_slice(&(bytes.len() as u16).to_le_bytes());
            let (text, rest) = rest.split_at_mut(bytes.len());
            text.copy_from_slice(bytes);
            rest.fill(0);
        });
        Ok(())
    }

    /// Refuses too many bytes, for a column that has a size.
    pub fn check_size(&self, bytes: usize) -> Result<(), Error> {
        match self.kind.bytes() - 2 {
            limit if bytes > limit => {
                Err(self.refuse(format!("{bytes} bytes; its size is {limit}")))
            }
            _ => Ok(()),
        }
    }

    /// The number in its word.
    #[inline]
    pub fn decode(&self, word: u64) -> Value<'static> {
        let bits = word >> (self.at % 8 * 8);
        match self.kind {
            Kind::U8 => Value::Unsigned(bits & 0xFF),
            Kind::U16 => Value::Unsigned(bits & 0xFFFF),
            Kind::U32 => Value::Unsigned(bits & 0xFFFF_FFFF),
            Kind::U64 => Value::Unsigned(bits),
            Kind::I8 => Value::Signed(bits as i8 as i64),
            Kind::I16 => Value::Signed(bits as i16 as i64),
            Kind::I32 => Value::Signed(bits as i32 as i64),
            Kind::I64 => Value::Signed(bits as i64),
            Kind::F32 => Value::Float(f32::from_bits(bits as u32).into()),
            Kind::F64 => Value::Float(f64::from_bits(bits)),
            Kind::Bool => Value::Bool(bits & 0xFF != 0),
            Kind::Str(_) | Kind::Bytes(_) => Value::Unsigned(bits),
        }
    }

    /// The word with `by` added to the column. `None`: it is not an integer, or the sum is out of its range.
    #[inline]
    pub fn add(&self, word: u64, by: i64) -> Option<u64> {
        let shift = self.at % 8 * 8;
        match self.kind.form() {
            Form::Unsigned => {
                let rest = 64 - self.kind.bytes() * 8;
                let sum = (word >> shift << rest >> rest).checked_add_signed(by)?;
                (sum <= u64::MAX >> rest).then(|| self.insert(word, sum))
            }
            Form::Signed => {
                let rest = 64 - self.kind.bytes() * 8;
                let sum = (((word >> shift << rest) as i64) >> rest).checked_add(by)?;
                (sum << rest >> rest == sum).then(|| self.insert(word, sum as u64))
            }
            _ => None,
        }
    }

    /// The word with these bits where the column lies.
    #[inline]
    pub fn insert(&self, word: u64, bits: u64) -> u64 {
        match self.kind.bytes() {
            8 => bits,
            bytes => {
                let (shift, mask) = (self.at % 8 * 8, (1 << (bytes * 8)) - 1);
                word & !(mask << shift) | (bits & mask) << shift
            }
        }
    }

    /// The bits of a number, or why the column cannot hold it.
    #[inline]
    pub fn encode(&self, value: &Value) -> Result<u64, Error> {
        use Kind::{Bool, F32, F64, I16, I32, I64, I8, U16, U32, U64, U8};
        let rest = || 64 - self.kind.bytes() as u32 * 8;
        match (self.kind, value) {
            (U8 | U16 | U32 | U64, Value::Unsigned(value)) if *value <= u64::MAX >> rest() => {
                Ok(*value)
            }
            // A whole number comes as signed from a language that has one kind of it.
            (U8 | U16 | U32 | U64, Value::Signed(value))
                if *value >= 0 && *value as u64 <= u64::MAX >> rest() =>
            {
                Ok(*value as u64)
            }
            (I8 | I16 | I32 | I64, Value::Signed(value)) if value << rest() >> rest() == *value => {
                Ok(*value as u64)
            }
            (Bool, Value::Bool(value)) => Ok(u64::from(*value)),
            (F32, Value::Float(value)) => {
                let narrow = *value as f32;
                if narrow.is_infinite() && value.is_finite() {
                    return Err(self.refuse(format!("{value:?} is beyond its range")));
                }
                Ok(narrow.to_bits().into())
            }
            (F64, Value::Float(value)) => Ok(value.to_bits()),
            _ => self.encode_other(value),
        }
    }

    /// Like `encode`, for a number of another type, or beyond the column's range.
    fn encode_other(&self, value: &Value) -> Result<u64, Error> {
        let number = match value {
            Value::Unsigned(value) => i128::from(*value),
            Value::Signed(value) => i128::from(*value),
            _ => return Err(self.refuse(format!("{value:?} is not of its type"))),
        };
        let Some((least, most)) = self.range() else {
            return Err(self.refuse(format!("{value:?} is not of its type")));
        };
        if number < least || number > most {
            return Err(self.refuse(format!("{number} is not in {least} to {most}")));
        }
        Ok(number as u64)
    }

    /// The least and the greatest integer, of a column of integers.
    #[inline]
    pub fn range(&self) -> Option<(i128, i128)> {
        Some(match self.kind {
            Kind::U8 => (0, u8::MAX.into()),
            Kind::U16 => (0, u16::MAX.into()),
            Kind::U32 => (0, u32::MAX.into()),
            Kind::U64 => (0, u64::MAX.into()),
            Kind::I8 => (i8::MIN.into(), i8::MAX.into()),
            Kind::I16 => (i16::MIN.into(), i16::MAX.into()),
            Kind::I32 => (i32::MIN.into(), i32::MAX.into()),
            Kind::I64 => (i64::MIN.into(), i64::MAX.into()),
            Kind::F32 | Kind::F64 | Kind::Bool | Kind::Str(_) | Kind::Bytes(_) => return None,
        })
    }

    /// Returns why these bytes of a row are nothing that `write` writes. A number is any bytes.
    #[inline]
    fn check(&self, row: &[u8]) -> Result<(), Error> {
        let refused = |why: &str| Err(self.refuse(why.to_owned()));
        let size = match self.kind {
            Kind::Str(size) | Kind::Bytes(size) => usize::from(size),
            Kind::Bool if row[self.at] > 1 => return refused("it is neither true nor false"),
            _ => return Ok(()),
        };
        let (length, content) = row[self.at..self.at + 2 + size].split_at(2);
        let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
        let Some((content, rest)) = content.split_at_checked(length) else {
            return refused("it is longer than its size");
        };
        let (eights, rest) = rest.as_chunks::<8>();
        if eights.iter().any(|eight| *eight != [0; 8]) || rest.iter().any(|byte| *byte != 0) {
            return refused("there is something behind its end");
        }
        // Most texts are ASCII, and to know that takes a fifth of what it takes to check UTF-8.
        let is_text = || content.is_ascii() || std::str::from_utf8(content).is_ok();
        match matches!(self.kind, Kind::Bytes(_)) || is_text() {
            true => Ok(()),
            false => refused("it is not UTF-8"),
        }
    }

    #[cold]
    pub fn refuse(&self, why: String) -> Error {
        Error::Value { column: self.name.clone(), why }
    }
}

#[cfg(test)]
mod tests {
    use crate::layout::row::*;

    #[test]
    fn every_value_is_read_back_and_does_not_affect_others() {
        let text = "a: U8, b: I8, c: U16, d: I16, e: U32, f: I32, g: U64, h: I64, i: F32, j: F64, \
                    k: bool, l: str[5], m: bytes[11]";
        let schema = Arc::new(Schema::parse(text).unwrap());
        let mut row = Row::new(&schema);
        let values = [
            ("a", Value::Unsigned(255)),
            ("b", Value::Signed(-128)),
            ("c", Value::Unsigned(65_535)),
            ("d", Value::Signed(-32_768)),
            ("e", Value::Unsigned(u32::MAX.into())),
            ("f", Value::Signed(i32::MIN.into())),
            ("g", Value::Unsigned(u64::MAX)),
            ("h", Value::Signed(i64::MIN)),
            ("i", Value::Float(1.5)),
            ("j", Value::Float(-0.1)),
            ("k", Value::Bool(true)),
            ("l", Value::Str("häß".into())),
            ("m", Value::Bytes(b"hello\0world".as_slice().into())),
        ];
        for (name, value) in &values {
            row.set(name, value).unwrap();
        }
        for (name, value) in &values {
            assert_eq!(row.get(name).as_ref(), Some(value), "{name}");
        }
        row.set("m", &Value::Bytes(b"x".as_slice().into())).unwrap();
        assert_eq!(row.get("m"), Some(Value::Bytes(b"x".as_slice().into())));
        row.set("m", &Value::Bytes([].as_slice().into())).unwrap();
        for (name, _) in &values[..10] {
            let zero = if "ij".contains(name) { Value::Float(0.0) } else { Value::Unsigned(0) };
            row.set(name, &zero).unwrap();
        }
        row.set("k", &Value::Bool(false)).unwrap();
        row.set("l", &Value::Str("".into())).unwrap();
        assert_eq!(row, Row::new(&schema));
    }

    #[test]
    fn a_value_a_column_cannot_hold_is_refused_and_the_row_unchanged() {
        let schema = Arc::new(Schema::parse("a: U8, b: I8, f: F32, k: bool, l: str[5]").unwrap());
        let mut row = Row::new(&schema).with("l", &Value::Str("abc".into())).unwrap();
        let before = row.clone();
        for (name, value) in [
            ("a", Value::Unsigned(256)),
            ("a", Value::Signed(-1)),
            ("a", Value::Float(1.0)),
            ("a", Value::Bool(true)),
            ("b", Value::Unsigned(128)),
            ("b", Value::Signed(-129)),
            ("f", Value::Float(1e300)),
            ("f", Value::Unsigned(1)),
            ("k", Value::Unsigned(1)),
            ("l", Value::Str("abcdef".into())),
            ("l", Value::Bytes(b"a".as_slice().into())),
            ("l", Value::Unsigned(1)),
        ] {
            let error = row.set(name, &value).unwrap_err();
            assert!(matches!(&error, Error::Value { column, .. } if column == name), "{error}");
        }
        assert!(matches!(row.set("z", &Value::Bool(true)), Err(Error::Invalid(_))));
        assert_eq!(row, before);
    }

    #[test]
    fn a_row_is_filled_from_its_bytes_and_bytes_that_no_row_has_are_refused() {
        for size in 1..=33 {
            let text = format!("a: U16, k: bool, l: str[{size}], m: bytes[{size}]");
            let schema = Arc::new(Schema::parse(&text).unwrap());
            let row = Row::new(&schema)
                .with("a", &Value::Unsigned(0x1234))
                .and_then(|row| row.with("k", &Value::Bool(true)))
                .and_then(|row| row.with("l", &Value::Str("x".repeat(size / 2 + 1).into())))
                .and_then(|row| row.with("m", &Value::Bytes(vec![0xFF; size / 3].into())))
                .unwrap();
            let bytes = schema.with_bytes(row.words(), <[u8]>::to_vec);
            let mut words = vec![u64::MAX; schema.words()];
            schema.fill(&mut words, &bytes).unwrap();
            assert_eq!(words, row.words());
            let (l, m) = (3, 3 + 2 + size);
            let mut wrong = vec![(2, 2), (l, size as u8 + 1), (l + 2, 0xFF), (m, size as u8 + 1)];
            let free = [(l + 2, size / 2 + 1), (m + 2, size / 3)].into_iter();
            wrong.extend(free.flat_map(|(at, used)| (used..size).map(move |n| (at + n, 1))));
            for (at, byte) in wrong {
                let mut given = bytes.clone();
                given[at] = byte;
                let filled = schema.fill(&mut words, &given);
                assert!(matches!(filled, Err(Error::Value { .. })), "{size} {at}");
            }
            for length in [bytes.len() - 1, bytes.len() + 1] {
                let mut given = bytes.clone();
                given.resize(length, 0);
                assert!(matches!(schema.fill(&mut words, &given), Err(Error::Invalid(_))));
            }
        }
    }
}
