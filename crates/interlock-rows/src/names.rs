//! Case-insensitive lookup of commands by name.

/// A map from names, case-insensitive.
pub struct Names<T> {
    by_ends: Vec<Vec<(&'static str, T)>>,
}

impl<T: Copy> Names<T> {
    pub fn new(all: impl IntoIterator<Item = (&'static str, T)>) -> Self {
        let mut by_ends = vec![Vec::new(); 1 << 10];
        all.into_iter().for_each(|(name, found)| by_ends[end(name.as_bytes())].push((name, found)));
        Names { by_ends }
    }

    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<T> {
        let mut alike = self.by_ends[end(name)].iter();
        alike.find(|(known, _)| is_called(name, known.as_bytes())).map(|(_, found)| *found)
    }
}

/// Hashes a name's length and last letter, case-insensitively, to ten bits; few names collide.
#[inline]
fn end(name: &[u8]) -> usize {
    name.len().min(31) << 5 | name.last().map_or(0, |last| usize::from(last & 31))
}

/// Returns whether two names are equal, case-insensitively. Most names of the same length differ in
/// their last letter, while the wire functions begin alike, so the last letters are compared first.
#[inline]
pub fn is_called(name: &[u8], known: &[u8]) -> bool {
    let last = |name: &[u8]| name.last().map(|byte| byte | 0x20);
    if name.len() != known.len() || last(name) != last(known) {
        return false;
    }
    // Each request pays for this, so most names are compared as one machine word.
    if let (Some(name), Some(known)) = (word(name), word(known)) {
        return (name ^ known) & !cases(known) == 0;
    }
    name.eq_ignore_ascii_case(known)
}

/// Returns the bytes of a name of four to eight bytes as one machine word.
#[inline]
fn word(name: &[u8]) -> Option<u64> {
    let four = |bytes: &[u8; 4]| u64::from(u32::from_ne_bytes(*bytes));
    let (head, tail) = (name.first_chunk()?, name.last_chunk()?);
    (name.len() <= 8).then(|| four(head) | four(tail) << 32)
}

/// Returns the case bit of each byte of an ASCII word that is a lower-case letter.
#[inline]
fn cases(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // The highest bit of each byte is set in `from_a` if the byte is `a` or above, and in
    // `behind_z` if it is above `z`.
    let (from_a, behind_z) = (word + EACH * (0x80 - 0x61), word + EACH * (0x80 - 0x7b));
    (from_a & !behind_z & (EACH * 0x80)) >> 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_in_any_case_and_unknown_names_are_not() {
        let mut random = fastrand::Rng::with_seed(11);
        let names: Vec<&str> =
            crate::Verb::ALL.iter().map(|one| one.1).chain(["z_{`a", "-|9"]).collect();
        for known in names {
            for _ in 0..2_000 {
                let mut name = known.as_bytes().to_vec();
                for byte in &mut name {
                    match random.u8(0..8) {
                        0..=2 => byte.make_ascii_uppercase(),
                        3 if random.bool() => *byte ^= 1 << random.u8(0..8),
                        _ => {}
                    }
                }
                let same = name.eq_ignore_ascii_case(known.as_bytes());
                assert_eq!(is_called(&name, known.as_bytes()), same, "{name:?}, {known}");
            }
        }
    }
}
