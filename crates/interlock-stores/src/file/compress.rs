//! Compression of closed files: zstd frames of a mebibyte each, and a table of them at the end.
//!
//! The format is zstd's seekable one: `zcat` and `zstdcat` read it, and to read one message only
//! one frame is unpacked. It is made in slices, so that writing continues between them, under a
//! name of its own, and takes its place once it is on disk.

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
            // The compressed file was complete when the disk failed.
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

    /// Stops compressing; the file stays unchanged.
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
    /// The beginning of each frame, packed and not, and bytes of it packed.
    frames: Vec<(u64, u64, u32)>,
    length: u64,
    /// The frame that is unpacked.
    slice: Option<(usize, Vec<u8>)>,
}

impl<F: File> Unpacked<F> {
    /// Opens a file by its table. Where that cannot be read the frames are looked for: those up to the
    /// first that is damaged.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn open(file: F) -> io::Result<Self> {
        let frames = match read_table(&file)? {
            Some(frames) => frames,
            None => find_frames(&file)?,
        };
        let (mut places, mut packed, mut raw) = (Vec::with_capacity(frames.len()), 0, 0);
        for (packed_length, raw_length) in frames {
            places.push((packed, raw, packed_length));
            packed += u64::from(packed_length);
            raw += u64::from(raw_length);
        }
        Ok(Unpacked { file, frames: places, length: raw, slice: None })
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

/// Reads the table of the frames; `None`: it cannot be read.
fn read_table(file: &impl File) -> io::Result<Option<Vec<(u32, u32)>>> {
    let length = file.length()?;
    let Some(from) = length.checked_sub(FOOTER as u64) else { return Ok(None) };
    let mut footer = [0; FOOTER];
    read_at(file, from, &mut footer)?;
    let count = u32::from_le_bytes(footer[..4].try_into().expect("4"));
    let Some(from) = from.checked_sub(u64::from(count) * 8 + 8) else { return Ok(None) };
    let mut bytes = vec![0; count as usize * 8 + 8];
    read_at(file, from, &mut bytes)?;
    let pair = |entry: &[u8]| {
        let four = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().expect("4"));
        (four(0), four(4))
    };
    let frames: Vec<(u32, u32)> = bytes[8..].chunks_exact(8).map(pair).collect();
    bytes.extend(footer);
    let packed: u64 = frames.iter().map(|(packed, _)| u64::from(*packed)).sum();
    let fits = frames.iter().all(|(_, raw)| *raw as usize <= SLICE);
    Ok((bytes == table(&frames) && packed == from && fits).then_some(frames))
}

/// Finds the frames by themselves.
fn find_frames(file: &impl File) -> io::Result<Vec<(u32, u32)>> {
    let (mut frames, mut at) = (Vec::new(), 0);
    let mut bytes = vec![0; zstd::zstd_safe::compress_bound(SLICE)];
    loop {
        let read = read_at(file, at, &mut bytes)?;
        let here = &bytes[..read];
        let raw = zstd::zstd_safe::get_frame_content_size(here).ok().flatten();
        let packed = zstd::zstd_safe::find_frame_compressed_size(here);
        match (packed, raw) {
            (Ok(packed), Some(raw)) if raw > 0 && raw <= SLICE as u64 => {
                frames.push((packed as u32, raw as u32));
                at += packed as u64;
            }
            _ => return Ok(frames),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::disk::simulated::Simulated;
    use crate::file::compress::*;
    use crate::file::files::Closed;

    fn compressed(length: usize) -> (Simulated, Vec<u8>) {
        let disk = Simulated::new(1);
        let content: Vec<u8> = (0..length).map(|n| (n / 7 * n % 251) as u8).collect();
        disk.set_content("a.log", &content);
        let (path, bytes) = ("a.log".to_owned(), length as u64);
        let closed = Closed { path, chain: 0, number: 1, bytes, time: 0, compressed: false };
        let mut compression = Compression::begin(&disk, closed).unwrap().unwrap();
        while compression.step(&disk, 3).unwrap().is_none() {}
        assert_eq!(disk.files(), ["a.log.zst"]);
        (disk, content)
    }

    #[test]
    fn any_part_of_a_compressed_file_is_readable_with_and_without_its_index() {
        for length in [0, 1, SLICE - 1, SLICE, SLICE + 1, 3 * SLICE + 5] {
            let (disk, content) = compressed(length);
            let packed = disk.content("a.log.zst").unwrap();
            assert_eq!(
                zstd::stream::decode_all(&packed[..]).unwrap(),
                content,
                "as zstdcat has it"
            );
            for cut in [0, 1, 9] {
                disk.set_content("a.log.zst", &packed[..packed.len() - cut]);
                let file = disk.open("a.log.zst", Access::Read).unwrap();
                let mut unpacked = Unpacked::open(file).unwrap();
                assert_eq!(unpacked.length(), length as u64);
                for at in [0, 1, SLICE - 2, SLICE, 2 * SLICE + 1, length] {
                    let mut buffer = [0; 1000];
                    let read = unpacked.read_at(at as u64, &mut buffer).unwrap();
                    let expected = content.get(at..).unwrap_or_default();
                    assert_eq!(buffer[..read], expected[..expected.len().min(1000)]);
                }
            }
        }
    }
}
