//! The settings of a store, as the configuration has them.

use std::fmt;
use std::path::PathBuf;

use interlock_stores::file::{Fsync, Retention, Rotation};
use interlock_stores::network;
use interlock_stores::Template;

/// A store with a queue and a thread of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreSettings {
    pub name: String,
    /// The word of its kind, as it was declared.
    pub word: String,
    /// The store keeps topics that match any of these.
    pub filters: Vec<Filter>,
    /// Bytes that may wait to be written.
    pub queue: usize,
    pub full: Full,
    pub acknowledges: Acknowledgement,
    pub kind: StoreKind,
}

/// Globs of topics that are taken, and of those among them that are not.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    pub topics: Vec<Vec<u8>>,
    pub exclude: Vec<Vec<u8>>,
}

/// The rule for a message that finds no room in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Its publisher waits.
    Wait,
    /// The message is dropped and counted.
    Drop,
}

/// The moment at which a publisher is answered: each is later than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Acknowledgement {
    /// At once.
    None,
    /// Once it is in the queue.
    Memory,
    /// Once it is on disk.
    Disk,
    /// Once it is delivered, and the server there has said so.
    Upstream,
}

#[derive(Clone, Debug, PartialEq)]
pub enum StoreKind {
    File(FileSettings),
    /// Counts, and keeps nothing.
    Null,
    Network(NetworkSettings),
    /// The first of these that works.
    Priority(Vec<Child>),
    /// Each of these.
    Multiple(Vec<Child>),
    /// A spool before another: what that one cannot take waits there.
    Spool(SpoolSettings, Box<Child>),
}

/// A store that has no queue of its own: another one puts messages there.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    pub name: String,
    pub kind: StoreKind,
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

#[derive(Clone, Debug, PartialEq)]
pub struct SpoolSettings {
    pub folder: PathBuf,
    /// Most bytes that wait in it.
    pub bytes: u64,
    pub fsync: Fsync,
}

/// A server that messages are sent to.
#[derive(Clone)]
pub struct NetworkSettings {
    /// The spool's owner sets its sender.
    pub upstream: network::Settings,
    /// Its address as it is shown, without a password.
    pub shown: String,
    /// All that was declared of it.
    pub declared: String,
}

impl PartialEq for NetworkSettings {
    fn eq(&self, other: &Self) -> bool {
        self.declared == other.declared
    }
}

impl fmt::Debug for NetworkSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NetworkSettings").field(&self.upstream).finish()
    }
}

impl StoreSettings {
    /// Returns the address of each server that messages are sent to.
    pub fn upstreams(&self) -> Vec<&str> {
        let mut found = Vec::new();
        self.kind.each(&mut |kind| {
            if let StoreKind::Network(network) = kind {
                found.push(&*network.shown);
            }
        });
        found
    }
}

impl StoreKind {
    /// Calls `take` with this store and all below it.
    pub fn each<'a>(&'a self, take: &mut impl FnMut(&'a StoreKind)) {
        take(self);
        match self {
            StoreKind::Priority(children) | StoreKind::Multiple(children) => {
                children.iter().for_each(|child| child.kind.each(take));
            }
            StoreKind::Spool(_, child) => child.kind.each(take),
            StoreKind::File(_) | StoreKind::Null | StoreKind::Network(_) => {}
        }
    }

    /// Returns the files that everything lands in, with the name of their store.
    pub fn files<'a>(&'a self, name: &'a str) -> Option<(&'a str, &'a FileSettings)> {
        match self {
            StoreKind::File(file) => Some((name, file)),
            StoreKind::Spool(_, child) => child.kind.files(&child.name),
            StoreKind::Multiple(children) => {
                children.iter().find_map(|child| child.kind.files(&child.name))
            }
            // Some of it lands elsewhere.
            StoreKind::Priority(_) | StoreKind::Null | StoreKind::Network(_) => None,
        }
    }
}

impl Acknowledgement {
    pub fn name(self) -> &'static str {
        match self {
            Acknowledgement::None => "none",
            Acknowledgement::Memory => "memory",
            Acknowledgement::Disk => "disk",
            Acknowledgement::Upstream => "upstream",
        }
    }
}
