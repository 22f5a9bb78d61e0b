//! The disk as stores need it: a folder, with folders in it, and files that grow.
//!
//! Beside that of the journal, which is one folder of files whose length is known before. Files are the
//! same. What decides is kept apart from what touches the world, so that a test can put a disk here that
//! loses what was not synced, tears writes, is full, fails, or is gone.
//!
//! Paths are below the disk's own folder, with `/` between their names; the empty one is that folder.

use std::io;

pub use interlock_journal::storage::{is_full, File};

pub mod folder;
#[cfg(feature = "simulated")]
pub mod simulated;

/// The purpose for which a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    /// To be read and written; it is there.
    Write,
    /// For reading and writing; an existing file is an error.
    Create,
}

/// A name in a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub name: String,
    pub is_folder: bool,
}

pub trait Disk: Clone + Send + Sync + 'static {
    type File: File;
    /// Kept while a store is open.
    type Lock: Send + Sync;

    /// Locks a name for this process, by a file of that name; `None`: another process has it.
    fn lock(&self, path: &str) -> io::Result<Option<Self::Lock>>;

    fn open(&self, path: &str, access: Access) -> io::Result<Self::File>;

    /// Creates a folder and its missing parents. Returns the folders with a new entry, which must be synced.
    fn make_folder(&self, path: &str) -> io::Result<Vec<String>>;

    /// The names in a folder, in no order. Names that are not text are left out.
    fn list(&self, path: &str) -> io::Result<Vec<Entry>>;

    /// Renames within a folder, where the new name is free.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    fn remove(&self, path: &str) -> io::Result<()>;

    /// Removes a folder, if nothing is in it.
    fn remove_folder(&self, path: &str) -> io::Result<()>;

    /// The names in a folder are on disk when this returns.
    fn sync_folder(&self, path: &str) -> io::Result<()>;

    /// Returns whether there is a file of this name.
    fn exists(&self, path: &str) -> io::Result<bool>;

    /// Returns whether a file that was opened here still has this name: what is written to one that was
    /// removed is found by nobody.
    fn holds(&self, path: &str, file: &Self::File) -> bool;

    /// A path as an operator would know it.
    fn describe(&self, path: &str) -> String;
}

/// The folder of a path.
pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(above, _)| above)
}

/// A path out of a folder and a name in it.
pub fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        name.to_owned()
    } else {
        format!("{folder}/{name}")
    }
}

/// Reads all of `buffer`, or what there is up to the end; returns how much that is.
pub fn read_at(file: &impl File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut at = 0;
    while at < buffer.len() {
        match file.read(offset + at as u64, &mut buffer[at..])? {
            0 => break,
            read => at += read,
        }
    }
    Ok(at)
}
