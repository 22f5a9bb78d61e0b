//! Checkpoints, each in its own file, which is written completely or not at all. Three are kept:
//! the newest, and those before it from which a node can go back far enough ([`Reach`]).

use interlock_log::checkpoint::Place;
use interlock_log::entry::Mark;
use interlock_stores::disk::{read_at, Access, Disk, File};
use interlock_stores::StoreError;

use crate::files::{long, name, numbered, word, Report};

/// The checkpoints in a folder.
pub struct Checkpoints<D: Disk> {
    disk: D,
    reach: Reach,
    /// Existing checkpoints, oldest first; `None`: damaged.
    kept: Vec<(u64, Option<Point>)>,
    /// Numbers of those that are not part of the log.
    lost: Vec<u64>,
    last: u64,
}

/// A checkpoint read from its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The number for removing it; later ones have higher numbers, whatever their positions.
    pub number: u64,
    pub point: Point,
    pub bytes: Vec<u8>,
}

/// The moment of a log that a checkpoint captures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    pub place: Place,
    /// The log time, in ms.
    pub time: u64,
    /// Bytes of all entries up to it.
    pub bytes: u64,
}

/// Minimum reach of the oldest checkpoint. It must cover the entries that an engine loses by
/// starting from an old copy of its data. The log is not trimmed behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// In ms of log time.
    pub time: u64,
    /// This many bytes of entries suffice, however fast they came.
    pub bytes: u64,
}

impl Default for Reach {
    fn default() -> Self {
        Reach { time: 600_000, bytes: 256 << 20 }
    }
}

impl<D: Disk> Checkpoints<D> {
    /// Finds the existing checkpoints, and removes files that a crash has left unfinished.
    pub fn open(disk: D, reach: Reach) -> Result<Checkpoints<D>, StoreError> {
        for unfinished in numbered(&disk, UNFINISHED)? {
            let path = name(UNFINISHED, unfinished);
            disk.remove(&path)
                .map_err(|e| StoreError::new("removing", &disk.describe(&path), e))?;
        }
        let mut kept = Vec::new();
        for number in numbered(&disk, PREFIX)? {
            let found = whole(&content(&disk, &name(PREFIX, number))?).map(|(point, _)| point);
            kept.push((number, found));
        }
        let last = kept.last().map_or(0, |(number, _)| *number);
        Ok(Checkpoints { disk, reach, kept, lost: Vec::new(), last })
    }

    /// Forgets all checkpoints, because the folder was created again.
    pub fn are_gone(&mut self) {
        (self.kept, self.lost) = Default::default();
    }

    /// Saves a checkpoint. When it returns, the checkpoint is on disk, and all but three are
    /// removed.
    ///
    /// # Errors
    ///
    /// It could not be written; the earlier ones still exist.
    pub fn save(&mut self, point: Point, bytes: &[u8]) -> Result<(), StoreError> {
        let number = self.last + 1;
        let (unfinished, path) = (name(UNFINISHED, number), name(PREFIX, number));
        let wrong = |error| StoreError::new("writing", &self.disk.describe(&path), error);
        // Remove the remains of a failed call.
        if self.disk.exists(&unfinished).map_err(wrong)? {
            self.disk.remove(&unfinished).map_err(wrong)?;
        }
        let head = point.head(bytes);
        let write = || {
            let file = self.disk.open(&unfinished, Access::Create)?;
            file.write(0, &head)?;
            file.write(head.len() as u64, bytes)?;
            file.sync()?;
            self.disk.rename(&unfinished, &path)?;
            self.disk.sync_folder("")
        };
        if let Err(error) = write() {
            // If the file exists nevertheless, its number is not used again.
            self.last = number;
            let _ = self.disk.remove(&unfinished);
            let wrong = StoreError::new("writing", &self.disk.describe(&path), error);
            return Err(wrong);
        }
        self.add(number, point);
        Ok(())
    }

    fn add(&mut self, number: u64, point: Point) {
        self.last = number;
        self.kept.push((number, Some(point)));
        while let Some(at) = self.needless() {
            // A file that cannot be removed only costs space.
            let _ = self.disk.remove(&name(PREFIX, self.kept.remove(at).0));
        }
    }

    /// Returns the index of a checkpoint that is no longer needed.
    fn needless(&self) -> Option<usize> {
        if let Some(damaged) = self.kept.iter().position(|(_, point)| point.is_none()) {
            return Some(damaged);
        }
        if self.kept.len() > KEPT {
            let lost = self.kept.iter().position(|(number, _)| self.lost.contains(number));
            if lost.is_some() {
                return lost;
            }
        }
        let points: Vec<Point> = self.kept.iter().filter_map(|(_, point)| *point).collect();
        let newest = points.last()?;
        let reaches = |point: &Point| {
            newest.time >= point.time.saturating_add(self.reach.time)
                || newest.bytes >= point.bytes.saturating_add(self.reach.bytes)
        };
        if points.len() > KEPT && reaches(&points[1]) {
            return Some(0);
        }
        // The oldest is still needed. Drop the one between the two closest neighbours.
        let between = |at: &usize| points[at + 1].bytes.saturating_sub(points[at - 1].bytes);
        (1..points.len() - 1).min_by_key(between).filter(|_| points.len() > KEPT)
    }

