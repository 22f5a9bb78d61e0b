//! A file by its path, whatever topics are in it: what `interlock store cat` and `tail` show.

use crate::disk::{Access, Disk};
use crate::error::StoreError;
use crate::file::frame::{self, Frame};
use crate::file::index::{self, Frames, INDEX};
use crate::file::opened::{position, Listed, Opened};
use crate::message::Stored;

/// The messages of one data file, in the order in which they were stored.
#[derive(Debug)]
pub struct Records<D: Disk> {
    disk: D,
    path: String,
    file: Opened<D::File>,
    /// The frame that comes next.
    place: u64,
    lost: u64,
}

impl<D: Disk> Records<D> {
    /// Opens a data file; `path` is without `.zst`, though it may be compressed.
    ///
    /// # Errors
    ///
    /// If it or its index is not there, or that is none.
    pub fn open(disk: D, path: &str) -> Result<Self, StoreError> {
        let opened = || {
            let index = disk.open(&(path.to_owned() + INDEX), Access::Read)?;
            let known = index::read_head(&index)?.map_err(|_| {
                let why = "the head of its index cannot be read";
                std::io::Error::new(std::io::ErrorKind::InvalidData, why)
            })?;
            let listed = Listed { path: path.to_owned(), head: known.head, limit: u64::MAX };
            let file = Opened::open(&disk, &listed, true)?;
            file.filter(|file| !file.is_gone()).ok_or(std::io::ErrorKind::NotFound.into())
        };
        match opened() {
            Ok(file) => {
                let place = u64::from(file.head.frames);
                Ok(Records { disk, path: path.to_owned(), file, place, lost: 0 })
            }
            Err(error) => Err(StoreError::new("reading", &disk.describe(path), error)),
        }
    }

    /// Returns the next message; `None`: there is none yet. What is not whole is left out and counted.
    ///
    /// # Errors
    ///
    /// If the disk fails. It can be asked again.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Stored>, StoreError> {
        self.read()
            .map_err(|error| StoreError::new("reading", &self.disk.describe(&self.path), error))
    }

    /// The number of messages that were left out.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn read(&mut self) -> std::io::Result<Option<Stored>> {
        loop {
            let mut frames = Frames::new(&self.file.index, self.place);
            let Some(&bytes) = frames.next()? else { return Ok(None) };
            let record = match frame::decode(&bytes, self.file.head.salt) {
                Ok(Frame::Message(record)) => record,
                Ok(declared) => {
                    self.file.note(&declared);
                    self.place += 1;
                    continue;
                }
                // The last one may be being written.
                Err(_) if frames.next()?.is_none() => return Ok(None),
                Err(_) => {
                    self.place += 1;
                    self.lost += 1;
                    continue;
                }
            };
            self.place += 1;
            let Some(payload) = self.file.payload(&record)? else {
                self.lost += 1;
                continue;
            };
            return Ok(Some(Stored {
                position: position(&record),
                sequence: record.sequence,
                topic: self.file.topic(record.topic).unwrap_or_default().to_vec(),
                payload,
                time: record.time,
                origin: self.file.origin(record.origin)?,
                number: record.number,
            }));
        }
    }
}
