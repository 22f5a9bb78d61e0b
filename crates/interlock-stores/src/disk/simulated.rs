//! A disk in memory that behaves as badly as disks do, by a seed: what was not synced is lost, or half of
//! it; names are lost that were not synced with their folder; writes and syncs fail; it is full, not to be
//! written, or gone.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use fastrand::Rng;
use parking_lot::Mutex;

use crate::disk::{join, parent, Access, Disk, Entry, File};

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
    /// Bytes of all files together.
    pub capacity: Option<u64>,
    /// No name can be made, changed or removed, with this error of the system.
    pub denied: Option<i32>,
    /// True if nothing can be written.
    pub read_only: bool,
}

/// A disk; clones are the same one.
#[derive(Clone, Debug)]
pub struct Simulated {
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    File(u64),
    Folder,
}

#[derive(Clone, Debug)]
enum Change {
    Make(String, Item),
    Rename(String, String),
    Remove(String),
}

#[derive(Debug)]
struct State {
    /// Names as they are seen, and as they are on disk.
    names: BTreeMap<String, Item>,
    kept: BTreeMap<String, Item>,
    /// Changes of names that were not synced, in order, each with its folder.
    changes: Vec<(String, Change)>,
    nodes: BTreeMap<u64, Node>,
    next: u64,
    locks: Vec<String>,
    faults: Faults,
    rng: Rng,
    stopped: bool,
    operations: u64,
}

/// A file's content as it is read, as it is on disk, and what was done since, in order.
#[derive(Clone, Debug, Default)]
struct Node {
    now: Vec<u8>,
    kept: Vec<u8>,
    dirty: Vec<(usize, Vec<u8>)>,
}

/// A file that is open.
#[derive(Debug)]
pub struct Open {
    node: u64,
    writable: bool,
    state: Arc<Mutex<State>>,
}

/// Unlocks the name when it is dropped.
#[derive(Debug)]
pub struct Locked(Arc<Mutex<State>>, String);

impl Drop for Locked {
    fn drop(&mut self) {
        self.0.lock().locks.retain(|name| *name != self.1);
    }
}

impl Simulated {
    pub fn new(seed: u64) -> Self {
        let state = State {
            names: BTreeMap::new(),
            kept: BTreeMap::new(),
            changes: Vec::new(),
            nodes: BTreeMap::new(),
            next: 1,
            locks: Vec::new(),
            faults: Faults::default(),
            rng: Rng::with_seed(seed),
            stopped: false,
            operations: 0,
        };
        Simulated { state: Arc::new(Mutex::new(state)) }
    }

    pub fn set_faults(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// Operations so far: each is a point at which the machine can stop.
    pub fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    pub fn stopped(&self) -> bool {
        self.state.lock().stopped
    }

    /// The disk as the machine finds it when it starts again: of what was not synced, none, some or all
    /// is there.
    pub fn restart(&self) -> Simulated {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let mut names = state.kept.clone();
        let mut folders: Vec<String> = state.changes.iter().map(|(f, _)| f.clone()).collect();
        folders.sort();
        folders.dedup();
        for folder in folders {
            let changes: Vec<_> = state.changes.iter().filter(|(f, _)| *f == folder).collect();
            let some = state.rng.usize(0..=changes.len());
            let most = [0, some, changes.len()][state.rng.usize(0..3)];
            changes.iter().take(most).for_each(|(_, change)| apply(&mut names, change));
        }
        let all = names.clone();
        names.retain(|path, _| above(path).all(|above| all.get(above) == Some(&Item::Folder)));
        let fresh = Simulated::new(state.rng.u64(..));
        {
            let mut disk = fresh.state.lock();
            for (path, item) in &names {
                if let Item::File(node) = item {
                    let kept = state.nodes[node].after_crash(&mut state.rng);
                    disk.nodes.insert(*node, Node { now: kept.clone(), kept, dirty: Vec::new() });
                    disk.next = disk.next.max(node + 1);
                }
                disk.names.insert(path.clone(), *item);
            }
            disk.kept = disk.names.clone();
        }
        fresh
    }

    /// The disk as another process finds it when the one that wrote was killed.
    pub fn killed(&self) -> Simulated {
        let state = self.state.lock();
        let fresh = Simulated::new(state.rng.clone().u64(..));
        let mut disk = fresh.state.lock();
        disk.names.clone_from(&state.names);
        disk.kept.clone_from(&state.kept);
        disk.changes.clone_from(&state.changes);
        disk.nodes.clone_from(&state.nodes);
        disk.next = state.next;
        drop(disk);
        fresh
    }

    /// Returns what a file holds now.
    pub fn content(&self, path: &str) -> Option<Vec<u8>> {
        let state = self.state.lock();
        match state.names.get(path)? {
            Item::File(node) => Some(state.nodes[node].now.clone()),
            Item::Folder => None,
        }
    }

    /// Puts other content into a file, or makes one, in a folder that is there.
    pub fn set_content(&self, path: &str, content: &[u8]) {
        let mut state = self.state.lock();
        let node = match state.names.get(path) {
            Some(Item::File(node)) => *node,
            _ => state.fresh_node(),
        };
        let content = Node { now: content.into(), kept: content.into(), dirty: Vec::new() };
        state.nodes.insert(node, content);
        state.names.insert(path.into(), Item::File(node));
        state.kept.insert(path.into(), Item::File(node));
    }

    /// Removes a path with all that is in it, as somebody else may; what is open stays open.
    pub fn remove_all(&self, path: &str) {
        let mut state = self.state.lock();
        let inside = |name: &String| {
            path.is_empty()
                || name == path
                || name.strip_prefix(path).is_some_and(|r| r.starts_with('/'))
        };
        state.names.retain(|name, _| !inside(name));
        state.kept.retain(|name, _| !inside(name));
        state.changes.retain(|(folder, _)| !inside(folder) && !folder.is_empty());
    }

    /// Returns the files that there are.
    pub fn files(&self) -> Vec<String> {
        let state = self.state.lock();
        let files = state.names.iter().filter(|(_, item)| matches!(item, Item::File(_)));
        files.map(|(path, _)| path.clone()).collect()
    }
}

impl State {
    /// An operation: `Ok(true)` is the last one that is done before the machine stops.
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

