//! Comparison of a store's snapshot with rows elsewhere, such as in a database: what each side
//! lacks.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use super::{Entry, Held, Image};

/// Compares an image with rows from elsewhere. Each row must be passed once.
#[derive(Debug)]
pub struct Comparison {
    image: Image,
    rows: Vec<Entry>,
    by_key: HashTable<usize>,
    hasher: RandomState,
    seen: Vec<bool>,
}

/// Difference between a row here and the same row elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Difference {
    /// Their row has changes that are not here.
    pub brings: bool,
    /// The row here, if it has changes that theirs lacks.
    pub lacks: Option<Held>,
    /// The row does not exist here.
    pub is_unknown: bool,
}

impl Comparison {
    pub fn new(image: Image) -> Comparison {
        let rows: Vec<Entry> = image.entries.iter().cloned().collect();
        let hasher = RandomState::new();
        let mut by_key = HashTable::with_capacity(rows.len());
        for (number, row) in rows.iter().enumerate() {
            let hash = |number: &usize| hasher.hash_one(rows[*number].key());
            by_key.insert_unique(hasher.hash_one(row.key()), number, hash);
        }
        Comparison { seen: vec![false; rows.len()], image, rows, by_key, hasher }
    }

    /// Compares a row. `None`: their bytes are not a state of this table and no row is here.
    /// `is_joined`: their row was joined before, so the row here is right wherever it differs.
    pub fn row(&mut self, key: &[u8], theirs: &[u8], is_joined: bool) -> Option<Difference> {
        let is_it = |number: &usize| self.rows[*number].key() == key;
        let found = self.by_key.find(self.hasher.hash_one(key), is_it).copied();
        let ours = found.map(|number| {
            self.seen[number] = true;
            &self.rows[number]
        });
        if ours.is_some_and(|ours| ours.state() == theirs) {
            return Some(Difference::default());
        }
        let held = || ours.cloned().map(Held);
        if is_joined {
            return Some(Difference { lacks: held(), ..Difference::default() });
        }
        let Ok(theirs) = self.image.rules.check(theirs) else {
            // Invalid bytes are overwritten if the row exists here.
            let lacks = held();
            return lacks.map(|lacks| Difference { lacks: Some(lacks), ..Difference::default() });
        };
        let Some(state) = ours.map(Entry::state) else {
            return Some(Difference { brings: true, lacks: None, is_unknown: true });
        };
        let joined = self.image.rules.join_bytes(state, &theirs);
        let brings = joined.is_some();
        let lacks = held().filter(|_| joined.is_none_or(|joined| joined != theirs));
        Some(Difference { brings, lacks, is_unknown: false })
    }

    /// Rows that were not compared.
    pub fn rest(&self) -> impl Iterator<Item = Held> + '_ {
        let rest = self.rows.iter().zip(&self.seen).filter(|(_, seen)| !**seen);
        rest.map(|(row, _)| Held(row.clone()))
    }
}
