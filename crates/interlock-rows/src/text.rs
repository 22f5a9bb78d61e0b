//! Values of columns as clients write and read them: text, as in a hash.

use std::borrow::Cow;

use interlock_table::{By, Column, Error, Form, Value};

use crate::refusal::Refusal;
use crate::write::Writer;

/// Parses a column's value. The value has the column's type if it fits; [`fits`] checks that.
#[inline]
pub fn given<'a>(column: &Column, text: &'a [u8]) -> Result<Value<'a>, Refusal> {
    match column.kind.form() {
        Form::Bytes => Ok(Value::Bytes(Cow::Borrowed(text))),
        Form::Str => match std::str::from_utf8(text) {
            Ok(text) => Ok(Value::Str(Cow::Borrowed(text))),
            Err(_) => Err(Refusal::wrong(column, "text in UTF-8")),
        },
        Form::Bool => match text {
            b"0" => Ok(Value::Bool(false)),
            b"1" => Ok(Value::Bool(true)),
            _ => Err(Refusal::wrong(column, "0 or 1")),
        },
        Form::Float => match float(text) {
            Some(number) if !column.kind.is_narrow() => Ok(Value::Float(number)),
            Some(number) => {
                let narrow = f64::from(number as f32);
                let is_beyond = narrow.is_infinite() && number.is_finite();
                Ok(Value::Float(if is_beyond { number } else { narrow }))
            }
            None => Err(Refusal::wrong(column, "a number")),
        },
        Form::Unsigned => match few_digits(text) {
            Some(number) => Ok(Value::Unsigned(number)),
            None => number(column, text),
        },
        Form::Signed => match few_digits(text) {
            Some(number) => Ok(Value::Signed(number as i64)),
            None => number(column, text),
        },
    }
}

/// Parses the value of an integer column.
#[cold]
fn number<'a>(column: &Column, text: &[u8]) -> Result<Value<'a>, Refusal> {
    let (least, most) = column.range().unwrap_or_default();
    let signed = |number: i128| i64::try_from(number).map(Value::Signed).ok();
    let unsigned = |number: i128| u64::try_from(number).map(Value::Unsigned).ok();
    let value = whole(text).and_then(|number| match least {
        0 => unsigned(number).or_else(|| signed(number)),
        _ => signed(number).or_else(|| unsigned(number)),
    });
    value.ok_or_else(|| Refusal::wrong(column, &format!("a whole number from {least} to {most}")))
}

/// Parses an unsigned number of at most 18 digits, the usual case. `None`: anything else.
#[inline]
fn few_digits(text: &[u8]) -> Option<u64> {
    match text {
        [digit @ b'0'..=b'9'] => return Some(u64::from(digit - b'0')),
        [b'1'..=b'9', ..] if text.len() <= 18 => {}
        _ => return None,
    }
    text.iter().try_fold(0, |number, &digit| {
        digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0'))
    })
}

/// Parses a number as Redis does: no sign but a minus, no leading zero, no spaces.
#[inline]
pub fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    digits.iter().try_fold(0i64, |value, &digit| {
        let digit = i64::from(digit.is_ascii_digit().then(|| digit - b'0')?);
        let value = value.checked_mul(10)?;
        if negative {
            value.checked_sub(digit)
        } else {
            value.checked_add(digit)
        }
    })
}

/// Parses the amount by which a column is raised.
#[inline]
pub fn increment(column: &Column, text: &[u8]) -> Result<By, Refusal> {
    match column.kind.form() {
        Form::Float => match float(text) {
            Some(by) => Ok(By::Float(by)),
            None => Err("ERR value is not a valid float".into()),
        },
        Form::Bool | Form::Str | Form::Bytes => Err(Refusal::wrong(column, "no increment")),
        Form::Unsigned | Form::Signed => {
            match few_digits(text).map(i128::from).or_else(|| whole(text)) {
                Some(by) => Ok(By::Integer(by)),
                None => Err("ERR value is not an integer or out of range".into()),
            }
        }
    }
}

/// Parses a decimal integer in its canonical form: no plus, no leading zeros.
#[inline]
fn whole(text: &[u8]) -> Option<i128> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let plain = match digits {
        [b'0'] => digits.len() == text.len(),
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    // If the number has more digits than an `i128` can hold, only its sign matters.
    let text = std::str::from_utf8(text).ok().filter(|_| plain)?;
    Some(text.parse().unwrap_or(if digits.len() < text.len() { i128::MIN } else { i128::MAX }))
}

