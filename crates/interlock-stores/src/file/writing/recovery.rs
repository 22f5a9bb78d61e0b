//! Opening a store: the files that were found go to their chains, and the newest of each is written to again.

use std::collections::BTreeMap;
use std::io;

use crate::disk::{parent, Access, Disk, File};
use crate::error::StoreError;
use crate::file::compress::COMPRESSED;
use crate::file::files::Closed;
use crate::file::index::INDEX;
use crate::file::reading::opened::rotation;
use crate::file::report::{Damage, Report};
use crate::file::settings::Settings;
use crate::file::writing::ending::{close_damaged, cut, find_end, End};
use crate::file::writing::segment::Segment;
use crate::file::writing::store::FileStore;
use crate::file::writing::walk::{Found, Walk};

impl<D: Disk> FileStore<D> {
    /// Opens a store, in a folder that is made if it is not there. `now` in µs since 1970.
    ///
    /// # Errors
    ///
    /// Fails if another process has a store of this name there, if the disk fails, or if a later
    /// version wrote the files. Damage is not an error: it is set aside, or skipped by readers, and
    /// appears in the report.
    pub fn open(disk: D, settings: Settings, now: u64) -> Result<(Self, Report), StoreError> {
        let at =
            |doing: &str, path: &str, error| StoreError::new(doing, &disk.describe(path), error);
        disk.make_folder("").map_err(|error| at("making", "", error))?;
        let name = format!(".{}.lock", crate::name::encode_within(settings.name.as_bytes(), 180));
        let lock = disk.lock(&name).map_err(|error| at("locking", &name, error))?;
        let lock = lock.ok_or_else(|| at("locking", &name, io::ErrorKind::ResourceBusy.into()))?;
        let mut store = FileStore::new(disk.clone(), settings, lock, now);
        let mut walk = Walk {
            disk: &disk,
            name: store.settings.name.as_bytes().to_vec(),
            depth: store.settings.template.depth(),
            settings: store.settings.clone(),
            report: Report::default(),
            found: Vec::new(),
        };
        walk.folder("", 0)?;
        let (found, mut report) = (std::mem::take(&mut walk.found), walk.report);
        store.take_found(found, &mut report)?;
        Ok((store, report))
    }

    /// Adds the files that were found to their chains.
    fn take_found(&mut self, found: Vec<Found>, report: &mut Report) -> Result<(), StoreError> {
        // In an order of its own, here and wherever the disk is touched: a run of a test then follows from its seed.
        let mut chains: BTreeMap<Option<Vec<u8>>, Vec<Found>> = BTreeMap::new();
        for one in found {
            let topic = one.known.head.by_topic.then(|| one.known.topics[0].clone());
            chains.entry(topic).or_default().push(one);
        }
        for (topic, mut files) in chains {
            files.sort_by_key(|one| one.known.head.number);
            // Files of another template are kept as long as others, and read by readers of that template.
            let current = topic.is_some() == self.settings.template.by_topic();
            let place = if current {
                self.chain_of(topic.as_deref().unwrap_or_default())
            } else {
                self.chains.push(crate::file::writing::chain::Chain::new(topic));
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
            // A compressed file gets its name once it is complete.
            self.disk.remove(&one.path).map_err(at)?;
        }
        let Some(data) = packed.or(raw) else {
            // The index no longer describes a file.
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

    /// Finds the end of the newest file of a chain, and continues there.
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
                    why: "its index exists, but its data is missing".into(),
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
