//! A copy of a journal while it is written to: the last snapshot, the segments behind it, and of the last
//! one what was written until now. All that a commit had confirmed before is in it.
//!
//! The files are opened at once and read later: what a snapshot removes meanwhile can still be
//! read. The copy includes the file that a cleanly closed journal leaves, which reveals what is
//! missing from a truncated or unfinished copy: write that file first.

use std::io;

use crate::file::{self, Closed, FileKind, Head, CLOSED, HEAD};
use crate::journal::{at, Journal};
use crate::record::{self, Bad};
use crate::scan;
use crate::storage::{read_all, File, Storage};

/// The parts of a journal that there are to copy.
#[derive(Debug)]
pub struct Copy<F> {
    parts: Vec<Part<F>>,
    closed: Closed,
}

/// A file of it.
#[derive(Debug)]
pub struct Part<F> {
    pub name: String,
    /// The number of bytes that are to be copied.
    pub bytes: u64,
    /// The length of the file, with zeroes behind those.
    pub length: u64,
    source: Source<F>,
}

#[derive(Debug)]
enum Source<F> {
    File(F),
    Closed([u8; HEAD]),
}

impl<F: File> Copy<F> {
    /// Returns the parts that are to be written, in that order.
    pub fn parts(&self) -> &[Part<F>] {
        &self.parts
    }

    /// Sequence of the last record that is in it.
    pub fn last(&self) -> u64 {
        self.closed.last
    }

    /// Bytes of a part from `offset` on, as many as there are to be copied and at most `most`.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is shorter than it was.
    pub fn read(&self, part: &Part<F>, offset: u64, most: usize) -> io::Result<Vec<u8>> {
        let length = part.bytes.saturating_sub(offset).min(most as u64) as usize;
        match &part.source {
            Source::Closed(bytes) => {
                let from = bytes.len().min(offset as usize);
                Ok(bytes[from..from + length].to_vec())
            }
            Source::File(file) => {
                let mut buffer = vec![0; length];
                let mut done = 0;
                while done < length {
                    match file.read(offset + done as u64, &mut buffer[done..])? {
                        0 => return Err(io::Error::other("it became shorter meanwhile")),
                        read => done += read,
                    }
                }
                Ok(buffer)
            }
        }
    }

    fn new(mut parts: Vec<Part<F>>, closed: Closed) -> Self {
        let (bytes, length) = (HEAD as u64, HEAD as u64);
        let source = Source::Closed(closed.encode());
        parts.insert(0, Part { name: CLOSED.to_owned(), bytes, length, source });
        Copy { parts, closed }
    }
}

impl<S: Storage> Journal<S> {
    /// Returns what there is to copy now. It holds up commits while the files are opened.
    ///
    /// # Errors
    ///
    /// If the folder cannot be listed, or a file of it cannot be opened.
    pub fn copy(&self) -> io::Result<Copy<S::File>> {
        let storage = &self.storage;
        let time = self.time();
        // Files are removed only by a holder of this lock, after announcing it.
        let writer = self.writer.lock();
        let mut names = Vec::new();
        let snapshots = storage.names()?;
        names.extend(newest(&snapshots).map(|number| file::name(FileKind::Snapshot, number)));
        names.extend(writer.names());
        let mut parts = Vec::new();
        for name in names {
            let source = storage.open(&name).map_err(at(storage, &name))?;
            let length = source.length().map_err(at(storage, &name))?;
            let bytes = if name == writer.name() { writer.position() } else { length };
            parts.push(Part { name, bytes, length, source: Source::File(source) });
        }
        Ok(Copy::new(parts, Closed { last: writer.last(), time }))
    }
}

/// Returns what there is to copy of a folder, whether another process has the journal open or
/// nobody. All of it is read, so that what is damaged is not taken for a copy.
///
/// # Errors
///
/// Fails if there is no journal, if it is damaged or of another version, or if the disk fails.
pub fn of<S: Storage>(storage: &S) -> io::Result<Copy<S::File>> {
    let mut tries = TRIES;
    loop {
        match attempt(storage) {
            // A snapshot was made, and removed what was there a moment ago.
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries > 0 => tries -= 1,
            found => return found,
        }
    }
}

const TRIES: u32 = 100;

