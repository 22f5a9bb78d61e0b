//! The head of a table: frozen when it is made, and all that is needed to know where everything lies.
//!
//! | bytes | what |
//! |---|---|
//! | 0 to 8 | `ILTABLE` and a zero |
//! | 8, 12 | version of the layout; bytes of the head, whole pages |
//! | 16, 24 | bytes in all; hash of the schema's text |
//! | 32, 40, 44 | capacity; bytes of a key; participants |
//! | 48 to 64 | buckets of the four rows |
//! | 64, 72 | first half of the secret by which keys are hashed; when it was made, ns since 1970 |
//! | 80, 88, 92 | usual time to live, ns, or 0; flags; bytes of the schema's text |
//! | 96, 104 | checksum of the head with zero here; second half of the secret |
//! | 128 | the schema's text |
//!
//! Little-endian. It is read by calls and checked before the memory is mapped, so that nothing that is in
//! a file can make a program fail other than by an error.

use crate::layout::geometry;
use crate::layout::geometry::{Geometry, LEVELS};
use crate::layout::hash::{hash, Secret, MAX_KEY};
use crate::layout::schema::Schema;
use crate::layout::state::OWNERS;

/// The version of the layout that this crate writes, and the only one that it reads.
pub const VERSION: u32 = 4;
/// Bytes that say how long the head is.
pub const FIRST: usize = 128;
const PAGE: usize = 4096;
const MAGIC: &[u8; 8] = b"ILTABLE\0";
const CHECKSUM: usize = 96;
/// Public: the checksum detects damage, and does not protect against those who may write the file.
const CHECK: Secret = [0x1057_AB1E, 0];
/// The longest head: a schema of a thousand columns with long names.
const MAX_HEAD: usize = 32 * PAGE;

/// Settings that the creator of a table gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    pub schema: Schema,
    /// Rows that it surely holds.
    pub capacity: u64,
    /// The longest key, in bytes.
    pub key_size: u32,
    /// Threads that can write at once.
    pub writers: u32,
    pub buckets: [u32; LEVELS],
    pub secret: Secret,
    /// The time at which it was made, ns since 1970.
    pub created: u64,
    /// Usual time to live of a row, ns; 0 for ever.
    pub ttl: u64,
    /// True if a full table overwrites what was least recently accessed.
    pub evict: bool,
    /// True if it is to outlast the machine's restart.
    pub file: bool,
}

/// The reason why a head is invalid.
#[derive(Debug, PartialEq)]
pub enum BadHeader {
    Version(u32),
    Why(String),
}

fn bad<T>(why: impl Into<String>) -> Result<T, BadHeader> {
    Err(BadHeader::Why(why.into()))
}

impl Header {
    /// The layout; errors are said in words.
    pub fn geometry(&self) -> Result<Geometry, String> {
        let key_words = (self.key_size as usize).div_ceil(8);
        let words = self.head_bytes() / 8;
        let row_words = self.schema.words();
        Geometry::new(words, self.buckets, key_words, row_words, self.writers.into())
            .ok_or_else(|| format!("{} rows do not fit the memory of any machine", self.capacity))
    }

    /// Text on which two programs that share a table must agree on.
    pub fn text(&self) -> String {
        format!("key[{}], {}", self.key_size, self.schema)
    }

    fn head_bytes(&self) -> usize {
        (FIRST + self.schema.to_string().len()).next_multiple_of(PAGE)
    }