    fn fresh_node(&mut self) -> u64 {
        let node = self.next;
        self.next += 1;
        self.nodes.insert(node, Node::default());
        node
    }

    fn change(&mut self, folder: &str, change: Change) -> io::Result<()> {
        if self.faults.read_only {
            return Err(io::Error::from_raw_os_error(libc::EROFS));
        }
        if let Some(code) = self.faults.denied {
            return Err(io::Error::from_raw_os_error(code));
        }
        let last = self.operation()?;
        apply(&mut self.names, &change);
        self.changes.push((folder.to_owned(), change));
        done(last)
    }

    fn has_room(&self, more: u64) -> bool {
        let of = |item: &Item| match item {
            Item::File(node) => self.nodes[node].now.len() as u64,
            Item::Folder => 0,
        };
        // Only asked for what it takes to answer it: most disks have no bound.
        let used = || self.names.values().map(of).sum::<u64>();
        self.faults.capacity.is_none_or(|capacity| used() + more <= capacity)
    }

    fn folder_there(&self, path: &str) -> io::Result<()> {
        match self.names.get(path) {
            _ if path.is_empty() => Ok(()),
            Some(Item::Folder) => Ok(()),
            Some(Item::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

fn apply(names: &mut BTreeMap<String, Item>, change: &Change) {
    match change {
        Change::Make(path, item) => {
            names.insert(path.clone(), *item);
        }
        Change::Rename(from, to) => {
            if let Some(item) = names.remove(from) {
                names.insert(to.clone(), item);
            }
        }
        Change::Remove(path) => {
            names.remove(path);
        }
    }
}

/// The folders that a path is in, but for the disk's own.
fn above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
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
    if bytes.is_empty() {
        return;
    }
    if content.len() < offset + bytes.len() {
        content.resize(offset + bytes.len(), 0);
    }
    content[offset..offset + bytes.len()].copy_from_slice(bytes);
}

impl Disk for Simulated {
    type File = Open;
    type Lock = Locked;

    fn lock(&self, path: &str) -> io::Result<Option<Locked>> {
        let mut state = self.state.lock();
        if state.locks.iter().any(|name| name == path) {
            return Ok(None);
        }
        state.locks.push(path.to_owned());
        Ok(Some(Locked(Arc::clone(&self.state), path.to_owned())))
    }

    fn open(&self, path: &str, access: Access) -> io::Result<Open> {
        let mut state = self.state.lock();
        state.folder_there(parent(path))?;
        let found = state.names.get(path).copied();
        let node = match (found, access) {
            (Some(Item::Folder), _) => return Err(io::ErrorKind::IsADirectory.into()),
            (Some(_), Access::Create) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(_), Access::Write) if state.faults.read_only => {
                return Err(io::Error::from_raw_os_error(libc::EROFS))
            }
            (Some(_), Access::Write) if state.faults.denied.is_some() => {
                return Err(io::Error::from_raw_os_error(state.faults.denied.expect("just seen")))
            }
            (Some(Item::File(node)), _) => node,
            (None, Access::Create) => {
                let node = state.fresh_node();
                state.change(parent(path), Change::Make(path.to_owned(), Item::File(node)))?;
                node
            }
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
        };
        drop(state);
        let writable = access != Access::Read;
        Ok(Open { node, writable, state: Arc::clone(&self.state) })
    }

    fn make_folder(&self, path: &str) -> io::Result<Vec<String>> {
        let mut state = self.state.lock();
        let mut fresh = Vec::new();
        let all: Vec<&str> = above(path).chain([path]).filter(|path| !path.is_empty()).collect();
        for folder in all {
            match state.names.get(folder) {
                Some(Item::Folder) => {}
                Some(Item::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                None => {
                    let change = Change::Make(folder.to_owned(), Item::Folder);
                    state.change(parent(folder), change)?;
                    fresh.push(parent(folder).to_owned());
                }
            }
        }
        Ok(fresh)
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        let state = self.state.lock();
        state.folder_there(path)?;
        let first = join(path, "");
        let behind = state.names.range(first.clone()..);
        let inside = behind.take_while(|(name, _)| name.starts_with(&first));
        let inside = inside.filter(|(name, _)| parent(name) == path);
        let entry = |(full, item): (&String, &Item)| {
            let name = full.rsplit('/').next().unwrap_or(full).to_owned();
            debug_assert_eq!(join(path, &name), *full);
            Entry { name, is_folder: *item == Item::Folder }
        };
        Ok(inside.map(entry).collect())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        assert_eq!(parent(from), parent(to), "within a folder");
        if !state.names.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        assert!(!state.names.contains_key(to), "{to} is there");
        state.change(parent(from), Change::Rename(from.to_owned(), to.to_owned()))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        match state.names.get(path) {
            Some(Item::File(_)) => state.change(parent(path), Change::Remove(path.to_owned())),
            Some(Item::Folder) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn remove_folder(&self, path: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.folder_there(path)?;
        if state.names.keys().any(|name| parent(name) == path) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        state.change(parent(path), Change::Remove(path.to_owned()))
    }

    fn sync_folder(&self, path: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.folder_there(path)?;
        let last = state.operation()?;
        if falls(&mut state.faults.fail_sync_in) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let state = &mut *state;
        let (of_it, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut state.changes).into_iter().partition(|(folder, _)| folder == path);
        state.changes = others;
        of_it.iter().for_each(|(_, change)| apply(&mut state.kept, change));
        done(last)
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        Ok(self.state.lock().names.contains_key(path))
    }

    fn holds(&self, path: &str, file: &Open) -> bool {
        self.state.lock().names.get(path) == Some(&Item::File(file.node))
    }

    fn describe(&self, path: &str) -> String {
        path.to_owned()
    }
}

impl Open {
    fn with<T>(&self, f: impl FnOnce(&mut State, u64) -> T) -> T {
        f(&mut self.state.lock(), self.node)
    }
}

impl File for Open {
    fn length(&self) -> io::Result<u64> {
        Ok(self.with(|state, node| state.nodes[&node].now.len() as u64))
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(self.with(|state, node| {
            let now = &state.nodes[&node].now;
            let from = now.len().min(offset as usize);
            let length = buffer.len().min(now.len() - from);
            buffer[..length].copy_from_slice(&now[from..from + length]);
            length
        }))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        assert!(self.writable, "opened to be read");
        self.with(|state, node| {
            if state.faults.read_only {
                return Err(io::Error::from_raw_os_error(libc::EROFS));
            }
            let (offset, length) = (offset as usize, state.nodes[&node].now.len());
            let more = (offset + bytes.len()).saturating_sub(length) as u64;
            let full = !state.has_room(more);
            let last = state.operation()?;
            let fails = falls(&mut state.faults.fail_write_in);
            let some = if fails || full { state.rng.usize(0..=bytes.len()) } else { bytes.len() };
            // A full disk takes what there is room for, and that may be a part of it.
            let some = if full && !fails { some.min(bytes.len().saturating_sub(1)) } else { some };
            let some = if full && !state.has_room(some as u64) { 0 } else { some };
            let content = state.nodes.get_mut(&node).expect("a node of this disk");
            put(&mut content.now, offset, &bytes[..some]);
            content.dirty.push((offset, bytes[..some].to_vec()));
            match (fails, full) {
                (true, _) => Err(io::Error::from_raw_os_error(libc::EIO)),
                (_, true) => Err(io::ErrorKind::StorageFull.into()),
                _ => done(last),
            }
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|state, node| {
            let last = state.operation()?;
            let fails = falls(&mut state.faults.fail_sync_in);
            let content = state.nodes.get_mut(&node).expect("a node of this disk");
            if fails {
                content.kept = content.after_crash(&mut state.rng);
                content.dirty.clear();
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            content.kept = content.now.clone();
            content.dirty.clear();
            done(last)
        })
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.with(|state, node| {
            if state.faults.read_only {
                return Err(io::Error::from_raw_os_error(libc::EROFS));
            }
            let last = state.operation()?;
            let content = state.nodes.get_mut(&node).expect("a node of this disk");
            content.now.truncate(length as usize);
            content.kept = content.now.clone();
            content.dirty.clear();
            done(last)
        })
    }
}
