//! The settings of a store, as the configuration has them.

use interlock_stores::file::{Fsync, Retention, Rotation};
use interlock_stores::Template;

#[derive(Clone, Debug, PartialEq)]
pub struct StoreSettings {
    pub name: String,
    /// Globs of the topics it keeps, and of those among them that it does not.
    pub topics: Vec<Vec<u8>>,
    pub exclude: Vec<Vec<u8>>,
    /// Bytes that may wait to be written.
    pub queue: usize,
    pub full: Full,
    pub acknowledges: Acknowledgement,
    pub kind: StoreKind,
}

/// The rule for a message that finds no room in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Its publisher waits.
    Wait,
    /// It is left out, and counted.
    Drop,
}

/// The moment at which a publisher is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledgement {
    /// At once.
    None,
    /// Once it is in the queue.
    Memory,
    /// Once it is on disk.
    Disk,
}

#[derive(Clone, Debug, PartialEq)]
pub enum StoreKind {
    File(FileSettings),
    /// Counts, and keeps nothing.
    Null,
}

#[derive(Clone, Debug, PartialEq)]
pub struct FileSettings {
    pub template: Template,
    pub fsync: Fsync,
    pub rotation: Rotation,
    pub retention: Retention,
    /// The level of zstd for closed files; `None`: they stay as they are.
    pub compression: Option<i32>,
}

impl StoreKind {
    pub fn name(&self) -> &'static str {
        match self {
            StoreKind::File(_) => "file",
            StoreKind::Null => "null",
        }
    }
}

impl Acknowledgement {
    pub fn name(self) -> &'static str {
        match self {
            Acknowledgement::None => "none",
            Acknowledgement::Memory => "memory",
            Acknowledgement::Disk => "disk",
        }
    }
}
