//! Reading a topic again: from a position on, or back from one.

use crate::disk::Disk;
use crate::error::StoreError;
use crate::file::frame::{self, Frame, Record, FRAME};
use crate::file::index::Frames;
use crate::file::opened::{list, position, Listed, Opened};
use crate::message::{Position, Stored};
use crate::template::Template;

/// Reads what a file store holds of a topic, beside the store that writes: in the same process or in
/// another one. It is shown what is written, though it may not be on disk yet.
#[derive(Clone, Debug)]
pub struct Reader<D> {
    disk: D,
    template: Template,
    store: Vec<u8>,
    topic: Vec<u8>,
}

/// Something that could not be read: it is left out, and the rest is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Messages of the topic's files that are not whole, each file with how many.
    pub files: Vec<(String, u64)>,
}

impl Lost {
    pub fn messages(&self) -> u64 {
        self.files.iter().map(|(_, lost)| lost).sum()
    }

    fn add(&mut self, file: String, messages: u64) {
        match self.files.last_mut() {
            Some((last, lost)) if *last == file => *lost += messages,
            _ => self.files.push((file, messages)),
        }
    }
}

impl<D: Disk> Reader<D> {
    /// A reader of a topic of the store of this name.
    pub fn new(disk: D, template: Template, store: &str, topic: &[u8]) -> Self {
        Reader { disk, template, store: store.as_bytes().to_vec(), topic: topic.to_vec() }
    }

    fn list(&self) -> Result<Vec<Listed>, StoreError> {
        list(&self.disk, &self.template, &self.store, &self.topic)
            .map_err(|error| StoreError::new("listing", &self.disk.describe(""), error))
    }

    /// Reads on from the first message at `from` or behind it.
    pub fn forward(&self, from: Position) -> Forward<D> {
        Forward {
            reader: self.clone(),
            from,
            file: None,
            number: None,
            place: 0,
            limit: u64::MAX,
            expected: None,
            behind: None,
            lost: Lost::default(),
        }
    }

    /// Reads back from the last message at `to` or before it.
    ///
    /// # Errors
    ///
    /// If the folder cannot be listed.
    pub fn backward(&self, to: Position) -> Result<Backward<D>, StoreError> {
        let files = self.list()?;
        Ok(Backward { reader: self.clone(), to, files, file: None, lost: Lost::default() })
    }

    /// Returns the number of messages of the topic, those that are damaged among them. Where topics share their files all of those are read
    /// for it.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn len(&self) -> Result<u64, StoreError> {
        let mut count = 0;
        let files = self.list()?;
        for (n, listed) in files.iter().enumerate() {
            let next = files.get(n + 1);
            let next = next.filter(|next| next.head.number == listed.head.number + 1);
            if let (true, Some(next)) = (listed.head.by_topic, next) {
                count += next.head.first.min(listed.limit).saturating_sub(listed.head.first);
                continue;
            }
            let failed = |error| self.failed(&listed.path, error);
            let Some(file) = Opened::open(&self.disk, listed, true).map_err(failed)? else {
                continue;
            };
            let mut frames = Frames::new(&file.index, u64::from(listed.head.frames));
            while let Some(bytes) = frames.next().map_err(failed)? {
                if let Ok(Frame::Message(record)) = frame::decode(bytes, listed.head.salt) {
                    let ours = self.is_topic(&file, &record) && record.sequence < listed.limit;
                    count += u64::from(ours);
                }
            }
        }
        Ok(count)
    }

    /// Returns whether there is no message of the topic.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn is_empty(&self) -> Result<bool, StoreError> {
        Ok(self.forward(Position::FIRST).next()?.is_none())
    }

    fn failed(&self, path: &str, error: std::io::Error) -> StoreError {
        StoreError::new("reading", &self.disk.describe(path), error)
    }

    fn is_topic(&self, file: &Opened<D::File>, record: &Record) -> bool {
        file.topic(record.topic).is_some_and(|topic| *topic == self.topic)
    }

    fn stored(&self, record: &Record, payload: Vec<u8>, origin: u128) -> Stored {
        Stored {
            position: position(record),
            sequence: record.sequence,
            topic: self.topic.clone(),
            payload,
            time: record.time,
            origin,
            number: record.number,
        }
    }
}

