//! Keys as words, and their hash, which is part of the layout: every process must find the same bucket.
//!
//! The hash is SipHash-1-3, keyed by a secret of the table, which is drawn when the table is made and can be
//! read only by those who may write it. Users choose keys, and a hash that is not made for that lets them
//! choose buckets: one that multiplies by public constants has keys that meet whatever its seed is.
//! The low half of a hash chooses the buckets, its upper 16 bits are the tag.

/// The key of a table's hash.
pub type Secret = [u64; 2];

/// The longest key, in bytes.
pub const MAX_KEY: usize = 1024;

/// A key on its way into a call, with its hash.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    pub bytes: &'a [u8],
    pub hash: u64,
    /// The first two words of it, padded with zeroes: most keys are not longer.
    pub head: [u64; 2],
}

impl<'a> Key<'a> {
    /// Always inline: a key that is returned through memory is read in larger parts than it was written in,
    /// and such a read waits until all earlier writes are done, also those of the last row.
    #[inline(always)]
    pub fn new(bytes: &'a [u8], secret: Secret) -> Self {
        let head = head(bytes);
        let hash = match bytes.len() {
            length @ ..16 => hash_of(head[0], head[1], length, secret[0], secret[1]),
            _ => hash(bytes, secret),
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

pub fn hash(bytes: &[u8], secret: Secret) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let sip =
        words.iter().fold(Sip::new(secret), |sip, eight| sip.word(u64::from_le_bytes(*eight)));
    sip.end(tail(rest), bytes.len())
}

/// The hash of fewer than 16 bytes, as words. All arguments are in registers.
fn hash_of(first: u64, second: u64, bytes: usize, one: u64, other: u64) -> u64 {
    let sip = Sip::new([one, other]);
    match bytes {
        8.. => sip.word(first).end(second, bytes),
        _ => sip.end(first, bytes),
    }
}

/// The state of SipHash: one round for each word, three at the end.
struct Sip([u64; 4]);

impl Sip {
    #[inline]
    fn new([first, second]: Secret) -> Sip {
        /// The text "somepseudorandomlygeneratedbytes", as in the paper.
        const START: [u64; 4] = [
            0x736F_6D65_7073_6575,
            0x646F_7261_6E64_6F6D,
            0x6C79_6765_6E65_7261,
            0x7465_6462_7974_6573,
        ];
        let [a, b, c, d] = START;
        Sip([a ^ first, b ^ second, c ^ first, d ^ second])
    }

    #[inline]
    fn word(mut self, word: u64) -> Sip {
        self.0[3] ^= word;
        self = self.round();
        self.0[0] ^= word;
        self
    }

    /// The hash of all words, of fewer than eight bytes behind them, and of the number of bytes in all.
    #[inline]
    fn end(self, rest: u64, bytes: usize) -> u64 {
        let mut sip = self.word(rest | (bytes as u64) << 56);
        sip.0[2] ^= 0xFF;
        let [a, b, c, d] = sip.round().round().round().0;
        a ^ b ^ c ^ d
    }

    #[inline]
    fn round(self) -> Sip {
        let [mut a, mut b, mut c, mut d] = self.0;
        a = a.wrapping_add(b);
        c = c.wrapping_add(d);
        b = b.rotate_left(13) ^ a;
        d = d.rotate_left(16) ^ c;
        a = a.rotate_left(32).wrapping_add(d);
        c = c.wrapping_add(b);
        d = d.rotate_left(21) ^ a;
        b = b.rotate_left(17) ^ c;
        c = c.rotate_left(32);
        Sip([a, b, c, d])
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use siphasher::sip::SipHasher13;

    use crate::layout::hash::*;

    #[test]
    fn a_key_is_padded_to_words_with_zeroes_and_hashed_as_another_implementation_does() {
        for len in 0..40 {
            let bytes: Vec<u8> = (0..len).map(|n| n as u8 + 1).collect();
            let words: Vec<u8> =
                Key::new(&bytes, [1, 2]).words().flat_map(|word| word.to_le_bytes()).collect();
            assert_eq!(&words[..len], &bytes[..]);
            assert_eq!(Key::new(&bytes, [1, 2]).hash, hash(&bytes, [1, 2]));
            assert_eq!(hash(&bytes, [1, 2]), SipHasher13::new_with_keys(1, 2).hash(&bytes));
            assert!(
                words[len..].iter().all(|byte| *byte == 0) && words.len() == len.div_ceil(8) * 8
            );
        }
    }

    #[test]
    fn hashes_depend_on_secret_bytes_and_length_and_are_stable() {
        let mut seen = std::collections::HashSet::new();
        for len in 0..64 {
            for secret in [[0, 0], [1, 0], [0, 1], [1, 1]] {
                let mut bytes = vec![0; len];
                assert!(seen.insert(hash(&bytes, secret)), "{len} {secret:?}");
                for at in 0..len {
                    bytes[at] = 1;
                    assert!(seen.insert(hash(&bytes, secret)), "{len} {secret:?} {at}");
                    bytes[at] = 0;
                }
            }
        }
        // Tables in files are older than the program that reads them. The value is what
        // another implementation makes of the bytes and key of the example in SipHash's paper.
        let bytes: Vec<u8> = (0..15).collect();
        let secret = [0x0706_0504_0302_0100, 0x0F0E_0D0C_0B0A_0908];
        assert_eq!(hash(&bytes, secret), KNOWN);
    }

    const KNOWN: u64 = 0xD320_D86D_2A51_9956;

    /// Rising numbers, as text and as bytes, alone and with fixed bytes around them.
    ///
    /// The fixed words are what an attacker would try first: constants of fast hashes, which cancel what
    /// those multiply by, and the extremes. That no seed helps such a hash is what this is about.
    fn families() -> impl Iterator<Item = Vec<Vec<u8>>> {
        let words = CONSTANTS.into_iter().chain(CONSTANTS.map(u64::swap_bytes));
        let fixed: Vec<Vec<u8>> = words
            .flat_map(|word| [word, !word])
            .map(|word| word.to_le_bytes().to_vec())
            .chain([vec![], vec![b'k'; 16], vec![0; 24]])
            .collect();
        fixed.into_iter().flat_map(|fixed| {
            let family = move |make: &dyn Fn(&[u8], u64) -> Vec<u8>| {
                (0..KEYS).map(|n| make(&fixed, n)).collect::<Vec<_>>()
            };
            [
                family(&|fixed, n| [fixed, n.to_string().as_bytes()].concat()),
                family(&|fixed, n| [n.to_string().as_bytes(), fixed].concat()),
                family(&|fixed, n| [fixed, &n.to_be_bytes()].concat()),
                family(&|fixed, n| [&n.to_le_bytes(), fixed].concat()),
                family(&|fixed, n| [&n.to_be_bytes()[..], &[7; 8], fixed, b"tail"].concat()),
                family(&|fixed, n| [&(n << 40).to_le_bytes()[3..], fixed].concat()),
            ]
        })
    }

    const KEYS: u64 = 4_000;

    /// Constants of wyhash, rapidhash, foldhash, ahash, FNV, MurmurHash, xxHash and Fibonacci hashing; and 0.
    const CONSTANTS: [u64; 18] = [
        0,
        1 << 63,
        0xA076_1D64_78BD_642F,
        0xE703_7ED1_A0B4_28DB,
        0x8EBC_6AF0_9C88_C6E3,
        0x5899_65CC_7537_4CC3,
        0x2D35_8DCC_AA6C_78A5,
        0x8BB8_4B93_962E_ACC9,
        0x4B33_A62E_D433_D4A3,
        0x243F_6A88_85A3_08D3,
        0x1319_8A2E_0370_7344,
        0xA409_3822_299F_31D0,
        0x3F84_D5B5_B547_0917,
        0x5851_F42D_4C95_7F2D,
        0xCBF2_9CE4_8422_2325,
        0xFF51_AFD7_ED55_8CCD,
        0x9E37_79B1_85EB_CA87,
        0x9E37_79B9_7F4A_7C15,
    ];

    #[test]
    fn chosen_keys_spread_over_buckets_and_tags_under_any_secret() {
        let secrets = [[0, 0], [u64::MAX, u64::MAX], [rng(), rng()], [rng(), rng()]];
        for (family, keys) in families().enumerate() {
            for secret in secrets {
                let (mut buckets, mut tags) = (vec![0u32; 101], vec![0u32; 64]);
                for key in &keys {
                    let hash = hash(key, secret);
                    buckets[(hash as u32 % 101) as usize] += 1;
                    tags[(tag(hash) & 63) as usize] += 1;
                }
                let worst = |counts: &[u32]| {
                    let mean = KEYS as f64 / counts.len() as f64;
                    let off = counts.iter().map(|n| (f64::from(*n) - mean).abs() / mean.sqrt());
                    off.fold(0.0, f64::max)
                };
                // Beyond 8 sigma once in 10 million runs of all families.
                let (buckets, tags) = (worst(&buckets), worst(&tags));
                assert!(buckets < 8.0 && tags < 8.0, "{family} {secret:?}: {buckets} {tags}");
            }
        }
    }

    /// Observing which keys collide, by rows that were overwritten, reveals nothing about other
    /// keys or about the secret.
    #[test]
    fn known_collisions_do_not_predict_others() {
        const BUCKETS: u64 = 1009;
        let secret = [rng(), rng()];
        let bucket = |key: &[u8], secret| (hash(key, secret) as u32 as u64) % BUCKETS;
        let mut first_in = std::collections::HashMap::new();
        let mut meeting = Vec::new();
        for n in 0..100_000u64 {
            let key = n.to_le_bytes();
            match first_in.entry(bucket(&key, secret)) {
                std::collections::hash_map::Entry::Vacant(place) => drop(place.insert(n)),
                std::collections::hash_map::Entry::Occupied(place) => {
                    meeting.push((*place.get(), n))
                }
            }
        }
        type Change = fn(u64, u64) -> Vec<u8>;
        let changes: [(&str, Change); 6] = [
            ("more bytes", |n, _| [&n.to_le_bytes()[..], b"more"].concat()),
            ("bytes before", |n, _| [b"8 before".as_slice(), &n.to_le_bytes()].concat()),
            ("another bit", |n, _| (n ^ 1 << 50).to_le_bytes().to_vec()),
            ("a sum", |n, _| (n + (1 << 40)).to_le_bytes().to_vec()),
            ("a product", |n, _| (n * 3).to_le_bytes().to_vec()),
            ("the halves swapped", |n, _| n.rotate_left(32).to_le_bytes().to_vec()),
        ];
        let mut counts = Vec::new();
        for (what, change) in changes {
            let same = |(a, b): &&(u64, u64)| {
                bucket(&change(*a, *b), secret) == bucket(&change(*b, *a), secret)
            };
            counts.push((what.to_owned(), meeting.iter().filter(same).count()));
        }
        for bit in 0..128 {
            let mut other = secret;
            other[bit / 64] ^= 1 << (bit % 64);
            let same = |(a, b): &&(u64, u64)| {
                bucket(&a.to_le_bytes(), other) == bucket(&b.to_le_bytes(), other)
            };
            let what = format!("bit {bit} of the secret");
            counts.push((what, meeting.iter().filter(same).count()));
        }
        // About 98 by chance, sigma 10.
        let mean = meeting.len() as f64 / BUCKETS as f64;
        for (what, count) in counts {
            let off = (count as f64 - mean).abs() / mean.sqrt();
            assert!(off < 8.0, "{what}: {count} of {}", meeting.len());
        }
    }

    fn rng() -> u64 {
        fastrand::u64(..)
    }
}
