//! Making a table, finding one, and being one of those who have it open.
//!
//! A table is built as a file without a name and then linked to its name, so that nobody ever sees half
//! of one, a creator that dies leaves nothing, and of two creators one finds the other's. Whoever has it
//! open holds a shared lock on the file, which the kernel takes away from the dead: who gets it alone
//! knows that no writer is left, in whatever container or before whatever restart it was.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::clock;
use crate::error::Error;
use crate::geometry::control;
use crate::header::{BadHeader, Header, FIRST, VERSION};
use crate::mapping::Mapping;
use crate::memory::Memory;
use crate::process;
use crate::sync::Ordering::*;

/// The place of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// In the machine's shared memory; gone when the machine restarts.
    Name(String),
    /// In a file.
    Path(PathBuf),
}

/// Before a name in /dev/shm, so that whoever looks there knows whose it is.
pub const PREFIX: &str = "interlock.";
const SHARED_MEMORY: &str = "/dev/shm";

impl Location {
    /// Errors: a name that is none. It has 1 to 200 bytes, no slash, and does not begin with a point.
    pub fn path(&self) -> Result<PathBuf, Error> {
        match self {
            Location::Path(path) => Ok(path.clone()),
            Location::Name(name) => {
                let fits = (1..=200).contains(&name.len()) && !name.starts_with('.');
                if !fits || name.contains(['/', '\0']) {
                    return Err(Error::Invalid(format!("{name:?} is no name for a table")));
                }
                Ok(Path::new(SHARED_MEMORY).join(format!("{PREFIX}{name}")))
            }
        }
    }
}

/// An open table.
pub struct Region {
    pub memory: Memory,
    pub header: Header,
    pub path: PathBuf,
    /// Holds the lock that says that somebody has it open.
    file: File,
}

/// Demands that an attacher has of a table that is there.
pub struct Wanted<'a> {
    /// Text that must be the same; `None` takes any.
    pub text: Option<&'a str>,
    /// Bits of the mode beyond which it must have none.
    pub mode: u32,
}

impl Region {
    /// Opens the table that is there; `None` if there is none.
    pub fn attach(path: &Path, wanted: &Wanted) -> Result<Option<Region>, Error> {
        loop {
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
            let file = match options.open(path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(failed(path, "opening", error)),
            };
            check_rights(path, &file, wanted.mode)?;
            let header = read_header(path, &file)?;
            if let Some(expected) = wanted.text.filter(|expected| *expected != header.text()) {
                let (expected, found) = (expected.to_owned(), header.text());
                return Err(Error::SchemaMismatch { path: path.to_owned(), expected, found });
            }
            lock(path, &file, libc::LOCK_SH)?;
            // It may have been removed, and another made, before the lock was held.
            let (known, found) = (stat(path, &file)?, fs::symlink_metadata(path));
            if found.is_ok_and(|found| (found.dev(), found.ino()) == (known.dev(), known.ino())) {
                let region = Region::map(path, file, header)?;
                region.enter()?;
                return Ok(Some(region));
            }
        }
    }

    /// Makes a table; `None` if there is one by now.
    pub fn create(path: &Path, header: &Header, mode: u32) -> Result<Option<Region>, Error> {
        let head = header.encode().map_err(Error::Invalid)?;
        let bytes = header.geometry().map_err(Error::Invalid)?.words as u64 * 8;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE);
        let file =
            options.open(folder).map_err(|error| failed(folder, "making a file in", error))?;
        reserve(path, &file, bytes)?;
        file.write_all_at(&head, 0).map_err(|error| failed(path, "writing", error))?;
        lock(path, &file, libc::LOCK_SH)?;
        let region = Region::map(path, file, header.clone())?;
        region.stamp(header.file);
        // Last, so that whoever may open it finds it whole.
        let mode = fs::Permissions::from_mode(mode);
        region
            .file
            .set_permissions(mode)
            .map_err(|error| failed(path, "opening to others", error))?;
        match publish(&region.file, path) {
            Ok(()) => Ok(Some(region)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(failed(path, "making", error)),
        }
    }

    fn map(path: &Path, file: File, header: Header) -> Result<Region, Error> {
        let geometry = header.geometry().map_err(Error::Invalid)?;
        let mapping = Mapping::new(&file, geometry.words);
        let mapping = mapping.map_err(|error| failed(path, "mapping", error))?;
        let memory = Memory::new(mapping, geometry);
        Ok(Region { memory, header, path: path.to_owned(), file })
    }

