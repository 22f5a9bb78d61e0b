//! The files of a chain that there are: found in a folder in which files get other names meanwhile.
//!
//! A file that gets another name while a folder is read may be seen under neither. It gets one once, so one
//! of two looks shows it. One that was begun behind the first look, and got its other name during the second,
//! is in neither: where two looks leave a hole that it can have been in, there is a third.

use std::collections::BTreeSet;
use std::io;

use crate::disk::{join, Access, Disk};
use crate::error::StoreError;
use crate::file::frame::Head;
use crate::file::index::{self, INDEX};
use crate::template::Template;

/// A file that was found, and what its head says.
#[derive(Clone, Debug)]
pub struct Listed {
    pub path: String,
    pub head: Head,
    /// Messages from this sequence on were written again in a later file.
    pub limit: u64,
}

/// The files of a topic: its own, or those that all share.
#[derive(Clone, Debug)]
pub struct Source<D> {
    pub disk: D,
    pub template: Template,
    pub store: Vec<u8>,
    pub topic: Vec<u8>,
}

impl<D: Disk> Source<D> {
    /// Lists the files, in their order.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn list(&self) -> Result<Vec<Listed>, StoreError> {
        list(|| look(&self.disk, &self.template, &self.store, &self.topic))
            .map_err(|error| StoreError::new("listing", &self.disk.describe(""), error))
    }

    pub fn failed(&self, path: &str, error: io::Error) -> StoreError {
        StoreError::new("reading", &self.disk.describe(path), error)
    }
}

fn list(mut look: impl FnMut() -> io::Result<Vec<Listed>>) -> io::Result<Vec<Listed>> {
    let mut known = BTreeSet::new();
    let mut before = look()?;
    loop {
        let now = look()?;
        let found = merged(&before, &now);
        let holes = holes(&before, &found);
        if holes.is_subset(&known) {
            return Ok(found);
        }
        (known, before) = (holes, now);
    }
}

/// The numbers between which no file was found, and where one may have been hidden from both looks.
pub fn holes(before: &[Listed], found: &[Listed]) -> BTreeSet<(u64, u64)> {
    // A file that existed at the first listing is in it, or in the second.
    let from = before.is_empty().then_some(0);
    let numbers = from.into_iter().chain(found.iter().map(|listed| listed.head.number));
    let numbers: Vec<u64> = numbers.collect();
    let steps = numbers.windows(2).map(|two| (two[0], two[1]));
    steps.filter(|(one, next)| *next > one + 1).collect()
}

/// The files of two looks, one after the other; their names are those of the later one.
pub fn merged(before: &[Listed], now: &[Listed]) -> Vec<Listed> {
    let mut found: Vec<Listed> = now.iter().chain(before).cloned().collect();
    // Stable: of the same number the later look's stands first.
    found.sort_by_key(|listed| listed.head.number);
    found.dedup_by_key(|listed| listed.head.number);
    let mut limit = u64::MAX;
    for listed in found.iter_mut().rev() {
        listed.limit = limit;
        limit = limit.min(listed.head.first);
    }
    found
}

fn look<D: Disk>(
    disk: &D,
    template: &Template,
    store: &[u8],
    topic: &[u8],
) -> io::Result<Vec<Listed>> {
    let by_topic = template.by_topic();
    let (mut found, mut open) = (Vec::new(), vec![(String::new(), 0)]);
    while let Some((folder, depth)) = open.pop() {
        // Beside it there may be the folders of a hundred thousand topics.
        if let Some(only) = template.only(depth, by_topic.then_some(topic)) {
            open.push((join(&folder, &only), depth + 1));
            continue;
        }
        let entries = match disk.list(&folder) {
            Ok(entries) => entries,
            // Nothing was ever stored, or the folder was removed just now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            if !template.may_hold(depth, &entry.name, by_topic.then_some(topic)) {
                continue;
            }
            let path = join(&folder, &entry.name);
            if entry.is_folder {
                open.push((path, depth + 1));
                continue;
            }
            let Some(path) = path.strip_suffix(INDEX) else { continue };
            let file = match disk.open(&(path.to_owned() + INDEX), Access::Read) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let Ok(known) = index::read_head(&file)? else { continue };
            let ours = known.store == store && known.head.by_topic == by_topic;
            if ours && (!by_topic || known.topics[0] == topic) {
                found.push(Listed { path: path.to_owned(), head: known.head, limit: u64::MAX });
            }
        }
    }
    Ok(found)
}
