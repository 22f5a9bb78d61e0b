//! All files in a folder, whatever store wrote them and by whatever template: for viewing files
//! without a configuration.

use std::collections::{BTreeSet, HashMap};
use std::io;

use crate::disk::{join, Access, Disk, File};
use crate::error::StoreError;
use crate::file::compress::COMPRESSED;
use crate::file::frame::FRAME;
use crate::file::index::{self, GOING, INDEX};
use crate::file::reading::cursor::Cursor;
use crate::file::reading::listing::{holes, merged, Listed};
use crate::file::reading::missing::Found;
use crate::file::reading::opened::rotation;
use crate::message::Position;

/// All that was found.
#[derive(Clone, Debug, Default)]
pub struct Surveyed {
    /// The chains by store and topic.
    pub chains: Vec<Chain>,
    /// Indexes of which the head cannot be read: nobody knows whose files they are.
    pub unreadable: BTreeSet<String>,
    /// Data without an index, by all that can be seen.
    pub unindexed: BTreeSet<String>,
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
    let before = look(disk, file)?;
    settled(disk, file, before, &mut BTreeSet::new()).map(|(found, _)| found)
}

/// The findings of a look and of as many more as it takes, and the last of these. `known`: the holes that are
/// in the files already.
fn settled<D: Disk>(
    disk: &D,
    file: Option<&str>,
    mut before: Surveyed,
    known: &mut BTreeSet<Hole>,
) -> Result<(Surveyed, Surveyed), StoreError> {
    loop {
        let now = match look(disk, file) {
            // That one file got another name, and the next one is not there yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Surveyed::default(),
            now => now?,
        };
        let found = before.and(now.clone());
        let holes = before.holes(&found);
        let is_known = file.is_some() || holes.is_subset(known);
        *known = holes;
        if is_known {
            return Ok((found, now));
        }
        before = now;
    }
}

/// A chain, and the numbers between which it has no file.
type Hole = ((Vec<u8>, Option<Vec<u8>>), (u64, u64));

impl Surveyed {
    /// The findings of two looks, one after the other. A file is unreadable if it was in both: it may be being made.
    fn and(&self, now: Surveyed) -> Surveyed {
        let mut both = now;
        let places: HashMap<_, _> =
            both.chains.iter().enumerate().map(|(n, one)| (one.key(), n)).collect();
        let mut hidden = Vec::new();
        for chain in &self.chains {
            match places.get(&chain.key()) {
                Some(&n) => {
                    both.chains[n].files = merged(&chain.files, &both.chains[n].files);
                }
                None => hidden.push(chain.clone()),
            }
        }
        both.chains.extend(hidden);
        both.chains.sort_by_key(Chain::key);
        both.unreadable.retain(|path| self.unreadable.contains(path));
        both.unindexed.retain(|path| self.unindexed.contains(path));
        both
    }

    /// The places where files may have been hidden from this look and from the next one.
    fn holes(&self, found: &Surveyed) -> BTreeSet<Hole> {
        let before: HashMap<_, _> =
            self.chains.iter().map(|chain| (chain.key(), &chain.files[..])).collect();
        let of = |chain: &Chain| {
            let key = chain.key();
            let holes = holes(before.get(&key).copied().unwrap_or_default(), &chain.files);
            holes.into_iter().map(move |hole| (key.clone(), hole))
        };
        found.chains.iter().flat_map(of).collect()
    }
}

impl Chain {
    fn key(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        (self.store.clone(), self.topic.clone())
    }
}

/// A single look.
fn look<D: Disk>(disk: &D, file: Option<&str>) -> Result<Surveyed, StoreError> {
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
    for chain in &mut found.chains {
        chain.files = merged(&[], &chain.files);
    }
    Ok(found)
}

fn walk<D: Disk>(disk: &D, found: &mut Surveyed, places: &mut Places) -> io::Result<()> {
    let mut open = vec![(String::new(), 0)];
    let mut others = BTreeSet::new();
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
                    Ok(false) if is_begun(disk, path)? => {
                        found.unreadable.insert(format!("{path}{INDEX}"));
                    }
                    Ok(false) => {}
                    // It was renamed or removed just now.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            } else if !entry.is_folder && !entry.name.starts_with('.') {
                others.insert(path);
            }
        }
    }
    unindexed(disk, others, found)
}

/// Returns whether a file whose index has no head is more than just being made: the head is written at once,
/// and the data made behind it.
fn is_begun<D: Disk>(disk: &D, path: &str) -> io::Result<bool> {
    let index = match disk.open(&format!("{path}{INDEX}"), Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        index => index?,
    };
    let is_short = index.length()? < FRAME as u64;
    Ok(!is_short || disk.exists(path)? || disk.exists(&format!("{path}{COMPRESSED}"))?)
}

/// Finds data that has no index among files: such as lie where data lies and have names as it has.
fn unindexed<D: Disk>(disk: &D, others: BTreeSet<String>, found: &mut Surveyed) -> io::Result<()> {
    let data = |path: &str| path.strip_suffix(COMPRESSED).unwrap_or(path).to_owned();
    let kind = |path: &str| {
        let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending).to_owned();
        (path.matches('/').count(), ending)
    };
    let listed = found.chains.iter().flat_map(|chain| &chain.files);
    let known: BTreeSet<&str> = listed.map(|listed| &*listed.path).collect();
    let kinds: BTreeSet<_> = known.iter().map(|path| kind(path)).collect();
    for path in others {
        let own = data(&path);
        let ending = own.rsplit('.').next().unwrap_or_default();
        let aside = ["new", "old", "damaged-", "torn-"].iter().any(|what| ending.starts_with(what));
        if aside || known.contains(&*own) || !(kinds.is_empty() || kinds.contains(&kind(&own))) {
            continue;
        }
        let indexed =
            disk.exists(&format!("{own}{INDEX}"))? || disk.exists(&format!("{own}{GOING}"))?;
        // It may have been renamed or removed since the folder was read.
        if !indexed && !is_moved(disk, &known, &own)? && disk.exists(&path)? {
            found.unindexed.insert(path);
        }
    }
    Ok(())
}

