//! The step from one file of a chain to the next.

use std::io;

use crate::disk::{parent, Disk, File};
use crate::error::StoreError;
use crate::file::compress::COMPRESSED;
use crate::file::files::Closed;
use crate::file::frame::{Head, FRAME};
use crate::file::index::{self, Known, GOING, INDEX};
use crate::file::writing::segment::Segment;
use crate::file::writing::store::{Due, FileStore, AT_ONCE};
use crate::template::Template;

impl<D: Disk> FileStore<D> {
    /// Closes every file that has messages in it: the next message of each begins another one.
    ///
    /// # Errors
    ///
    /// If one cannot be closed; the others are. Of very many, some are closed by [`Self::upkeep`].
    pub fn rotate(&mut self) -> Result<(), StoreError> {
        let mut failed = None;
        self.end(|_, _| true);
        self.work(AT_ONCE, &mut failed);
        failed.map_or(Ok(()), Err)
    }

    /// Marks files with messages that match as ended: they take no more, and are to be closed.
    pub(in crate::file) fn end(&mut self, is_such: impl Fn(&Segment<D::File>, u64) -> bool) {
        for (place, chain) in self.chains.iter_mut().enumerate() {
            let last = chain.kept.time;
            let Some(segment) = &mut chain.segment else { continue };
            if segment.messages > 0 && !segment.ended && is_such(segment, last) {
                segment.ended = true;
                self.due.push_back(Due::Close(place));
            }
        }
    }

    /// Closes the file of a chain: all of it is on disk then, and it is never written to again.
    pub(in crate::file) fn close_segment(&mut self, place: usize) -> Result<(), StoreError> {
        if self.chains[place].segment.is_none() {
            return Ok(());
        }
        if self.chains[place].segment.as_ref().is_some_and(|segment| segment.dirty) {
            self.sync(place)?;
        }
        let there = self.open_segment(place)?;
        let chain = &mut self.chains[place];
        let segment = chain.segment.as_mut().expect("just seen");
        if !there || !segment.is_there(&self.disk) || !segment.is_long() {
            // Whoever removed or moved it has it.
            self.give_up(place);
            return Ok(());
        }
        let reached = if chain.waiting.written > 0 { chain.waiting.reached } else { chain.kept };
        let path = segment.path.clone();
        let closed = segment.close(reached.mark(segment.data_end));
        if let Err(error) = closed {
            self.give_up(place);
            return Err(StoreError::new("closing", &self.disk.describe(&path), error));
        }
        self.settle(place);
        let chain = &mut self.chains[place];
        chain.durable = chain.kept.sequence;
        let segment = chain.segment.take().expect("just seen");
        self.counters.closed += 1;
        self.files.add(Closed {
            path: segment.path,
            chain: place,
            number: segment.number,
            bytes: segment.data_end + segment.index_end + FRAME as u64,
            time: reached.time,
            compressed: self.settings.compression.is_none(),
        });
        Ok(())
    }

    /// Begins a file for messages of a chain from `time` on.
    pub(in crate::file) fn begin(
        &mut self,
        place: usize,
        time: u64,
        period: (i64, i64),
    ) -> Result<(), StoreError> {
        let topic = self.chains[place].topic.clone();
        let path = self.settings.template.expand(topic.as_deref().unwrap_or(b""), time);
        if let Some(segment) = &mut self.chains[place].segment {
            if segment.messages == 0 && segment.path == path {
                segment.period = period;
                return Ok(());
            }
        }
        self.close_segment(place)?;
        let folder = parent(&path).to_owned();
        let made = self.disk.make_folder(&folder);
        let fresh =
            made.map_err(|error| StoreError::new("making", &self.disk.describe(&folder), error))?;
        self.folders.extend(fresh);
        self.displace(&path, time)?;
        self.files.forget(&path);
        self.make_way();
        let chain = &self.chains[place];
        let kept = if chain.waiting.written > 0 { chain.waiting.reached } else { chain.kept };
        let number = chain.number + 1;
        let head = Head {
            salt: self.settings.salt ^ (number as u32).wrapping_mul(0x9E37_79B9),
            number,
            first: kept.sequence + 1,
            time: kept.time,
            n: kept.n,
            frames: 0,
            by_topic: topic.is_some(),
        };
        // Origins of waiting messages are left out: they are written after this.
        let mut origins: Vec<_> = chain.written_origins().into_iter().collect();
        origins.sort_unstable();
        let store = self.settings.name.as_bytes();
        let origins = origins.into_iter();
        let begun =
            Segment::begin(&self.disk, path.clone(), head, store, topic.as_deref(), origins);
        let mut segment =
            begun.map_err(|error| StoreError::new("making", &self.disk.describe(&path), error))?;
        let chain = &mut self.chains[place];
        chain.number = number;
        self.uses += 1;
        (segment.period, segment.used, segment.begun) = (period, self.uses, time);
        chain.segment = Some(segment);
        if !std::mem::replace(&mut chain.unsynced, true) {
            self.unsynced.push(place);
        }
        self.open.push(place);
        self.counters.begun += 1;
        Ok(())
    }

