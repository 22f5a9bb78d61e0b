//! Keys whose hashes meet are different keys all the same (clause 5).

use interlock_core::key::KeyRef;
use interlock_core::queue::scheduler::Put;
use interlock_core::queue::types::Options;
use interlock_core::queue::Queue;

/// A lane keeps 32 bits of a hash: among this many keys about 19 pairs share them, whatever the
/// seed.
const KEYS: u64 = 400_000;

#[test]
fn messages_whose_keys_only_share_a_hash_do_not_wait_for_each_other() {
    let queue = Queue::new(Options::default());
    for number in 0..KEYS {
        let name = number.to_string();
        let keys = [KeyRef::new(name.as_bytes())];
        queue.put(&Put { keys: &keys, ..Put::default() }, number).unwrap();
    }
    let stats = queue.call(|scheduler, now| scheduler.stats(now));
    assert_eq!((stats.ready, stats.waiting), (KEYS, 0));
}

/// Users choose keys. Whatever bytes they put at the front or the back, where the hash's own constants would
/// cancel, the hashes of many keys are as different as those of any others (clause 21).
#[test]
fn keys_with_colliding_hashes_cannot_be_chosen() {
    const MANY: u64 = 32_000;
    // Constants of foldhash, wyhash, rapidhash and Fibonacci hashing, and the extremes. Eight bytes of the
    // second one at the end once gave every key the hash 0.
    let constants = [
        0x243F_6A88_85A3_08D3,
        0x3F84_D5B5_B547_0917,
        0xA076_1D64_78BD_642F,
        0xE703_7ED1_A0B4_28DB,
        0x2D35_8DCC_AA6C_78A5,
        0x9E37_79B9_7F4A_7C15,
        0,
        u64::MAX,
    ];
    for word in constants.into_iter().chain(constants.map(u64::swap_bytes)) {
        let fixed: &[u8] = &word.to_le_bytes();
        type Make = fn(&[u8], u64) -> Vec<u8>;
        let families: [Make; 4] = [
            |fixed, n| [&n.to_be_bytes()[4..], fixed].concat(),
            |fixed, n| [&n.to_be_bytes(), fixed].concat(),
            |fixed, n| [fixed, &n.to_le_bytes()].concat(),
            |fixed, n| [&n.to_be_bytes(), fixed, b"and something more"].concat(),
        ];
        for (family, make) in families.into_iter().enumerate() {
            let mut low = std::collections::HashSet::new();
            let mut buckets = vec![0u32; 1 << 10];
            for n in 0..MANY {
                let hash = KeyRef::new(&make(fixed, n)).hash;
                low.insert(hash as u32);
                buckets[hash as usize % (1 << 10)] += 1;
            }
            let fullest = buckets.iter().max().unwrap();
            // About 31 a bucket, and one pair that meets in 32 bits in eight families.
            assert!(low.len() as u64 > MANY - 10, "{word:x}, {family}: {} hashes", low.len());
            assert!(*fullest < 90, "{word:x}, {family}: {fullest} keys in one bucket");
        }
    }
}
