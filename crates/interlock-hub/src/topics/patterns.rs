//! Patterns by the literal bytes that a topic must have to match them.
//!
//! A publish is compared only with patterns whose literal bytes its topic has: at its start (`price.*`), at
//! its end (`*:42`) or anywhere (`?x*`). A pattern is filed under one of them, the one with the fewest other
//! patterns. Only patterns without literal bytes are compared with every topic.

use std::collections::BTreeMap;
use std::hash::RandomState;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::glob;

type Bytes = Arc<[u8]>;

/// Patterns, each with a value.
#[derive(Debug)]
pub struct Patterns<V> {
    /// By where the literal bytes are in a topic.
    filed: [Filed<V>; 3],
    places: HashMap<Bytes, Place, RandomState>,
}

/// Patterns by literal bytes at one side of a topic, or anywhere.
#[derive(Debug)]
struct Filed<V> {
    buckets: HashMap<Bytes, Vec<(Bytes, V)>, RandomState>,
    /// The number of buckets with each length of literal bytes.
    lengths: BTreeMap<usize, usize>,
}

/// The place of a pattern.
#[derive(Debug)]
struct Place {
    side: usize,
    literal: Bytes,
    /// Its index in the bucket: thousands may have the same literal bytes.
    at: usize,
}

const START: usize = 0;
const END: usize = 1;
const ANYWHERE: usize = 2;

/// Bytes that are looked up at each position of a topic: more would cost long topics too much.
const WINDOW: usize = 8;
/// A bucket with fewer patterns is cheaper than lookups at another side.
const FEW: usize = 8;

impl<V: Default> Patterns<V> {
    /// The value of a pattern, which is added if it is new.
    pub fn entry(&mut self, pattern: &Bytes) -> &mut V {
        if !self.places.contains_key(&**pattern) {
            let (side, literal) = self.cheapest(pattern);
            let (literal, at) = self.filed[side].push(&literal, pattern.clone());
            self.places.insert(pattern.clone(), Place { side, literal, at });
        }
        self.get_mut(pattern).expect("it is filed")
    }

    pub fn get_mut(&mut self, pattern: &[u8]) -> Option<&mut V> {
        let Place { side, literal, at } = self.places.get(pattern)?;
        let bucket = self.filed[*side].buckets.get_mut(&**literal)?;
        Some(&mut bucket[*at].1)
    }

    pub fn remove(&mut self, pattern: &[u8]) {
        let Some(Place { side, literal, at }) = self.places.remove(pattern) else { return };
        if let Some(moved) = self.filed[side].take(&literal, at) {
            self.places.get_mut(&moved).expect("each pattern has its place").at = at;
        }
    }

    /// Calls `each` for every pattern that `topic` matches.
    pub fn matching(&self, topic: &[u8], mut each: impl FnMut(&[u8], &V)) {
        let mut compare = |bucket: &[(Bytes, V)]| {
            for (pattern, value) in bucket {
                if glob::matches(pattern, topic) {
                    each(pattern, value);
                }
            }
        };
        let [starts, ends, parts] = &self.filed;
        for length in starts.lengths_within(topic) {
            compare(starts.bucket(&topic[..length]));
        }
        for length in ends.lengths_within(topic) {
            compare(ends.bucket(&topic[topic.len() - length..]));
        }
        for length in parts.lengths_within(topic) {
            for (at, window) in topic.windows(length).enumerate() {
                let bucket = parts.bucket(window);
                // A topic may contain it twice.
                let mut earlier = topic.windows(length).take(at);
                if !bucket.is_empty() && !earlier.any(|earlier| earlier == window) {
                    compare(bucket);
                }
            }
        }
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub fn all(&self) -> impl Iterator<Item = (&Bytes, &V)> {
        let buckets = self.filed.iter().flat_map(|filed| filed.buckets.values());
        buckets.flatten().map(|(pattern, value)| (pattern, value))
    }

    /// The side and literal bytes under which to file a new pattern: none, at the start, if it has none.
    fn cheapest(&self, pattern: &[u8]) -> (usize, Vec<u8>) {
        let start = &pattern[..glob::literal_prefix(pattern)];
        let mut best = (START, start.to_vec());
        let mut fewest = match start {
            [] => usize::MAX,
            _ => self.filed[START].bucket(start).len(),
        };
        if fewest < FEW {
            return best;
        }
        let runs = glob::literal_runs(pattern);
        let end = runs.last().filter(|run| !run.is_empty()).map(|run| (END, &run[..]));
        let windows = runs.iter().flat_map(|run| run.windows(run.len().clamp(1, WINDOW)));
        for (side, literal) in end.into_iter().chain(windows.map(|window| (ANYWHERE, window))) {
            let count = self.filed[side].bucket(literal).len();
            if count < fewest {
                (best, fewest) = ((side, literal.to_vec()), count);
            }
            if fewest < FEW {
                break;
            }
        }
        best
    }
}

impl<V: Default> Filed<V> {
    fn bucket(&self, literal: &[u8]) -> &[(Bytes, V)] {
        self.buckets.get(literal).map_or(&[], |bucket| bucket)
    }