    /// Sees to it that all who have it open can see each other.
    fn enter(&self) -> Result<(), Error> {
        // Changing a lock leaves a moment without one, in which another may do the same.
        for _ in 0..3 {
            if self.is_ours().is_ok() {
                return Ok(());
            }
            // Nobody else: the others are gone with their container, or with the last boot.
            if lock(&self.path, &self.file, libc::LOCK_EX | libc::LOCK_NB).is_ok() {
                self.free_all();
                self.stamp(self.header.file);
            }
            lock(&self.path, &self.file, libc::LOCK_SH)?;
        }
        self.is_ours()
    }

    /// Errors: the namespace that is another.
    fn is_ours(&self) -> Result<(), Error> {
        let same_boot = (0..2).all(|n| self.read(control::BOOT + n) == process::boot()[n]);
        for (kind, word) in [("pid", control::PID_NAMESPACE), ("time", control::TIME_NAMESPACE)] {
            let (found, own) = (self.read(word), process::namespace(kind));
            if found != own || !same_boot {
                return Err(Error::Namespace { path: self.path.clone(), kind, found, own });
            }
        }
        Ok(())
    }

    /// Writes down from where it is open, and how its time goes on.
    fn stamp(&self, file: bool) {
        let set = |word, value| self.memory.control(word).store(value, Release);
        if file {
            // Time goes on from the latest that was seen, if the clock was set back meanwhile.
            let latest = self.read(control::LATEST).saturating_add(clock::COARSEST);
            let now = clock::real().max(latest);
            set(control::OFFSET, now.wrapping_sub(clock::boot()));
        }
        set(control::PID_NAMESPACE, process::namespace("pid"));
        set(control::TIME_NAMESPACE, process::namespace("time"));
        (0..2).for_each(|n| set(control::BOOT + n, process::boot()[n]));
    }

    fn read(&self, word: usize) -> u64 {
        self.memory.control(word).load(Acquire)
    }

    /// From the boot clock to the table's time.
    pub fn offset(&self) -> u64 {
        self.read(control::OFFSET)
    }

    /// Notes the table's time, of one in a file.
    pub fn note_time(&self, now: u64) {
        if self.header.file {
            self.memory.control(control::LATEST).fetch_max(now, Relaxed);
        }
    }

    /// Finishes what all the dead have left, when nobody is left but them.
    fn free_all(&self) {
        let memory = &self.memory;
        for id in 1..=memory.geometry.participants {
            while process::pid(memory.who(id)) != 0 && !memory.retire(id, memory.who(id)) {
                memory.redo_alone(id);
            }
        }
    }
}

/// Removes a table's name; who has it open goes on with it. Returns whether there was one.
pub fn remove(location: &Location) -> Result<bool, Error> {
    let path = location.path()?;
    match fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed(&path, "removing", error)),
    }
}

fn stat(path: &Path, file: &File) -> Result<fs::Metadata, Error> {
    file.metadata().map_err(|error| failed(path, "looking at", error))
}

fn check_rights(path: &Path, file: &File, mode: u32) -> Result<(), Error> {
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
    // Who lets others write takes their tables as well.
    if found.uid() != own && mode & 0o022 == 0 {
        return refuse(format!("it belongs to user {}, and this process to {own}", found.uid()));
    }
    Ok(())
}

fn read_header(path: &Path, file: &File) -> Result<Header, Error> {
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
fn reserve(path: &Path, file: &File, bytes: u64) -> Result<(), Error> {
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

fn lock(path: &Path, file: &File, how: i32) -> Result<(), Error> {
    loop {
        // SAFETY: takes no pointer; the file is open.
        if unsafe { libc::flock(file.as_raw_fd(), how) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(failed(path, "locking", error));
        }
    }
}

/// Gives a file without a name its name, if nothing else has it.
fn publish(file: &File, path: &Path) -> io::Result<()> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = CString::new(path.as_os_str().as_bytes())?;
    let (here, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
    // SAFETY: both strings outlive the call.
    match unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), follow) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn failed(path: &Path, doing: &'static str, error: io::Error) -> Error {
    Error::Io { path: path.to_owned(), doing, error }
}
