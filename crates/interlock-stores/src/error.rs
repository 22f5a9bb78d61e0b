//! An error of a store: where, what the system said, and what to do.

use std::fmt;
use std::io;

/// The reason why messages were not written, or are not known to be on disk. They stay with the
/// store, which retries on request.
#[derive(Debug)]
pub struct StoreError {
    /// The work that failed, and the path it was about: "writing /var/log/hub/a.log".
    pub doing: String,
    pub error: io::Error,
    /// The thing to do, where the error alone does not tell it.
    pub advice: Option<String>,
}

impl StoreError {
    pub fn new(doing: &str, place: &str, error: io::Error) -> Self {
        StoreError { doing: format!("{doing} {place}"), error, advice: None }
    }

    pub fn advised(doing: &str, place: &str, error: io::Error, advice: &str) -> Self {
        StoreError { advice: Some(advice.into()), ..StoreError::new(doing, place, error) }
    }

    pub fn kind(&self) -> io::ErrorKind {
        self.error.kind()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StoreError { doing, error, advice: told } = self;
        write!(f, "{doing}: {error}; {}", told.as_deref().unwrap_or_else(|| advice(error)))
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Returns what an operator can do.
pub fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space on that disk: waiting messages are kept, and written then"
        }
        io::ErrorKind::NotFound => {
            "a folder is missing: it is created again if permitted, and waiting messages are \
             written then"
        }
        io::ErrorKind::PermissionDenied => {
            "let the user of this process write there: waiting messages are kept, and written \
             then"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "mount that file system for writing: waiting messages are kept, and written then"
        }
        io::ErrorKind::ResourceBusy | io::ErrorKind::WouldBlock => {
            "another process has it: stop that one, or give the stores names or folders of their own"
        }
        io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::AlreadyExists => {
            "move what is in the way of that path: waiting messages are kept, and written then"
        }
        _ if [Some(libc::ELOOP), Some(libc::ENXIO)].contains(&error.raw_os_error()) => {
            "remove it, or put a regular file there: a store follows no links and writes to no \
             pipes"
        }
        _ if [Some(libc::EMFILE), Some(libc::ENFILE)].contains(&error.raw_os_error()) => {
            "allow this process more open files (ulimit -n), or the stores fewer: waiting \
             messages are kept"
        }
        _ => "check that disk: waiting messages are kept, and tried again",
    }
}
