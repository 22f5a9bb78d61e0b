//! Opening a store: which files there are, and where the newest of each chain ends.

use std::collections::{BTreeSet, HashMap};
use std::io;

use crate::disk::{join, parent, read_at, Access, Disk, File};
use crate::error::StoreError;
use crate::file::compress::{COMPRESSED, NEW};
use crate::file::files::Closed;
use crate::file::frame::{self, Frame, Mark, FRAME};
use crate::file::index::{self, Frames, Known, NoIndex, INDEX};
use crate::file::opened::{moved_data, rotation, Data};
use crate::file::report::{Damage, Report, Torn};
use crate::file::segment::Segment;
use crate::file::settings::Settings;
use crate::file::store::FileStore;

/// A file that was found.
struct Found {
    path: String,
    known: Known,
}

impl<D: Disk> FileStore<D> {
    /// Opens a store, in a folder that is made if it is not there. `now` in µs since 1970.
    ///
    /// # Errors
    ///
    /// If another process has a store of this name there, if the disk fails, or if a later version wrote
    /// what is there. What is damaged is no error: it is set aside, or left out by whoever reads, and
    /// stands in the report.
    pub fn open(disk: D, settings: Settings, now: u64) -> Result<(Self, Report), StoreError> {
        let at =
            |doing: &str, path: &str, error| StoreError::new(doing, &disk.describe(path), error);
        disk.make_folder("").map_err(|error| at("making", "", error))?;
        let name = format!(".{}.lock", crate::name::encode_within(settings.name.as_bytes(), 180));
        let lock = disk.lock(&name).map_err(|error| at("locking", &name, error))?;
        let lock = lock.ok_or_else(|| at("locking", &name, io::ErrorKind::ResourceBusy.into()))?;
        let mut store = FileStore::new(disk.clone(), settings, lock, now);
        let mut recovery = Recovery {
            disk: &disk,
            name: store.settings.name.as_bytes().to_vec(),
            depth: store.settings.template.depth(),
            settings: store.settings.clone(),
            report: Report::default(),
            found: Vec::new(),
        };
        recovery.walk("", 0)?;
        let (found, mut report) = (std::mem::take(&mut recovery.found), recovery.report);
        store.take_found(found, &mut report)?;
        Ok((store, report))
    }

    /// Takes in the files that were found, by chains.
    fn take_found(&mut self, found: Vec<Found>, report: &mut Report) -> Result<(), StoreError> {
        let mut chains: HashMap<Option<Vec<u8>>, Vec<Found>> = HashMap::new();
        for one in found {
            let topic = one.known.head.by_topic.then(|| one.known.topics[0].clone());
            chains.entry(topic).or_default().push(one);
        }
        for (topic, mut files) in chains {
            files.sort_by_key(|one| one.known.head.number);
            // What another template wrote is kept as long as the rest, and read by those who read that.
            let current = topic.is_some() == self.settings.template.by_topic();
            let place = if current {
                self.chain_of(topic.as_deref().unwrap_or_default())
            } else {
                self.chains.push(crate::file::chain::Chain::new(topic));
                self.chains.len() - 1
            };
            let renamed = files.iter().filter_map(|one| rotation(&one.path));
            let renamed = renamed.map(|(_, moment, n)| (moment.to_owned(), n)).max();
            self.chains[place].renamed = renamed;
            let newest = files.pop().expect("one at least");
            for (n, one) in files.iter().enumerate() {
                let time = files.get(n + 1).unwrap_or(&newest).known.head.time;
                self.add_closed(place, one, time, report)?;
            }
            self.take_newest(place, newest, report)?;
            let chain = &self.chains[place];
            self.time = self.time.max(chain.kept.time);
            if let Some(segment) = &chain.segment {
                report.files += 1;
                report.bytes += segment.data_end + segment.index_end;
            }
        }
        Ok(())
    }