#[inline]
fn float(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Checks whether a value fits its column. Errors: it does not.
#[inline]
pub fn fits(column: &Column, value: &Value<'_>) -> Result<(), Error> {
    match (column.kind.form(), value) {
        (Form::Str, Value::Str(text)) => column.check_size(text.len()),
        (Form::Bytes, Value::Bytes(bytes)) => column.check_size(bytes.len()),
        _ => column.encode(value).map(|_| ()),
    }
}

/// Returns whether two values of a column are equal, bit for bit.
#[inline]
pub fn same(one: &Value<'_>, other: &Value<'_>) -> bool {
    match (one, other) {
        (Value::Float(one), Value::Float(other)) => one.to_bits() == other.to_bits(),
        _ => one == other,
    }
}

#[inline]
pub fn owned(value: Value<'_>) -> Value<'static> {
    match value {
        Value::Unsigned(number) => Value::Unsigned(number),
        Value::Signed(number) => Value::Signed(number),
        Value::Float(number) => Value::Float(number),
        Value::Bool(truth) => Value::Bool(truth),
        Value::Str(text) => Value::Str(text.into_owned().into()),
        Value::Bytes(bytes) => Value::Bytes(bytes.into_owned().into()),
    }
}

/// Writes a value.
#[inline]
pub fn put(reply: &mut Writer<'_>, value: &Value<'_>) {
    match value {
        Value::Str(text) => reply.bulk(text.as_bytes()),
        Value::Bytes(bytes) => reply.bulk(bytes),
        Value::Signed(number) => reply.bulk_number(*number),
        Value::Unsigned(number) if *number <= i64::MAX as u64 => {
            reply.bulk_number(*number as i64);
        }
        Value::Bool(truth) => reply.bulk_number((*truth).into()),
        value => reply.bulk(text(value).as_bytes()),
    }
}

/// Formats a value as clients read it.
#[inline]
pub fn text(value: &Value) -> String {
    match value {
        Value::Unsigned(number) => number.to_string(),
        Value::Signed(number) => number.to_string(),
        Value::Bool(truth) => u8::from(*truth).to_string(),
        // The shortest text that parses to the same number.
        Value::Float(number) if number.is_nan() => "nan".into(),
        Value::Float(number) => {
            // Without an exponent in the range in which Redis prints none.
            let plain = *number == 0.0 || (1e-17..1e21).contains(&number.abs());
            let text = if plain { number.to_string() } else { format!("{number:?}") };
            text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
        }
        Value::Str(text) => text.to_string(),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use interlock_table::Schema;

    #[test]
    fn a_number_has_the_form_of_redis_and_no_other() {
        for (text, number) in [("0", 0), ("-1", -1), ("18446744073709551615", u64::MAX.into())] {
            assert_eq!(whole(text.as_bytes()), Some(number));
        }
        assert_eq!(whole("9".repeat(60).as_bytes()), Some(i128::MAX));
        assert_eq!(whole(format!("-{}", "9".repeat(60)).as_bytes()), Some(i128::MIN));
        for text in ["", "-", "-0", "01", "+1", " 1", "1 ", "1.0", "0x1", "\u{ff11}", "1_0"] {
            assert_eq!(whole(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn a_float_survives_formatting_and_parsing() {
        let random = fastrand::Rng::with_seed(3);
        let mut random = random;
        for _ in 0..100_000 {
            let number = f64::from_bits(random.u64(..));
            let shown = text(&Value::Float(number));
            let read = float(shown.as_bytes()).unwrap();
            assert!(read.to_bits() == number.to_bits() || read.is_nan() && number.is_nan());
        }
        assert_eq!(text(&Value::Float(2.0)), "2");
        assert_eq!(text(&Value::Float(f64::INFINITY)), "inf");
    }

    #[test]
    fn any_text_is_a_value_or_refused() {
        let schema =
            Schema::parse("a: U64, b: I8, c: F32, d: bool, e: str[4], f: bytes[4]").unwrap();
        let mut random = fastrand::Rng::with_seed(4);
        for _ in 0..100_000 {
            let text: Vec<u8> =
                (0..random.usize(0..6)).map(|_| b"019-.einfa\xff"[random.usize(0..11)]).collect();
            for column in schema.columns() {
                let mut words = vec![0; schema.words()];
                match given(column, &text) {
                    // The table refuses a number or text that does not fit.
                    Ok(value) => drop(column.write(&mut words, &value)),
                    Err(Refusal(why)) => assert!(why.starts_with(b"WRONGTYPE column ")),
                }
                let _ = increment(column, &text);
            }
        }
    }

    #[test]
    fn numbers_are_read_as_redis_reads_them() {
        for (text, number) in [
            ("0", Some(0)),
            ("-7", Some(-7)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("+1", None),
            ("01", None),
            ("1 ", None),
        ] {
            assert_eq!(integer(text.as_bytes()), number, "{text}");
        }
    }
}
