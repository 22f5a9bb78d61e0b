//! Reading it all again: the last snapshot, then the segments behind it, verified and replayed.

use std::io;
use std::time::Instant;

use crate::file::{self, BadHead, Closed, Head, CLOSED};
use crate::journal::{Journal, JournalSettings};
use crate::record::{self, Bad, Record, RecordKind};
use crate::report::{Damage, OpenError, Report, SnapshotFound, Torn};
use crate::scan;
use crate::storage::{read_all, File, Fill, Storage};
use crate::writer::Writer;

/// Restores the queues.
pub trait Replay {
    /// A queue's state out of the snapshot.
    ///
    /// # Errors
    ///
    /// An error describes the fault: the journal is not opened.
    fn snapshot(&mut self, queue: u32, state: &[u8]) -> Result<(), String>;

    /// The calls that follow were made by this version of the rules, [`JournalSettings::rules`] as it was
    /// then. Where records mean the same by any rules, there is nothing to do.
    ///
    /// # Errors
    ///
    /// The versions that are known, if this one is not: the journal is not opened.
    fn rules(&mut self, _version: u32) -> Result<(), String> {
        Ok(())
    }

    /// A call that was made upon that.
    ///
    /// # Errors
    ///
    /// An error describes the fault: the journal is not opened.
    fn call(&mut self, record: &Record<'_>) -> Result<(), String>;
}

/// The treatment of what cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Nothing: the error is reported.
    Refuse,
    /// The damaged file is renamed, and the journal continues with the records before it.
    SetAside,
}

/// Opens a journal, after all that it holds was replayed.
///
/// # Errors
///
/// If it cannot be read whole up to a torn tail; with [`Repair::SetAside`] only if the disk fails, if
/// another process has it, or if `replay` refuses what was read.
pub fn open<S: Storage>(
    storage: S,
    settings: JournalSettings,
    repair: Repair,
    replay: &mut impl Replay,
) -> Result<(Journal<S>, Report), OpenError> {
    let began = Instant::now();
    let lock = disk("lock", &storage, "lock", storage.lock())?
        .ok_or_else(|| OpenError::Locked(storage.describe("")))?;
    let mut recovery = Recovery {
        storage: &storage,
        repair,
        report: Report::default(),
        floors: Vec::new(),
        floor: 0,
        follows: 0,
        closed: Closed::default(),
    };
    let (segments, last_segment) = recovery.run(replay)?;
    recovery.closed_aside()?;
    let (mut report, follows) = (recovery.report, recovery.follows);
    let last = report.last;
    let writer = Writer::start(&storage, settings, segments, follows, last).map_err(|error| {
        let doing = format!("making a segment in {}", storage.describe(""));
        OpenError::Disk { doing, error }
    })?;
    if let Some((name, at)) = last_segment {
        // Only to give room back: a segment's end is where the next one begins. Not before there is a
        // next one, for a last segment that is too short was cut by somebody else.
        let _ = storage.open(&name).and_then(|file| file.truncate(at));
    }
    // The mark describes less than the journal will have. It does no harm if it stays, or if a crash restores
    // it.
    let _ = storage.remove(CLOSED);
    report.elapsed = began.elapsed();
    let time = report.time;
    Ok((Journal::new(storage, settings, lock, writer, last, time), report))
}

/// The segments that stay, number and sequence of the first record of each; and where the records of
/// the last one end.
type Kept = (Vec<(u64, u64)>, Option<(String, u64)>);

struct Recovery<'a, S> {
    storage: &'a S,
    repair: Repair,
    report: Report,
    /// Up to which record each queue's state in the snapshot goes, by the queue's number.
    floors: Vec<(u32, u64)>,
    /// The same number for all other queues.
    floor: u64,
    /// The last record that was read.
    follows: u64,
    /// The state of the journal when it was closed; nothing, if it was not.
    closed: Closed,
}

