//! The second way to see an overlap: afterwards, from when each handling began and ended.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::spec::Payload;

/// One handling, from the return of the get to the call that ended the lease.
#[derive(Clone, Debug)]
pub struct Handling {
    pub id: u64,
    pub spec: Payload,
    pub from: Instant,
    pub to: Instant,
    pub token: u64,
    /// The message was settled by it.
    pub last: bool,
}

/// Finds where the contract was broken, if it was.
pub fn check(handlings: &mut [Handling]) -> Result<(), String> {
    handlings.sort_unstable_by_key(|handling| (handling.from, handling.to));
    exclusion(handlings)?;
    handlings.sort_unstable_by_key(|handling| (handling.id, handling.from));
    retries(handlings)?;
    order(handlings)
}

/// Clause 2: in the order in which they began, none begins before what conflicts has ended.
fn exclusion(handlings: &[Handling]) -> Result<(), String> {
    let mut ends: BTreeMap<usize, Ends> = BTreeMap::new();
    for handling in handlings {
        for &(key, shared) in &handling.spec.keys {
            let ends = ends.entry(key).or_default();
            if !ends.permit(handling, shared) {
                return Err(format!("clause 2: {handling:?} overlaps on key {key}"));
            }
            ends.note(handling, shared);
        }
    }
    Ok(())
}

/// Clauses 1, 3 and 9: in the order of their ids, none begins before what conflicts and was put
/// before it has been settled. A delayed message has its place not by its id, and is passed over.
fn order(handlings: &[Handling]) -> Result<(), String> {
    let mut ends: BTreeMap<usize, Ends> = BTreeMap::new();
    let of_each = handlings.chunk_by(|a, b| a.id == b.id);
    for of_one in of_each.filter(|of_one| of_one[0].spec.delay == 0) {
        let (first, last) = (&of_one[0], &of_one[of_one.len() - 1]);
        for &(key, shared) in &first.spec.keys {
            let ends = ends.entry(key).or_default();
            if !ends.permit(first, shared) {
                return Err(format!("clause 3: {first:?} overtook one on key {key}"));
            }
            ends.note(last, shared);
        }
    }
    Ok(())
}

/// Clause 8: tokens of a message rise; it is settled once, and not handled after that.
fn retries(handlings: &[Handling]) -> Result<(), String> {
    let pairs = handlings.windows(2).filter(|pair| pair[0].id == pair[1].id);
    for pair in pairs {
        if pair[0].token >= pair[1].token || pair[0].last {
            return Err(format!("clause 8: {pair:?}"));
        }
    }
    Ok(())
}

/// The latest ends on one key so far, of what held it alone and of what shared it.
#[derive(Default)]
struct Ends {
    alone: Option<Instant>,
    together: Option<Instant>,
}

impl Ends {
    fn permit(&self, handling: &Handling, shared: bool) -> bool {
        let begins = Some(handling.from);
        begins >= self.alone && (shared || begins >= self.together)
    }

    fn note(&mut self, handling: &Handling, shared: bool) {
        let end = if shared { &mut self.together } else { &mut self.alone };
        *end = Some(handling.to).max(*end);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::spec::{Spec, EVERYTHING};

    /// (id, keys with whether shared, from, to).
    type Sketch<'a> = (u64, &'a [(usize, bool)], u64, u64);

    /// Returns what the check says of these.
    fn said(handlings: &[Sketch<'_>]) -> String {
        let start = Instant::now();
        let at = |us: u64| start + Duration::from_micros(us);
        let mut handlings: Vec<Handling> = handlings
            .iter()
            .map(|&(id, keys, from, to)| {
                let keys = [&[(EVERYTHING, true)], keys].concat();
                let spec = Spec { keys, ..Spec::new(&mut fastrand::Rng::with_seed(1), 1) };
                let spec = Arc::new(Spec { delay: 0, ..spec });
                Handling { id, spec, from: at(from), to: at(to), token: from, last: false }
            })
            .collect();
        check(&mut handlings).err().unwrap_or_default()
    }

    #[test]
    fn the_check_finds_overlap_and_overtaking_and_nothing_else() {
        let (alone, shared, other) = ([(1, false)], [(1, true)], [(2, false)]);
        assert_eq!(said(&[(1, &alone, 0, 5), (2, &alone, 5, 9), (3, &other, 1, 6)]), "");
        assert_eq!(said(&[(1, &shared, 0, 5), (2, &shared, 1, 9), (3, &alone, 9, 10)]), "");
        assert_eq!(said(&[(1, &alone, 0, 2), (1, &alone, 3, 4), (2, &alone, 5, 6)]), "");
        assert_eq!(said(&[(2, &alone, 0, 5), (1, &other, 6, 9)]), "");
        let broken = |handlings: &[Sketch<'_>], clause: &str| {
            let said = said(handlings);
            assert!(said.starts_with(clause), "{said:?}");
        };
        broken(&[(1, &alone, 0, 5), (2, &alone, 4, 9)], "clause 2");
        broken(&[(1, &alone, 0, 5), (2, &shared, 4, 9)], "clause 2");
        broken(&[(1, &shared, 0, 5), (2, &alone, 4, 9)], "clause 2");
        broken(&[(2, &alone, 0, 5), (1, &alone, 6, 9)], "clause 3");
        broken(&[(2, &shared, 0, 5), (1, &alone, 6, 9)], "clause 3");
        broken(&[(1, &alone, 0, 2), (2, &alone, 3, 4), (1, &alone, 5, 6)], "clause 3");
    }
}
