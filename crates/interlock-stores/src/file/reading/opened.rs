//! A file of a store that is read: its index and its data, packed or not.

use std::io;

use crate::disk::{join, parent, read_at, Access, Disk, File};
use crate::error::StoreError;
use crate::file::compress::{Unpacked, COMPRESSED};
use crate::file::frame::{self, Frame, Head, Mark, Record, FRAME};
use crate::file::index::{self, Frames, Known, GOING, INDEX};
use crate::file::reading::listing::Listed;
use crate::message::{Position, Stored};

/// A file that is open to be read.
#[derive(Debug)]
pub struct Opened<F> {
    pub path: String,
    pub head: Head,
    pub index: F,
    data: Data<F>,
    /// The topics, by number less 1; `None`: the frame that declared it cannot be read.
    topics: Vec<Option<Vec<u8>>>,
    origins: Vec<u128>,
    name: Vec<u8>,
    /// Number of frames read for these.
    declared: u64,
}

/// The data of a file.
#[derive(Debug)]
pub enum Data<F> {
    Raw(F),
    Packed(Unpacked<F>),
    /// The data file is missing, and its index still exists.
    Gone,
    /// The data file is about to be created; its index exists already.
    ToBeMade,
}

impl<F: File> Opened<F> {
    /// Opens a file; `None`: it has another name by now, or none, or is just getting one. With `at_last`
    /// data that is not there is gone.
    pub fn open<D: Disk<File = F>>(
        disk: &D,
        listed: &Listed,
        at_last: bool,
    ) -> io::Result<Option<Self>> {
        let name = listed.path.clone() + INDEX;
        let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let index = match disk.open(&name, Access::Read) {
            Ok(index) => index,
            Err(error) if gone(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Ok(known) = index::read_head(&index)? else { return Ok(None) };
        if known.head != listed.head {
            return Ok(None);
        }
        // Data is made before the first message.
        let is_new = index.length()? <= u64::from(known.head.frames) * FRAME as u64;
        let raw = match disk.open(&listed.path, Access::Read) {
            Ok(file) => Data::Raw(file),
            Err(error) if gone(&error) => {
                match disk.open(&(listed.path.clone() + COMPRESSED), Access::Read) {
                    Ok(file) => Data::Packed(Unpacked::open(file)?),
                    Err(error) if gone(&error) && at_last => {
                        match moved_data(disk, &listed.path, &index, &known.head)? {
                            Some(path) => return Self::moved(disk, listed, &path, index),
                            None if is_new => Data::ToBeMade,
                            None => Data::Gone,
                        }
                    }
                    Err(error) if gone(&error) => return Ok(None),
                    Err(error) => return Err(error),
                }
            }
            Err(error) => return Err(error),
        };
        // The data file belongs to this index only if the index still has its own name.
        if !disk.holds(&name, &index) {
            return Ok(None);
        }
        Self::of(listed, known, index, raw).map(Some)
    }

    /// One whose data has another name already.
    fn moved<D: Disk<File = F>>(
        disk: &D,
        listed: &Listed,
        path: &str,
        index: F,
    ) -> io::Result<Option<Self>> {
        let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let (data, packed) = match disk.open(path, Access::Read) {
            Err(error) if gone(&error) => {
                match disk.open(&format!("{path}{COMPRESSED}"), Access::Read) {
                    Err(error) if gone(&error) => return Ok(None),
                    data => (data?, true),
                }
            }
            data => (data?, false),
        };
        let Ok(known) = index::read_head(&index)? else { return Ok(None) };
        Self::of(listed, known, index, Data::of(data, packed)?).map(Some)
    }

    fn of(listed: &Listed, known: Known, index: F, data: Data<F>) -> io::Result<Self> {
        let mut opened = Opened {
            path: listed.path.clone(),
            head: known.head,
            index,
            data,
            topics: known.topics.into_iter().map(Some).collect(),
            origins: known.origins.iter().map(|(id, _)| *id).collect(),
            name: Vec::new(),
            declared: 0,
        };
        // Which number a topic has is needed for each message; which origin, only to tell it.
        if !opened.head.by_topic {
            opened.declarations()?;
        }
        Ok(opened)
    }

    /// Returns the origin of a number; it may stand far before the message.
    pub fn origin(&mut self, number: u32) -> io::Result<u128> {
        let Some(place) = (number as usize).checked_sub(1) else { return Ok(0) };
        if self.origins.get(place).is_none_or(|origin| *origin == 0) {
            self.declarations()?;
        }
        Ok(self.origins.get(place).copied().unwrap_or(0))
    }

    /// Reads which topics and origins there are.
    fn declarations(&mut self) -> io::Result<()> {
        let (mut topics, mut origins) = (Vec::new(), Vec::new());
        let mut name = Vec::new();
        let declared = self.frames()?;
        let mut frames = Frames::new(&self.index, 1);
        while let Some(bytes) = frames.next()? {
            // Most are messages, of which no checksum is needed here.
            if !matches!(bytes[4], 3 | 4) {
                continue;
            }
            if let Ok(frame) = frame::decode(bytes, self.head.salt) {
                note(&frame, &mut topics, &mut origins, &mut name);
            }
        }
        (self.topics, self.origins, self.name) = (topics, origins, name);
        self.declared = declared;
        Ok(())
    }

    /// Returns whether there was no data when it was opened, although it had messages.
    pub fn is_gone(&self) -> bool {
        matches!(self.data, Data::Gone)
    }

    /// Returns whether there were neither data nor messages when it was opened: to be opened again.
    pub fn is_to_be_made(&self) -> bool {
        matches!(self.data, Data::ToBeMade)
    }

    /// Returns the topic of a number; `None`: it is not known.
    pub fn topic(&self, number: u32) -> Option<&[u8]> {
        let place = (number as usize).checked_sub(1)?;
        self.topics.get(place)?.as_deref()
    }

    /// Reads the declarations made since the file was opened, if this topic may be among them.
    pub fn know(&mut self, number: u32) -> io::Result<()> {
        if self.topic(number).is_none() && self.frames()? > self.declared {
            self.declarations()?;
        }
        Ok(())
    }

    /// Notes the declaration in a frame.
    pub fn note(&mut self, frame: &Frame<'_>) {
        note(frame, &mut self.topics, &mut self.origins, &mut self.name);
    }

    /// Returns the last message before a frame.
    pub fn last_before(&self, place: u64) -> io::Result<Option<Record>> {
        let first = u64::from(self.head.frames);
        for place in (first..place).rev() {
            let mut frames = Frames::new(&self.index, place);
            if let Some(Ok(Frame::Message(record))) =
                frames.next()?.map(|bytes| frame::decode(bytes, self.head.salt))
            {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Returns the mark at the end of a file that is never written to again.
    pub fn closed(&self) -> io::Result<Option<Mark>> {
        let Some(last) = self.frames()?.checked_sub(1) else { return Ok(None) };
        let mut frames = Frames::new(&self.index, last);
        let Some(bytes) = frames.next()? else { return Ok(None) };
        Ok(match frame::decode(bytes, self.head.salt) {
            Ok(Frame::Closed(mark)) => Some(mark),
            _ => None,
        })
    }

    pub fn frames(&self) -> io::Result<u64> {
        if self.is_to_be_made() {
            return Ok(u64::from(self.head.frames));
        }
        Ok(self.index.length()? / FRAME as u64)
    }

    /// The place of the first message at this position or behind it, or of the end.
    pub fn seek(&self, from: Position) -> io::Result<u64> {
        let (mut low, mut high) = (u64::from(self.head.frames), self.frames()?);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.message_from(middle, high)? {
                Some((_, record)) if position(&record) >= from => high = middle,
                Some((place, _)) => low = place + 1,
                None => high = middle,
            }
        }
        Ok(low)
    }

    /// The first message that is whole from a frame on.
    fn message_from(&self, from: u64, to: u64) -> io::Result<Option<(u64, Record)>> {
        let mut frames = Frames::new(&self.index, from);
        for place in from..to {
            let Some(bytes) = frames.next()? else { break };
            if let Ok(Frame::Message(record)) = frame::decode(bytes, self.head.salt) {
                return Ok(Some((place, record)));
            }
        }
        Ok(None)
    }

    /// Reads a payload; `None`: it is not whole.
    pub fn payload(&mut self, record: &Record) -> io::Result<Option<Vec<u8>>> {
        self.data.payload(record)
    }

    /// Bytes of the data, as they were written.
    pub fn length(&self) -> io::Result<u64> {
        self.data.length()
    }
}

impl<F: File> Data<F> {
    /// Wraps a file that is compressed, or is not.
    pub fn of(file: F, packed: bool) -> io::Result<Self> {
        Ok(if packed { Data::Packed(Unpacked::open(file)?) } else { Data::Raw(file) })
    }

    /// Reads a payload; `None`: it is not whole.
    pub fn payload(&mut self, record: &Record) -> io::Result<Option<Vec<u8>>> {
        let (at, length) = (record.offset, record.length as usize);
        // The index's figures are checked first, so that no memory is allocated for a wrong one.
        if record.end() > self.length()? {
            return Ok(None);
        }
        let mut payload = vec![0; length];
        let read = self.read(at, &mut payload)?;
        Ok((read == length && crc32c::crc32c(&payload) == record.crc).then_some(payload))
    }

    /// Reads what there is at a place, up to the length of `buffer`; of a part that is damaged nothing.
    pub fn read(&mut self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Data::Raw(file) => read_at(file, at, buffer),
            Data::Packed(unpacked) => match unpacked.read_at(at, buffer) {
                Err(error) if error.raw_os_error().is_none() => Ok(0),
                read => read,
            },
            Data::Gone | Data::ToBeMade => Ok(0),
        }
    }

    /// Bytes of the data, as they were written.
    pub fn length(&self) -> io::Result<u64> {
        match self {
            Data::Raw(file) => file.length(),
            Data::Packed(unpacked) => Ok(unpacked.length()),
            Data::Gone | Data::ToBeMade => Ok(0),
        }
    }
}

fn note(
    frame: &Frame<'_>,
    topics: &mut Vec<Option<Vec<u8>>>,
    origins: &mut Vec<u128>,
    partly: &mut Vec<u8>,
) {
    match *frame {
        Frame::Topic { topic, piece, name, last } => {
            if piece == 0 {
                partly.clear();
            }
            partly.extend_from_slice(name);
            if last {
                put(topics, topic, Some(std::mem::take(partly)));
            }
        }
        Frame::Origin { origin, id, .. } => put(origins, origin, id),
        _ => {}
    }
}

/// Puts what has a number into its place, if that is not far from those that are known.
fn put<T: Clone + Default>(all: &mut Vec<T>, number: u32, value: T) {
    let Some(place) = (number as usize).checked_sub(1) else { return };
    if place > all.len() + FAR {
        return;
    }
    if place >= all.len() {
        all.resize(place + 1, T::default());
    }
    all[place] = value;
}

const FAR: usize = 1 << 16;

pub fn position(record: &Record) -> Position {
    Position::new(record.time / 1000, record.n)
}

pub fn stored(record: &Record, topic: Vec<u8>, payload: Vec<u8>, origin: u128) -> Stored {
    Stored {
        position: position(record),
        sequence: record.sequence,
        topic,
        payload,
        time: record.time,
        origin,
        number: record.number,
    }
}

/// Tries to open a file before its data is taken to be gone: it can be given another name meanwhile.
const TRIES: usize = 50;

type Opening<F> = Result<Option<(Opened<F>, Listed)>, StoreError>;

/// Opens a file, wherever it is by now; `None`: it is gone. `look` finds the files that there are.
///
/// # Errors
///
/// If the disk fails.
pub fn open_listed<D: Disk>(
    disk: &D,
    listed: &Listed,
    mut look: impl FnMut() -> Result<Vec<Listed>, StoreError>,
) -> Opening<D::File> {
    let (mut now, mut tries) = (listed.clone(), 0);
    loop {
        tries += 1;
        let opened = Opened::open(disk, &now, tries >= TRIES);
        match opened
            .map_err(|error| StoreError::new("reading", &disk.describe(&now.path), error))?
        {
            Some(opened) => return Ok(Some((opened, now))),
            // Looking costs more than trying again.
            None if tries < TRIES && !tries.is_power_of_two() => std::thread::yield_now(),
            None => match look()?.into_iter().find(|other| other.head == listed.head) {
                None => return Ok(None),
                Some(found) => {
                    // Each name has its tries.
                    if found.path != now.path {
                        tries = 0;
                    }
                    now = found;
                }
            },
        }
    }
}

/// The position of the last message before a file.
pub fn head_position(head: &Head) -> Position {
    Position::new(head.time / 1000, head.n)
}

/// Finds the data of an index where it was renamed and the index was to follow: under the name of a rotated
/// file that has no index, and with the first message in it.
pub fn moved_data<D: Disk>(
    disk: &D,
    path: &str,
    index: &D::File,
    head: &Head,
) -> io::Result<Option<String>> {
    let mut frames = Frames::new(index, u64::from(head.frames));
    let mut first = None;
    while let Some(bytes) = frames.next()? {
        if let Ok(Frame::Message(record)) = frame::decode(bytes, head.salt) {
            first = Some(record);
            break;
        }
    }
    // Without a written message there is nothing to find.
    let Some(first) = first else { return Ok(None) };
    for entry in disk.list(parent(path))? {
        let file = join(parent(path), &entry.name);
        let stem = file.strip_suffix(COMPRESSED).unwrap_or(&file);
        let ours = before_rotation(stem).as_deref() == Some(path);
        if !ours
            || disk.exists(&format!("{stem}{INDEX}"))?
            || disk.exists(&format!("{stem}{GOING}"))?
        {
            continue;
        }
        let data = match disk.open(&file, Access::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            data => Data::of(data?, stem != file),
        };
        if data.is_ok_and(|mut data| matches!(data.payload(&first), Ok(Some(_)))) {
            return Ok(Some(stem.to_owned()));
        }
    }
    Ok(None)
}

/// The path that a rotated file had before; `None`: it was not rotated.
fn before_rotation(path: &str) -> Option<String> {
    rotation(path).map(|(before, _, _)| before)
}

/// The path that a rotated file had before, the moment in its name, and which one of that second it is.
pub fn rotation(path: &str) -> Option<(String, &str, u32)> {
    let (stem, ending) = path.rsplit_once('.')?;
    let (stem, number) = stem.rsplit_once('.')?;
    let (before, moment) = stem.rsplit_once('-')?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (date, time) = moment.split_once('T')?;
    let rotated = date.len() == 8 && time.len() == 6 && number.len() >= 3;
    if !rotated || !digits(date) || !digits(time) || !digits(number) {
        return None;
    }
    Some((format!("{before}.{ending}"), moment, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use crate::file::reading::opened::*;
    use crate::template::Template;

    #[test]
    fn the_original_name_is_derived_from_a_rotated_name() {
        for path in ["a/2026-11-23.log", "x.y-z.log"] {
            let rotated = Template::rotated(path, 1_795_435_199_000_000, 12);
            assert_eq!(before_rotation(&rotated).as_deref(), Some(path));
            assert_eq!(before_rotation(path), None);
        }
    }
}
