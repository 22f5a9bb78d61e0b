//! Checkpoints: each in a file of its own, which is there whole or not at all; the last three are kept.

use interlock_stores::disk::{read_at, Access, Disk, File};
use interlock_stores::StoreError;

use crate::files::{long, name, numbered, word, Report};

/// The checkpoints in a folder.
pub struct Checkpoints<D: Disk> {
    disk: D,
    /// Numbers of those that are there, oldest first.
    numbers: Vec<u64>,
    last: u64,
}

/// A checkpoint that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// By which it can be removed; later ones have higher numbers, whatever their positions.
    pub number: u64,
    pub position: u64,
    pub bytes: Vec<u8>,
}

impl<D: Disk> Checkpoints<D> {
    /// Finds those that are there, and removes what a crash has left unfinished.
    pub fn open(disk: D) -> Result<Checkpoints<D>, StoreError> {
        for unfinished in numbered(&disk, UNFINISHED)? {
            let path = name(UNFINISHED, unfinished);
            disk.remove(&path)
                .map_err(|e| StoreError::new("removing", &disk.describe(&path), e))?;
        }
        let numbers = numbered(&disk, PREFIX)?;
        let last = numbers.last().copied().unwrap_or(0);
        Ok(Checkpoints { disk, numbers, last })
    }

    /// Saves one. When it returns, it is on disk, and all but the last three are removed.
    ///
    /// # Errors
    ///
    /// If it could not be written; those before are there.
    pub fn save(&mut self, position: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let number = self.last + 1;
        let (unfinished, path) = (name(UNFINISHED, number), name(PREFIX, number));
        let wrong = |error| StoreError::new("writing", &self.disk.describe(&path), error);
        // One that a failed call has left is in the way.
        if self.disk.exists(&unfinished).map_err(wrong)? {
            self.disk.remove(&unfinished).map_err(wrong)?;
        }
        let mut head = MAGIC.to_vec();
        head.extend_from_slice(&position.to_le_bytes());
        head.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        head.extend_from_slice(&checksum(&head, bytes).to_le_bytes());
        let write = || {
            let file = self.disk.open(&unfinished, Access::Create)?;
            file.write(0, &head)?;
            file.write(head.len() as u64, bytes)?;
            file.sync()?;
            self.disk.rename(&unfinished, &path)?;
            self.disk.sync_folder("")
        };
        if let Err(error) = write() {
            // If it is there nevertheless, its number is not used again.
            self.last = number;
            let _ = self.disk.remove(&unfinished);
            let wrong = StoreError::new("writing", &self.disk.describe(&path), error);
            return Err(wrong);
        }
        self.last = number;
        self.numbers.push(number);
        while self.numbers.len() > KEPT {
            // One that cannot be removed costs room alone.
            let _ = self.disk.remove(&name(PREFIX, self.numbers.remove(0)));
        }
        Ok(())
    }

    /// The newest of those before a number that is whole; `u64::MAX`: of all. Those that are not are told.
    pub fn newest(
        &self,
        before: u64,
        reports: &mut Vec<Report>,
    ) -> Result<Option<Saved>, StoreError> {
        for number in self.numbers.iter().rev().copied().filter(|number| *number < before) {
            let path = name(PREFIX, number);
            let wrong = |e| StoreError::new("reading", &self.disk.describe(&path), e);
            let file = self.disk.open(&path, Access::Read).map_err(wrong)?;
            let mut content = vec![0; file.length().map_err(wrong)? as usize];
            let found = read_at(&file, 0, &mut content).map_err(wrong)?;
            content.truncate(found);
            match whole(&content) {
                Some(position) => {
                    content.drain(..HEAD);
                    return Ok(Some(Saved { number, position, bytes: content }));
                }
                None => reports.push(Report {
                    path: self.disk.describe(&path),
                    text: "this checkpoint is damaged and is passed over".to_owned(),
                }),
            }
        }
        Ok(None)
    }

    /// Removes one, such as one that is no part of the log any more.
    pub fn remove(&mut self, number: u64) -> Result<(), StoreError> {
        let path = name(PREFIX, number);
        let wrong = |error| StoreError::new("removing", &self.disk.describe(&path), error);
        self.disk.remove(&path).map_err(wrong)?;
        self.numbers.retain(|one| *one != number);
        Ok(())
    }

    /// The number of checkpoints that are there.
    pub fn count(&self) -> usize {
        self.numbers.len()
    }
}

/// The position of a checkpoint that is whole.
fn whole(content: &[u8]) -> Option<u64> {
    let length = usize::try_from(long(content, 16)?).ok()?;
    let bytes = content.get(HEAD..)?;
    let is_whole = content.starts_with(MAGIC)
        && bytes.len() == length
        && word(content, 24)? == checksum(&content[..24], bytes);
    is_whole.then(|| long(content, 8))?
}

fn checksum(head: &[u8], bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(head), bytes)
}

const PREFIX: &str = "checkpoint-";
const UNFINISHED: &str = "unfinished-";
const MAGIC: &[u8; 8] = b"ilcheck1";
/// Bytes in front of a checkpoint's own: magic, position, length, checksum.
const HEAD: usize = 28;
const KEPT: usize = 3;