/// Returns whether data has got its next name and its index was to follow.
fn is_moved<D: Disk>(disk: &D, known: &BTreeSet<&str>, path: &str) -> io::Result<bool> {
    let Some((before, _, _)) = rotation(path) else { return Ok(false) };
    let is_there = disk.exists(&before)? || disk.exists(&format!("{before}{COMPRESSED}"))?;
    Ok(known.contains(&*before) && !is_there)
}

/// Adds a file by its index; returns false if that is not one.
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
///
/// It keeps the [rule of all readers](super::reader).
pub struct Survey<D: Disk> {
    files: Files<D>,
    /// Only this one.
    topic: Option<Vec<u8>>,
    from: Position,
    cursors: Vec<Cursor<D>>,
    at: usize,
    /// True if no message was found since the files were last listed.
    fresh: bool,
}

/// The files that there are, by the last two looks.
struct Files<D: Disk> {
    disk: D,
    file: Option<String>,
    before: Option<Surveyed>,
    now: Surveyed,
    holes: BTreeSet<Hole>,
    /// The chains by store and topic, in the order in which they were found, as indexes into `now`.
    chains: Vec<Chain>,
    places: Places,
}

impl<D: Disk> Survey<D> {
    /// All messages at `from` or behind it.
    pub fn new(disk: D, file: Option<&str>, topic: Option<&[u8]>, from: Position) -> Self {
        let file = file.map(str::to_owned);
        Survey {
            files: Files {
                disk,
                file,
                before: None,
                now: Surveyed::default(),
                holes: BTreeSet::new(),
                chains: Vec::new(),
                places: Places::new(),
            },
            topic: topic.map(<[u8]>::to_vec),
            from,
            cursors: Vec::new(),
            at: 0,
            fresh: false,
        }
    }

    /// Returns the next message, or what is missing before it; `None`: nothing yet.
    ///
    /// # Errors
    ///
    /// If the disk fails. It can be asked again.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Found>, StoreError> {
        loop {
            while let Some(cursor) = self.cursors.get_mut(self.at) {
                let (files, at) = (&mut self.files, self.at);
                let topic = &files.chains[at].topic;
                if self.topic.is_some() && topic.is_some() && *topic != self.topic {
                    self.at += 1;
                    continue;
                }
                let next = cursor.next(&mut |anew| {
                    if anew {
                        files.look()?;
                    }
                    Ok(files.chains[at].files.clone())
                });
                if let Some(found) = next? {
                    self.fresh = false;
                    return Ok(Some(found));
                }
                self.at += 1;
            }
            if std::mem::take(&mut self.fresh) {
                return Ok(None);
            }
            self.files.look()?;
            self.begin();
            (self.at, self.fresh) = (0, true);
        }
    }

    /// Begins to read the chains that were found.
    fn begin(&mut self) {
        for _ in self.cursors.len()..self.files.chains.len() {
            let (topic, is_alone) = (self.topic.as_deref(), self.files.file.is_some());
            self.cursors.push(Cursor::new(self.files.disk.clone(), topic, self.from, is_alone));
        }
    }

    /// The files that cannot be read at all, each with the reason.
    pub fn unreadable(&self) -> Vec<(String, &'static str)> {
        let now = &self.files.now;
        let named = |path: &String, why| (self.files.disk.describe(path), why);
        let heads = now.unreadable.iter().map(|path| named(path, NO_HEAD));
        heads.chain(now.unindexed.iter().map(|path| named(path, NO_INDEX))).collect()
    }

    /// The data behind the last record of each newest file: the file, bytes, and the first position that they
    /// can have. A store may be writing it; if it stays so, nobody is.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn trailing(&self) -> Result<Vec<(String, u64, Position)>, StoreError> {
        let all = self.cursors.iter().filter_map(|cursor| cursor.trailing().transpose());
        all.collect::<io::Result<_>>()
            .map_err(|error| StoreError::new("reading", &self.files.disk.describe(""), error))
    }
}

impl<D: Disk> Files<D> {
    /// Notes the files that exist now.
    fn look(&mut self) -> Result<(), StoreError> {
        let (disk, file) = (&self.disk, self.file.as_deref());
        let before = match self.before.take() {
            Some(before) => before,
            None => look(disk, file)?,
        };
        let (found, last) = settled(disk, file, before, &mut self.holes)?;
        (self.now, self.before) = (found, Some(last));
        for chain in &mut self.chains {
            chain.files.clear();
        }
        for found in &self.now.chains {
            match self.places.get(&found.key()) {
                Some(&at) => self.chains[at].files.clone_from(&found.files),
                None => {
                    self.places.insert(found.key(), self.chains.len());
                    self.chains.push(found.clone());
                }
            }
        }
        Ok(())
    }
}

pub const NO_HEAD: &str = "the head of the index cannot be read";
pub const NO_INDEX: &str = "it has no index";

/// Folders below each other that are looked into.
const DEEPEST: usize = 32;
