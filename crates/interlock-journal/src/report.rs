//! The findings of a recovery, as numbers and in words for a log.

use std::fmt;
use std::io;
use std::time::Duration;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    pub snapshot: Option<SnapshotFound>,
    /// Segments read.
    pub segments: u64,
    /// Bytes read, of segments and of the snapshot.
    pub bytes: u64,
    /// Records replayed, and those that the snapshot had in it already.
    pub replayed: u64,
    pub covered: u64,
    /// Sequence of the last record; 0: there never was one.
    pub last: u64,
    /// The latest time of any record, µs since 1970; 0: none was found.
    pub time: u64,
    pub torn: Option<Torn>,
    pub aside: Option<Aside>,
    pub elapsed: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotFound {
    pub file: String,
    pub queues: u32,
    pub bytes: u64,
}

/// A tail that was being written when the machine stopped. Nothing of it was ever called durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    pub file: String,
    /// The place where it was cut, and the number of bytes that went.
    pub offset: u64,
    pub bytes: u64,
    /// Sequence of the first record that went.
    pub first: u64,
    /// Whole records behind the first one, which went with it.
    pub whole: u64,
    /// Sequence of the last one of these, or `first`.
    pub last: u64,
}

/// The data that is lost, or would be: it was on disk, and cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub file: String,
    pub offset: u64,
    pub why: String,
    /// Sequence of the first record that cannot be replayed.
    pub first: u64,
    /// Whole records behind it, as far as was looked, and the sequence of the last one.
    pub whole: u64,
    pub last: u64,
    /// The last record that there was when the journal was closed, if that is known.
    pub closed: Option<u64>,
}

/// The files that an operator had set aside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aside {
    pub why: String,
    /// New names of the files.
    pub files: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { segments, bytes, replayed, covered, last, elapsed, .. } = self;
        match &self.snapshot {
            Some(SnapshotFound { file, queues, bytes }) => {
                writeln!(f, "snapshot {file}: {queues} queues, {bytes} bytes")?;
            }
            None => writeln!(f, "no snapshot")?,
        }
        write!(f, "{segments} segments, {bytes} bytes read in {:.3} s: ", elapsed.as_secs_f64())?;
        write!(
            f,
            "{replayed} records replayed, {covered} were in the snapshot; the last is {last}"
        )?;
        if let Some(torn) = &self.torn {
            write!(f, "\n{torn}")?;
        }
        if let Some(Aside { why, files }) = &self.aside {
            let files = if files.is_empty() { "nothing".into() } else { files.join(", ") };
            write!(f, "\nset aside: {files}\n{why}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Torn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Torn { file, offset, bytes, first, whole, last } = self;
        write!(f, "torn tail cut: {file} at byte {offset}, {bytes} bytes; ")?;
        if *whole == 0 {
            write!(f, "record {first} was incomplete")?;
        } else {
            write!(
                f,
                "record {first} was incomplete, and {whole} complete ones up to {last} were cut \
                 with it"
            )?;
        }
        write!(f, "; none of it is known to have been confirmed on disk")
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { file, offset, why, first, whole, last, closed } = self;
        write!(f, "{file} is damaged at byte {offset}: {why}. ")?;
        match closed {
            Some(closed) => write!(f, "Records from {first} to {closed} cannot be replayed")?,
            None => write!(f, "Records from {first} on cannot be replayed")?,
        }
        if *whole > 0 {
            write!(f, "; {whole} complete ones follow, up to {last}")?;
        }
        match closed {
            Some(_) => write!(f, ", although all of them were present when it was stopped"),
            None if *last == 0 => write!(f, ", if there were any"),
            None => write!(f, ", though they were on disk"),
        }
    }
}

/// The reason why a journal was not opened. Nothing was changed.
#[derive(Debug)]
pub enum OpenError {
    /// Another process has it open.
    Locked(String),
    Disk {
        doing: String,
        error: io::Error,
    },
    /// A file that this version does not know.
    Unknown {
        file: String,
        why: String,
    },
    Damaged(Damage),
    /// A segment whose records cannot be replayed as they were meant.
    Rules {
        file: String,
        version: u32,
        known: String,
    },
    /// A record of the journal is not a call, or not of this queue.
    Replay {
        file: String,
        sequence: u64,
        why: String,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Locked(folder) => {
                write!(f, "the journal is open in another process, which holds the folder {folder}")
            }
            OpenError::Disk { doing, error } => {
                write!(f, "{doing}: {error}")?;
                match error.kind() {
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                        write!(f, "; opening a journal requires write permission in its folder")
                    }
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                        write!(f, "; free some space and start again: the journal was not changed")
                    }
                    _ => Ok(()),
                }
            }
            OpenError::Unknown { file, why } => {
                write!(f, "{file} belongs to no journal that this version knows: {why}; {HELP}")
            }
            OpenError::Damaged(damage) => write!(f, "{damage}; {HELP}"),
            OpenError::Rules { file, version, known } => {
                write!(
                    f,
                    "{file} was written by version {version} of the rules; allowed: {known}; "
                )?;
                write!(f, "start the version of Interlock that wrote it, or a later one")
            }
            OpenError::Replay { file, sequence, why } => {
                write!(f, "{file}: record {sequence} cannot be replayed: {why}; ")?;
                write!(f, "start the version that wrote it, or restore the folder from a copy")
            }
        }
    }
}

impl OpenError {
    /// Returns what is wrong, without what to do.
    pub(crate) fn reason(&self) -> String {
        match self {
            OpenError::Damaged(damage) => damage.to_string(),
            OpenError::Unknown { file, why } => format!("{file}: {why}"),
            error => error.to_string(),
        }
    }
}

const HELP: &str = "restore the folder from a copy, or start with the repair, which sets \
                    unreadable parts aside and continues with the records before them";

impl std::error::Error for OpenError {}
