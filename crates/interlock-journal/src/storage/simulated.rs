//! A disk in memory that behaves as badly as disks do, by a seed: what was not synced is lost, or
//! half of it; syncs and writes fail; the disk is full; bits flip; it claims to have synced and has not.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use fastrand::Rng;
use parking_lot::Mutex;

use crate::storage::{File, Fill, Storage};

/// Bytes of a sector, which a crash leaves whole or not at all.
const SECTOR: usize = 512;

/// The faults that are to happen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The machine stops at this operation from now, 0 for the next one.
    pub stop_in: Option<u64>,
    /// This write from now fails, with a part of it done.
    pub fail_write_in: Option<u64>,
    /// This sync from now fails, with a part of it done; later ones succeed and do nothing for it.
    pub fail_sync_in: Option<u64>,
    /// Syncs succeed and do nothing.
    pub lies: bool,
    /// Bytes of all files together.
    pub capacity: Option<u64>,
    /// No file can be made, with this error of the system.
    pub no_files: Option<i32>,
}

/// A disk; clones are the same one.
#[derive(Clone, Debug)]
pub struct Simulated {
    disk: Arc<Mutex<Disk>>,
}

#[derive(Debug)]
struct Disk {
    files: BTreeMap<String, Arc<Mutex<Node>>>,
    /// Removed, which a crash may undo.
    removed: BTreeMap<String, Arc<Mutex<Node>>>,
    faults: Faults,
    rng: Rng,
    locked: bool,
    stopped: bool,
    operations: u64,
}

/// A file's content as it is read, as it is on disk, and what was written since, in order.
#[derive(Clone, Debug, Default)]
struct Node {
    now: Vec<u8>,
    kept: Vec<u8>,
    dirty: Vec<(usize, Vec<u8>)>,
}

/// A file that is open.
#[derive(Debug)]
pub struct Open {
    node: Arc<Mutex<Node>>,
    disk: Arc<Mutex<Disk>>,
}

/// Unlocks the folder when it is dropped.
#[derive(Debug)]
pub struct Locked(Arc<Mutex<Disk>>);

impl Drop for Locked {
    fn drop(&mut self) {
        self.0.lock().locked = false;
    }
}

impl Simulated {
    pub fn new(seed: u64) -> Self {
        let disk = Disk {
            files: BTreeMap::new(),
            removed: BTreeMap::new(),
            faults: Faults::default(),
            rng: Rng::with_seed(seed),
            locked: false,
            stopped: false,
            operations: 0,
        };
        Simulated { disk: Arc::new(Mutex::new(disk)) }
    }

    pub fn set_faults(&self, faults: Faults) {
        self.disk.lock().faults = faults;
    }

    /// Operations so far: each is a point at which the machine can stop.
    pub fn operations(&self) -> u64 {
        self.disk.lock().operations
    }

    pub fn stopped(&self) -> bool {
        self.disk.lock().stopped
    }

    /// The disk as the machine finds it when it starts again: of what was not synced, none, some or all
    /// is there.
    pub fn restart(&self) -> Simulated {
        let mut disk = self.disk.lock();
        let disk = &mut *disk;
        let mut files = BTreeMap::new();
        let back = disk.removed.iter().filter(|(name, _)| !disk.files.contains_key(*name));
        let back: Vec<_> = back.filter(|_| disk.rng.bool()).map(|(n, f)| (n.clone(), f)).collect();
        for (name, node) in disk.files.iter().map(|(n, f)| (n.clone(), f)).chain(back) {
            let kept = node.lock().after_crash(&mut disk.rng);
            let node = Node { now: kept.clone(), kept, dirty: Vec::new() };
            files.insert(name, Arc::new(Mutex::new(node)));
        }
        let fresh = Simulated::new(disk.rng.u64(..));
        fresh.disk.lock().files = files;
        fresh
    }

    /// Returns what a file holds now.
    pub fn content(&self, name: &str) -> Vec<u8> {
        self.disk.lock().files[name].lock().now.clone()
    }

    /// Puts other content into a file, or makes one.
    pub fn set_content(&self, name: &str, content: &[u8]) {
        let node = Node { now: content.into(), kept: content.into(), dirty: Vec::new() };
        self.disk.lock().files.insert(name.into(), Arc::new(Mutex::new(node)));
    }

    pub fn list(&self) -> Vec<String> {
        self.disk.lock().files.keys().cloned().collect()
    }

    /// An operation: `Ok(true)` is the last one that is done before the machine stops.
    fn operation(&self) -> io::Result<bool> {
        self.disk.lock().operation()
    }

    fn open_node(&self, node: Arc<Mutex<Node>>) -> Open {
        Open { node, disk: Arc::clone(&self.disk) }
    }
}

impl Disk {
    fn operation(&mut self) -> io::Result<bool> {
        if self.stopped {
            return Err(stopped());
        }
        self.operations += 1;
        match &mut self.faults.stop_in {
            Some(0) => {
                self.stopped = true;
                // The operation is done but not reported, or it is not done.
                if self.rng.bool() {
                    Ok(true)
                } else {
                    Err(stopped())
                }
            }
            Some(left) => {
                *left -= 1;
                Ok(false)
            }
            None => Ok(false),
        }
    }

    fn has_room(&self, more: u64) -> bool {
        let used: u64 = self.files.values().map(|node| node.lock().now.len() as u64).sum();
        self.faults.capacity.is_none_or(|capacity| used + more <= capacity)
    }
}

fn stopped() -> io::Error {
    io::Error::other("the machine stopped")
}