/// Reads a topic in its order, and what comes later when it is asked again.
#[derive(Debug)]
pub struct Forward<D: Disk> {
    reader: Reader<D>,
    from: Position,
    file: Option<Opened<D::File>>,
    /// The number of the file that is open, or was last.
    number: Option<u64>,
    /// The frame that comes next.
    place: u64,
    limit: u64,
    /// The sequence that comes next in this file, once there was one.
    expected: Option<u64>,
    /// The file before, once it was read to its end, and the sequence of what should come next.
    behind: Option<(String, u64)>,
    lost: Lost,
}

/// A look at a place of a file.
enum Here {
    Message(Stored),
    /// Nothing to be told.
    Passed,
    /// It may be being written.
    NotYet,
    Closed,
}

impl<D: Disk> Forward<D> {
    /// Returns the next message; `None`: there is none yet.
    ///
    /// # Errors
    ///
    /// If the disk fails. It can be asked again.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Stored>, StoreError> {
        loop {
            if self.file.is_none() && !self.open_next()? {
                return Ok(None);
            }
            let file = self.file.as_ref().expect("just opened");
            let path = file.path.clone();
            let here = self.look().map_err(|error| self.reader.failed(&path, error))?;
            match here {
                Here::Message(stored) => return Ok(Some(stored)),
                Here::Passed => {}
                Here::Closed => {
                    self.behind = self.expected.map(|next| (path, next));
                    self.file = None;
                }
                Here::NotYet if self.file.as_ref().is_some_and(Opened::is_gone) => {
                    // Its data may have been about to be made: it is looked for again.
                    self.number = self.number.map(|number| number - 1);
                    self.file = None;
                    return Ok(None);
                }
                Here::NotYet => {
                    // A file that was given up is not closed: another one was begun.
                    let files = self.reader.list()?;
                    if !files.iter().any(|listed| Some(listed.head.number) > self.number) {
                        return Ok(None);
                    }
                    self.pass(&path)?;
                }
            }
        }
    }

    /// Returns what was left out so far.
    pub fn lost(&self) -> &Lost {
        &self.lost
    }

    /// Leaves a file that another one follows: what cannot be read in it never will be.
    fn pass(&mut self, path: &str) -> Result<(), StoreError> {
        let files = self.reader.list()?;
        let own = files.iter().find(|listed| Some(listed.head.number) == self.number);
        let next = self.number.map(|number| number + 1);
        let follows = files.iter().any(|listed| Some(listed.head.number) == next);
        self.limit = own.map_or(self.limit, |listed| listed.limit);
        let file = self.file.as_ref().expect("it is open");
        // Whatever was written until the other one was begun is read.
        let frames = file.frames().map_err(|error| self.reader.failed(path, error))?;
        if self.place < frames {
            let bad = self.bad().map_err(|error| self.reader.failed(path, error))?;
            if bad {
                self.place += 1;
            }
            return Ok(());
        }
        // What was between them may have been removed for its age.
        if let (Some(expected), true) = (self.expected, follows && self.limit < u64::MAX) {
            let lost = self.limit.saturating_sub(expected);
            self.count_lost(lost);
        }
        self.file = None;
        Ok(())
    }

    /// Returns whether what is here is no frame, or a message that is not whole.
    fn bad(&mut self) -> std::io::Result<bool> {
        let file = self.file.as_mut().expect("it is open");
        let mut frames = Frames::new(&file.index, self.place);
        let Some(bytes) = frames.next()? else { return Ok(false) };
        Ok(match frame::decode(bytes, file.head.salt) {
            Ok(Frame::Message(record)) => file.payload(&record)?.is_none(),
            Ok(_) => false,
            Err(_) => true,
        })
    }

    fn count_lost(&mut self, messages: u64) {
        if messages > 0 {
            let file = self.file.as_ref().expect("it is open");
            self.lost.add(self.reader.disk.describe(&file.path), messages);
        }
    }

    /// Opens the file behind the one that was read last; `false`: there is none.
    fn open_next(&mut self) -> Result<bool, StoreError> {
        for n in 1..=TRIES {
            let files = self.reader.list()?;
            let next = match self.number {
                Some(number) => files.iter().find(|listed| listed.head.number > number),
                // The last one with messages before it, and those of the same millisecond, all behind.
                None => {
                    let before = |listed: &&Listed| {
                        Position::new(listed.head.time / 1000, listed.head.n) < self.from
                    };
                    files.iter().rev().find(before).or(files.first())
                }
            };
            let Some(listed) = next else { return Ok(false) };
            let failed = |error| self.reader.failed(&listed.path, error);
            let opened = Opened::open(&self.reader.disk, listed, n == TRIES).map_err(failed)?;
            let Some(file) = opened else {
                continue;
            };
            self.place = file.seek(self.from).map_err(failed)?;
            // Files go from the oldest on: one that is missing behind one that is there was lost.
            let known = files.iter().any(|listed| Some(listed.head.number) == self.number);
            let (before, first) = (self.behind.take(), listed.head.first);
            if let (Some((path, next)), true) = (before, known) {
                if first > next {
                    self.lost.add(self.reader.disk.describe(&path), first - next);
                }
            }
            self.number = Some(listed.head.number);
            self.limit = listed.limit;
            let from_start = self.place == u64::from(file.head.frames);
            self.expected = from_start.then_some(file.head.first);
            self.file = Some(file);
            return Ok(true);
        }
        Ok(false)
    }

    /// Looks at what comes next, and passes it unless it may be being written.
    fn look(&mut self) -> std::io::Result<Here> {
        let file = self.file.as_mut().expect("it is open");
        let salt = file.head.salt;
        let mut frames = Frames::new(&file.index, self.place);
        let Some(&bytes) = frames.next()? else { return Ok(Here::NotYet) };
        let frame = match frame::decode(&bytes, salt) {
            Ok(frame) => frame,
            Err(_) => {
                // Damage, if anything whole is behind it.
                while let Some(bytes) = frames.next()? {
                    if frame::decode(bytes, salt).is_ok() {
                        self.place += 1;
                        return Ok(Here::Passed);
                    }
                }
                return Ok(Here::NotYet);
            }
        };
        match frame {
            Frame::Message(record) => {
                if record.sequence >= self.limit || position(&record) < self.from {
                    self.place += 1;
                    return Ok(Here::Passed);
                }
                let ours = self.reader.is_topic(file, &record);
                // It may be of this topic.
                let unknown = file.topic(record.topic).is_none();
                let payload = if ours { file.payload(&record)? } else { None };
                // It was written before its record, or the write failed and is undone.
                if ours
                    && payload.is_none()
                    && record.end() > file.length()?
                    && !self.is_closed()?
                {
                    return Ok(Here::NotYet);
                }
                self.place += 1;
                let missing =
                    record.sequence.saturating_sub(self.expected.unwrap_or(record.sequence));
                self.expected = Some(record.sequence + 1);
                self.count_lost(missing);
                let file = self.file.as_mut().expect("it is open");
                match payload {
                    Some(payload) => {
                        let origin = file.origin(record.origin)?;
                        let stored = self.reader.stored(&record, payload, origin);
                        self.from = stored.position.next();
                        Ok(Here::Message(stored))
                    }
                    None => {
                        self.count_lost(u64::from(ours || unknown));
                        Ok(Here::Passed)
                    }
                }
            }
            Frame::Closed(mark) => {
                let next = mark.next.min(self.limit);
                let missing = next.saturating_sub(self.expected.unwrap_or(next));
                self.expected = Some(next);
                self.count_lost(missing);
                Ok(Here::Closed)
            }
            declared => {
                file.note(&declared);
                self.place += 1;
                Ok(Here::Passed)
            }
        }
    }

    fn is_closed(&self) -> std::io::Result<bool> {
        let file = self.file.as_ref().expect("it is open");
        let Some(last) = file.frames()?.checked_sub(1) else { return Ok(false) };
        let mut frames = Frames::new(&file.index, last);
        let Some(bytes) = frames.next()? else { return Ok(false) };
        Ok(matches!(frame::decode(bytes, file.head.salt), Ok(Frame::Closed(_))))
    }
}