    /// Renames a file in the way at this path: it is no longer written to.
    fn displace(&mut self, path: &str, now: u64) -> Result<(), StoreError> {
        let index = path.to_owned() + INDEX;
        let at = |error| StoreError::new("looking at", &self.disk.describe(path), error);
        // Half of another file may be here, on its way.
        let half =
            self.renames.iter().find(|(_, (to, _))| to == path).map(|(from, _)| from.clone());
        if let Some(from) = half {
            let there = self.endings(&from).map_err(at)?;
            self.rename(&from, Whose::default(), &there)?;
        }
        let at = |error| StoreError::new("looking at", &self.disk.describe(path), error);
        let there = self.endings(path).map_err(at)?;
        if there.is_empty() {
            // All of it has the other name, if one was given, and only that is to be noted.
            return match self.renames.contains_key(path) {
                true => self.rename(path, Whose::default(), &there),
                false => Ok(()),
            };
        }
        let mut whose = Whose { begun: now, ..Whose::default() };
        if there.contains(&INDEX) {
            let known = self.disk.open(&index, crate::disk::Access::Read);
            let known = known.and_then(|file| first_message(&file)).map_err(at)?;
            if let Some(known) = known {
                whose = self.whose(path, &known)?;
            }
        }
        // A topic can have the name that another one's file got when it was rotated.
        if let Some(chain) = whose.chain {
            if self.chains[chain].segment.as_ref().is_some_and(|segment| segment.path == path) {
                self.close_segment(chain)?;
            }
        }
        self.rename(path, whose, &there)
    }

    /// Returns whose file this is.
    fn whose(&self, path: &str, known: &Known) -> Result<Whose, StoreError> {
        if known.store != self.settings.name.as_bytes() {
            let other = String::from_utf8_lossy(&known.store);
            let error = format!("it belongs to the store {other}");
            let error = io::Error::new(io::ErrorKind::ResourceBusy, error);
            return Err(StoreError::new("writing", &self.disk.describe(path), error));
        }
        let begun = if known.messages > 0 { known.begun } else { known.head.time };
        let chain = match known.head.by_topic {
            true => known.topics.first().and_then(|topic| self.by_topic.get(topic)).copied(),
            false => self.shared,
        };
        Ok(Whose { begun, number: known.head.number, chain })
    }

    /// Returns what there is of a file.
    fn endings(&self, path: &str) -> io::Result<Vec<&'static str>> {
        let mut there = Vec::new();
        for ending in [INDEX, GOING, COMPRESSED, ""] {
            if self.disk.exists(&format!("{path}{ending}"))? {
                there.push(ending);
            }
        }
        Ok(there)
    }

    fn rename(&mut self, path: &str, whose: Whose, endings: &[&str]) -> Result<(), StoreError> {
        let (free, number) = match self.renames.get(path) {
            Some(begun) => begun.clone(),
            None => (self.free_name(path, whose)?, whose.number),
        };
        let at = |error| StoreError::new("renaming", &self.disk.describe(path), error);
        // If the disk fails in between, the next try has to give the same name to what is left.
        self.renames.insert(path.to_owned(), (free.clone(), number));
        // The index last: an index without data looks for it under such names, and what goes because it is
        // old leaves its index last as well.
        for ending in endings.iter().rev() {
            let (from, to) = (format!("{path}{ending}"), format!("{free}{ending}"));
            self.disk.rename(&from, &to).map_err(at)?;
            self.disk.sync_folder(parent(path)).map_err(at)?;
        }
        self.renames.remove(path);
        self.files.renamed(path, number, &free);
        Ok(())
    }

    /// Returns a name that no file has, behind all that its chain gave in the same second: those that went
    /// leave theirs to nobody.
    fn free_name(&mut self, path: &str, whose: Whose) -> Result<String, StoreError> {
        let at = |error| StoreError::new("renaming", &self.disk.describe(path), error);
        let moment = Template::moment(whose.begun);
        let given = whose.chain.and_then(|chain| self.chains[chain].renamed.as_ref());
        let mut n = match given {
            Some((last, n)) if *last == moment => n + 1,
            _ => 0,
        };
        let mut free = Template::rotated(path, whose.begun, n);
        while !self.endings(&free).map_err(at)?.is_empty() {
            n += 1;
            free = Template::rotated(path, whose.begun, n);
        }
        if let Some(chain) = whose.chain {
            self.chains[chain].renamed = Some((moment, n));
        }
        Ok(free)
    }
}

/// The owner of a file: when it was begun, its number in its chain, and that.
#[derive(Clone, Copy, Debug, Default)]
struct Whose {
    begun: u64,
    number: u64,
    chain: Option<usize>,
}

/// Reads an index up to its first message; `None` if it is not one.
fn first_message(file: &impl File) -> io::Result<Option<Known>> {
    let Ok(mut known) = index::read_head(file)? else { return Ok(None) };
    let mut frames = index::Frames::new(file, u64::from(known.head.frames));
    for _ in 0..8 {
        let Some(bytes) = frames.next()? else { break };
        if let Ok(frame) = crate::file::frame::decode(bytes, known.head.salt) {
            known.apply_behind(&frame);
        }
        if known.messages > 0 {
            break;
        }
    }
    Ok(Some(known))
}