fn done(last: bool) -> io::Result<()> {
    if last {
        Err(stopped())
    } else {
        Ok(())
    }
}

fn full() -> io::Error {
    io::ErrorKind::StorageFull.into()
}

/// Counts down to a fault.
fn falls(left: &mut Option<u64>) -> bool {
    match left {
        Some(0) => {
            *left = None;
            true
        }
        Some(n) => {
            *n -= 1;
            false
        }
        None => false,
    }
}

impl Node {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        put(&mut self.now, offset, bytes);
        self.dirty.push((offset, bytes.to_vec()));
    }

    fn after_crash(&self, rng: &mut Rng) -> Vec<u8> {
        let mut kept = self.kept.clone();
        match rng.u8(0..5) {
            0 => {}
            1 => self.dirty.iter().for_each(|(offset, bytes)| put(&mut kept, *offset, bytes)),
            // Up to some write, and of that one up to some byte.
            2 => {
                let whole = rng.usize(0..=self.dirty.len());
                for (n, (offset, bytes)) in self.dirty.iter().enumerate().take(whole + 1) {
                    let length = if n < whole { bytes.len() } else { rng.usize(0..=bytes.len()) };
                    put(&mut kept, *offset, &bytes[..length]);
                }
            }
            3 => {
                for (offset, bytes) in &self.dirty {
                    if rng.bool() {
                        put(&mut kept, *offset, bytes);
                    }
                }
            }
            // Any sectors, whichever write they are of.
            _ => {
                for (offset, bytes) in &self.dirty {
                    let mut at = 0;
                    while at < bytes.len() {
                        let end =
                            bytes.len().min((offset + at) / SECTOR * SECTOR + SECTOR - offset);
                        if rng.bool() {
                            put(&mut kept, offset + at, &bytes[at..end]);
                        }
                        at = end;
                    }
                }
            }
        }
        kept
    }
}

fn put(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if content.len() < offset + bytes.len() {
        content.resize(offset + bytes.len(), 0);
    }
    content[offset..offset + bytes.len()].copy_from_slice(bytes);
}

impl Storage for Simulated {
    type File = Open;
    type Lock = Locked;

    fn lock(&self) -> io::Result<Option<Locked>> {
        let mut disk = self.disk.lock();
        if std::mem::replace(&mut disk.locked, true) {
            return Ok(None);
        }
        Ok(Some(Locked(Arc::clone(&self.disk))))
    }

    fn create(&self, name: &str, length: u64, _fill: Fill) -> io::Result<Open> {
        let last = self.operation()?;
        let mut disk = self.disk.lock();
        if let Some(code) = disk.faults.no_files {
            return Err(io::Error::from_raw_os_error(code));
        }
        if !disk.has_room(length) {
            return Err(full());
        }
        let content = vec![0; length as usize];
        let node = Node { now: content.clone(), kept: content, dirty: Vec::new() };
        let node = Arc::new(Mutex::new(node));
        disk.files.insert(name.into(), Arc::clone(&node));
        drop(disk);
        done(last)?;
        Ok(self.open_node(node))
    }

    fn open(&self, name: &str) -> io::Result<Open> {
        let node = self.disk.lock().files.get(name).cloned();
        Ok(self.open_node(node.ok_or(io::ErrorKind::NotFound)?))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.list())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let last = self.operation()?;
        let mut disk = self.disk.lock();
        let node = disk.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        disk.files.insert(to.into(), node);
        disk.removed.clear();
        drop(disk);
        done(last)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let last = self.operation()?;
        let mut disk = self.disk.lock();
        let node = disk.files.remove(name).ok_or(io::ErrorKind::NotFound)?;
        disk.removed.insert(name.into(), node);
        drop(disk);
        done(last)
    }

    fn holds(&self, name: &str, file: &Open) -> bool {
        self.disk.lock().files.get(name).is_some_and(|node| Arc::ptr_eq(node, &file.node))
    }

    fn describe(&self, name: &str) -> String {
        name.to_owned()
    }
}

impl File for Open {
    fn length(&self) -> io::Result<u64> {
        Ok(self.node.lock().now.len() as u64)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let node = self.node.lock();
        let from = node.now.len().min(offset as usize);
        let length = buffer.len().min(node.now.len() - from);
        buffer[..length].copy_from_slice(&node.now[from..from + length]);
        Ok(length)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut disk = self.disk.lock();
        let (offset, length) = (offset as usize, self.node.lock().now.len());
        if !disk.has_room((offset + bytes.len()).saturating_sub(length) as u64) {
            return Err(full());
        }
        let last = disk.operation()?;
        let fails = falls(&mut disk.faults.fail_write_in);
        let done_of = if fails { disk.rng.usize(0..=bytes.len()) } else { bytes.len() };
        self.node.lock().write(offset, &bytes[..done_of]);
        if fails {
            return Err(io::Error::other("input/output error"));
        }
        done(last)
    }

    fn sync(&self) -> io::Result<()> {
        let mut disk = self.disk.lock();
        let last = disk.operation()?;
        let mut node = self.node.lock();
        if disk.faults.lies {
            return done(last);
        }
        if falls(&mut disk.faults.fail_sync_in) {
            node.kept = node.after_crash(&mut disk.rng);
            node.dirty.clear();
            return Err(io::Error::other("input/output error"));
        }
        node.kept = node.now.clone();
        node.dirty.clear();
        done(last)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let mut disk = self.disk.lock();
        let last = disk.operation()?;
        let mut node = self.node.lock();
        node.now.truncate(length as usize);
        node.kept = node.now.clone();
        node.dirty.clear();
        done(last)
    }
}