/// Files can be given other names while they are looked for.
const TRIES: usize = 50;

/// Reads a topic against its order, from what there was when it was begun.
#[derive(Debug)]
pub struct Backward<D: Disk> {
    reader: Reader<D>,
    to: Position,
    /// Those that were not read yet.
    files: Vec<Listed>,
    file: Option<Back<D::File>>,
    lost: Lost,
}

#[derive(Debug)]
struct Back<F> {
    opened: Opened<F>,
    limit: u64,
    /// The frames before this one were not read yet.
    place: u64,
    /// Some of these, from `from` on.
    buffer: Vec<u8>,
    from: u64,
}

impl<D: Disk> Backward<D> {
    /// Returns the message before.
    ///
    /// # Errors
    ///
    /// If the disk fails. It can be asked again.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Stored>, StoreError> {
        loop {
            if self.file.is_none() && !self.open_next()? {
                return Ok(None);
            }
            let path = self.file.as_ref().expect("just opened").opened.path.clone();
            let failed = |error| self.reader.failed(&path, error);
            let back = self.file.as_mut().expect("just opened");
            if back.place <= u64::from(back.opened.head.frames) {
                self.file = None;
                continue;
            }
            let Some(record) = back.record().map_err(failed)? else { continue };
            let behind = record.sequence >= back.limit || position(&record) > self.to;
            if behind || !self.reader.is_topic(&back.opened, &record) {
                continue;
            }
            match back.opened.payload(&record).map_err(failed)? {
                Some(payload) => {
                    let origin = back.opened.origin(record.origin).map_err(failed)?;
                    let stored = self.reader.stored(&record, payload, origin);
                    return Ok(Some(stored));
                }
                None => self.lost.add(self.reader.disk.describe(&path), 1),
            }
        }
    }

    /// Returns what was left out so far.
    pub fn lost(&self) -> &Lost {
        &self.lost
    }

    fn open_next(&mut self) -> Result<bool, StoreError> {
        let mut tries = 0;
        while let Some(listed) = self.files.last() {
            tries += 1;
            // All of it is behind.
            if Position::new(listed.head.time / 1000, listed.head.n) > self.to {
                self.files.pop();
                continue;
            }
            let failed = |error| self.reader.failed(&listed.path, error);
            match Opened::open(&self.reader.disk, listed, tries == TRIES).map_err(failed)? {
                Some(opened) => {
                    let place = opened.seek(self.to.next()).map_err(failed)?;
                    let limit = listed.limit;
                    let (buffer, from) = (Vec::new(), place);
                    self.file = Some(Back { opened, limit, place, buffer, from });
                    self.files.pop();
                    return Ok(true);
                }
                None if tries > TRIES => return Ok(false),
                None => {
                    // It has another name by now, or it went.
                    let number = listed.head.number;
                    self.files = self.reader.list()?;
                    self.files.retain(|listed| listed.head.number <= number);
                }
            }
        }
        Ok(false)
    }
}

/// Frames that are read at once.
const AT_ONCE: u64 = 256;

impl<F: crate::disk::File> Back<F> {
    /// The frame before, if it is a message.
    fn record(&mut self) -> std::io::Result<Option<Record>> {
        if self.place == self.from {
            let first = u64::from(self.opened.head.frames);
            self.from = self.place.saturating_sub(AT_ONCE).max(first);
            self.buffer.resize((self.place - self.from) as usize * FRAME, 0);
            let read = crate::disk::read_at(
                &self.opened.index,
                self.from * FRAME as u64,
                &mut self.buffer,
            )?;
            self.buffer[read..].fill(0);
        }
        self.place -= 1;
        let at = (self.place - self.from) as usize * FRAME;
        let bytes: &[u8; FRAME] = self.buffer[at..at + FRAME].try_into().expect("a frame");
        match frame::decode(bytes, self.opened.head.salt) {
            Ok(Frame::Message(record)) => Ok(Some(record)),
            _ => Ok(None),
        }
    }
}
