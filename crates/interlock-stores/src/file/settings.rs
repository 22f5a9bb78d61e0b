//! The settings of a file store.

use std::hash::{BuildHasher, Hasher, RandomState};

use crate::template::Template;

/// The moment from which a message is on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// Before [`commit`](super::FileStore::commit) returns.
    Always,
    /// Within about a second; a crash of the process loses nothing.
    #[default]
    EverySecond,
    /// Whenever the system pleases, or a file is closed; a crash of the process loses nothing.
    Never,
}

/// The moments at which a file is closed and the next one begun, beside what the template asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// Most bytes of a file, but for a message that is longer alone.
    pub size: Option<u64>,
    /// Minutes, counted from midnight, so that 60 is each full hour and 1,440 each day.
    pub minutes: Option<u32>,
}

/// The files that are removed, the oldest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Most µs since the last message of a file.
    pub age: Option<u64>,
    /// Most bytes of all files of the store together, indexes among them.
    pub bytes: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct Settings {
    /// The store's name, by which it knows its files again.
    pub name: String,
    pub template: Template,
    pub fsync: Fsync,
    pub rotation: Rotation,
    pub retention: Retention,
    /// The level of zstd at which closed files are compressed; `None`: they are not.
    pub compression: Option<i32>,
    /// Most files that are open at a time, 2 or more: each topic that has files of its own needs two.
    pub descriptors: usize,
    /// Begins the checksums; a random number.
    pub salt: u32,
}

impl Settings {
    pub fn new(name: &str, template: Template) -> Self {
        Settings {
            name: name.into(),
            template,
            fsync: Fsync::default(),
            rotation: Rotation::default(),
            retention: Retention::default(),
            compression: None,
            descriptors: 64,
            salt: RandomState::new().build_hasher().finish() as u32,
        }
    }

    /// Returns which period a time is in: another one asks for another file.
    pub(super) fn period(&self, time: u64) -> (i64, i64) {
        let minute = self.template.zone().seconds(time).div_euclid(60);
        let within = |length: Option<u32>| match length {
            Some(length) => minute.div_euclid(i64::from(length.max(1))),
            None => 0,
        };
        (within(self.template.minutes()), within(self.rotation.minutes))
    }
}
