//! Canonical key bytes: what orders messages.
//!
//! A key is bytes. `str` (UTF-8) and `int` (decimal digits) are made bytes before they come here,
//! so that `7`, `"7"` and `b"7"` are one key on every engine.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

const INLINE: usize = 22;

/// A key as a lane keeps it: 24 bytes, short ones without an allocation of their own.
#[derive(Debug, PartialEq, Eq)]
pub enum Key {
    Inline { len: u8, bytes: [u8; INLINE] },
    Heap(Box<[u8]>),
}

impl Key {
    pub fn new(bytes: &[u8]) -> Self {
        let mut key = Key::default();
        key.set(bytes);
        key
    }

    /// Becomes another key, where it lies.
    #[inline]
    pub fn set(&mut self, bytes: &[u8]) {
        match self {
            Key::Inline { len, bytes: room } if bytes.len() <= INLINE => {
                *len = bytes.len() as u8;
                write(room, bytes);
            }
            _ if bytes.len() <= INLINE => {
                *self = Key::default();
                self.set(bytes);
            }
            _ => *self = Key::Heap(bytes.into()),
        }
    }

    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Key::Inline { len, bytes } => &bytes[..*len as usize],
            Key::Heap(bytes) => bytes,
        }
    }
}

/// Up to 22 bytes, and zeroes behind them, for keys are compared as they lie: as words that overlap, for a
/// call that copies so few bytes costs more than they do.
#[inline]
fn write(inline: &mut [u8; INLINE], bytes: &[u8]) {
    *inline = [0; INLINE];
    let len = bytes.len();
    if let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        if len > 16 {
            inline[8..16].copy_from_slice(&bytes[8..16]);
        }
        inline[len - 8..len].copy_from_slice(last);
        inline[..8].copy_from_slice(first);
    } else if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        inline[len - 4..len].copy_from_slice(last);
        inline[..4].copy_from_slice(first);
    } else {
        inline.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    }
}

/// Returns whether keys are the same. Nearly all are short, and then words that overlap tell it.
#[inline]
fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let word = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
    match (a.first_chunk::<8>(), a.last_chunk::<8>(), b.first_chunk::<8>(), b.last_chunk::<8>()) {
        (Some(a_first), Some(a_last), Some(b_first), Some(b_last)) if a.len() <= 16 => {
            word(a_first) == word(b_first) && word(a_last) == word(b_last)
        }
        _ => a == b,
    }
}

impl PartialEq<[u8]> for Key {
    #[inline]
    fn eq(&self, bytes: &[u8]) -> bool {
        same(self.as_bytes(), bytes)
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Clone for Key {
    #[inline]
    fn clone(&self) -> Self {
        match self {
            // As words: byte by byte, what reads it next would have to wait for the parts.
            // SAFETY: an inline key owns nothing.
            Key::Inline { .. } => unsafe { std::ptr::read(self) },
            Key::Heap(bytes) => Key::Heap(bytes.clone()),
        }
    }
}

impl Default for Key {
    fn default() -> Self {
        Key::Inline { len: 0, bytes: [0; INLINE] }
    }
}

/// A key on its way into a call: borrowed bytes and their hash, computed before any lock is taken.
#[derive(Clone, Copy, Debug)]
pub struct KeyRef<'a> {
    pub bytes: &'a [u8],
    pub hash: u64,
}

impl<'a> KeyRef<'a> {
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        KeyRef { bytes, hash: hash(bytes) }
    }
}

/// One secret for the whole process, because a key's hash is the same in every queue. Users choose keys, so
/// the hash is SipHash-1-3, as in all other maps here: a hash that multiplies by public constants, whatever
/// its seed, lets them choose keys that all meet in one bucket.
static SECRET: LazyLock<[u64; 2]> =
    LazyLock::new(|| [(); 2].map(|()| RandomState::new().build_hasher().finish()));

#[inline]
fn hash(bytes: &[u8]) -> u64 {
    siphash(*SECRET, bytes)
}

/// SipHash-1-3 of bytes that are all there: the standard library's takes them piece by piece, which costs
/// half as much again for a short key.
#[inline]
fn siphash([k0, k1]: [u64; 2], bytes: &[u8]) -> u64 {
    let mut state = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let (blocks, _) = bytes.as_chunks::<8>();
    for block in blocks {
        add(&mut state, u64::from_le_bytes(*block));
    }
    add(&mut state, rest(bytes) | (bytes.len() as u64) << 56);
    state[2] ^= 0xff;
    (0..3).for_each(|_| mix(&mut state));
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

#[inline]
fn add(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    mix(state);
    state[0] ^= word;
}

#[inline]
fn mix([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *b = b.rotate_left(13) ^ *a;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*d);
    *d = d.rotate_left(16) ^ *c;
    *a = a.wrapping_add(*d);
    *d = d.rotate_left(21) ^ *a;
    *c = c.wrapping_add(*b);
    *b = b.rotate_left(17) ^ *c;
    *c = c.rotate_left(32);
}

/// The bytes after the last whole word, in the low part of one. They are read as words that overlap.
#[inline]
fn rest(bytes: &[u8]) -> u64 {
    let bits = bytes.len() % 8 * 8;
    if let Some(last) = bytes.last_chunk::<8>() {
        return u64::from_le_bytes(*last).checked_shr(64 - bits as u32).unwrap_or(0);
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return u64::from(first) | u64::from(last) << (bits - 32);
    }
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use crate::key::*;
    use crate::limits::MAX_KEY_BYTES;

    #[test]
    fn a_key_takes_24_bytes_and_returns_its_bytes() {
        assert_eq!(std::mem::size_of::<Key>(), 24);
        for len in (0..30).chain([MAX_KEY_BYTES]) {
            let bytes: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_add(1)).collect();
            assert_eq!(Key::new(&bytes).as_bytes(), bytes);
        }
    }

    #[test]
    fn an_overwritten_key_keeps_nothing_of_the_old_one() {
        for before in [0, 3, 4, 7, 8, 15, 16, 17, 22, 23, 100] {
            for len in 0..30 {
                let mut key = Key::new(&vec![b'x'; before]);
                let bytes: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_add(1)).collect();
                key.set(&bytes);
                assert_eq!((key.as_bytes(), &key), (&bytes[..], &Key::new(&bytes)));
            }
        }
    }

    #[test]
    fn keys_differ_by_any_byte_and_by_their_length() {
        for len in 1..30 {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let key = Key::new(&bytes);
            assert!(key == *bytes && key != bytes[..len - 1]);
            for at in 0..len {
                let mut other = bytes.clone();
                other[at] ^= 0x80;
                assert!(key != *other, "byte {at} of {len}");
            }
        }
    }

    #[test]
    fn a_hash_is_siphash_1_3_of_the_bytes() {
        // The standard library's hasher is that one, with a secret of zeroes.
        for len in 0..40 {
            let bytes: Vec<u8> = (0..len).map(|i: u8| i.wrapping_mul(37)).collect();
            let mut hasher = std::hash::DefaultHasher::new();
            hasher.write(&bytes);
            assert_eq!(siphash([0, 0], &bytes), hasher.finish(), "of {len} bytes");
        }
    }

    #[test]
    fn equal_bytes_hash_equally() {
        assert_eq!(
            KeyRef::new(b"room:7").hash,
            KeyRef::new(String::from("room:7").as_bytes()).hash
        );
        assert_ne!(KeyRef::new(b"room:7").hash, KeyRef::new(b"room:8").hash);
    }
}
