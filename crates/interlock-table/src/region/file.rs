//! The file of a table: who may open it, room for it, its lock, its names.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering::AcqRel, Ordering::Acquire};

use crate::error::Error;
use crate::layout::header::{BadHeader, Header, FIRST, VERSION};

/// An open file, which can be closed while others have it.
pub struct Held(AtomicI32);

impl Held {
    pub fn new(file: File) -> Held {
        Held(AtomicI32::new(file.into_raw_fd()))
    }

    /// Calls with the file. Errors: the call's, and that it was closed.
    pub fn with<R>(&self, call: impl FnOnce(&File) -> io::Result<R>) -> io::Result<R> {
        let fd = self.0.load(Acquire);
        if fd < 0 {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        // SAFETY: the number of a file; it is not closed by this.
        call(&ManuallyDrop::new(unsafe { File::from_raw_fd(fd) }))
    }

    pub fn close(&self) {
        let fd = self.0.swap(-1, AcqRel);
        if fd >= 0 {
            // SAFETY: it was this one's, and is nobody's any more.
            drop(unsafe { File::from_raw_fd(fd) });
        }
    }

    pub fn lock(&self, how: i32) -> io::Result<()> {
        loop {
            // SAFETY: takes no pointer.
            if unsafe { libc::flock(self.0.load(Acquire), how) } == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Returns whether this is the file that a path names.
    pub fn is_at(&self, path: &Path) -> bool {
        let (known, found) = (self.with(File::metadata), fs::symlink_metadata(path));
        matches!((known, found), (Ok(known), Ok(found))
            if (found.dev(), found.ino()) == (known.dev(), known.ino()))
    }

    /// Names a file that has no name, if nothing else has that name.
    pub fn link(&self, path: &Path) -> io::Result<()> {
        let from = CString::new(format!("/proc/self/fd/{}", self.0.load(Acquire)))?;
        let to = CString::new(path.as_os_str().as_bytes())?;
        let (here, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
        // SAFETY: both strings outlive the call.
        match unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), follow) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.close();
    }
}

/// Sets the owner, group and permissions of a file to those of another.
pub fn copy_rights(from: &File, to: &File) -> io::Result<()> {
    let (found, own) = (from.metadata()?, to.metadata()?);
    if (found.uid(), found.gid()) != (own.uid(), own.gid()) {
        // SAFETY: takes no pointer; the file is open.
        if unsafe { libc::fchown(to.as_raw_fd(), found.uid(), found.gid()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    to.set_permissions(found.permissions())
}

pub fn stat(path: &Path, file: &File) -> Result<fs::Metadata, Error> {
    file.metadata().map_err(|error| failed(path, "looking at", error))
}

pub fn check_rights(path: &Path, file: &File, mode: u32) -> Result<(), Error> {
    let found = stat(path, file)?;
    let refuse = |why| Err(Error::Permissions { path: path.to_owned(), why });
    if !found.is_file() {
        return refuse("it is not a regular file".to_owned());
    }
    let beyond = found.mode() & 0o777 & !mode;
    if beyond != 0 {
        return refuse(format!("its mode is {:o}, more than {mode:o}", found.mode() & 0o777));
    }
    // SAFETY: takes no pointer.
    let own = unsafe { libc::geteuid() };
    // A user who lets others write accepts their tables too.
    if found.uid() != own && mode & 0o022 == 0 {
        return refuse(format!("it belongs to user {}, and this process to {own}", found.uid()));
    }
    Ok(())
}

pub fn read_header(path: &Path, file: &File) -> Result<Header, Error> {
    let length = stat(path, file)?.len();
    let read = || {
        let read = |bytes: usize| {
            let mut head = vec![0; bytes.min(usize::try_from(length).unwrap_or(bytes))];
            file.read_exact_at(&mut head, 0).map(|()| head)
        };
        let wrong = |error: io::Error| BadHeader::Why(error.to_string());
        let first = read(FIRST).map_err(wrong)?;
        Header::decode(&read(Header::length(&first)?).map_err(wrong)?, length)
    };
    read().map_err(|bad| match bad {
        BadHeader::Version(found) => {
            Error::Version { path: path.to_owned(), found, known: VERSION }
        }
        BadHeader::Why(why) => Error::NotATable { path: path.to_owned(), why },
    })
}

/// Reserves all of it, so that no write to it ever meets a full disk, which would end the process.
pub fn reserve(path: &Path, file: &File, bytes: u64) -> Result<(), Error> {
    let no_room = || Error::NoRoom { path: path.to_owned(), bytes };
    let length = libc::off_t::try_from(bytes).map_err(|_| no_room())?;
    loop {
        // SAFETY: takes no pointer; the file is open.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) } {
            0 => return Ok(()),
            libc::EINTR => {}
            libc::ENOSPC | libc::EFBIG | libc::EDQUOT | libc::ENOMEM => return Err(no_room()),
            other => return Err(failed(path, "reserving", io::Error::from_raw_os_error(other))),
        }
    }
}

pub fn failed(path: &Path, doing: &'static str, error: io::Error) -> Error {
    Error::Io { path: path.to_owned(), doing, error }
}
