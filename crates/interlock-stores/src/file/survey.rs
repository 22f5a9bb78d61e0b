//! All that lies in a folder, whatever store wrote it and by whatever template: for those who look at
//! files without a configuration.

use std::collections::HashMap;
use std::io;

use crate::disk::{join, Access, Disk};
use crate::error::StoreError;
use crate::file::compress::COMPRESSED;
use crate::file::index::{self, INDEX};
use crate::file::opened::Listed;
use crate::file::records::Records;
use crate::message::{Position, Stored};

/// All that was found.
#[derive(Clone, Debug, Default)]
pub struct Surveyed {
    /// By store and topic.
    pub chains: Vec<Chain>,
    /// Indexes of which the head cannot be read: nobody knows whose files they are.
    pub unreadable: Vec<String>,
}

/// The files of a store that follow each other: of one topic, or of all that share them.
#[derive(Clone, Debug)]
pub struct Chain {
    pub store: Vec<u8>,
    /// `None`: its files have messages of several topics.
    pub topic: Option<Vec<u8>>,
    /// In their order.
    pub files: Vec<Listed>,
}

/// The place of each chain among those that were found, by its store and topic.
type Places = HashMap<(Vec<u8>, Option<Vec<u8>>), usize>;

/// Finds the files below a folder; `file`: only this one, by the path of its data, packed or not, or of
/// its index.
///
/// # Errors
///
/// If the disk fails, or that file is not there or has no index.
pub fn survey<D: Disk>(disk: &D, file: Option<&str>) -> Result<Surveyed, StoreError> {
    let (mut found, mut places) = (Surveyed::default(), Places::new());
    let place = disk.describe(file.unwrap_or(""));
    match file {
        None => walk(disk, &mut found, &mut places)
            .map_err(|error| StoreError::new("listing", &place, error))?,
        Some(path) => {
            let path = path.strip_suffix(COMPRESSED).unwrap_or(path);
            let path = path.strip_suffix(INDEX).unwrap_or(path);
            let is_there = add(disk, path, &mut found, &mut places);
            match is_there.map_err(|error| StoreError::new("reading", &place, error))? {
                true => {}
                false => {
                    let text = "it has no index that can be read";
                    let error = io::Error::new(io::ErrorKind::InvalidData, text);
                    return Err(StoreError::new("reading", &place, error));
                }
            }
        }
    }
    found.chains.sort_by(|a, b| (&a.store, &a.topic).cmp(&(&b.store, &b.topic)));
    for chain in &mut found.chains {
        let files = &mut chain.files;
        files.sort_by_key(|listed| listed.head.number);
        files.dedup_by_key(|listed| listed.head.number);
        let mut limit = u64::MAX;
        for listed in files.iter_mut().rev() {
            listed.limit = limit;
            limit = limit.min(listed.head.first);
        }
    }
    Ok(found)
}

