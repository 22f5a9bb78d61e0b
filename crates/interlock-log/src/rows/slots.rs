//! Places of rows that can be copied at once: copies share them until one of the copies changes.

use std::sync::Arc;

/// Number of places in a chunk; a shared chunk is copied as a whole when it changes.
const CHUNK: usize = 256;

#[derive(Clone, Debug)]
pub struct Slots<T> {
    chunks: Vec<Arc<Vec<Option<T>>>>,
    length: usize,
}

impl<T: Clone> Slots<T> {
    pub fn new() -> Slots<T> {
        Slots { chunks: Vec::new(), length: 0 }
    }

    pub fn len(&self) -> usize {
        self.length
    }

    #[inline]
    pub fn get(&self, slot: usize) -> Option<&T> {
        self.chunks.get(slot / CHUNK)?.get(slot % CHUNK)?.as_ref()
    }

    /// The place with this number, which must have been added.
    #[inline]
    pub fn get_mut(&mut self, slot: usize) -> &mut Option<T> {
        &mut Arc::make_mut(&mut self.chunks[slot / CHUNK])[slot % CHUNK]
    }

    /// Adds an empty place.
    pub fn add(&mut self) {
        if self.length.is_multiple_of(CHUNK) {
            self.chunks.push(Arc::new(Vec::with_capacity(CHUNK)));
        }
        if let Some(chunk) = self.chunks.last_mut() {
            Arc::make_mut(chunk).push(None);
        }
        self.length += 1;
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).flatten()
    }
}
