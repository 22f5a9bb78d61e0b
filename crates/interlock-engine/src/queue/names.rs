//! The queues of an engine by name: finds one directly, and lists them in pages.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};

use hashbrown::HashMap;
use interlock_core::key::KeyRef;

use crate::queue::shared::Cell;

/// A map from names of queues or of consumers.
pub type ByName<T> = HashMap<Box<[u8]>, T, NameHash>;

/// Hashes a name as a key is hashed, all of it at once: two or three names are looked up per call, and
/// the standard library's hasher takes twice as long for each.
#[derive(Clone, Copy, Default)]
pub struct NameHash;

#[derive(Default)]
pub struct NameHasher(u64);

impl BuildHasher for NameHash {
    type Hasher = NameHasher;

    #[inline]
    fn build_hasher(&self) -> NameHasher {
        NameHasher::default()
    }
}

impl Hasher for NameHasher {
    #[inline]
    fn write(&mut self, name: &[u8]) {
        self.0 = KeyRef::new(name).hash;
    }

    /// The length, which the hash of the bytes depends on.
    #[inline]
    fn write_usize(&mut self, _: usize) {}

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Default)]
pub struct Names {
    cells: ByName<(u64, Cell)>,
    /// The names by numbers that rise as queues are created, so that a position reveals nothing about other
    /// users' names.
    pages: BTreeMap<u64, Box<[u8]>>,
    last: u64,
}

impl Names {
    #[inline]
    pub fn get(&self, name: &[u8]) -> Option<&Cell> {
        self.cells.get(name).map(|(_, cell)| cell)
    }

    pub fn get_or_make(&mut self, name: &[u8], make: impl FnOnce() -> Cell) -> Cell {
        if let Some(cell) = self.get(name) {
            return cell.clone();
        }
        let cell = make();
        self.last += 1;
        self.cells.insert(name.into(), (self.last, cell.clone()));
        self.pages.insert(self.last, name.into());
        cell
    }

    pub fn remove(&mut self, name: &[u8]) {
        if let Some((number, _)) = self.cells.remove(name) {
            self.pages.remove(&number);
        }
    }

    pub fn all(&self) -> impl Iterator<Item = (Box<[u8]>, Cell)> + '_ {
        self.cells.iter().map(|(name, (_, cell))| (name.clone(), cell.clone()))
    }

    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// The numbers above this one, and whose they are.
    pub fn behind(&self, number: u64) -> impl Iterator<Item = (u64, &[u8])> {
        self.pages.range(number.saturating_add(1)..).map(|(&number, name)| (number, &name[..]))
    }
}
