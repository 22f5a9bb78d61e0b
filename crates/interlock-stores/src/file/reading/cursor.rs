//! The place of a reader in the files of a chain, and the step from one message to the next: forward.
//!
//! This file implements the [rule](super::reader) of all readers.

use std::collections::HashMap;

use crate::disk::Disk;
use crate::error::StoreError;
use crate::file::frame::{self, Frame, Head, Record};
use crate::file::index::Frames;
use crate::file::reading::listing::Listed;
use crate::file::reading::missing;
use crate::file::reading::missing::{Found, Missing};
use crate::file::reading::opened::{head_position, open_listed, position, stored, Opened};
use crate::message::{Position, Stored};

/// Lists the files of the chain; `true`: from a new listing.
pub type Look<'a> = dyn FnMut(bool) -> Result<Vec<Listed>, StoreError> + 'a;

/// A place in the files of a chain.
#[derive(Debug)]
pub struct Cursor<D: Disk> {
    disk: D,
    /// Messages of others are passed.
    topic: Option<Vec<u8>>,
    /// Messages before this position were delivered, or are not wanted.
    from: Position,
    /// No other file is wanted.
    is_alone: bool,
    file: Option<Opened<D::File>>,
    /// Head of the file that is open, or was last.
    head: Option<Head>,
    /// The file that was seen first of each number: another one was begun anew.
    seen: HashMap<u64, Head>,
    /// The frame that comes next.
    place: u64,
    limit: u64,
    /// Another file was begun behind this one: what cannot be read in it never will be.
    is_last_look: bool,
    /// The sequence of what comes next, and the first position that it can have.
    expected: Option<u64>,
    after: Position,
    /// The end of the data reported so far.
    end: u64,
    /// Its data was to be made: to be opened again.
    again: bool,
    /// Files were begun anew, and nobody knows what was lost up to the first message in them.
    is_anew: bool,
    /// The gap before the next message.
    missing: Option<Missing>,
    message: Option<Stored>,
}

/// A look at a frame.
enum Here {
    Message(Stored),
    /// There is nothing to report.
    Passed,
    /// There is no further message, or it is being written.
    End,
    Closed,
}

impl<D: Disk> Cursor<D> {
    /// Before the first message at `from` or behind it.
    pub fn new(disk: D, topic: Option<&[u8]>, from: Position, is_alone: bool) -> Self {
        Cursor {
            is_alone,
            disk,
            topic: topic.map(<[u8]>::to_vec),
            from,
            file: None,
            head: None,
            seen: HashMap::new(),
            is_anew: false,
            place: 0,
            limit: u64::MAX,
            is_last_look: false,
            expected: None,
            after: from,
            end: 0,
            again: false,
            missing: None,
            message: None,
        }
    }

    /// Returns what comes next; `None`: nothing yet.
    pub fn next(&mut self, look: &mut Look<'_>) -> Result<Option<Found>, StoreError> {
        loop {
            if self.message.is_some() {
                return Ok(self.flush().or_else(|| self.message.take().map(Found::Message)));
            }
            if self.file.is_none() && !self.open_next(look)? {
                return Ok(self.flush());
            }
            let here = match self.look_here() {
                Ok(here) => here,
                Err(error) => {
                    let path = &self.file.as_ref().expect("just opened").path;
                    return Err(StoreError::new("reading", &self.disk.describe(path), error));
                }
            };
            match here {
                Here::Message(stored) => self.message = Some(stored),
                Here::Passed => {}
                Here::Closed => self.file = None,
                Here::End => {
                    let files = look(false)?;
                    let is_followed = self.is_followed(&files);
                    let file = self.file.as_ref().expect("it is open");
                    if file.is_to_be_made() && !self.is_last_look {
                        (self.file, self.again, self.is_last_look) = (None, true, is_followed);
                    }
                    if !is_followed {
                        return Ok(self.flush());
                    }
                    if self.again {
                        continue;
                    }
                    // Whatever was written until the other one was begun is read first.
                    if std::mem::replace(&mut self.is_last_look, true) {
                        self.file = None;
                    }
                }
            }
        }
    }

    /// Bytes behind the last message of the newest file, and the first position that they can have: what is
    /// being written, was torn off by a crash, or has lost its records.
    pub fn trailing(&self) -> std::io::Result<Option<(String, u64, Position)>> {
        let Some(file) = self.file.as_ref().filter(|file| !file.is_gone()) else { return Ok(None) };
        let bytes = file.length()?.saturating_sub(self.end);
        let path = || self.disk.describe(&file.path);
        Ok((bytes > 0 && !self.is_last_look).then(|| (path(), bytes, self.after)))
    }

    fn flush(&mut self) -> Option<Found> {
        if self.is_anew {
            return None;
        }
        self.missing.take().map(Found::Missing)
    }

