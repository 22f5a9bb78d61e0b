//! Error replies.

use interlock_table::{Column, Error, Schema};

/// The text of an error reply, its code first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub Vec<u8>);

impl Refusal {
    /// The text is not a value of this column.
    pub fn wrong(column: &Column, allowed: &str) -> Refusal {
        format!("WRONGTYPE column {} is {}; allowed: {allowed}", column.name, column.kind).into()
    }

    /// The schema has no column of this name.
    #[cold]
    pub fn no_column(schema: &Schema, name: &[u8]) -> Refusal {
        let names: Vec<_> = schema.columns().iter().map(|column| column.name.as_str()).collect();
        let there = format!("'; there are {}", names.join(", "));
        Refusal([b"NOCOLUMN there is no column '", name, there.as_bytes()].concat())
    }

    /// Too few or too many arguments; `name` is the command's name in lower case.
    pub fn wrong_count(name: &str) -> Refusal {
        format!("ERR wrong number of arguments for '{name}' command").into()
    }

    pub fn no_integer() -> Refusal {
        "ERR value is not an integer or out of range".into()
    }

    /// A sum is beyond the column's range.
    pub fn beyond() -> Refusal {
        "ERR increment or decrement would overflow".into()
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        let code = match error {
            Error::RowBusy { .. } | Error::TooManyWriters { .. } => "TRYAGAIN",
            Error::TableFull => "TABLEFULL",
            Error::Kept { .. } => "KEPT",
            Error::Value { .. } => "WRONGTYPE",
            Error::Overflow { .. } => return Refusal::beyond(),
            _ => "ERR",
        };
        format!("{code} {error}").into()
    }
}

impl From<String> for Refusal {
    fn from(text: String) -> Refusal {
        Refusal(text.into_bytes())
    }
}

impl From<&str> for Refusal {
    fn from(text: &str) -> Refusal {
        Refusal(text.into())
    }
}
