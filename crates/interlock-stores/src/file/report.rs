//! The findings of a file store when it is opened, as numbers and in words for a log.

use std::fmt;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Files of the store that there are, and bytes of these with their indexes.
    pub files: u64,
    pub bytes: u64,
    pub torn: Vec<Torn>,
    pub damaged: Vec<Damage>,
    /// Files that this store would write to and that have no index: they stay as they are.
    pub unindexed: Vec<String>,
}

/// A tail that was being written when the machine or the process stopped. Nothing says that it was on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    pub file: String,
    /// The place where it was cut, and the number of bytes that went.
    pub offset: u64,
    pub bytes: u64,
    /// Messages of which the index tells, and that were not whole.
    pub messages: u64,
    /// The file that has these bytes now; `None`: it was empty, or had only zeroes.
    pub kept: Option<String>,
}

/// Something that was on disk, and cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub file: String,
    pub why: String,
    /// Messages that cannot be read any more, as far as that is known.
    pub messages: u64,
    /// New names of files that were set aside; if empty, the intact part of the file is read.
    pub aside: Vec<String>,
}

impl Report {
    /// Returns whether everything was as it had been left.
    pub fn is_clean(&self) -> bool {
        self.torn.is_empty() && self.damaged.is_empty() && self.unindexed.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} files, {} bytes", self.files, self.bytes)?;
        for torn in &self.torn {
            write!(f, "\n{torn}")?;
        }
        for damage in &self.damaged {
            write!(f, "\n{damage}")?;
        }
        for file in &self.unindexed {
            write!(f, "\n{file} has no index: it is left unchanged and not read")?;
        }
        Ok(())
    }
}

impl fmt::Display for Torn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Torn { file, offset, bytes, messages, kept } = self;
        write!(f, "torn tail cut: {file} at byte {offset}, {bytes} bytes")?;
        match kept {
            Some(kept) => write!(f, ", which are in {kept} now")?,
            None if *bytes > 0 => write!(f, ", all of them zero")?,
            None => {}
        }
        if *messages > 0 {
            write!(f, "; incomplete messages: {messages}")?;
        }
        write!(f, "; none of it is known to have been confirmed on disk")
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { file, why, messages, aside } = self;
        write!(f, "{file} is damaged: {why}; ")?;
        match messages {
            0 => write!(f, "it is not known how many messages are lost")?,
            1 => write!(f, "1 message is lost")?,
            _ => write!(f, "{messages} messages are lost")?,
        }
        if aside.is_empty() {
            write!(f, "; its intact messages are read")
        } else {
            write!(f, "; set aside: {}", aside.join(", "))
        }
    }
}