    /// Returns whether another file was begun behind the one that is read; takes in what is known of this.
    fn is_followed(&mut self, files: &[Listed]) -> bool {
        let head = self.head.expect("a file was opened");
        if let Some(own) = files.iter().find(|listed| listed.head == head) {
            self.limit = own.limit;
        }
        let follows = self.following(files, head.number).is_some();
        self.see(files);
        follows
    }

    /// The file behind the one of this number.
    fn following<'a>(&self, files: &'a [Listed], number: u64) -> Option<&'a Listed> {
        // The numbers began again, for the files were removed.
        let is_new =
            |listed: &&Listed| listed.head.number <= number && !self.has_seen(&listed.head);
        files.iter().find(is_new).or_else(|| files.iter().find(|one| one.head.number > number))
    }

    fn has_seen(&self, head: &Head) -> bool {
        self.seen.get(&head.number) == Some(head)
    }

    /// Returns whether the files were begun anew, even if those of the lower numbers are gone
    /// again: a file that follows unread positions has a later sequence than those.
    fn is_of_another_chain(&self, head: &Head, passed: u64) -> bool {
        let is_known = self.seen.contains_key(&head.number);
        let is_early = self.expected.is_some_and(|expected| head.first <= expected);
        head.number <= passed
            || is_known && !self.has_seen(head)
            || is_early && head_position(head) >= self.after
    }

    fn see(&mut self, files: &[Listed]) {
        if self.seen.len() > 2 * files.len() + 64 {
            let number = self.head.map_or(0, |head| head.number);
            self.seen.retain(|seen, _| *seen >= number);
        }
        for listed in files {
            self.seen.entry(listed.head.number).or_insert(listed.head);
        }
    }

    /// Opens the next file; `false` if there is none.
    fn open_next(&mut self, look: &mut Look<'_>) -> Result<bool, StoreError> {
        let (mut files, mut doubted) = (look(false)?, None);
        loop {
            let next = match self.head {
                Some(head) if self.again => files.iter().find(|listed| listed.head == head),
                Some(head) => self.following(&files, head.number),
                None => first_file(&files, self.from),
            };
            let Some(listed) = next.cloned() else {
                // The file was removed, and no other one has appeared.
                self.again = false;
                return Ok(false);
            };
            // One that is missing in a look may have been about to get another name.
            let number = listed.head.number;
            let jumps = self.head.is_some_and(|head| number != head.number + 1 && !self.again);
            if jumps && doubted != Some(listed.head) {
                doubted = Some(listed.head);
                files = look(true)?;
                continue;
            }
            let Some((file, listed)) = open_listed(&self.disk, &listed, || look(true))? else {
                files = look(true)?;
                continue;
            };
            return match self.enter(&files, &listed, file) {
                Ok(()) => Ok(true),
                Err(error) => {
                    let path = self.disk.describe(&listed.path);
                    Err(StoreError::new("reading", &path, error))
                }
            };
        }
    }

    /// Begins with a file.
    fn enter(
        &mut self,
        files: &[Listed],
        listed: &Listed,
        file: Opened<D::File>,
    ) -> std::io::Result<()> {
        let head = listed.head;
        let before = head_position(&head);
        let first = u64::from(head.frames);
        let again = std::mem::take(&mut self.again);
        let path = self.disk.describe(&listed.path);
        (self.place, self.end) = (first, 0);
        match self.head {
            _ if again => {}
            None => {
                self.place = file.seek(self.from)?;
                let last = file.last_before(self.place)?;
                let oldest = files.first().is_none_or(|one| one.head.number == head.number);
                if let Some(last) = last {
                    self.expected = Some(last.sequence + 1);
                    self.after = self.after.max(position(&last).next());
                    self.end = last.end();
                } else {
                    // Whoever names a place wants what was there; from the first one on is from what there is.
                    let wanted =
                        !self.is_alone && self.from > Position::FIRST && before >= self.from;
                    if wanted && oldest && head.first > 1 {
                        self.miss(before, 0, path, missing::OLDER_GONE);
                    }
                    self.expected = Some(head.first);
                }
            }
            Some(passed) if self.is_of_another_chain(&head, passed.number) => {
                self.miss(self.after.max(before), 0, path, missing::BEGUN_ANEW);
                self.expected = Some(head.first);
                self.is_anew = true;
                if head.number <= passed.number {
                    self.seen.clear();
                }
            }
            Some(_) => {
                let gone = head.first.saturating_sub(self.expected.unwrap_or(head.first));
                if gone > 0 {
                    self.miss(before, gone, path, missing::FILES_GONE);
                }
                self.expected = Some(head.first);
            }
        }
        self.after = self.after.max(before.next());
        self.see(files);
        self.seen.insert(head.number, head);
        (self.head, self.limit) = (Some(head), listed.limit);
        self.is_last_look &= again;
        self.file = Some(file);
        Ok(())
    }

    /// Looks at what comes next, and passes it unless it may be being written.
    fn look_here(&mut self) -> std::io::Result<Here> {
        let file = self.file.as_mut().expect("it is open");
        if file.is_to_be_made() {
            return Ok(Here::End);
        }
        let salt = file.head.salt;
        let mut frames = Frames::new(&file.index, self.place);
        let Some(&bytes) = frames.next()? else { return Ok(Here::End) };
        let Ok(frame) = frame::decode(&bytes, salt) else {
            // Damage, if anything intact follows. Its extent shows there.
            while let Some(bytes) = frames.next()? {
                if frame::decode(bytes, salt).is_ok() {
                    self.place += 1;
                    return Ok(Here::Passed);
                }
            }
            self.place += u64::from(self.is_last_look);
            return Ok(if self.is_last_look { Here::Passed } else { Here::End });
        };
        match frame {
            Frame::Message(record) => self.look_at(&record, &bytes),
            Frame::Closed(mark) => {
                let next = mark.next.min(self.limit);
                self.reach(next, Position::new(mark.time / 1000, mark.n));
                Ok(Here::Closed)
            }
            declared => {
                file.note(&declared);
                self.place += 1;
                Ok(Here::Passed)
            }
        }
    }

    /// Looks at a message.
    fn look_at(&mut self, record: &Record, bytes: &[u8; frame::FRAME]) -> std::io::Result<Here> {
        let at = position(record);
        if record.sequence >= self.limit {
            // Written again in a later file.
            self.place += 1;
            return Ok(Here::Passed);
        }
        let file = self.file.as_mut().expect("it is open");
        let named = file.topic(record.topic).map(<[u8]>::to_vec);
        let ours = match (&self.topic, &named) {
            (None, _) => true,
            (Some(topic), Some(named)) => topic == named,
            // It may be of this topic.
            (Some(_), None) => true,
        };
        let readable = named.is_some() || self.topic.is_none();
        let mut payload = None;
        if ours && at >= self.from {
            if readable {
                payload = file.payload(record)?;
            }
            // Data is written before its record; of a write that failed the record is cut off first. So data
            // that is too short is missing if the record is still there.
            let short = payload.is_none() && readable && record.end() > file.length()?;
            if short && !self.is_last_look {
                let mut frames = Frames::new(&file.index, self.place);
                if frames.next()?.is_none_or(|now| now != bytes) {
                    return Ok(Here::Passed);
                }
                payload = file.payload(record)?;
            }
        }
        self.place += 1;
        self.end = record.end();
        let before = at.before().unwrap_or(Position::FIRST);
        self.reach(record.sequence, before);
        if std::mem::take(&mut self.is_anew) {
            if let Some(missing) = &mut self.missing {
                missing.to = missing.to.max(before);
            }
        }
        (self.expected, self.after) = (Some(record.sequence + 1), self.after.max(at.next()));
        if !ours || at < self.from {
            return Ok(Here::Passed);
        }
        let file = self.file.as_mut().expect("it is open");
        let Some(payload) = payload else {
            let why = if file.is_gone() { missing::DATA_GONE } else { missing::CHANGED };
            let file = self.disk.describe(&file.path);
            self.add(Missing { from: at, to: at, messages: 1, file, why });
            return Ok(Here::Passed);
        };
        let origin = file.origin(record.origin)?;
        self.from = at.next();
        Ok(Here::Message(stored(record, named.unwrap_or_default(), payload, origin)))
    }

    /// The next message of this file is of this sequence: those before it are missing, up to a position.
    fn reach(&mut self, sequence: u64, to: Position) {
        let gone = sequence.saturating_sub(self.expected.unwrap_or(sequence));
        if gone > 0 {
            let path = &self.file.as_ref().expect("it is open").path;
            self.miss(to, gone, self.disk.describe(path), missing::NO_RECORDS);
        }
        self.expected = Some(sequence.max(self.expected.unwrap_or(0)));
    }

    /// Notes what is missing from where the last message was up to a position.
    fn miss(&mut self, to: Position, messages: u64, file: String, why: &'static str) {
        // Messages before this are not wanted.
        if to >= self.from {
            let from = self.after.max(self.from);
            self.add(Missing { from, to: to.max(from), messages, file, why });
        }
        self.after = self.after.max(to.next());
    }

    fn add(&mut self, missing: Missing) {
        match &mut self.missing {
            Some(before) => before.extend(&missing),
            none => *none = Some(missing),
        }
    }
}

/// The last file with messages before a position, and those of the same millisecond, all behind.
fn first_file(files: &[Listed], from: Position) -> Option<&Listed> {
    files.iter().rev().find(|listed| head_position(&listed.head) < from).or(files.first())
}