fn walk<D: Disk>(disk: &D, found: &mut Surveyed, places: &mut Places) -> io::Result<()> {
    let mut open = vec![(String::new(), 0)];
    while let Some((folder, depth)) = open.pop() {
        let entries = match disk.list(&folder) {
            Ok(entries) => entries,
            // Somebody removed it just now.
            Err(error) if error.kind() == io::ErrorKind::NotFound && depth > 0 => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let path = join(&folder, &entry.name);
            if entry.is_folder && depth < DEEPEST {
                open.push((path, depth + 1));
            } else if let Some(path) = path.strip_suffix(INDEX) {
                match add(disk, path, found, places) {
                    Ok(true) => {}
                    Ok(false) => found.unreadable.push(disk.describe(&format!("{path}{INDEX}"))),
                    // It got another name just now, or was removed.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Ok(())
}

/// Adds a file by its index; false: that is none.
fn add<D: Disk>(
    disk: &D,
    path: &str,
    found: &mut Surveyed,
    places: &mut Places,
) -> io::Result<bool> {
    let file = disk.open(&format!("{path}{INDEX}"), Access::Read)?;
    let Ok(mut known) = index::read_head(&file)? else { return Ok(false) };
    let by_topic = known.head.by_topic && !known.topics.is_empty();
    let topic = by_topic.then(|| known.topics.swap_remove(0));
    let listed = Listed { path: path.to_owned(), head: known.head, limit: u64::MAX };
    let place = *places.entry((known.store, topic)).or_insert_with_key(|(store, topic)| {
        let (store, topic) = (store.clone(), topic.clone());
        found.chains.push(Chain { store, topic, files: Vec::new() });
        found.chains.len() - 1
    });
    found.chains[place].files.push(listed);
    Ok(true)
}

/// Reads what [`survey`] finds, one chain after the other, and what comes later when it is asked again.
pub struct Survey<D: Disk> {
    disk: D,
    file: Option<String>,
    /// Only this one.
    topic: Option<Vec<u8>>,
    from: Position,
    chains: Vec<Cursor<D>>,
    at: usize,
    /// Nothing was found since it was looked for files.
    fresh: bool,
    lost: u64,
}

struct Cursor<D: Disk> {
    found: Chain,
    /// The file that is read, or was last.
    number: Option<u64>,
    records: Option<Records<D>>,
}

impl<D: Disk> Survey<D> {
    /// All messages at `from` or behind it.
    pub fn new(disk: D, file: Option<&str>, topic: Option<&[u8]>, from: Position) -> Self {
        Survey {
            disk,
            file: file.map(str::to_owned),
            topic: topic.map(<[u8]>::to_vec),
            from,
            chains: Vec::new(),
            at: 0,
            fresh: false,
            lost: 0,
        }
    }

    /// Returns the next message; `None`: there is none yet.
    ///
    /// # Errors
    ///
    /// If the disk fails. It can be asked again.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Stored>, StoreError> {
        loop {
            while let Some(chain) = self.chains.get_mut(self.at) {
                let topic = self.topic.as_deref();
                if let Some(stored) = chain.next(&self.disk, topic, self.from, &mut self.lost)? {
                    self.fresh = false;
                    return Ok(Some(stored));
                }
                self.at += 1;
            }
            if std::mem::take(&mut self.fresh) {
                return Ok(None);
            }
            self.look()?;
            (self.at, self.fresh) = (0, true);
        }
    }

    /// Messages that could not be read, and were left out.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Takes in the files that there are now.
    fn look(&mut self) -> Result<(), StoreError> {
        for found in survey(&self.disk, self.file.as_deref())?.chains {
            let wanted = self.topic.as_ref();
            if wanted.is_some() && found.topic.is_some() && found.topic.as_ref() != wanted {
                continue;
            }
            let same = |chain: &&mut Cursor<D>| {
                (&chain.found.store, &chain.found.topic) == (&found.store, &found.topic)
            };
            match self.chains.iter_mut().find(same) {
                Some(chain) => chain.found = found,
                None => self.chains.push(Cursor { found, number: None, records: None }),
            }
        }
        Ok(())
    }
}

impl<D: Disk> Cursor<D> {
    fn next(
        &mut self,
        disk: &D,
        topic: Option<&[u8]>,
        from: Position,
        lost: &mut u64,
    ) -> Result<Option<Stored>, StoreError> {
        loop {
            let Some(records) = self.open(disk, from)? else { return Ok(None) };
            let before = records.lost();
            let next = records.next()?;
            *lost += records.lost() - before;
            let files = &self.found.files;
            if let Some(stored) = next {
                let own = files.iter().find(|one| Some(one.head.number) == self.number);
                // Written again in a later file.
                let again = own.is_some_and(|one| stored.sequence >= one.limit);
                let wanted = topic.is_none_or(|topic| *topic == *stored.topic);
                if wanted && !again && stored.position >= from {
                    return Ok(Some(stored));
                }
                continue;
            }
            // Whatever was written to this one before there was another is read.
            if !files.iter().any(|one| Some(one.head.number) > self.number) {
                return Ok(None);
            }
            self.records = None;
        }
    }

    /// Returns the file that is read, or the next one.
    fn open(&mut self, disk: &D, from: Position) -> Result<Option<&mut Records<D>>, StoreError> {
        if self.records.is_none() {
            let files = &self.found.files;
            let listed = match self.number {
                Some(number) => files.iter().find(|one| one.head.number > number),
                // The last one with messages before it, and those of the same millisecond, all behind.
                None => {
                    let before =
                        |one: &&Listed| Position::new(one.head.time / 1000, one.head.n) < from;
                    files.iter().rev().find(before).or(files.first())
                }
            };
            let Some(listed) = listed else { return Ok(None) };
            match Records::open(disk.clone(), &listed.path) {
                Ok(records) => {
                    self.number = Some(listed.head.number);
                    self.records = Some(records);
                }
                // It has another name by now, or was removed: the next look tells.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(self.records.as_mut())
    }
}

/// Folders below each other that are looked into.
const DEEPEST: usize = 32;
