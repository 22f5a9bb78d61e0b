//! A data file and its index, while it is written to.

use std::collections::HashMap;
use std::io;

use crate::disk::{Access, Disk, File};
use crate::file::frame::{self, Frame, Head, Mark, Record, FRAME};
use crate::file::index::{Known, INDEX};

/// A segment: what is known of it stays, its descriptors come and go.
#[derive(Debug)]
pub struct Segment<F> {
    pub path: String,
    pub number: u64,
    salt: u32,
    topics: HashMap<Vec<u8>, u32>,
    origins: HashMap<u128, u32>,
    pub index_end: u64,
    pub data_end: u64,
    pub messages: u64,
    /// Time of the first message, or when it was made.
    pub begun: u64,
    pub period: (i64, i64),
    pub handles: Option<Handles<F>>,
    /// The last use of it, counted by uses.
    pub used: u64,
    /// Its name may not be on disk yet.
    pub fresh: bool,
    /// Something of it may not be on disk.
    pub dirty: bool,
    /// The index says that all is on disk.
    pub marked: bool,
    /// True if it takes no further messages, and must be closed.
    pub ended: bool,
    /// Behind its end there may be what was written in vain.
    tainted: bool,
}

#[derive(Debug)]
pub struct Handles<F> {
    pub data: F,
    pub index: F,
}

/// A message that waits to be written.
#[derive(Clone, Copy, Debug)]
pub struct Waiting<'a> {
    pub topic: &'a [u8],
    pub origin: u128,
    pub record: Record,
}

/// Frames that are to be written, and what is known with them.
#[derive(Debug, Default)]
pub struct Batch {
    frames: Vec<u8>,
    topics: HashMap<Vec<u8>, u32>,
    origins: HashMap<u128, u32>,
    end: u64,
    messages: u64,
}

impl<F: File> Segment<F> {
    /// One that was read, to be written on.
    pub fn of(path: String, known: &Known, index_end: u64, period: (i64, i64)) -> Self {
        let numbered = |n: usize| n as u32 + 1;
        Segment {
            path,
            number: known.head.number,
            salt: known.head.salt,
            topics: known.topics.iter().cloned().zip((0..).map(numbered)).collect(),
            origins: known.origins.iter().map(|(id, _)| *id).zip((0..).map(numbered)).collect(),
            index_end,
            data_end: known.end,
            messages: known.messages,
            begun: known.begun,
            period,
            handles: None,
            used: 0,
            fresh: true,
            dirty: true,
            marked: false,
            ended: false,
            tainted: false,
        }
    }

    /// A new one, with what its head has to say.
    pub fn begin<D: Disk<File = F>>(
        disk: &D,
        path: String,
        head: Head,
        store: &[u8],
        topic: Option<&[u8]>,
        origins: impl Iterator<Item = (u128, u64)>,
    ) -> io::Result<Self> {
        let (salt, mut bytes) = (head.salt, vec![0; FRAME]);
        frame::encode_name(&mut bytes, salt, store, |piece, name, last| Frame::Store {
            piece,
            name,
            last,
        });
        let mut topics = HashMap::new();
        if let Some(topic) = topic {
            encode_topic(&mut bytes, salt, topic, 1);
            topics.insert(topic.to_vec(), 1);
        }
        let mut known = HashMap::new();
        for (id, last) in origins {
            let origin = known.len() as u32 + 1;
            frame::encode(&mut bytes, salt, &Frame::Origin { origin, id, last });
            known.insert(id, origin);
        }
        let frames = (bytes.len() / FRAME) as u32;
        let mut first = Vec::new();
        frame::encode(&mut first, salt, &Frame::Head(Head { frames, ..head }));
        bytes[..FRAME].copy_from_slice(&first);
        let index = disk.open(&(path.clone() + INDEX), Access::Create)?;
        let made = index.write(0, &bytes).and_then(|()| disk.open(&path, Access::Create));
        let data = match made {
            Ok(data) => data,
            Err(error) => {
                // A head alone would be in the way of the next try.
                let _ = disk.remove(&(path + INDEX));
                return Err(error);
            }
        };
        Ok(Segment {
            path,
            number: head.number,
            salt,
            topics,
            origins: known,
            index_end: bytes.len() as u64,
            data_end: 0,
            messages: 0,
            begun: 0,
            period: (0, 0),
            handles: Some(Handles { data, index }),
            used: 0,
            fresh: true,
            dirty: true,
            marked: false,
            ended: false,
            tainted: false,
        })
    }