impl<S: Storage> Recovery<'_, S> {
    fn run(&mut self, replay: &mut impl Replay) -> Result<Kept, OpenError> {
        let names = disk("list", self.storage, "", self.storage.names())?;
        for name in names.iter().filter(|name| file::is_unfinished(name)) {
            disk("remove", self.storage, name, self.storage.remove(name))?;
        }
        let of = |kind| -> Vec<u64> {
            let mut numbers: Vec<u64> =
                names.iter().filter_map(|name| file::number(name, kind)).collect();
            numbers.sort_unstable();
            numbers
        };
        let (snapshots, segments) = (of(file::FileKind::Snapshot), of(file::FileKind::Segment));
        if names.iter().any(|name| name == CLOSED) {
            match self.closed() {
                Ok(closed) => self.closed = closed,
                Err(error @ OpenError::Disk { .. }) => return Err(error),
                Err(error) if self.repair == Repair::Refuse => return Err(error),
                Err(error) => self.set_aside(error.reason(), Vec::new()),
            }
            self.report.time = self.closed.time;
        }
        let all = || {
            let segments = segments.iter().map(|n| file::name(file::FileKind::Segment, *n));
            segments
                .chain(snapshots.iter().map(|n| file::name(file::FileKind::Snapshot, *n)))
                .collect()
        };
        let mut heads = Vec::new();
        for &number in &segments {
            match self.head(file::FileKind::Segment, number) {
                Ok(head) => heads.push(head),
                // Its place in the order says what is lost, below.
                Err(OpenError::Damaged(_)) => {
                    let (kind, first, salt) = (file::FileKind::Segment, 0, 0);
                    let (length, follows, rules) = (0, 0, 0);
                    heads.push(Head { kind, number, first, salt, length, follows, rules });
                }
                Err(error) => return self.aside_all(all(), error),
            }
        }
        if let Some(&number) = snapshots.last() {
            match self.snapshot(number, replay) {
                Ok(()) => {}
                Err(error @ (OpenError::Disk { .. } | OpenError::Replay { .. })) => {
                    return Err(error);
                }
                // Records after an unknown state cannot be replayed.
                Err(error) => return self.aside_all(all(), error),
            }
        }
        // Some of these are left where a snapshot was made and the process ended before they went.
        let needed = heads.iter().rposition(|head| head.first > 0 && head.first <= self.floor + 1);
        let heads = &heads[needed.unwrap_or(0)..];
        // Before anything is replayed or set aside: a repair cannot help here.
        heads.iter().try_for_each(|head| self.follow_rules(head, replay))?;
        let kept = self.segments(heads, replay)?;
        for number in snapshots.iter().rev().skip(1) {
            let name = file::name(file::FileKind::Snapshot, *number);
            disk("remove", self.storage, &name, self.storage.remove(&name))?;
        }
        for number in segments.iter().filter(|n| heads.first().is_some_and(|h| **n < h.number)) {
            let name = file::name(file::FileKind::Segment, *number);
            disk("remove", self.storage, &name, self.storage.remove(&name))?;
        }
        Ok(kept)
    }

    fn segments(&mut self, heads: &[Head], replay: &mut impl Replay) -> Result<Kept, OpenError> {
        let (mut kept, mut end, mut bytes) = (Vec::new(), None, Vec::new());
        let begins = heads.first().filter(|head| (1..=self.floor + 1).contains(&head.first));
        let mut last = begins.map_or(self.floor, |head| head.first - 1);
        let snapshot = self.floors.iter().map(|(_, last)| *last).max().unwrap_or(0).max(self.floor);
        let confirmed = snapshot.max(self.closed.last);
        for (n, head) in heads.iter().enumerate() {
            let name = head.name();
            let place = self.storage.describe(&name);
            if head.first == 0 || (begins != Some(head) && head.follows != last) {
                let why = match head.first {
                    0 => "its head cannot be read".into(),
                    _ => format!("it follows record {}, and {last} is before it", head.follows),
                };
                let (first, file) = (last + 1, place);
                let closed = self.closed_behind(last);
                let last = confirmed;
                let damage = Damage { file, offset: 0, why, first, whole: 0, last, closed };
                self.aside(damage, n, heads, None)?;
                break;
            }
            last = last.max(head.first - 1);
            let file = disk("open", self.storage, &name, self.storage.open(&name))?;
            disk("read", self.storage, &name, read_all(&file, &mut bytes))?;
            self.report.segments += 1;
            self.report.bytes += bytes.len() as u64;
            self.follow_rules(head, replay)?;
            let (at, bad) = self.replay(head, &bytes, &mut last, replay)?;
            kept.push((head.number, head.first));
            let next = heads.get(n + 1);
            // A segment that was left for the next one ends in zeroes, or in what was torn before that
            // was made. If the next one has no head, that is where the damage is.
            if next.is_some_and(|next| next.follows == last || next.first == 0) {
                continue;
            }
            let behind = scan::behind(from(&bytes, at), head.salt, last + 1);
            // Its length was on disk before it had its name.
            let missing = head.length.saturating_sub(bytes.len() as u64);
            let reached = if next.is_some() { u64::MAX } else { behind.durable.max(confirmed) };
            if reached > last || missing > 0 {
                let gone = next.filter(|next| next.number > head.number + 1);
                let why = match bad {
                    _ if missing > 0 && next.is_none() => {
                        let (length, now) = (head.length, bytes.len());
                        format!(
                            "it was created with {length} bytes and has {now}: it was \
                                 truncated"
                        )
                    }
                    _ if behind.bytes == 0 && gone.is_some() => {
                        let missing = file::name(file::FileKind::Segment, head.number + 1);
                        format!("{missing} should come next, and is missing")
                    }
                    Bad::Kind(kind) => format!("a record of kind {kind}"),
                    Bad::Short => "the file ends within a record".into(),
                    Bad::Checksum if behind.bytes == 0 => "the records end".into(),
                    Bad::Checksum => "a checksum is wrong".into(),
                };
                let (offset, whole) = (at as u64, behind.records);
                let (first, closed) = (last + 1, self.closed_behind(last));
                let last = match behind.last {
                    0 if next.is_some() => first,
                    0 if reached > last => reached,
                    behind => behind,
                };
                let damage = Damage { file: place, offset, why, first, whole, last, closed };
                self.aside(damage, n, heads, Some((&file, &bytes[..], at as u64)))?;
                break;
            }
            if behind.bytes > 0 {
                self.report.torn = Some(Torn {
                    file: place,
                    offset: at as u64,
                    bytes: behind.bytes,
                    first: last + 1,
                    whole: behind.records,
                    last: behind.last.max(last + 1),
                });
            }
            end = Some((name, at as u64));
        }
        if last < confirmed && self.report.aside.is_none() {
            let damage = Damage {
                file: self.storage.describe(""),
                offset: 0,
                why: match self.report.snapshot {
                    Some(_) => "segments behind the snapshot are missing".into(),
                    None => "segments are missing".into(),
                },
                first: last + 1,
                whole: 0,
                last: confirmed,
                closed: self.closed_behind(last),
            };
            if self.repair == Repair::Refuse {
                return Err(OpenError::Damaged(damage));
            }
            self.set_aside(damage.to_string(), Vec::new());
        }
        (self.follows, self.report.last) = (last, last.max(snapshot));
        Ok((kept, end))
    }

    /// Replays what can be read: up to where, and why not further.
    fn replay(
        &mut self,
        head: &Head,
        bytes: &[u8],
        last: &mut u64,
        replay: &mut impl Replay,
    ) -> Result<(usize, Bad), OpenError> {
        let mut at = file::HEAD;
        loop {
            let (record, length) = match record::decode(from(bytes, at), head.salt) {
                Ok((record, length)) if record.sequence == *last + 1 => (record, length),
                Ok(_) => return Ok((at, Bad::Checksum)),
                Err(bad) => return Ok((at, bad)),
            };
            let floor = match self.floors.binary_search_by_key(&record.queue, |(queue, _)| *queue) {
                Ok(found) => self.floors[found].1,
                Err(_) => self.floor,
            };
            match record.kind {
                RecordKind::Call if record.sequence <= floor => self.report.covered += 1,
                RecordKind::Call => {
                    replay.call(&record).map_err(|why| OpenError::Replay {
                        file: self.storage.describe(&head.name()),
                        sequence: record.sequence,
                        why,
                    })?;
                    self.report.replayed += 1;
                }
                _ => {}
            }
            self.report.time = self.report.time.max(record.time);
            *last += 1;
            at += length;
        }
    }

    /// Reads the snapshot whole before anything of it is used.
    fn snapshot(&mut self, number: u64, replay: &mut impl Replay) -> Result<(), OpenError> {
        let head = self.head(file::FileKind::Snapshot, number)?;
        let name = head.name();
        let place = self.storage.describe(&name);
        let file = disk("open", self.storage, &name, self.storage.open(&name))?;
        let mut bytes = Vec::new();
        disk("read", self.storage, &name, read_all(&file, &mut bytes))?;
        let damaged = |offset: usize, why: &str| {
            OpenError::Damaged(Damage {
                file: place.clone(),
                offset: offset as u64,
                why: why.into(),
                first: 1,
                whole: 0,
                last: number,
                closed: None,
            })
        };
        let mut at = file::HEAD;
        let mut piece = 0;
        let mut floors = Vec::new();
        let end = loop {
            let Ok((record, length)) = record::decode(from(&bytes, at), head.salt) else {
                return Err(damaged(at, "a piece of the snapshot cannot be read"));
            };
            match record.kind {
                RecordKind::End => break record,
                RecordKind::Piece | RecordKind::LastPiece if record.behind == piece => {}
                _ => return Err(damaged(at, "a piece of the snapshot is missing")),
            }
            piece += 1;
            if record.kind == RecordKind::LastPiece {
                floors.push((record.queue, record.sequence));
                piece = 0;
            }
            at += length;
        };
        floors.sort_unstable();
        if floors.len() != end.queue as usize || floors.windows(2).any(|two| two[0].0 == two[1].0) {
            return Err(damaged(
                at,
                "the snapshot does not have the number of queues that it \
                                    declares",
            ));
        }
        let (mut at, mut state) = (file::HEAD, Vec::new());
        while let Ok((record, length)) = record::decode(from(&bytes, at), head.salt) {
            at += length;
            match record.kind {
                RecordKind::Piece => state.extend_from_slice(record.body),
                RecordKind::LastPiece => {
                    state.extend_from_slice(record.body);
                    replay.snapshot(record.queue, &state).map_err(|why| OpenError::Replay {
                        file: place.clone(),
                        sequence: record.sequence,
                        why: format!("the state of queue {}: {why}", record.queue),
                    })?;
                    state.clear();
                }
                _ => break,
            }
        }
        // 0 in those of versions that did not say it.
        self.report.time = self.report.time.max(end.time);
        (self.floor, self.floors) = (number, floors);
        self.report.bytes += bytes.len() as u64;
        let (queues, bytes) = (end.queue, bytes.len() as u64);
        self.report.snapshot = Some(SnapshotFound { file: place, queues, bytes });
        Ok(())
    }

    /// Prepares the replay of a segment by the rules that its head names.
    fn follow_rules(&self, head: &Head, replay: &mut impl Replay) -> Result<(), OpenError> {
        let version = head.rules;
        replay.rules(version).map_err(|known| {
            let file = self.storage.describe(&head.name());
            OpenError::Rules { file, version, known }
        })
    }

    fn head(&self, kind: file::FileKind, number: u64) -> Result<Head, OpenError> {
        self.decode(&file::name(kind, number), |bytes| Head::decode(bytes, kind, number))
    }

    fn closed(&self) -> Result<Closed, OpenError> {
        self.decode(CLOSED, Closed::decode)
    }

    /// Reads what the head of a file says.
    fn decode<T>(
        &self,
        name: &str,
        decode: impl FnOnce(&[u8]) -> Result<T, BadHead>,
    ) -> Result<T, OpenError> {
        let file = disk("open", self.storage, name, self.storage.open(name))?;
        let mut bytes = [0; file::HEAD];
        let read = disk("read", self.storage, name, file.read(0, &mut bytes))?;
        decode(&bytes[..read]).map_err(|bad| {
            let file = self.storage.describe(name);
            let why = match bad {
                BadHead::Damaged => {
                    let why = "its head cannot be read".into();
                    let (first, whole, last, closed) = (1, 0, u64::MAX, None);
                    let damage = Damage { file, offset: 0, why, first, whole, last, closed };
                    return OpenError::Damaged(damage);
                }
                BadHead::Version(found) => {
                    let known = file::VERSION;
                    format!(
                        "its version is {found}; allowed: {known}; start the version that \
                             wrote it"
                    )
                }
                BadHead::NoJournal => "it does not begin as one".into(),
            };
            OpenError::Unknown { file, why }
        })
    }

    /// Sets aside what is from `offset` of a segment on, or refuses.
    fn aside(
        &mut self,
        damage: Damage,
        at: usize,
        heads: &[Head],
        cut: Option<(&S::File, &[u8], u64)>,
    ) -> Result<(), OpenError> {
        if self.repair == Repair::Refuse {
            return Err(OpenError::Damaged(damage));
        }
        let mut files = Vec::new();
        // From the last one on: if this is cut off, the next try finds the same damage.
        for head in heads[at + usize::from(cut.is_some())..].iter().rev() {
            files.push(self.rename_aside(&head.name())?);
        }
        if let Some((file, bytes, offset)) = cut {
            let name = heads[at].name();
            let copy = self.free_name(&name)?;
            let made = self.storage.create(&copy, 0, Fill::Reserved).and_then(|copied| {
                copied.write(0, bytes)?;
                copied.sync()
            });
            disk("copy to", self.storage, &copy, made)?;
            disk("cut", self.storage, &name, file.truncate(offset))?;
            files.push(copy);
        }
        self.set_aside(damage.to_string(), files);
        Ok(())
    }

    fn set_aside(&mut self, why: String, files: Vec<String>) {
        let aside = self.report.aside.get_or_insert_default();
        if !aside.why.is_empty() {
            aside.why.push('\n');
        }
        aside.why.push_str(&why);
        aside.files.extend(files);
    }

    /// After a repair what it was closed with is not there any more.
    fn closed_aside(&mut self) -> Result<(), OpenError> {
        let names = disk("list", self.storage, "", self.storage.names())?;
        if self.report.aside.is_none() || !names.iter().any(|name| name == CLOSED) {
            return Ok(());
        }
        let file = self.rename_aside(CLOSED)?;
        self.report.aside.as_mut().expect("just seen").files.push(file);
        Ok(())
    }

    /// The last record that there was at a clean stop, if that is more than `last`.
    fn closed_behind(&self, last: u64) -> Option<u64> {
        Some(self.closed.last).filter(|closed| *closed > last)
    }

    /// Sets everything aside, or refuses.
    fn aside_all(&mut self, names: Vec<String>, error: OpenError) -> Result<Kept, OpenError> {
        if self.repair == Repair::Refuse || matches!(error, OpenError::Disk { .. }) {
            return Err(error);
        }
        let mut files = Vec::new();
        // The snapshots last: without them, segments alone would be taken for all there ever was.
        for name in names {
            files.push(self.rename_aside(&name)?);
        }
        self.report = Report { time: self.report.time, ..Report::default() };
        self.set_aside(error.reason(), files);
        Ok((Vec::new(), None))
    }

    fn rename_aside(&self, name: &str) -> Result<String, OpenError> {
        let to = self.free_name(name)?;
        disk("set aside", self.storage, name, self.storage.rename(name, &to))?;
        Ok(to)
    }

    fn free_name(&self, name: &str) -> Result<String, OpenError> {
        let names = disk("list", self.storage, "", self.storage.names())?;
        let mut candidates = (1..).map(|n: u32| format!("{name}.aside-{n}"));
        Ok(candidates
            .find(|candidate| !names.contains(candidate))
            .expect("there is no last number"))
    }
}

/// Returns what is from an offset on; the padding of the last record may be cut off.
fn from(bytes: &[u8], at: usize) -> &[u8] {
    &bytes[at.min(bytes.len())..]
}

fn disk<T>(
    doing: &str,
    storage: &impl Storage,
    name: &str,
    result: io::Result<T>,
) -> Result<T, OpenError> {
    result.map_err(|error| OpenError::Disk {
        doing: format!("{doing} {}", storage.describe(name)),
        error,
    })
}
