//! The end of the newest file of a chain: where what is whole of it ends, and what is cut off there.

use std::io;

use crate::disk::{parent, read_at, Access, Disk, File};
use crate::file::compress::COMPRESSED;
use crate::file::frame::{self, Frame, Mark, FRAME};
use crate::file::index::{self, Frames, Known, INDEX};
use crate::file::reading::opened::Data;
use crate::file::report::Torn;
use crate::file::writing::walk::{free_name, Found};

/// The state of the newest file of a chain.
pub enum End {
    Closed(Known),
    Missing(Known),
    /// Something of it was on disk and cannot be read: it is not written to any more.
    Damaged {
        known: Known,
        why: String,
        lost: u64,
    },
    Open {
        known: Known,
        index_end: u64,
        data_length: u64,
        /// The places at which a newline is missing behind a message that is whole.
        newlines: Vec<u64>,
        /// Messages of the index that are not whole.
        torn: u64,
    },
}

impl End {
    pub fn known(&self) -> &Known {
        match self {
            End::Closed(known)
            | End::Missing(known)
            | End::Damaged { known, .. }
            | End::Open { known, .. } => known,
        }
    }
}

/// Finds where the newest file of a chain ends.
pub fn find_end<D: Disk>(disk: &D, newest: &Found) -> io::Result<End> {
    let index = disk.open(&(newest.path.clone() + INDEX), Access::Read)?;
    let (first, salt) = (u64::from(newest.known.head.frames), newest.known.head.salt);
    // The records readable in order, and those after them.
    let (mut known, mut all) = (newest.known.clone(), newest.known.clone());
    let mut frames = Frames::new(&index, first);
    let mut ended = false;
    while let Some(bytes) = frames.next()? {
        let Ok(frame) = frame::decode(bytes, salt) else {
            ended = true;
            continue;
        };
        ended = ended || !known.apply(&frame);
        all.apply_behind(&frame);
    }
    if known.closed {
        return Ok(End::Closed(known));
    }
    let mut packed = false;
    let data = match disk.open(&newest.path, Access::Read) {
        Ok(data) => data,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            packed = disk.exists(&(newest.path.clone() + COMPRESSED))?;
            match packed {
                // It was closed and compressed, and the next file never reached the disk.
                true => disk.open(&(newest.path.clone() + COMPRESSED), Access::Read)?,
                false if all.durable >= newest.known.next => return Ok(End::Missing(all)),
                // The file, or its name, was being made: its presence on disk was never reported.
                false => disk.open(&newest.path, Access::Create)?,
            }
        }
        Err(error) => return Err(error),
    };
    let mut data = Data::of(data, packed)?;
    let (durable, data_length) = (all.durable, data.length()?);
    let lost = |known: &Known| (all.next - newest.known.head.first).saturating_sub(known.messages);
    if durable >= known.next {
        let why = format!(
            "its index cannot be read at byte {}, and says that it was on disk up to there",
            known_end(&index, first, salt, &newest.known)? * FRAME as u64
        );
        return Ok(End::Damaged { lost: lost(&all), known: all, why });
    }
    // Data that was on disk must exist; the rest is searched.
    let mut end = newest.known.clone();
    let mut frames = Frames::new(&index, first);
    let mut newlines = Vec::new();
    let mut place = first;
    while let Some(bytes) = frames.next()? {
        let Ok(frame) = frame::decode(bytes, salt) else { break };
        if let Frame::Message(record) = &frame {
            let there = record.end() <= data_length;
            if !there && record.sequence <= durable {
                let lost = all.messages.saturating_sub(end.messages);
                let why = format!(
                    "it has {data_length} bytes, and at least {} were on disk",
                    record.end()
                );
                return Ok(End::Damaged { known: all, why, lost });
            }
            if !there {
                break;
            }
            if record.sequence > durable {
                if data.payload(record)?.is_none() {
                    break;
                }
                let mut newline = [0];
                data.read(record.end() - 1, &mut newline)?;
                if newline != *b"\n" {
                    newlines.push(record.end() - 1);
                }
            }
        }
        if !end.apply(&frame) {
            break;
        }
        place = frames.place();
    }
    if packed {
        return Ok(End::Closed(end));
    }
    let torn = all.messages.saturating_sub(end.messages);
    Ok(End::Open { known: end, index_end: place * FRAME as u64, data_length, newlines, torn })
}

/// The number of the first frame that does not follow.
fn known_end(index: &impl File, first: u64, salt: u32, head: &Known) -> io::Result<u64> {
    let (mut known, mut frames) = (head.clone(), Frames::new(index, first));
    loop {
        let place = frames.place();
        match frames.next()?.map(|bytes| frame::decode(bytes, salt)) {
            Some(Ok(frame)) if known.apply(&frame) => {}
            _ => return Ok(place),
        }
    }
}

/// Cuts off a torn end; an end of zeroes is not kept.
pub fn cut<D: Disk>(
    disk: &D,
    path: &str,
    known: &Known,
    index_end: u64,
    data_length: u64,
    messages: u64,
) -> io::Result<Option<Torn>> {
    let index = disk.open(&(path.to_owned() + INDEX), Access::Read)?;
    if index.length()? > index_end {
        disk.open(&(path.to_owned() + INDEX), Access::Write)?.truncate(index_end)?;
    }
    let bytes = data_length.saturating_sub(known.end);
    if bytes == 0 && messages == 0 {
        return Ok(None);
    }
    let data = disk.open(path, Access::Write)?;
    let (mut kept, mut copied) = (None, 0);
    let mut piece = vec![0; 1 << 16];
    while copied < bytes {
        let read = read_at(&data, known.end + copied, &mut piece)?;
        if read == 0 {
            break;
        }
        if kept.is_none() && piece[..read].iter().any(|byte| *byte != 0) {
            let name = free_name(disk, path, "torn")?;
            kept = Some((disk.open(&name, Access::Create)?, name));
        }
        if let Some((file, _)) = &kept {
            file.write(copied, &piece[..read])?;
        }
        copied += read as u64;
    }
    if let Some((file, _)) = &kept {
        file.sync()?;
        disk.sync_folder(parent(path))?;
    }
    if bytes > 0 {
        data.truncate(known.end)?;
    }
    let kept = kept.map(|(_, name)| disk.describe(&name));
    Ok(Some(Torn { file: disk.describe(path), offset: known.end, bytes, messages, kept }))
}

/// Marks the end of an index: no more frames follow.
pub fn close_damaged<D: Disk>(disk: &D, path: &str, mark: Mark) -> io::Result<()> {
    let index = disk.open(&(path.to_owned() + INDEX), Access::Write)?;
    let Ok(known) = index::read_head(&index)? else { return Ok(()) };
    let mut bytes = Vec::new();
    frame::encode(&mut bytes, known.head.salt, &Frame::Closed(mark));
    index.write(index.length()? / FRAME as u64 * FRAME as u64, &bytes)?;
    index.sync()
}