    fn lengths_within(&self, topic: &[u8]) -> impl Iterator<Item = usize> + use<'_, V> {
        let longest = topic.len();
        self.lengths.keys().copied().take_while(move |&length| length <= longest)
    }

    /// Adds a pattern; returns its literal bytes, shared by the bucket, and its index there.
    fn push(&mut self, literal: &[u8], pattern: Bytes) -> (Bytes, usize) {
        let literal = match self.buckets.get_key_value(literal) {
            Some((literal, _)) => literal.clone(),
            None => {
                *self.lengths.entry(literal.len()).or_default() += 1;
                Bytes::from(literal)
            }
        };
        let bucket = self.buckets.entry(literal.clone()).or_default();
        bucket.push((pattern, V::default()));
        (literal, bucket.len() - 1)
    }

    /// Removes the pattern at an index; returns the one that moved there.
    fn take(&mut self, literal: &[u8], at: usize) -> Option<Bytes> {
        let bucket = self.buckets.get_mut(literal)?;
        bucket.swap_remove(at);
        let moved = bucket.get(at).map(|(pattern, _)| pattern.clone());
        if bucket.is_empty() {
            self.buckets.remove(literal);
            let left = self.lengths.get_mut(&literal.len()).expect("it was counted");
            *left -= 1;
            if *left == 0 {
                self.lengths.remove(&literal.len());
            }
        }
        moved
    }
}

impl<V> Default for Patterns<V> {
    fn default() -> Self {
        let filed = || Filed { buckets: HashMap::default(), lengths: BTreeMap::new() };
        Patterns { filed: [filed(), filed(), filed()], places: HashMap::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_finds_what_comparing_each_pattern_would() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut patterns: Patterns<u32> = Patterns::default();
        let mut all: Vec<Bytes> = Vec::new();
        let mut used = [0; 3];
        for round in 0..30_000 {
            let mut string = |from: &[u8], most: usize| -> Vec<u8> {
                (0..random.usize(0..=most)).map(|_| from[random.usize(0..from.len())]).collect()
            };
            let (pattern, topic) = (string(b"aaabb*?[]\\", 6), string(b"aabb]*", 9));
            let leaves = round % 3 == 0 && all.len() > (round / 5_000) * 100;
            if leaves {
                let name = all.swap_remove(round % all.len());
                patterns.remove(&name);
            } else if !all.iter().any(|name| **name == *pattern) {
                all.push(Bytes::from(pattern));
                *patterns.entry(all.last().unwrap()) += 1;
            }
            let mut found: Vec<Bytes> = Vec::new();
            patterns.matching(&topic, |name, value| {
                assert_eq!(*value, 1);
                found.push(name.into());
            });
            let naive = all.iter().filter(|name| glob::matches(name, &topic));
            let mut expected: Vec<Bytes> = naive.cloned().collect();
            found.sort();
            expected.sort();
            assert_eq!(found, expected, "topic {topic:?}");
            assert_eq!((patterns.len(), patterns.all().count()), (all.len(), all.len()));
            (0..3).for_each(|side| used[side] += patterns.filed[side].buckets.len());
        }
        assert!(used.iter().all(|&buckets| buckets > 10_000), "{used:?}");
        all.iter().for_each(|name| patterns.remove(name));
        assert!(patterns.filed.iter().all(|filed| filed.lengths.is_empty()));
    }

    /// Patterns that a topic is compared with.
    fn compared(patterns: &Patterns<u32>, topic: &[u8]) -> usize {
        let [starts, ends, parts] = &patterns.filed;
        let start =
            starts.lengths_within(topic).map(|length| starts.bucket(&topic[..length]).len());
        let end = ends
            .lengths_within(topic)
            .map(|length| ends.bucket(&topic[topic.len() - length..]).len());
        let lengths = parts.lengths_within(topic);
        let part =
            lengths.flat_map(|length| topic.windows(length).map(|of| parts.bucket(of).len()));
        start.chain(end).chain(part).sum()
    }

    #[test]
    fn a_topic_is_compared_with_few_of_many_patterns_wherever_their_literal_bytes_are() {
        for (before, after) in [("", ":*"), ("*:", ""), ("?x", "*"), ("*.", ".*"), ("a*", "*z")] {
            let mut patterns = Patterns::default();
            for number in 0..10_000 {
                let pattern = format!("{before}{number:05}{after}");
                *patterns.entry(&Bytes::from(pattern.as_bytes())) = number;
            }
            let topic = format!("{before}01234{after}").replace(['*', '?'], "y");
            let mut found = Vec::new();
            patterns.matching(topic.as_bytes(), |_, &number| found.push(number));
            assert_eq!(found, [1234], "{topic}");
            assert!(compared(&patterns, topic.as_bytes()) < 100, "{topic}");
        }
    }
}
