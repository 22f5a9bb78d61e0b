//! Creates, finds and opens the memory of a table.
//!
//! A table is built as a file without a name and then linked to its name, so that half of one is
//! never visible, a creator that dies leaves nothing, and of two creators one finds the other's.
//! Processes that have it open hold a shared lock on the file, which the kernel releases when they
//! die: an exclusive lock proves that no writer is left, in any container or from before a reboot.

mod file;
pub(super) mod participant;

use std::fs::{self, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::{Error, PREFIX};
use crate::layout::geometry::control;
use crate::layout::header::Header;
use crate::layout::state::State;
use crate::memory::clock;
use crate::memory::mapping::{with_huge_pages, Mapping};
use crate::memory::process;
use crate::memory::Memory;
use crate::region::file::{failed, Held};
use crate::sync::Ordering::*;

/// The place of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// In the machine's shared memory; gone when the machine restarts.
    Name(String),
    /// In a file.
    Path(PathBuf),
}

const SHARED_MEMORY: &str = "/dev/shm";

impl Location {
    /// Errors: an invalid name. It has 1 to 200 bytes, no slash, and does not begin with a point.
    pub fn path(&self) -> Result<PathBuf, Error> {
        match self {
            Location::Path(path) => Ok(path.clone()),
            Location::Name(name) => {
                let fits = (1..=200).contains(&name.len()) && !name.starts_with('.');
                if !fits || name.contains(['/', '\0']) {
                    return Err(Error::Invalid(format!(
                        "{name:?} is not a valid name for a table"
                    )));
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
    /// Bits of the mode beyond which none is opened.
    pub mode: u32,
    /// Holds the lock that says that somebody has it open.
    file: Held,
}

/// Demands that an attacher has of a table that is there.
pub struct Wanted<'a> {
    /// Text that must be the same; `None` takes any.
    pub text: Option<&'a str>,
    /// Bits of the mode beyond which it must have none.
    pub mode: u32,
}

impl Region {
    /// Opens the existing table; `None` if it does not exist.
    pub fn attach(path: &Path, wanted: &Wanted) -> Result<Option<Region>, Error> {
        let mut at = path.to_owned();
        loop {
            let Some(region) = Region::attach_at(&at, path, wanted)? else {
                // Another has given it its name meanwhile, unless it never had any.
                if at == path {
                    return Ok(None);
                }
                at = path.to_owned();
                continue;
            };
            if region.memory.is_current() {
                region.enter()?;
                return Ok(Some(region));
            }
            // A process that resized it may have died before the new table was named.
            at = match region.publish_next()? {
                true => path.to_owned(),
                false => region.next_path(),
            };
        }
    }

    /// Opens what is at a path, of a table whose name is another perhaps.
    fn attach_at(at: &Path, path: &Path, wanted: &Wanted) -> Result<Option<Region>, Error> {
        loop {
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
            let file = match options.open(at) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(failed(path, "opening", error)),
            };
            file::check_rights(path, &file, wanted.mode)?;
            let header = file::read_header(path, &file)?;
            if let Some(expected) = wanted.text.filter(|expected| *expected != header.text()) {
                let (expected, found) = (expected.to_owned(), header.text());
                return Err(Error::SchemaMismatch { path: path.to_owned(), expected, found });
            }
            let file = Held::new(file);
            file.lock(libc::LOCK_SH).map_err(|error| failed(path, "locking", error))?;
            // It may have been removed and created again before the lock was held.
            if file.is_at(at) {
                return Region::map(path, file, header, wanted.mode).map(Some);
            }
        }
    }

    /// Creates a table; `None` if it exists by now.
    pub fn create(path: &Path, header: &Header, mode: u32) -> Result<Option<Region>, Error> {
        let region = Region::build(path, header, mode)?;
        match region.file.link(path) {
            Ok(()) => Ok(Some(region)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(failed(path, "making", error)),
        }
    }

    /// Creates a table that has no name yet.
    pub fn build(path: &Path, header: &Header, mode: u32) -> Result<Region, Error> {
        let head = header.encode().map_err(Error::Invalid)?;
        let bytes = header.geometry().map_err(Error::Invalid)?.words as u64 * 8;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE);
        let file =
            options.open(folder).map_err(|error| failed(folder, "making a file in", error))?;
        with_huge_pages(&file, bytes);
        file::reserve(path, &file, bytes)?;
        file.write_all_at(&head, 0).map_err(|error| failed(path, "writing", error))?;
        // A user who may not write cannot open it, and must not read the secret with which keys are hashed.
        let unread = 0o444 & !(mode << 1);
        let right = file.set_permissions(fs::Permissions::from_mode(mode & !unread));
        right.map_err(|error| failed(path, "opening to others", error))?;
        let file = Held::new(file);
        file.lock(libc::LOCK_SH).map_err(|error| failed(path, "locking", error))?;
        let region = Region::map(path, file, header.clone(), mode)?;
        region.stamp(header.file);
        region.memory.control(control::RESIZE).store(State(0).next(true).0, Release);
        Ok(region)
    }

    fn map(path: &Path, file: Held, header: Header, mode: u32) -> Result<Region, Error> {
        let geometry = header.geometry().map_err(Error::Invalid)?;
        let mapping = file.with(|file| Mapping::new(file, geometry.words));
        let mapping = mapping.map_err(|error| failed(path, "mapping", error))?;
        let memory = Memory::new(mapping, geometry);
        Ok(Region { memory, header, path: path.to_owned(), mode, file })
    }

    /// Returns whether it is what lies under its name.
    pub fn has_name(&self) -> bool {
        self.file.is_at(&self.path)
    }

    /// The name under which the next one is linked, before it gets this one's.
    pub fn next_path(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.path.with_file_name(format!(".{name}.{:016x}", self.read(control::NEXT)))
    }

    /// Gives this table's name to the next one, unless that is done already. Returns whether the next one has
    /// the name. Errors: the name belongs to another table by now, or to none; the next one does not exist.
    pub fn publish_next(&self) -> Result<bool, Error> {
        let next = self.next_path();
        let no_table = || Error::NoTable { path: self.path.clone() };
        if !self.file.is_at(&self.path) {
            // It has the name, or the name was removed and must not be used again.
            let _ = fs::remove_file(&next);
            return match fs::symlink_metadata(&self.path) {
                Ok(_) => Ok(true),
                Err(_) => Err(no_table()),
            };
        }
        match fs::rename(&next, &self.path) {
            Ok(()) => Ok(true),
            Err(_) if !self.file.is_at(&self.path) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(no_table()),
            // In a folder where only owners may rename.
            Err(_) => Ok(false),
        }
    }

    /// Links what was built as the next of this one. Errors: this one's name is not its own any more.
    pub fn link_next(&self, next: &Region) -> Result<(), Error> {
        // A process may have died after linking it.
        let _ = fs::remove_file(self.next_path());
        self.memory.control(control::NEXT).store(random(), Release);
        let at = self.next_path();
        next.file.link(&at).map_err(|error| failed(&at, "making", error))?;
        if self.file.is_at(&self.path) {
            return Ok(());
        }
        let _ = fs::remove_file(&at);
        Err(Error::NoTable { path: self.path.clone() })
    }

    /// Removes what was linked as the next of this one by a resize that was given up.
    pub fn clear_next(&self) {
        let (next, number) = (self.next_path(), self.read(control::NEXT));
        // Behind the number: it is that of a resize that is over.
        let resize = self.memory.resize();
        if number != 0 && resize.is_live() && resize.owner() == 0 {
            let _ = fs::remove_file(next);
            let word = self.memory.control(control::NEXT);
            let _ = word.compare_exchange(number, 0, AcqRel, Relaxed);
        }
    }

    /// Has this process be the one that keeps the table. Errors: another has it, and lives.
    pub fn keep(&self) -> Result<(), Error> {
        let word = |word| self.memory.control(word);
        let mut seen = word(control::KEEPER).load(Acquire);
        loop {
            if seen != 0 && !process::is_dead(seen, word(control::KEEPER_IMAGE).load(Acquire)) {
                let pid = process::pid(seen);
                return match pid == std::process::id() {
                    true => Ok(()),
                    false => Err(Error::KeptAlready { path: self.path.clone(), pid }),
                };
            }
            // Uses the next generation, so that the earlier owner's image does not apply to this one.
            let own = process::this(process::vacant(seen));
            match word(control::KEEPER).compare_exchange(seen, own, AcqRel, Acquire) {
                Ok(_) => {
                    word(control::KEEPER_IMAGE).store(process::image(own), Release);
                    return Ok(());
                }
                Err(other) => seen = other,
            }
        }
    }

    /// Has everybody write rows again.
    pub fn keep_no_more(&self) {
        // First: the generations begin anew, and the next keeper's must not meet this image.
        self.memory.control(control::KEEPER_IMAGE).store(0, Release);
        self.memory.control(control::KEEPER).store(0, Release);
    }

    /// Errors: a node keeps it.
    #[inline]
    pub fn check_kept(&self) -> Result<(), Error> {
        // Relaxed: who writes at the moment at which it begins was a moment earlier.
        match self.memory.control(control::KEEPER).load(Relaxed) {
            0 => Ok(()),
            _ => Err(self.kept()),
        }
    }

    #[cold]
    fn kept(&self) -> Error {
        Error::Kept { path: self.path.clone() }
    }

    /// Copies this table's owner, group, permissions, clock, counts and keeper to the next one.
    pub fn bequeath(&self, next: &Region) -> Result<(), Error> {
        let done = self.file.with(|own| next.file.with(|next| file::copy_rights(own, next)));
        done.map_err(|error| failed(&self.path, "giving away the rights of", error))?;
        let kept = [control::KEEPER, control::KEEPER_IMAGE];
        let shown = [control::POSITION_CHECKSUM, control::POSITION];
        for word in [control::OFFSET, control::LATEST]
            .into_iter()
            .chain(kept)
            .chain(shown)
            .chain((control::COUNTERS..control::GENERATION).step_by(8))
        {
            next.memory.control(word).store(self.read(word), Release);
        }
        let generation = self.read(control::GENERATION).wrapping_add(1);
        next.memory.control(control::GENERATION).store(generation, Release);
        Ok(())
    }

    /// Errors: the table is another user's, so that not even its name could be given away.
    pub fn check_owner(&self) -> Result<(), Error> {
        let found = self.file.with(fs::File::metadata);
        let found = found.map_err(|error| failed(&self.path, "looking at", error))?.uid();
        // SAFETY: takes no pointer.
        let own = unsafe { libc::geteuid() };
        if own == 0 || own == found {
            return Ok(());
        }
        let why = format!("it belongs to user {found}, and only that one may resize it");
        Err(Error::Permissions { path: self.path.clone(), why })
    }

    /// Frees the memory of a table that has ended; reads return zero from then on.
    pub fn give_back(&self) {
        self.memory.give_back();
        self.file.close();
    }

    /// Sees to it that all who have it open can see each other.
    fn enter(&self) -> Result<(), Error> {
        // Changing a lock leaves a moment without one, in which another may do the same.
        for _ in 0..3 {
            if self.is_ours().is_ok() {
                return Ok(());
            }
            // No other process has it: they ended with their container, or with the last boot.
            if self.file.lock(libc::LOCK_EX | libc::LOCK_NB).is_ok() {
                self.free_all();
                self.stamp(self.header.file);
            }
            let locked = self.file.lock(libc::LOCK_SH);
            locked.map_err(|error| failed(&self.path, "locking", error))?;
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

    /// Records where it is open, and how its time continues.
    fn stamp(&self, file: bool) {
        let set = |word, value| self.memory.control(word).store(value, Release);
        if file {
            // Time continues from the latest that was seen, if the clock was set back meanwhile.
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
        if process::boot() != [0, 1].map(|n| self.read(control::BOOT + n)) {
            memory.recount();
        }
    }
}

/// A number that nobody foresees: of the keys that the standard library draws from the system. The time
/// makes it another one in a forked child, which has the same keys.
pub fn random() -> u64 {
    RandomState::new().hash_one((clock::real(), std::process::id()))
}

/// Removes a table's name; processes that have it open continue with it. Returns whether it
/// existed.
pub fn remove(location: &Location) -> Result<bool, Error> {
    let path = location.path()?;
    match fs::remove_file(&path) {
        Ok(()) => {
            remove_nexts(&path);
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed(&path, "removing", error)),
    }
}

/// Removes what those have left who died while they resized it.
fn remove_nexts(path: &Path) {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return };
    let begin = format!(".{}.", name.to_string_lossy());
    for found in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = found.file_name().to_string_lossy().into_owned();
        let number = name.strip_prefix(&begin).unwrap_or_default();
        if number.len() == 16 && number.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            let _ = fs::remove_file(found.path());
        }
    }
}