    pub fn encode(&self) -> Result<Vec<u8>, String> {
        let text = self.schema.to_string();
        let mut bytes = vec![0; self.head_bytes()];
        if bytes.len() > MAX_HEAD {
            return Err(format!("a schema of {} bytes; the limit is {MAX_HEAD}", text.len()));
        }
        let total = self.geometry()?.words as u64 * 8;
        let head = bytes.len() as u32;
        let flags = u32::from(self.evict) | u32::from(self.file) << 1;
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, MAGIC);
        for (at, value) in [
            (8, VERSION),
            (12, head),
            (40, self.key_size),
            (44, self.writers),
            (88, flags),
            (92, text.len() as u32),
        ] {
            put(at, &value.to_le_bytes());
        }
        for (n, buckets) in self.buckets.iter().enumerate() {
            put(48 + n * 4, &buckets.to_le_bytes());
        }
        for (at, value) in [
            (16, total),
            (24, hash(text.as_bytes(), CHECK)),
            (32, self.capacity),
            (64, self.secret[0]),
            (72, self.created),
            (80, self.ttl),
            (104, self.secret[1]),
        ] {
            put(at, &value.to_le_bytes());
        }
        put(FIRST, text.as_bytes());
        let sum = hash(&bytes, CHECK);
        bytes[CHECKSUM..CHECKSUM + 8].copy_from_slice(&sum.to_le_bytes());
        Ok(bytes)
    }

    /// The bytes of the head, from its first ones.
    pub fn length(first: &[u8]) -> Result<usize, BadHeader> {
        if first.len() < FIRST {
            return bad(format!("it has {} bytes, less than a head", first.len()));
        }
        if &first[..8] != MAGIC {
            return bad("it does not begin as one");
        }
        match four(first, 8) {
            VERSION => {}
            other => return Err(BadHeader::Version(other)),
        }
        let length = four(first, 12) as usize;
        if length.is_multiple_of(PAGE) && (PAGE..=MAX_HEAD).contains(&length) {
            return Ok(length);
        }
        bad(format!("a head of {length} bytes"))
    }

    /// Reads a head of which all is here, of a file of this length.
    pub fn decode(bytes: &[u8], file_bytes: u64) -> Result<Header, BadHeader> {
        let length = Header::length(bytes)?;
        if bytes.len() < length {
            return bad(format!("it is cut off at {} bytes", bytes.len()));
        }
        let mut zeroed = bytes[..length].to_vec();
        zeroed[CHECKSUM..CHECKSUM + 8].fill(0);
        if hash(&zeroed, CHECK) != eight(bytes, CHECKSUM) {
            return bad("its head is damaged");
        }
        let text = bytes.get(FIRST..FIRST + four(bytes, 92) as usize);
        let text = text.and_then(|text| std::str::from_utf8(text).ok());
        let schema = text.and_then(|text| Schema::parse(text).ok());
        let Some(schema) = schema else { return bad("its schema is invalid") };
        let header = Header {
            schema,
            capacity: eight(bytes, 32),
            key_size: four(bytes, 40),
            writers: four(bytes, 44),
            buckets: [0, 1, 2, 3].map(|n| four(bytes, 48 + n * 4)),
            secret: [eight(bytes, 64), eight(bytes, 104)],
            created: eight(bytes, 72),
            ttl: eight(bytes, 80),
            evict: four(bytes, 88) & 1 != 0,
            file: four(bytes, 88) & 2 != 0,
        };
        header.check().map_err(BadHeader::Why)?;
        // The checksum says that it was written so; this, that a program may rely on it.
        let words = header.geometry().map_err(BadHeader::Why)?.words as u64;
        if header.head_bytes() != length || words * 8 != eight(bytes, 16) {
            return bad("its sizes contradict each other");
        }
        if file_bytes != words * 8 {
            return bad(format!("it has {file_bytes} bytes instead of {}", words * 8));
        }
        Ok(header)
    }

    /// Returns an error that names an impossible value.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=MAX_KEY).contains(&(self.key_size as usize)) {
            return Err(format!("key_size is {}; it is 1 to {MAX_KEY} bytes", self.key_size));
        }
        if !(1..=OWNERS).contains(&self.writers.into()) {
            return Err(format!("writers is {}; it is 1 to {OWNERS}", self.writers));
        }
        if self.capacity == 0 || geometry::buckets(self.capacity) != Some(self.buckets) {
            return Err(format!("a capacity of {} rows", self.capacity));
        }
        Ok(())
    }
}

fn four(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4"))
}

fn eight(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8"))
}

#[cfg(test)]
mod tests {
    use crate::layout::header::*;

    fn header() -> Header {
        Header {
            schema: Schema::parse("a: U32, token: str[32]").unwrap(),
            capacity: 1000,
            key_size: 32,
            writers: 16,
            buckets: geometry::buckets(1000).unwrap(),
            secret: [7, 6],
            created: 8,
            ttl: 9,
            evict: true,
            file: false,
        }
    }

    #[test]
    fn a_header_is_read_back_and_any_changed_byte_is_detected() {
        let header = header();
        let bytes = header.encode().unwrap();
        let length = header.geometry().unwrap().words as u64 * 8;
        assert_eq!(Header::decode(&bytes, length), Ok(header));
        assert!(Header::decode(&bytes, length - 8).is_err());
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << (at % 8);
            assert!(Header::decode(&bytes, length).is_err(), "byte {at}");
        }
        for cut in 0..bytes.len() {
            assert!(Header::decode(&bytes[..cut], length).is_err(), "{cut}");
        }
    }

    #[test]
    fn a_header_with_a_valid_checksum_is_still_validated() {
        for (at, value) in [
            (16, 1u32),
            (32, 0),
            (36, 1),
            (40, 0),
            (40, 9999),
            (44, 0),
            (44, 5000),
            (48, 0),
            (48, u32::MAX),
            (92, 0),
            (92, 9999),
            (92, u32::MAX),
            (12, 8192),
            (FIRST, 0),
        ] {
            let mut bytes = header().encode().unwrap();
            let length = header().geometry().unwrap().words as u64 * 8;
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            bytes[CHECKSUM..CHECKSUM + 8].fill(0);
            let sum = hash(&bytes, CHECK);
            bytes[CHECKSUM..CHECKSUM + 8].copy_from_slice(&sum.to_le_bytes());
            assert!(Header::decode(&bytes, length).is_err(), "{at} {value}");
        }
    }

    #[test]
    fn random_bytes_with_a_valid_checksum_are_refused_or_describe_the_file_s_length() {
        let whole = header().encode().unwrap();
        let length = header().geometry().unwrap().words as u64 * 8;
        let (mut taken, mut rng) = (0, fastrand::Rng::new());
        println!("seed {}", rng.get_seed());
        for _ in 0..20_000 {
            let mut bytes = whole.clone();
            for _ in 0..rng.usize(1..5) {
                // Mostly where it says something.
                let end = if rng.bool() { FIRST + 40 } else { bytes.len() };
                let at = rng.usize(8..end);
                match rng.bool() {
                    true => bytes[at] ^= 1 << rng.u8(..8),
                    false => bytes[at] = *rng.choice(&[0, 1, 0x7F, 0x80, 0xFF, 0x20]).unwrap(),
                }
            }
            bytes[CHECKSUM..CHECKSUM + 8].fill(0);
            let sum = hash(&bytes, CHECK);
            bytes[CHECKSUM..CHECKSUM + 8].copy_from_slice(&sum.to_le_bytes());
            if let Ok(header) = Header::decode(&bytes, length) {
                assert_eq!(header.geometry().unwrap().words as u64 * 8, length);
                taken += 1;
            }
        }
        // A secret, a time, a rule or a name is as good as another.
        assert!(taken > 100, "{taken}");
    }
}
