//! Finds a store's files in its folder: distinguishes them from foreign ones, ends renames, sets
//! files without a head aside.

use std::collections::BTreeSet;
use std::io;

use crate::disk::{join, parent, read_at, Access, Disk, File};
use crate::error::StoreError;
use crate::file::compress::{COMPRESSED, NEW};
use crate::file::frame::{self, FRAME};
use crate::file::index::{self, Known, NoIndex, GOING, INDEX};
use crate::file::reading::opened::moved_data;
use crate::file::report::{Damage, Report, Torn};
use crate::file::settings::Settings;
use crate::file::writing::upkeep;

/// A file that was found.
pub struct Found {
    pub path: String,
    pub known: Known,
}

/// A walk through the folder of a store.
pub struct Walk<'a, D> {
    pub disk: &'a D,
    pub name: Vec<u8>,
    pub depth: usize,
    pub settings: Settings,
    pub report: Report,
    pub found: Vec<Found>,
}

impl<D: Disk> Walk<'_, D> {
    pub fn folder(&mut self, folder: &str, depth: usize) -> Result<(), StoreError> {
        let entries = self
            .disk
            .list(folder)
            .map_err(|error| StoreError::new("listing", &self.disk.describe(folder), error))?;
        let mut files = BTreeSet::new();
        for entry in entries {
            if !self.settings.template.may_hold(depth, &entry.name, None) {
                continue;
            }
            let path = join(folder, &entry.name);
            match entry.is_folder {
                true if depth + 1 < self.depth => self.folder(&path, depth + 1)?,
                false if depth + 1 == self.depth => {
                    files.insert(path);
                }
                _ => {}
            }
        }
        let going: Vec<String> =
            files.iter().filter_map(|path| path.strip_suffix(GOING)).map(str::to_owned).collect();
        for path in going {
            let ended = self.end_removal(&path, &mut files);
            ended
                .map_err(|error| StoreError::new("removing", &self.disk.describe(&path), error))?;
        }
        let indexes: Vec<String> =
            files.iter().filter_map(|path| path.strip_suffix(INDEX)).map(str::to_owned).collect();
        for path in indexes {
            let one = self.one(&path, &mut files);
            one.map_err(|error| StoreError::new("reading", &self.disk.describe(&path), error))?;
        }
        for path in &files {
            let known = |end: &str| {
                path.strip_suffix(end)
                    .is_some_and(|path| files.contains(&(path.to_owned() + INDEX)))
            };
            if known("") || known(COMPRESSED) || known(INDEX) {
                continue;
            }
            self.lone(path)
                .map_err(|error| StoreError::new("reading", &self.disk.describe(path), error))?;
        }
        Ok(())
    }

    /// A file whose removal was begun.
    fn end_removal(&mut self, path: &str, files: &mut BTreeSet<String>) -> io::Result<()> {
        let going = format!("{path}{GOING}");
        files.remove(&going);
        let known = index::read_head(&self.disk.open(&going, Access::Read)?)?;
        if !known.is_ok_and(|known| known.store == self.name) {
            return Ok(());
        }
        // Another file may have the name by now.
        if files.contains(&format!("{path}{INDEX}")) {
            return self.disk.remove(&going);
        }
        for ending in ["", COMPRESSED] {
            files.remove(&format!("{path}{ending}"));
        }
        upkeep::remove(self.disk, path)
    }

    /// A file that has an index; what is found of it is left in `files`, and nothing else.
    fn one(&mut self, path: &str, files: &mut BTreeSet<String>) -> io::Result<()> {
        let name = path.to_owned() + INDEX;
        let file = self.disk.open(&name, Access::Read)?;
        let known = match index::read_head(&file)? {
            Ok(known) if known.store != self.name => return Ok(()),
            Ok(known) => known,
            Err(NoIndex::Version(found)) => {
                let why = format!(
                    "{} is of version {found}; allowed: {}; start the version that wrote it",
                    self.disk.describe(&name),
                    frame::VERSION
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            Err(NoIndex::Damaged) => return self.aside(path, &file, files),
        };
        if files.remove(&(path.to_owned() + NEW)) {
            self.disk.remove(&(path.to_owned() + NEW))?;
        }
        let there = files.contains(path) || files.contains(&(path.to_owned() + COMPRESSED));
        if !there {
            // The data was renamed, and the index was to follow.
            if let Some(to) = moved_data(self.disk, path, &file, &known.head)? {
                self.disk.rename(&name, &(to.clone() + INDEX))?;
                self.disk.sync_folder(parent(path))?;
                files.remove(&name);
                files.insert(to.clone() + INDEX);
                self.found.push(Found { path: to, known });
                return Ok(());
            }
        }
        self.found.push(Found { path: path.to_owned(), known });
        Ok(())
    }

    /// An index that has no head: it and its data are set aside, unless it was just being made.
    fn aside(
        &mut self,
        path: &str,
        file: &D::File,
        files: &mut BTreeSet<String>,
    ) -> io::Result<()> {
        let name = path.to_owned() + INDEX;
        let mut length = 0;
        if files.contains(path) {
            length = self.disk.open(path, Access::Read)?.length()?;
        }
        files.remove(&name);
        let packed = path.to_owned() + COMPRESSED;
        if length == 0 && !files.contains(&packed) {
            self.disk.remove(&name)?;
            if files.remove(path) {
                self.disk.remove(path)?;
            }
            return Ok(());
        }
        // The first thing of all that is written there: it never came to the disk, or something changed it.
        let mut head = [0; FRAME];
        read_at(file, 0, &mut head)?;
        let torn = head.iter().all(|byte| *byte == 0);
        let what = if torn { "torn" } else { "damaged" };
        let (mut aside, index_length) = (Vec::new(), file.length()?);
        for one in [path.to_owned(), packed, name] {
            // Its index is already removed from the remaining files.
            if files.remove(&one) || one.ends_with(INDEX) {
                let to = free_name(self.disk, &one, what)?;
                self.disk.rename(&one, &to)?;
                aside.push(self.disk.describe(&to));
            }
        }
        self.disk.sync_folder(parent(path))?;
        let file = self.disk.describe(path);
        if torn {
            let kept = aside.into_iter().next();
            self.report.torn.push(Torn { file, offset: 0, bytes: length, messages: 0, kept });
        } else {
            let why = format!("the head of its index, of {index_length} bytes, cannot be read");
            self.report.damaged.push(Damage { file, why, messages: 0, aside });
        }
        Ok(())
    }

    /// A file without an index.
    fn lone(&mut self, path: &str) -> io::Result<()> {
        let ending = path.rsplit('.').next().unwrap_or_default();
        if ["damaged-", "torn-"].iter().any(|what| ending.starts_with(what)) {
            return Ok(());
        }
        if self.disk.open(path, Access::Read)?.length()? > 0 {
            self.report.unindexed.push(self.disk.describe(path));
        }
        Ok(())
    }
}

/// Returns a name for what is set aside that no file has.
pub fn free_name<D: Disk>(disk: &D, path: &str, what: &str) -> io::Result<String> {
    for n in 1u32.. {
        let name = format!("{path}.{what}-{n}");
        if !disk.exists(&name)? {
            return Ok(name);
        }
    }
    unreachable!("there is no last number")
}
