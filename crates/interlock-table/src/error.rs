//! Errors, and their messages.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub enum Error {
    /// A row, or the right to insert one, was held by a writer that is alive but stuck.
    RowBusy {
        pid: u32,
    },
    /// No slot for the key, and nothing may be overwritten.
    TableFull,
    /// More rows than a table of this capacity holds: it was not resized.
    TooSmall {
        rows: u64,
        capacity: u64,
    },
    /// The table was resized under a call, which continues in the new one: no call returns it.
    Moved,
    /// A long call was asked to give up.
    Interrupted,
    /// As many threads write as there are places for them.
    TooManyWriters {
        places: u64,
    },
    /// A node of a cluster keeps the table: it alone writes rows.
    Kept {
        path: PathBuf,
    },
    /// Another process that lives keeps it.
    KeptAlready {
        path: PathBuf,
        pid: u32,
    },
    KeyLength {
        length: usize,
        limit: usize,
    },
    /// The table is of another schema; its memory was not touched.
    SchemaMismatch {
        path: PathBuf,
        expected: String,
        found: String,
    },
    /// No table, or one that is cut off or damaged; its memory was not touched.
    NotATable {
        path: PathBuf,
        why: String,
    },
    /// The file has another version of the layout.
    Version {
        path: PathBuf,
        found: u32,
        known: u32,
    },
    /// In use from another pid or time namespace, whose writers cannot be seen from here.
    Namespace {
        path: PathBuf,
        kind: &'static str,
        found: u64,
        own: u64,
    },
    Permissions {
        path: PathBuf,
        why: String,
    },
    /// The memory or the disk has not enough room: nothing was made.
    NoRoom {
        path: PathBuf,
        bytes: u64,
    },
    NoTable {
        path: PathBuf,
    },
    /// A name, schema, size or value that cannot be.
    Invalid(String),
    /// A value that a column cannot hold.
    Value {
        column: String,
        why: String,
    },
    /// A sum beyond what its column can hold; the row is as before.
    Overflow {
        column: String,
    },
    Io {
        path: PathBuf,
        doing: &'static str,
        error: io::Error,
    },
    /// The writer of a model has died.
    #[cfg(loom)]
    Died,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Error::*;
        match self {
            RowBusy { pid } => write!(f, "the row is locked by process {pid}, which is alive but \
                                          makes no progress"),
            TableFull => write!(f, "no slot is free for this key"),
            TooSmall { rows, capacity } => {
                write!(f, "the table holds {rows} rows, more than fit a capacity of {capacity}")
            }
            Moved => f.write_str("the table was resized"),
            Interrupted => f.write_str("given up"),
            TooManyWriters { places } => write!(f, "{places} threads already write to the table"),
            Kept { path } => write!(
                f,
                "the table {} is kept by a node of a cluster: write through a client of a node's hub; \
                 here it can be read",
                name(path)
            ),
            KeptAlready { path, pid } => write!(
                f,
                "the table {} is kept by a node, process {pid}: each node has a table of its own",
                name(path)
            ),
            KeyLength { length: 0, .. } => write!(f, "a key must have at least one byte"),
            KeyLength { length, limit } => {
                write!(f, "a key of {length} bytes; the table takes up to {limit} (key_size)")
            }
            SchemaMismatch { path, expected, found } => write!(
                f,
                "{} has another schema:\n  expected: {expected}\n  found:    {found}",
                path.display()
            ),
            NotATable { path, why } => write!(f, "{} is not a table: {why}", path.display()),
            Version { path, found, known } => write!(
                f,
                "{} has version {found} of the layout; this program knows {known}",
                path.display()
            ),
            Namespace { path, kind, found, own } => write!(
                f,
                "{} is in use from {kind} namespace {found}; this process is in {own}, which \
                 cannot distinguish its writers from dead ones",
                path.display()
            ),
            Permissions { path, why } => write!(f, "{}: {why}", path.display()),
            NoRoom { path, bytes } => {
                write!(f, "no room for the {bytes} bytes of {}", path.display())?;
                match path.starts_with("/dev/shm") {
                    true => f.write_str(
                        ": `df -h /dev/shm` shows its size, `mount -o remount,size=8G /dev/shm` \
                         enlarges it, in a container --shm-size",
                    ),
                    false => Ok(()),
                }
            }
            NoTable { path } => write!(f, "there is no table {}", path.display()),
            Invalid(why) => f.write_str(why),
            Value { column, why } => write!(f, "column {column}: {why}"),
            Overflow { column } => write!(f, "column {column}: the sum is beyond its range"),
            Io { path, doing, error } => write!(f, "{doing} {}: {error}", path.display()),
            #[cfg(loom)]
            Died => f.write_str("died"),
        }
    }
}

/// The name of a table, as its users know it.
fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match name.strip_prefix(PREFIX) {
        Some(name) if path.starts_with("/dev/shm") => name.to_owned(),
        _ => path.display().to_string(),
    }
}

/// Prefix of names in /dev/shm, which identifies our files there.
pub const PREFIX: &str = "interlock.";

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}