    /// Installs a file that another node has given as the newest checkpoint.
    ///
    /// # Errors
    ///
    /// It is damaged, or the disk refuses it; the file is removed.
    pub fn adopt(&mut self, path: &str) -> Result<Saved, String> {
        let (number, disk) = (self.last + 1, self.disk.clone());
        let adopt = || {
            let content = content(&disk, path).map_err(|error| error.to_string())?;
            let (point, bytes) = whole(&content).ok_or(DAMAGED)?;
            let wrong = |error| StoreError::new("renaming", &disk.describe(path), error);
            let rename = || {
                disk.open(path, Access::Read)?.sync()?;
                disk.rename(path, &name(PREFIX, number))?;
                disk.sync_folder("")
            };
            rename().map_err(|error| wrong(error).to_string())?;
            Ok(Saved { number, point, bytes: bytes.to_vec() })
        };
        let adopted = adopt();
        match &adopted {
            Ok(saved) => self.add(number, saved.point),
            Err(_) => drop(self.disk.remove(path)),
        }
        adopted
    }

    /// Marks the checkpoints that are no longer part of the log: they are removed first.
    pub fn are_lost(&mut self, is_lost: impl Fn(&Point) -> bool) {
        self.lost = self.kept().filter(|(_, it)| is_lost(it)).map(|(number, _)| number).collect();
    }

    /// Returns the intact checkpoints, oldest first.
    pub fn kept(&self) -> impl Iterator<Item = (u64, Point)> + '_ {
        self.kept.iter().filter_map(|(number, point)| Some((*number, (*point)?)))
    }

    /// Returns the file name of a checkpoint.
    pub fn path(number: u64) -> String {
        name(PREFIX, number)
    }

    /// Returns the newest intact checkpoint before a number; `u64::MAX`: of all. Damaged ones are
    /// reported.
    pub fn newest(
        &self,
        before: u64,
        reports: &mut Vec<Report>,
    ) -> Result<Option<Saved>, StoreError> {
        let numbers = self.kept.iter().rev().map(|(number, _)| *number);
        for number in numbers.filter(|number| *number < before) {
            let path = name(PREFIX, number);
            let mut content = content(&self.disk, &path)?;
            match whole(&content).map(|(point, _)| point) {
                Some(point) => {
                    content.drain(..HEAD);
                    return Ok(Some(Saved { number, point, bytes: content }));
                }
                None => reports.push(Report {
                    path: self.disk.describe(&path),
                    text: "this checkpoint is damaged and is skipped".to_owned(),
                }),
            }
        }
        Ok(None)
    }

    /// Removes a checkpoint, for example one that is no longer part of the log.
    pub fn remove(&mut self, number: u64) -> Result<(), StoreError> {
        let path = name(PREFIX, number);
        let wrong = |error| StoreError::new("removing", &self.disk.describe(&path), error);
        self.disk.remove(&path).map_err(wrong)?;
        self.kept.retain(|(one, _)| *one != number);
        Ok(())
    }

    /// The number of checkpoints that are there.
    pub fn count(&self) -> usize {
        self.kept.len()
    }
}

impl Point {
    /// The bytes in front of a checkpoint's own.
    fn head(&self, bytes: &[u8]) -> Vec<u8> {
        let (ms, number) = self.place.id.unwrap_or_default();
        let Mark { position, checksum: mark } = self.place.mark;
        let length = bytes.len() as u64;
        let mut head = MAGIC.to_vec();
        for one in [position, mark, ms, number, self.place.entry, self.time, self.bytes, length] {
            head.extend_from_slice(&one.to_le_bytes());
        }
        let sum = checksum(&head, bytes);
        head.extend_from_slice(&sum.to_le_bytes());
        head
    }
}

/// Parses a file's intact checkpoint: its point and its bytes.
fn whole(content: &[u8]) -> Option<(Point, &[u8])> {
    let bytes = content.get(HEAD..)?;
    let at = |index: usize| long(content, MAGIC.len() + 8 * index);
    let (mark, id) = ((at(0)?, at(1)?), (at(2)?, at(3)?));
    let mark = Mark { position: mark.0, checksum: mark.1 };
    let place = Place { mark, id: (id != (0, 0)).then_some(id), entry: at(4)? };
    let point = Point { place, time: at(5)?, bytes: at(6)? };
    let is_whole = content.starts_with(MAGIC)
        && bytes.len() as u64 == at(7)?
        && word(content, HEAD - 4)? == checksum(&content[..HEAD - 4], bytes);
    is_whole.then_some((point, bytes))
}

fn content<D: Disk>(disk: &D, path: &str) -> Result<Vec<u8>, StoreError> {
    let wrong = |error| StoreError::new("reading", &disk.describe(path), error);
    let file = disk.open(path, Access::Read).map_err(wrong)?;
    let mut content = vec![0; file.length().map_err(wrong)? as usize];
    let found = read_at(&file, 0, &mut content).map_err(wrong)?;
    content.truncate(found);
    Ok(content)
}

fn checksum(head: &[u8], bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(head), bytes)
}

const PREFIX: &str = "checkpoint-";
/// The files of those that are being written, and of one that comes from another node: [`Checkpoints::open`]
/// removes them.
const UNFINISHED: &str = "unfinished-";
const MAGIC: &[u8; 8] = b"ilcheck2";
/// Bytes in front of a checkpoint's own: magic, eight numbers, checksum.
const HEAD: usize = 76;
const KEPT: usize = 3;
const DAMAGED: &str = "the received data is damaged, or not a checkpoint of this version";