    fn add_closed(
        &mut self,
        place: usize,
        one: &Found,
        time: u64,
        report: &mut Report,
    ) -> Result<(), StoreError> {
        let length = |path: &str| match self.disk.open(path, Access::Read) {
            Ok(file) => file.length().map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        let at = |error| StoreError::new("looking at", &self.disk.describe(&one.path), error);
        let raw = length(&one.path).map_err(at)?;
        let packed = length(&(one.path.clone() + COMPRESSED)).map_err(at)?;
        let index = length(&(one.path.clone() + INDEX)).map_err(at)?.unwrap_or(0);
        if raw.is_some() && packed.is_some() {
            // It has its name once it is whole.
            self.disk.remove(&one.path).map_err(at)?;
        }
        let Some(data) = packed.or(raw) else {
            // Nothing is left that it could tell of.
            self.disk.remove(&(one.path.clone() + INDEX)).map_err(at)?;
            return Ok(());
        };
        report.files += 1;
        report.bytes += data + index;
        self.files.add(Closed {
            path: one.path.clone(),
            chain: place,
            number: one.known.head.number,
            bytes: data + index,
            time,
            compressed: packed.is_some() || self.settings.compression.is_none(),
        });
        Ok(())
    }

    /// Finds the end of the newest file of a chain, and goes on there.
    fn take_newest(
        &mut self,
        place: usize,
        newest: Found,
        report: &mut Report,
    ) -> Result<(), StoreError> {
        let path = newest.path.clone();
        let describe = self.disk.describe(&path);
        let end = find_end(&self.disk, &newest)
            .map_err(|error| StoreError::new("reading", &describe, error))?;
        let known = end.known();
        let chain = &mut self.chains[place];
        chain.number = known.head.number;
        chain.kept.sequence = known.next - 1;
        (chain.kept.time, chain.kept.n) = (known.time, known.n);
        chain.durable = chain.kept.sequence;
        let origins = known.origins.iter().filter(|(id, _)| *id != 0);
        chain.origins = origins.copied().collect();
        let one = Found { path: path.clone(), known: known.clone() };
        match end {
            End::Closed(known) => self.add_closed(place, &one, known.time, report),
            End::Missing(known) => {
                let messages = known.messages;
                report.damaged.push(Damage {
                    file: describe,
                    why: "there is its index, and no data".into(),
                    messages,
                    aside: Vec::new(),
                });
                Ok(())
            }
            End::Damaged { known, why, lost } => {
                let at = |error| StoreError::new("closing", &describe, error);
                close_damaged(&self.disk, &path, known.mark()).map_err(at)?;
                let damage =
                    Damage { file: describe.clone(), why, messages: lost, aside: Vec::new() };
                report.damaged.push(damage);
                self.add_closed(place, &one, known.time, report)
            }
            End::Open { known, index_end, data_length, newlines, torn } => {
                let at = |error| StoreError::new("cutting", &describe, error);
                for offset in newlines {
                    let data = self.disk.open(&path, Access::Write).map_err(at)?;
                    data.write(offset, b"\n").map_err(at)?;
                }
                let torn =
                    cut(&self.disk, &path, &known, index_end, data_length, torn).map_err(at)?;
                report.torn.extend(torn);
                // So may the folders be that it made.
                let mut folder = parent(&path);
                while !folder.is_empty() {
                    folder = parent(folder);
                    self.folders.insert(folder.to_owned());
                }
                let period = self.settings.period(known.time);
                // The process before may have written it, and not synced.
                self.chains[place].durable = known.durable;
                let segment = Segment::of(path, &known, index_end, period);
                let chain = &mut self.chains[place];
                chain.segment = Some(segment);
                chain.unsynced = true;
                self.unsynced.push(place);
                Ok(())
            }
        }
    }
}

/// The state of the newest file of a chain.
enum End {
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
    fn known(&self) -> &Known {
        match self {
            End::Closed(known)
            | End::Missing(known)
            | End::Damaged { known, .. }
            | End::Open { known, .. } => known,
        }
    }
}

fn find_end<D: Disk>(disk: &D, newest: &Found) -> io::Result<End> {
    let index = disk.open(&(newest.path.clone() + INDEX), Access::Read)?;
    let (first, salt) = (u64::from(newest.known.head.frames), newest.known.head.salt);
    // What can be read in order, and what is said behind it.
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
                // It was given up, and the one behind it never came to the disk.
                true => disk.open(&(newest.path.clone() + COMPRESSED), Access::Read)?,
                false if all.durable >= newest.known.next => return Ok(End::Missing(all)),
                // It was being made, or its name was: nobody was told that it is on disk.
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
    // Of what was on disk the data has to be there; of the rest it has to be looked at.
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

/// Cuts off what was torn; what is no more than zeroes is not kept.
fn cut<D: Disk>(
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

/// Says at the end of an index that nothing more comes.
fn close_damaged<D: Disk>(disk: &D, path: &str, mark: Mark) -> io::Result<()> {
    let index = disk.open(&(path.to_owned() + INDEX), Access::Write)?;
    let Ok(known) = index::read_head(&index)? else { return Ok(()) };
    let mut bytes = Vec::new();
    frame::encode(&mut bytes, known.head.salt, &Frame::Closed(mark));
    index.write(index.length()? / FRAME as u64 * FRAME as u64, &bytes)?;
    index.sync()
}

/// Returns a name for what is set aside that no file has.
fn free_name<D: Disk>(disk: &D, path: &str, what: &str) -> io::Result<String> {
    for n in 1u32.. {
        let name = format!("{path}.{what}-{n}");
        if !disk.exists(&name)? {
            return Ok(name);
        }
    }
    unreachable!("there is no last number")
}

struct Recovery<'a, D> {
    disk: &'a D,
    name: Vec<u8>,
    depth: usize,
    settings: Settings,
    report: Report,
    found: Vec<Found>,
}

impl<D: Disk> Recovery<'_, D> {
    fn walk(&mut self, folder: &str, depth: usize) -> Result<(), StoreError> {
        let entries = self
            .disk
            .list(folder)
            .map_err(|error| StoreError::new("listing", &self.disk.describe(folder), error))?;
        let mut files = BTreeSet::new();
        for entry in entries {
            if !self.settings.template.may_hold(depth, &entry.name, None) {
                continue;
            }
            let path = join(folder, &entry.name);
            match entry.is_folder {
                true if depth + 1 < self.depth => self.walk(&path, depth + 1)?,
                false if depth + 1 == self.depth => {
                    files.insert(path);
                }
                _ => {}
            }
        }
        let indexes: Vec<String> =
            files.iter().filter_map(|path| path.strip_suffix(INDEX)).map(str::to_owned).collect();
        for path in indexes {
            let one = self.one(&path, &mut files);
            one.map_err(|error| StoreError::new("reading", &self.disk.describe(&path), error))?;
        }
        for path in &files {
            let known = |end: &str| {
                path.strip_suffix(end)
                    .is_some_and(|path| files.contains(&(path.to_owned() + INDEX)))
            };
            if known("") || known(COMPRESSED) || known(INDEX) {
                continue;
            }
            self.lone(path)
                .map_err(|error| StoreError::new("reading", &self.disk.describe(path), error))?;
        }
        Ok(())
    }

    /// A file that has an index; what is found of it is left in `files`, and nothing else.
    fn one(&mut self, path: &str, files: &mut BTreeSet<String>) -> io::Result<()> {
        let name = path.to_owned() + INDEX;
        let file = self.disk.open(&name, Access::Read)?;
        let known = match index::read_head(&file)? {
            Ok(known) if known.store != self.name => return Ok(()),
            Ok(known) => known,
            Err(NoIndex::Version(found)) => {
                let why = format!(
                    "{} is of version {found}; allowed: {}; start what wrote it",
                    self.disk.describe(&name),
                    frame::VERSION
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            Err(NoIndex::Damaged) => return self.aside(path, &file, files),
        };
        if files.remove(&(path.to_owned() + NEW)) {
            self.disk.remove(&(path.to_owned() + NEW))?;
        }
        let there = files.contains(path) || files.contains(&(path.to_owned() + COMPRESSED));
        if !there {
            // The data was renamed, and the index was to follow.
            if let Some(to) = moved_data(self.disk, path, &file, &known.head)? {
                self.disk.rename(&name, &(to.clone() + INDEX))?;
                self.disk.sync_folder(parent(path))?;
                files.remove(&name);
                files.insert(to.clone() + INDEX);
                self.found.push(Found { path: to, known });
                return Ok(());
            }
        }
        self.found.push(Found { path: path.to_owned(), known });
        Ok(())
    }

    /// An index that has no head: it and its data are set aside, unless it was just being made.
    fn aside(
        &mut self,
        path: &str,
        file: &D::File,
        files: &mut BTreeSet<String>,
    ) -> io::Result<()> {
        let name = path.to_owned() + INDEX;
        let mut length = 0;
        if files.contains(path) {
            length = self.disk.open(path, Access::Read)?.length()?;
        }
        files.remove(&name);
        let packed = path.to_owned() + COMPRESSED;
        if length == 0 && !files.contains(&packed) {
            self.disk.remove(&name)?;
            if files.remove(path) {
                self.disk.remove(path)?;
            }
            return Ok(());
        }
        // The first thing of all that is written there: it never came to the disk, or something changed it.
        let mut head = [0; FRAME];
        read_at(file, 0, &mut head)?;
        let torn = head.iter().all(|byte| *byte == 0);
        let what = if torn { "torn" } else { "damaged" };
        let (mut aside, index_length) = (Vec::new(), file.length()?);
        for one in [path.to_owned(), packed, name] {
            // The index is no more in what is left to be looked at.
            if files.remove(&one) || one.ends_with(INDEX) {
                let to = free_name(self.disk, &one, what)?;
                self.disk.rename(&one, &to)?;
                aside.push(self.disk.describe(&to));
            }
        }
        self.disk.sync_folder(parent(path))?;
        let file = self.disk.describe(path);
        if torn {
            let kept = aside.into_iter().next();
            self.report.torn.push(Torn { file, offset: 0, bytes: length, messages: 0, kept });
        } else {
            let why = format!("the head of its index, of {index_length} bytes, cannot be read");
            self.report.damaged.push(Damage { file, why, messages: 0, aside });
        }
        Ok(())
    }

    /// A file without an index.
    fn lone(&mut self, path: &str) -> io::Result<()> {
        let ending = path.rsplit('.').next().unwrap_or_default();
        if ["damaged-", "torn-"].iter().any(|what| ending.starts_with(what)) {
            return Ok(());
        }
        if self.disk.open(path, Access::Read)?.length()? > 0 {
            self.report.unindexed.push(self.disk.describe(path));
        }
        Ok(())
    }
}
