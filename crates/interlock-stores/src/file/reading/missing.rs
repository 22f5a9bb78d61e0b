//! Messages that were stored and cannot be read any more: where they were, and how many.

use crate::message::{Position, Stored};

/// The next finding of a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Message(Stored),
    Missing(Missing),
}

/// Messages that follow each other and cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The first and the last possible position of these messages.
    pub from: Position,
    pub to: Position,
    /// Their number; 0 if it is unknown. In a file that several topics share, it counts the messages of all.
    pub messages: u64,
    /// The file that is missing or damaged.
    pub file: String,
    pub why: &'static str,
}

/// The reasons.
pub const DATA_GONE: &str = "the data file is gone";
pub const CHANGED: &str = "the data does not match its checksum";
pub const NO_RECORDS: &str = "records of the index cannot be read, or are gone";
pub const FILES_GONE: &str = "files before it are gone, or their indexes";
pub const OLDER_GONE: &str = "older files are gone";
pub const BEGUN_ANEW: &str = "the files were removed and replaced by new ones";

impl Missing {
    /// Merges the gap after it.
    pub fn extend(&mut self, next: &Missing) {
        self.to = self.to.max(next.to);
        self.messages = match (self.messages, next.messages) {
            (0, _) | (_, 0) => 0,
            (one, other) => one + other,
        };
    }

    /// Merges the gap before it.
    pub fn extend_back(&mut self, before: &Missing) {
        let to = self.to;
        self.extend(before);
        (self.from, self.to) = (self.from.min(before.from), to);
    }
}
