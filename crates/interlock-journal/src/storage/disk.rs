//! The real disk: a folder of the file system.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::storage::{File, Fill, Storage};

/// Zeroes are written in pieces of it, bytes.
const PIECE: usize = 1 << 20;

#[derive(Debug)]
pub struct Disk {
    folder: PathBuf,
    /// Held open, to sync names.
    handle: fs::File,
    /// True if nothing can be written.
    only_read: bool,
}

impl Disk {
    /// The folder, made if it is not there, for its owner alone.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let fresh: Vec<&Path> = folder.ancestors().take_while(|path| !path.exists()).collect();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        // A folder whose own name is not on disk is gone after a crash, with all that is.
        for path in fresh {
            let above = path.parent().filter(|above| !above.as_os_str().is_empty());
            // One that may be written and not read cannot be synced.
            if let Ok(above) = fs::File::open(above.unwrap_or(Path::new("."))) {
                above.sync_all()?;
            }
        }
        Ok(Disk { handle: fs::File::open(folder)?, folder: folder.to_owned(), only_read: false })
    }

    /// An existing folder, for reading; read permission is enough.
    pub fn read(folder: &Path) -> io::Result<Self> {
        Ok(Disk { handle: fs::File::open(folder)?, folder: folder.to_owned(), only_read: true })
    }

    fn sync_names(&self) -> io::Result<()> {
        self.handle.sync_all()
    }
}

/// The lock of a folder, given back when it is dropped: on the folder itself, which cannot be removed and
/// made anew as long as there is a journal in it, and on a file in it, which is all that earlier versions
/// and file systems of a network look at.
#[derive(Debug)]
pub struct Locked {
    folder: Option<fs::File>,
    file: fs::File,
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing alone would not do while a child that is being started has a copy of the descriptor.
        let _ = self.file.unlock();
        if let Some(folder) = &self.folder {
            let _ = folder.unlock();
        }
    }
}

/// Tries to lock a file; returns whether it is this one's now.
fn taken(file: &fs::File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(fs::TryLockError::WouldBlock) => Ok(false),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

impl Storage for Disk {
    type File = fs::File;
    type Lock = Locked;

    fn lock(&self) -> io::Result<Option<Locked>> {
        let folder = fs::File::open(&self.folder)?;
        let folder = match taken(&folder) {
            Ok(true) => Some(folder),
            Ok(false) => return Ok(None),
            // A file system that locks no folder has the file's lock alone.
            Err(_) => None,
        };
        let mut options = fs::OpenOptions::new();
        let options = options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(self.folder.join("lock"))?;
        let locked = Locked { folder, file };
        Ok(taken(&locked.file)?.then_some(locked))
    }

    fn create(&self, name: &str, length: u64, fill: Fill) -> io::Result<fs::File> {
        let path = self.folder.join(name);
        let mut options = fs::OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let made = options.open(&path).and_then(|file| {
            fill_up(&file, length, fill)?;
            file.sync_all()?;
            self.sync_names()?;
            Ok(file)
        });
        if made.is_err() {
            // Half of a file would only keep the room from others.
            let _ = fs::remove_file(&path);
        }
        made
    }

    fn open(&self, name: &str) -> io::Result<fs::File> {
        fs::OpenOptions::new().read(true).write(!self.only_read).open(self.folder.join(name))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            // Names that are not text do not belong to the journal.
            names.extend(entry?.file_name().into_string());
        }
        names.sort();
        Ok(names)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.folder.join(from), self.folder.join(to))?;
        self.sync_names()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.folder.join(name))
    }

    fn holds(&self, name: &str, file: &fs::File) -> bool {
        let named = fs::metadata(self.folder.join(name));
        match (named, file.metadata()) {
            (Ok(named), Ok(open)) => (named.dev(), named.ino()) == (open.dev(), open.ino()),
            (Err(error), _) => error.kind() != io::ErrorKind::NotFound,
            // That it cannot be asked says nothing.
            (_, Err(_)) => true,
        }
    }

    fn describe(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}

impl File for fs::File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_at(buffer, offset)
    }

    #[inline]
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    #[inline]
    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.set_len(length)?;
        self.sync_all()
    }
}

fn fill_up(file: &fs::File, length: u64, fill: Fill) -> io::Result<()> {
    if length == 0 {
        return Ok(());
    }
    reserve(file, length)?;
    if fill == Fill::Reserved {
        return Ok(());
    }
    let zeroes = vec![0; PIECE];
    let mut at = 0;
    while at < length {
        let piece = (length - at).min(PIECE as u64);
        file.write_all_at(&zeroes[..piece as usize], at)?;
        at += piece;
        // Piece by piece, or one long write-back would hold up the syncs of the segment in use.
        file.sync_data()?;
    }
    Ok(())
}

/// Room for the whole file at once: what is full is full now, and the file lies together.
fn reserve(file: &fs::File, length: u64) -> io::Result<()> {
    let length = i64::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)?;
    loop {
        // SAFETY: the descriptor is the file's, which is borrowed.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) } {
            0 => return Ok(()),
            libc::EINTR => {}
            // The file system cannot: the length alone must do.
            libc::EOPNOTSUPP | libc::EINVAL => return file.set_len(length as u64),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}
