//! Keys as words, and their hash, which is part of the layout: every process must find the same bucket.
//!
//! A table has a seed of its own, drawn when it is made, so that nobody who chooses keys can choose
//! buckets. The low half of a hash chooses the buckets, its upper 16 bits are the tag.

const MIX: [u64; 3] = [0xA076_1D64_78BD_642F, 0xE703_7ED1_A0B4_28DB, 0x8EBC_6AF0_9C88_C6E3];

/// The longest key, in bytes.
pub const MAX_KEY: usize = 1024;

/// A key on its way into a call, with its hash.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    pub bytes: &'a [u8],
    pub hash: u64,
    /// The first two words of it, zeroes behind its last byte: most keys have no more.
    pub head: [u64; 2],
}

impl<'a> Key<'a> {
    #[inline]
    pub fn new(bytes: &'a [u8], seed: u64) -> Self {
        let head = head(bytes);
        let hash = match bytes.len() {
            ..=16 => short_hash(head, bytes.len(), seed),
            _ => hash(bytes, seed),
        };
        Key { bytes, hash, head }
    }

    /// A key whose hash is known.
    pub fn hashed(bytes: &'a [u8], hash: u64) -> Self {
        Key { bytes, hash, head: head(bytes) }
    }

    #[inline]
    pub fn tag(&self) -> u64 {
        tag(self.hash)
    }

    /// The key in whole words, zeroes behind its last byte.
    #[inline]
    pub fn words(&self) -> impl Iterator<Item = u64> + 'a {
        self.bytes.chunks(8).map(word)
    }
}

#[inline]
fn head(bytes: &[u8]) -> [u64; 2] {
    match bytes.len() {
        9.. => [word(bytes), word(&bytes[8..])],
        _ => [word(bytes), 0],
    }
}

/// 16 bits, never 0: that is a slot that never had a row, or whose row was deleted.
#[inline]
pub fn tag(hash: u64) -> u64 {
    (hash >> 48).max(1)
}

/// Up to eight bytes as a word.
#[inline]
pub fn word(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(eight) => u64::from_le_bytes(*eight),
        None => tail(bytes),
    }
}

/// Fewer than eight bytes as a word: as parts that overlap, for a call that copies so few costs more.
#[inline]
fn tail(bytes: &[u8]) -> u64 {
    let len = bytes.len();
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        u64::from(first) | u64::from(last) << (8 * (len - 4))
    } else if len > 0 {
        let (first, middle, last) = (bytes[0], bytes[len / 2], bytes[len - 1]);
        u64::from(first) | u64::from(middle) << (8 * (len / 2)) | u64::from(last) << (8 * (len - 1))
    } else {
        0
    }
}

/// As `hash`, of up to 16 bytes as words.
#[inline]
fn short_hash([first, second]: [u64; 2], length: usize, seed: u64) -> u64 {
    let state = fold(seed ^ MIX[0], MIX[1] ^ length as u64);
    fold(fold(first ^ MIX[1], second ^ state), MIX[2])
}

/// The hash of bytes: products of 64 by 64 bits, both halves of which are kept.
#[inline]
pub fn hash(bytes: &[u8], seed: u64) -> u64 {
    let mut state = fold(seed ^ MIX[0], MIX[1] ^ bytes.len() as u64);
    let mut rest = bytes;
    while rest.len() > 16 {
        state = fold(word(&rest[..8]) ^ MIX[1], word(&rest[8..16]) ^ state);
        rest = &rest[16..];
    }
    let (first, second) = match rest.len() {
        9.. => (word(rest), word(&rest[8..])),
        _ => (word(rest), 0),
    };
    fold(fold(first ^ MIX[1], second ^ state), MIX[2])
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_words_with_zeroes_behind_it() {
        for len in 0..40 {
            let bytes: Vec<u8> = (0..len).map(|n| n as u8 + 1).collect();
            let words: Vec<u8> =
                Key::new(&bytes, 1).words().flat_map(|word| word.to_le_bytes()).collect();
            assert_eq!(&words[..len], &bytes[..]);
            assert_eq!(Key::new(&bytes, 1).hash, hash(&bytes, 1));
            assert!(
                words[len..].iter().all(|byte| *byte == 0) && words.len() == len.div_ceil(8) * 8
            );
        }
    }

    #[test]
    fn hashes_differ_by_seed_byte_and_length_and_never_change() {
        let mut seen = std::collections::HashSet::new();
        for len in 0..64 {
            for seed in 0..4 {
                let mut bytes = vec![0; len];
                assert!(seen.insert(hash(&bytes, seed)), "{len} {seed}");
                for at in 0..len {
                    bytes[at] = 1;
                    assert!(seen.insert(hash(&bytes, seed)), "{len} {seed} {at}");
                    bytes[at] = 0;
                }
            }
        }
        // Tables in files are older than the program that reads them.
        assert_eq!(hash(b"888888888", 7), 4_541_564_821_797_113_516);
    }

    /// Keys that are counted upwards are the usual case.
    #[test]
    fn buckets_and_tags_of_rising_keys_are_even() {
        let (mut buckets, mut tags) = (vec![0u32; 1009], vec![0u32; 256]);
        for n in 0..200_000u64 {
            let hash = hash(n.to_string().as_bytes(), 3);
            buckets[(hash as u32 % 1009) as usize] += 1;
            tags[(tag(hash) & 255) as usize] += 1;
        }
        let worst = |counts: &[u32], mean: f64| {
            counts.iter().map(|n| (f64::from(*n) - mean).abs() / mean.sqrt()).fold(0.0, f64::max)
        };
        assert!(worst(&buckets, 200_000.0 / 1009.0) < 5.0);
        assert!(worst(&tags, 200_000.0 / 256.0) < 5.0);
    }
}
