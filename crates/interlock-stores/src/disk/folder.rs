//! The real disk: a folder of the file system.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{parent, Access, Disk, Entry};

/// A folder; clones are the same one. It is made by the first file in it.
#[derive(Clone, Debug)]
pub struct Folder {
    path: Arc<Path>,
}

/// The lock of a store, given back when it is dropped.
#[derive(Debug)]
pub struct Locked(fs::File);

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing alone would not do while a child that is being started has a copy of the descriptor.
        let _ = self.0.unlock();
    }
}

impl Folder {
    pub fn new(path: impl AsRef<Path>) -> Self {
        Folder { path: path.as_ref().into() }
    }

    fn path(&self, path: &str) -> PathBuf {
        if path.is_empty() {
            self.path.to_path_buf()
        } else {
            self.path.join(path)
        }
    }
}

/// Returns a file that is neither a pipe nor a device: a pipe in its place would hold up the store
/// for ever.
fn plain(file: fs::File) -> io::Result<fs::File> {
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(file)
}

/// Opens a pipe without waiting; no effect on a plain file.
const WITHOUT_WAITING: i32 = libc::O_NONBLOCK;

impl Disk for Folder {
    type File = fs::File;
    type Lock = Locked;

    fn lock(&self, path: &str) -> io::Result<Option<Locked>> {
        let mut options = fs::OpenOptions::new();
        let options = options.write(true).create(true).truncate(false).mode(0o640);
        let file = plain(options.custom_flags(WITHOUT_WAITING).open(self.path(path))?)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Locked(file))),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    fn open(&self, path: &str, access: Access) -> io::Result<fs::File> {
        let mut options = fs::OpenOptions::new();
        // Follow no links: a user who may write in the folder could have other files overwritten.
        let options = options.read(true).mode(0o640);
        let options = options.custom_flags(libc::O_NOFOLLOW | WITHOUT_WAITING);
        let options = match access {
            Access::Read => options,
            Access::Write => options.write(true),
            Access::Create => options.write(true).create_new(true),
        };
        plain(options.open(self.path(path))?)
    }

    fn make_folder(&self, path: &str) -> io::Result<Vec<String>> {
        let full = self.path(path);
        if full.is_dir() {
            return Ok(Vec::new());
        }
        let mut missing = Vec::new();
        let mut above = path;
        while !self.path(above).is_dir() && !above.is_empty() {
            above = parent(above);
            missing.push(above.to_owned());
        }
        let own = self.path("");
        let fresh: Vec<PathBuf> =
            own.ancestors().take_while(|path| !path.exists()).map(Path::to_path_buf).collect();
        fs::DirBuilder::new().recursive(true).mode(0o750).create(&full)?;
        // The folder's own name is above all that a store can name.
        for path in fresh {
            let above = path.parent().filter(|above| !above.as_os_str().is_empty());
            if let Ok(above) = fs::File::open(above.unwrap_or(Path::new("."))) {
                above.sync_all()?;
            }
        }
        Ok(missing)
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(self.path(path))? {
            let entry = entry?;
            // Names that are not text do not belong to a store.
            let Ok(name) = entry.file_name().into_string() else { continue };
            entries.push(Entry { name, is_folder: entry.file_type()?.is_dir() });
        }
        Ok(entries)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.path(path))
    }

    fn remove_folder(&self, path: &str) -> io::Result<()> {
        fs::remove_dir(self.path(path))
    }

    fn sync_folder(&self, path: &str) -> io::Result<()> {
        fs::File::open(self.path(path))?.sync_all()
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        match fs::symlink_metadata(self.path(path)) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn holds(&self, path: &str, file: &fs::File) -> bool {
        match (fs::symlink_metadata(self.path(path)), file.metadata()) {
            (Ok(named), Ok(open)) => (named.dev(), named.ino()) == (open.dev(), open.ino()),
            (Err(error), _) => {
                // That it cannot be asked says nothing.
                !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
            }
            (_, Err(_)) => true,
        }
    }

    fn describe(&self, path: &str) -> String {
        self.path(path).display().to_string()
    }
}
