//! The disk as a journal needs it: a folder of files, and no more than can be said of any.
//!
//! What decides is kept apart from what touches the world, so that a test can put a disk here that
//! loses what was not synced, tears writes, is full, or fails.

use std::io;

pub mod disk;
#[cfg(feature = "simulated")]
pub mod simulated;

/// The way the length of a new file is made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Zeroes are written: a sync of what is written over them need not note where it lies.
    Written,
    /// The room is reserved, and reads as zeroes.
    Reserved,
}

/// A folder of files. Names have no separators in them.
pub trait Storage: Send + Sync + 'static {
    type File: File;
    /// Kept while the journal is open.
    type Lock: Send + Sync;

    /// Locks the folder for this process; `None`: another process has it.
    fn lock(&self) -> io::Result<Option<Self::Lock>>;

    /// Creates a file of this length, all zero, and on disk; an existing one is replaced. Without
    /// room the error is [`io::ErrorKind::StorageFull`] or `QuotaExceeded`, and nothing remains.
    fn create(&self, name: &str, length: u64, fill: Fill) -> io::Result<Self::File>;

    fn open(&self, name: &str) -> io::Result<Self::File>;

    fn names(&self) -> io::Result<Vec<String>>;

    /// Renames, replacing what has the new name; when it returns, that is on disk.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    fn remove(&self, name: &str) -> io::Result<()>;

    /// Returns whether a file that was made or opened here still has this name: what is written to
    /// one that was removed is found by nobody.
    fn holds(&self, name: &str, file: &Self::File) -> bool;

    /// A file's name as an operator would know it.
    fn describe(&self, name: &str) -> String;
}

/// A file, which may be used by several threads.
pub trait File: Send + Sync + 'static {
    fn length(&self) -> io::Result<u64>;

    /// Reads what is there, up to the length of `buffer`.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes all of it, or fails with any part of it written. Nothing of it need be on disk.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// All that was written before is on disk when this returns. After an error nothing is known of it.
    fn sync(&self) -> io::Result<()>;

    /// Cuts the file; when it returns, that is on disk.
    fn truncate(&self, length: u64) -> io::Result<()>;
}

/// The whole of a file, in the place of what is in `bytes`, whose memory is used again.
pub fn read_all(file: &impl File, bytes: &mut Vec<u8>) -> io::Result<()> {
    let length = usize::try_from(file.length()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
    bytes.resize(length, 0);
    let mut at = 0;
    while at < length {
        match file.read(at as u64, &mut bytes[at..])? {
            0 => break,
            read => at += read,
        }
    }
    bytes.truncate(at);
    Ok(())
}

/// Returns whether an error means a lack of room.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Returns whether a file that could not be made may be made later, without repair: there is no
/// room, or the process has no descriptor or memory left, as when too many have connected.
pub fn may_pass(error: &io::Error) -> bool {
    let short = [libc::EMFILE, libc::ENFILE, libc::ENOMEM];
    is_full(error) || error.raw_os_error().is_some_and(|code| short.contains(&code))
}
