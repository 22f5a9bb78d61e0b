//! Keys whose hashes meet are different keys all the same (clause 5).

use interlock_core::key::KeyRef;
use interlock_core::queue::scheduler::Put;
use interlock_core::queue::types::Options;
use interlock_core::queue::Queue;

/// A lane keeps 32 bits of a hash: among so many keys about 19 pairs share them, whatever the seed.
const KEYS: u64 = 400_000;

#[test]
fn no_message_waits_for_one_whose_key_only_has_the_same_hash() {
    let queue = Queue::new(Options::default());
    for number in 0..KEYS {
        let name = number.to_string();
        let keys = [KeyRef::new(name.as_bytes())];
        queue.put(&Put { keys: &keys, ..Put::default() }, number).unwrap();
    }
    let stats = queue.call(|scheduler, now| scheduler.stats(now));
    assert_eq!((stats.ready, stats.waiting), (KEYS, 0));
}
