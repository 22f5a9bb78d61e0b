//! Compression of closed files: zstd frames of a mebibyte each, and a table of them at the end.
//!
//! It is the form that zstd calls seekable: `zcat` and `zstdcat` read it, and whoever wants a message in
//! the midst of it unpacks one frame. It is made in slices, so that writing goes on between them, under a
//! name of its own, and has its place once it is on disk.

use std::io;

use crate::disk::{parent, read_at, Access, Disk, File};
use crate::error::StoreError;
use crate::file::files::Closed;

/// Ends the name of a compressed file.
pub const COMPRESSED: &str = ".zst";
/// Ends the name of a file that is being made.
pub const NEW: &str = ".zst.new";
/// Bytes of the original in one frame, and in one slice of the work.
pub const SLICE: usize = 1 << 20;
const SKIPPABLE: u32 = 0x184D_2A5E;
const SEEKABLE: u32 = 0x8F92_EAB1;

/// A file that is being compressed.
#[derive(Debug)]
pub struct Compression<F> {
    pub closed: Closed,
    from: F,
    to: F,
    read: u64,
    written: u64,
    /// Bytes of each frame, compressed and not.
    frames: Vec<(u32, u32)>,
}

impl<F: File> Compression<F> {
    /// Begins with a file; `None`: it is not there any more.
    pub fn begin<D: Disk<File = F>>(disk: &D, closed: Closed) -> Result<Option<Self>, StoreError> {
        let name = closed.path.clone() + NEW;
        let at = |error| StoreError::new("compressing into", &disk.describe(&name), error);
        let from = match disk.open(&closed.path, Access::Read) {
            Ok(from) => from,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(at(error)),
        };
        if disk.exists(&name).map_err(at)? {
            disk.remove(&name).map_err(at)?;
        }
        if disk.exists(&(closed.path.clone() + COMPRESSED)).map_err(at)? {
            // It was whole, and then the disk failed.
            disk.sync_folder(parent(&closed.path)).map_err(at)?;
            disk.remove(&closed.path).map_err(at)?;
            return Ok(None);
        }
        let to = disk.open(&name, Access::Create).map_err(at)?;
        Ok(Some(Compression { closed, from, to, read: 0, written: 0, frames: Vec::new() }))
    }

    /// Does a slice of it; the bytes that were saved, once it is done.
    pub fn step<D: Disk<File = F>>(
        &mut self,
        disk: &D,
        level: i32,
    ) -> Result<Option<u64>, StoreError> {
        self.slice(disk, level).map_err(|error| {
            let name = self.closed.path.clone() + NEW;
            StoreError::new("compressing into", &disk.describe(&name), error)
        })
    }

    fn slice<D: Disk<File = F>>(&mut self, disk: &D, level: i32) -> io::Result<Option<u64>> {
        let mut raw = vec![0; SLICE];
        let length = read_at(&self.from, self.read, &mut raw)?;
        raw.truncate(length);
        if length > 0 {
            let packed = zstd::bulk::compress(&raw, level)?;
            self.to.write(self.written, &packed)?;
            self.written += packed.len() as u64;
            self.read += length as u64;
            self.frames.push((packed.len() as u32, length as u32));
        }
        if length == SLICE {
            return Ok(None);
        }
        let table = table(&self.frames);
        self.to.write(self.written, &table)?;
        self.to.sync()?;
        let (path, folder) = (&self.closed.path, parent(&self.closed.path));
        disk.rename(&(path.clone() + NEW), &(path.clone() + COMPRESSED))?;
        disk.sync_folder(folder)?;
        disk.remove(path)?;
        Ok(Some(self.read.saturating_sub(self.written + table.len() as u64)))
    }

    /// Gives it up; the file stays as it is.
    pub fn abandon<D: Disk<File = F>>(self, disk: &D) -> Closed {
        // If it stays, the next opening removes it.
        let _ = disk.remove(&(self.closed.path.clone() + NEW));
        self.closed
    }
}

fn table(frames: &[(u32, u32)]) -> Vec<u8> {
    let mut table = Vec::new();
    table.extend(SKIPPABLE.to_le_bytes());
    table.extend((frames.len() as u32 * 8 + FOOTER as u32).to_le_bytes());
    for (packed, raw) in frames {
        table.extend(packed.to_le_bytes());
        table.extend(raw.to_le_bytes());
    }
    table.extend((frames.len() as u32).to_le_bytes());
    table.push(0);
    table.extend(SEEKABLE.to_le_bytes());
    table
}

/// Bytes of the table's end.
const FOOTER: usize = 9;

/// A compressed file, as if it were not.
#[derive(Debug)]
pub struct Unpacked<F> {
    file: F,
    /// Where each frame begins, packed and not, and bytes of it packed.
    frames: Vec<(u64, u64, u32)>,
    length: u64,
    /// The frame that is unpacked.
    slice: Option<(usize, Vec<u8>)>,
}

impl<F: File> Unpacked<F> {
    pub fn open(file: F) -> io::Result<Self> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "its table cannot be read");
        let length = file.length()?;
        let mut footer = [0; FOOTER];
        let from = length.checked_sub(FOOTER as u64).ok_or_else(damaged)?;
        read_at(&file, from, &mut footer)?;
        let count = u32::from_le_bytes(footer[..4].try_into().expect("4"));
        if footer[5..] != SEEKABLE.to_le_bytes() {
            return Err(damaged());
        }
        let from = from.checked_sub(u64::from(count) * 8).ok_or_else(damaged)?;
        let mut table = vec![0; count as usize * 8];
        read_at(&file, from, &mut table)?;
        let (mut frames, mut packed, mut raw) = (Vec::with_capacity(count as usize), 0, 0);
        for entry in table.chunks_exact(8) {
            let four = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().expect("4"));
            if four(4) as usize > SLICE {
                return Err(damaged());
            }
            frames.push((packed, raw, four(0)));
            packed += u64::from(four(0));
            raw += u64::from(four(4));
        }
        if packed + 8 != from {
            return Err(damaged());
        }
        Ok(Unpacked { file, frames, length: raw, slice: None })
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    /// Reads what there is at a place of the original, up to the length of `buffer`.
    pub fn read_at(&mut self, mut offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() && offset < self.length {
            let frame = self.frames.partition_point(|(_, raw, _)| *raw <= offset) - 1;
            let (packed, raw, length) = self.frames[frame];
            if self.slice.as_ref().is_none_or(|(which, _)| *which != frame) {
                let mut bytes = vec![0; length as usize];
                read_at(&self.file, packed, &mut bytes)?;
                self.slice = Some((frame, zstd::bulk::decompress(&bytes, SLICE)?));
            }
            let (_, slice) = self.slice.as_ref().expect("just unpacked");
            let from = (offset - raw) as usize;
            let some = slice.get(from..).unwrap_or_default();
            let length = some.len().min(buffer.len() - done);
            if length == 0 {
                break;
            }
            buffer[done..done + length].copy_from_slice(&some[..length]);
            done += length;
            offset += length as u64;
        }
        Ok(done)
    }
}
