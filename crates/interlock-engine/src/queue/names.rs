//! The queues of an engine by name: finds one directly, and lists them in pages.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use crate::queue::shared::Cell;

#[derive(Default)]
pub struct Names {
    cells: HashMap<Box<[u8]>, (u64, Cell), std::hash::RandomState>,
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
