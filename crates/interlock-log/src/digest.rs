//! The digest that compares rows, entries and histories. Each change and each entry takes several, so it is
//! fast rather than cryptographic: a client that can write gains nothing from a collision.

/// Returns the digest of some bytes. Another `seed` gives another digest of the same bytes.
#[inline]
pub fn digest(seed: u64, bytes: &[u8]) -> u128 {
    let (mut one, mut other) = (seed ^ FIRST[0], seed ^ FIRST[1]);
    let (pairs, rest) = bytes.as_chunks::<16>();
    let mut take = |pair: &[u8; 16]| {
        let both = u128::from_le_bytes(*pair);
        let (low, high) = (both as u64, (both >> 64) as u64);
        (one, other) = (
            product(one ^ low, high ^ FACTORS[0]).wrapping_add(other),
            product(other ^ high, low ^ FACTORS[1]).rotate_left(23) ^ one,
        );
    };
    pairs.iter().for_each(&mut take);
    let mut last = [0; 16];
    last[..rest.len()].copy_from_slice(rest);
    take(&last);
    take(&(bytes.len() as u128).to_le_bytes());
    u128::from(product(one ^ FACTORS[2], other)) << 64
        | u128::from(product(other ^ FACTORS[3], one))
}

/// Multiplies, and folds the upper half of the product into the lower.
#[inline]
fn product(one: u64, other: u64) -> u64 {
    let both = u128::from(one) * u128::from(other);
    both as u64 ^ (both >> 64) as u64
}

// Without a pattern: the fractions of square roots.
const FIRST: [u64; 2] = [0x6a09_e667_f3bc_c909, 0xbb67_ae85_84ca_a73b];
const FACTORS: [u64; 4] =
    [0x3c6e_f372_fe94_f82b, 0xa54f_f53a_5f1d_36f1, 0x510e_527f_ade6_82d1, 0x9b05_688c_2b3e_6c1f];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_bit_and_each_length_counts() {
        let mut random = fastrand::Rng::with_seed(1);
        let (mut seen, mut flipped, mut count) = (HashSet::new(), 0, 0);
        for size in (0..70).chain([1000, 1001]) {
            let zeros = vec![0; size];
            assert!(seen.insert(digest(7, &zeros)), "{size}");
            let mut bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(size).collect();
            let before = digest(7, &bytes);
            assert!(digest(8, &bytes) != before && (size == 0 || seen.insert(before)));
            for bit in 0..size.min(200) * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                let after = digest(7, &bytes);
                assert!(seen.insert(after), "{size} {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
                flipped += (before ^ after).count_ones();
                count += 1;
            }
        }
        // About half of all bits.
        assert!((60..=68).contains(&(flipped / count)), "{}", flipped / count);
    }
}
