//! Repair of a damaged spool: messages that are whole in files set aside are taken over.

use std::io;

use interlock_journal::file::{number, FileKind, Head, HEAD};
use interlock_journal::record;
use interlock_journal::storage::{read_all, File, Storage};
use interlock_journal::{Durability, OpenError, Record};

use super::report::Report;
use super::{spooled, Spool, Spooled};
use crate::message::Message;

impl<S: Storage> Spool<S> {
    /// Copies valid records from files that a repair set aside, this time or before.
    pub(super) fn save(&mut self, report: &mut Report) -> Result<(), OpenError> {
        let storage = self.journal.storage();
        let describe = storage.describe("");
        let disk = |error| OpenError::Disk { doing: format!("repairing {describe}"), error };
        let names = storage.names().map_err(disk)?;
        let segment = |name: &&String| {
            let (segment, _) = name.split_once(".aside-")?;
            number(segment, FileKind::Segment).map(|number| (number, (*name).clone()))
        };
        let mut files: Vec<(u64, String)> =
            names.iter().filter_map(|name| segment(&name)).collect();
        files.sort();
        let others =
            names.iter().filter(|name| name.contains(".aside-") && segment(name).is_none());
        let others: Vec<String> = others.cloned().collect();
        if files.is_empty() && others.is_empty() {
            return Ok(());
        }
        // The records before the damage are still in the journal. After an interrupted repair it is unknown
        // how far it got, so some records are delivered twice.
        let kept = report.journal.aside.as_ref().map_or(0, |_| report.journal.last);
        let mut contents = Vec::new();
        for (number, name) in &files {
            let mut bytes = Vec::new();
            storage.open(name).and_then(|file| read_all(&file, &mut bytes)).map_err(disk)?;
            contents.push((*number, bytes));
        }
        let (mut taken, mut marks, mut highest) = (Vec::new(), Vec::new(), kept);
        let salts = self.salts(&contents);
        for (_, bytes) in &contents {
            for_each(bytes, &salts, |record| {
                highest = highest.max(record.sequence);
                if record.sequence > kept {
                    match spooled(record) {
                        Some(message) => taken.push(message),
                        // The journal's own.
                        None => marks.push(record.sequence),
                    }
                }
            });
        }
        taken.sort_by_key(|one| one.place);
        taken.dedup_by_key(|one| one.place);
        for one in &taken {
            let Spooled { topic, payload, time, origin, number, .. } = one;
            let (origin, number, time) = (*origin, *number, *time);
            let put = self.put(&Message { topic, payload, time, origin, number });
            put.map_err(|error| disk(io::Error::other(error)))?;
        }
        self.commit(Durability::Always).map_err(|error| disk(io::Error::other(error)))?;
        let storage = self.journal.storage();
        for name in files.iter().map(|(_, name)| name).chain(&others) {
            let to = name.replace(".aside-", ".damaged-");
            let mut free = to.clone();
            let mut n = 0;
            while names.contains(&free) {
                n += 1;
                free = format!("{to}-{n}");
            }
            storage.rename(name, &free).map_err(disk)?;
            report.aside.push(storage.describe(&free));
        }
        report.saved = taken.len() as u64;
        marks.sort_unstable();
        marks.dedup();
        report.lost = (highest - kept).saturating_sub(report.saved + marks.len() as u64);
        Ok(())
    }

    /// The numbers that checksums begin with in any of these.
    fn salts(&self, contents: &[(u64, Vec<u8>)]) -> Vec<u32> {
        let storage = self.journal.storage();
        let mut salts = vec![self.settings.salt];
        let head = |bytes: &[u8], number| Head::decode(bytes, FileKind::Segment, number).ok();
        for (number, bytes) in contents {
            salts.extend(head(bytes, *number).map(|head| head.salt));
        }
        for name in storage.names().unwrap_or_default() {
            let Some(number) = number(&name, FileKind::Segment) else { continue };
            let mut bytes = [0; HEAD];
            let read = storage.open(&name).and_then(|file| file.read(0, &mut bytes));
            if read.is_ok() {
                salts.extend(head(&bytes, number).map(|head| head.salt));
            }
        }
        salts.sort_unstable();
        salts.dedup();
        salts
    }
}

/// Calls `take` with every valid record of a segment, wherever it begins.
fn for_each(bytes: &[u8], salts: &[u32], mut take: impl FnMut(&Record<'_>)) {
    let mut at = HEAD;
    'place: while at < bytes.len() {
        let here = &bytes[at..];
        // Zeroes are most of a segment that is not full.
        if here.len() >= record::HEAD && record::sequence_of(here).is_some_and(|n| n > 0) {
            for &salt in salts {
                if let Ok((record, length)) = record::decode(here, salt) {
                    take(&record);
                    at += length;
                    continue 'place;
                }
            }
        }
        at += record::ALIGN;
    }
}