fn attempt<S: Storage>(storage: &S) -> io::Result<Copy<S::File>> {
    let names = storage.names()?;
    let mut segments: Vec<u64> =
        names.iter().filter_map(|name| file::number(name, FileKind::Segment)).collect();
    segments.sort_unstable();
    let snapshot = newest(&names);
    let closed = match names.iter().any(|name| name == CLOSED) {
        true => match storage.open(CLOSED) {
            Ok(file) => head(storage, CLOSED, &file, Closed::decode)?,
            // A hub has just opened it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Closed::default(),
            Err(error) => return Err(at(storage, CLOSED)(error)),
        },
        false => Closed::default(),
    };
    if snapshot.is_none() && segments.is_empty() {
        let place = storage.describe("");
        return Err(io::Error::other(format!("{place} has no files of a journal")));
    }
    // Opened at once, before any of them is read.
    let mut opened = Vec::new();
    let snapshot_name = snapshot.map(|number| file::name(FileKind::Snapshot, number));
    for name in
        snapshot_name.into_iter().chain(segments.iter().map(|n| file::name(FileKind::Segment, *n)))
    {
        let file = storage.open(&name).map_err(at(storage, &name))?;
        opened.push((name, file));
    }
    let mut opened = opened.into_iter();
    let (mut parts, mut floor, mut last, mut time) = (Vec::new(), 0, None, closed.time);
    if let Some(number) = snapshot {
        let (name, file) = opened.next().expect("it was opened first");
        let length = check_snapshot(storage, &name, &file, number)?;
        parts.push(Part { name, bytes: length, length, source: Source::File(file) });
        floor = number;
    }
    let heads = segments.iter().zip(opened).map(|(&number, (name, file))| {
        let known =
            head(storage, &name, &file, |bytes| Head::decode(bytes, FileKind::Segment, number))?;
        Ok((known, name, file))
    });
    let heads: Vec<_> = heads.collect::<io::Result<_>>()?;
    let needed = heads.iter().rposition(|(head, ..)| head.first <= floor + 1).unwrap_or(0);
    let count = heads.len();
    for (n, (head, name, file)) in heads.into_iter().enumerate().skip(needed) {
        match last {
            Some(last) if head.follows != last => {
                let why = format!("it follows record {}, and {last} is before it", head.follows);
                return Err(damaged(storage, &name, &why));
            }
            None if head.first > floor + 1 => {
                let why = format!("it begins with record {}, and none before is there", head.first);
                return Err(damaged(storage, &name, &why));
            }
            _ => {}
        }
        let walked = walk(storage, &name, &file, &head, n + 1 == count)?;
        last = Some(walked.last);
        time = time.max(walked.time);
        let (bytes, length) = (walked.bytes, walked.length);
        parts.push(Part { name, bytes, length, source: Source::File(file) });
    }
    let last = last.unwrap_or(floor).max(floor);
    if last < closed.last {
        let why = format!("records from {} to {} are missing", last + 1, closed.last);
        return Err(damaged(storage, CLOSED, &why));
    }
    Ok(Copy::new(parts, Closed { last, time }))
}

/// The extent of a segment, as far as its records go.
struct Walked {
    last: u64,
    time: u64,
    bytes: u64,
    length: u64,
}

/// Reads a segment up to where its records end. For the last one that is where its writer was.
fn walk<S: Storage>(
    storage: &S,
    name: &str,
    file: &S::File,
    head: &Head,
    is_last: bool,
) -> io::Result<Walked> {
    let (mut content, mut offset, mut last, mut time) = (Vec::new(), HEAD, head.first - 1, 0);
    loop {
        read_all(file, &mut content).map_err(at(storage, name))?;
        let (before, mut bad) = (offset, Bad::Checksum);
        while let Some(rest) = content.get(offset..) {
            match record::decode(rest, head.salt) {
                Ok((record, length)) if record.sequence == last + 1 => {
                    last += 1;
                    time = time.max(record.time);
                    offset += length;
                }
                Ok(_) => break,
                Err(why) => {
                    bad = why;
                    break;
                }
            }
        }
        // The padding of a last record may be cut off.
        let end = offset.min(content.len());
        let length = content.len() as u64;
        if !is_last {
            return Ok(Walked { last, time, bytes: end as u64, length });
        }
        let behind = scan::behind(&content[end..], head.salt, last + 1);
        let cut = head.length > length;
        if behind.durable <= last && !cut && !matches!(bad, Bad::Kind(_)) {
            return Ok(Walked { last, time, bytes: end as u64, length });
        }
        // Bytes read while they were written had gaps, which are filled by now.
        if offset == before {
            let why = match bad {
                _ if cut => "something cut it".to_owned(),
                Bad::Kind(kind) => format!("a record of kind {kind}"),
                _ => format!("record {} cannot be read, though it was on disk", last + 1),
            };
            return Err(damaged(storage, name, &format!("{why}, at byte {offset}")));
        }
    }
}

/// Reads a snapshot to its end; how long it is.
fn check_snapshot<S: Storage>(
    storage: &S,
    name: &str,
    file: &S::File,
    number: u64,
) -> io::Result<u64> {
    let known = head(storage, name, file, |bytes| Head::decode(bytes, FileKind::Snapshot, number))?;
    let mut content = Vec::new();
    read_all(file, &mut content).map_err(at(storage, name))?;
    let mut offset = HEAD;
    loop {
        match record::decode(content.get(offset..).unwrap_or_default(), known.salt) {
            Ok((record, _)) if record.kind == record::RecordKind::End => {
                return Ok(content.len() as u64)
            }
            Ok((_, length)) => offset += length,
            Err(_) => {
                let why = format!("a piece of it cannot be read, at byte {offset}");
                return Err(damaged(storage, name, &why));
            }
        }
    }
}

fn head<S: Storage, T>(
    storage: &S,
    name: &str,
    file: &S::File,
    decode: impl FnOnce(&[u8]) -> Result<T, file::BadHead>,
) -> io::Result<T> {
    let mut bytes = [0; HEAD];
    let read = file.read(0, &mut bytes).map_err(at(storage, name))?;
    decode(&bytes[..read]).map_err(|bad| match bad {
        file::BadHead::Version(found) => {
            let known = file::VERSION;
            damaged(storage, name, &format!("its version is {found}; allowed: {known}"))
        }
        _ => damaged(storage, name, "its head cannot be read"),
    })
}

fn newest(names: &[String]) -> Option<u64> {
    names.iter().filter_map(|name| file::number(name, FileKind::Snapshot)).max()
}

fn damaged(storage: &impl Storage, name: &str, why: &str) -> io::Error {
    let place = storage.describe(name);
    io::Error::new(io::ErrorKind::InvalidData, format!("{place} is damaged: {why}"))
}