    /// Opens what was closed to have fewer descriptors. `Ok(false)`: it is not there any more.
    pub fn open<D: Disk<File = F>>(&mut self, disk: &D) -> io::Result<bool> {
        if self.handles.is_some() {
            return Ok(true);
        }
        let opened = disk.open(&self.path, Access::Write).and_then(|data| {
            let index = disk.open(&(self.path.clone() + INDEX), Access::Write)?;
            Ok(Handles { data, index })
        });
        match opened {
            Ok(handles) => self.handles = Some(handles),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    fn handles(&self) -> &Handles<F> {
        self.handles.as_ref().expect("it was opened")
    }

    /// Returns whether what is open is still what has these names: of a file that was removed or moved
    /// nobody would find what is written to it.
    pub fn is_there<D: Disk<File = F>>(&self, disk: &D) -> bool {
        let Handles { data, index } = self.handles();
        disk.holds(&self.path, data) && disk.holds(&(self.path.clone() + INDEX), index)
    }

    /// Returns whether it is as long as it was left: somebody may have cut it, as to rotate it.
    pub fn is_long(&self) -> bool {
        let Handles { data, index } = self.handles();
        let long = |file: &F, end: u64| file.length().map_or(true, |length| length >= end);
        long(data, self.data_end) && long(index, self.index_end)
    }

    /// Adds a message to those that are to be written; its offset is set here.
    pub fn add(&self, batch: &mut Batch, waiting: Waiting<'_>) {
        if batch.messages == 0 {
            batch.end = self.data_end;
        }
        let Waiting { topic, origin, mut record } = waiting;
        record.topic = match self.topics.get(topic).or_else(|| batch.topics.get(topic)) {
            Some(number) => *number,
            None => {
                let number = (self.topics.len() + batch.topics.len()) as u32 + 1;
                encode_topic(&mut batch.frames, self.salt, topic, number);
                batch.topics.insert(topic.to_vec(), number);
                number
            }
        };
        record.origin = match self.origins.get(&origin).or_else(|| batch.origins.get(&origin)) {
            _ if origin == 0 => 0,
            Some(number) => *number,
            None => {
                let number = (self.origins.len() + batch.origins.len()) as u32 + 1;
                let frame = Frame::Origin { origin: number, id: origin, last: 0 };
                frame::encode(&mut batch.frames, self.salt, &frame);
                batch.origins.insert(origin, number);
                number
            }
        };
        record.offset = batch.end;
        frame::encode(&mut batch.frames, self.salt, &Frame::Message(record));
        batch.end = record.end();
        batch.messages += 1;
    }

    /// Writes messages, the data first. Until this returns nothing of it counts.
    pub fn write(&mut self, data: &[u8], batch: &Batch) -> io::Result<()> {
        debug_assert_eq!(self.data_end + data.len() as u64, batch.end);
        self.clean()?;
        let handles = self.handles();
        let written = handles.data.write(self.data_end, data);
        let written = written.and_then(|()| handles.index.write(self.index_end, &batch.frames));
        if let Err(error) = written {
            self.tainted = true;
            // Whoever reads the file by `tail` sees no half of a message for longer than it must.
            let _ = self.clean();
            return Err(error);
        }
        Ok(())
    }

    /// Cuts off what was written in vain: something else of the same length may come in its place, and
    /// the rest would then be taken for what follows it.
    fn clean(&mut self) -> io::Result<()> {
        if self.tainted {
            let Handles { data, index } = self.handles();
            index.truncate(self.index_end)?;
            data.truncate(self.data_end)?;
            self.tainted = false;
        }
        Ok(())
    }

    /// Notes that a batch was written.
    pub fn written(&mut self, batch: Batch, begun: u64) {
        self.topics.extend(batch.topics);
        self.origins.extend(batch.origins);
        self.data_end = batch.end;
        self.index_end += batch.frames.len() as u64;
        if self.messages == 0 {
            self.begun = begun;
        }
        self.messages += batch.messages;
        (self.dirty, self.marked) = (true, false);
    }

    /// All that was written is on disk when this returns, the data before what says that it is there.
    pub fn sync(&self) -> io::Result<()> {
        let Handles { data, index } = self.handles();
        data.sync()?;
        index.sync()
    }

    /// Marks in the index that everything before is on disk.
    pub fn write_mark(&mut self, mark: Mark) -> io::Result<()> {
        self.clean()?;
        let mut bytes = Vec::new();
        frame::encode(&mut bytes, self.salt, &Frame::Mark(mark));
        self.handles().index.write(self.index_end, &bytes)?;
        self.index_end += FRAME as u64;
        self.marked = true;
        Ok(())
    }

    /// Marks in the index of a synced file that no more frames follow, and syncs the mark. The order matters:
    /// after a crash the mark must not exist without the data.
    pub fn close(&mut self, mark: Mark) -> io::Result<()> {
        self.clean()?;
        let mut bytes = Vec::new();
        frame::encode(&mut bytes, self.salt, &Frame::Closed(mark));
        let index = &self.handles().index;
        index.write(self.index_end, &bytes)?;
        index.sync()
    }
}

fn encode_topic(out: &mut Vec<u8>, salt: u32, topic: &[u8], number: u32) {
    frame::encode_name(out, salt, topic, |piece, name, last| Frame::Topic {
        topic: number,
        piece,
        name,
        last,
    });
}
