//! A store kept naively: for each topic the messages that were given to it, in order.

use std::collections::BTreeMap;
use std::fmt;

use interlock_stores::disk::Disk;
use interlock_stores::file::{Found, Missing, Reader};
use interlock_stores::{Position, StoreError, Stored, Template};

/// A message that was given to a store.
#[derive(Clone, PartialEq, Eq)]
pub struct Given {
    pub payload: Vec<u8>,
    pub origin: u128,
    pub number: u64,
}

impl From<&Stored> for Given {
    fn from(stored: &Stored) -> Self {
        let Stored { payload, origin, number, .. } = stored;
        Given { payload: payload.clone(), origin: *origin, number: *number }
    }
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{} of {} bytes", self.origin, self.number, self.payload.len())
    }
}

/// The messages of each topic, and how many of them are safe.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub topics: BTreeMap<Vec<u8>, Topic>,
}

#[derive(Clone, Debug, Default)]
pub struct Topic {
    pub given: Vec<Given>,
    /// Number of messages at the beginning that survive a crash of the machine; `written`: of the
    /// process.
    pub safe: usize,
    pub written: usize,
    /// Number removed from the beginning.
    pub removed: usize,
}

/// All that a reader reported missing so far.
#[derive(Debug, Default)]
pub struct Lost {
    pub missing: Vec<Missing>,
}

impl Lost {
    /// The next message that a reader finds; what is missing before it is noted.
    pub fn next(
        &mut self,
        mut find: impl FnMut() -> Result<Option<Found>, StoreError>,
    ) -> Option<Stored> {
        loop {
            match find().unwrap()? {
                Found::Message(stored) => return Some(stored),
                Found::Missing(missing) => self.missing.push(missing),
            }
        }
    }

    /// The number of these messages; one, where nobody knows.
    pub fn messages(&self) -> u64 {
        self.missing.iter().map(|missing| missing.messages.max(1)).sum()
    }
}

/// All of a topic, read forward; the same backward and from places within must agree.
pub fn read_all<D: Disk>(reader: &Reader<D>) -> (Vec<Stored>, Lost) {
    let mut forward = reader.forward(Position::FIRST);
    let (mut found, mut lost) = (Vec::new(), Lost::default());
    while let Some(stored) = lost.next(|| forward.find()) {
        found.push(stored);
    }
    assert_eq!(forward.find().unwrap(), None);
    for two in found.windows(2) {
        assert!(two[0].position < two[1].position, "{two:?}");
        assert!(two[0].sequence < two[1].sequence && two[0].time <= two[1].time, "{two:?}");
    }
    let mut backward = reader.backward(Position::LAST).unwrap();
    for stored in found.iter().rev() {
        assert_eq!(Lost::default().next(|| backward.find()).as_ref(), Some(stored));
    }
    assert_eq!(Lost::default().next(|| backward.find()), None);
    (found, lost)
}

/// The same from each of some places.
pub fn read_from_places<D: Disk>(reader: &Reader<D>, found: &[Stored], step: usize) {
    for at in (0..found.len()).step_by(step.max(1)) {
        let from = found[at].position;
        for (from, at) in [(from, at), (from.next(), at + 1)] {
            let mut forward = reader.forward(from);
            let next = Lost::default().next(|| forward.find());
            assert_eq!(next.as_ref(), found.get(at), "from {from}");
        }
        let mut backward = reader.backward(from).unwrap();
        assert_eq!(
            Lost::default().next(|| backward.find()).as_ref(),
            Some(&found[at]),
            "back from {from}"
        );
        let before = at.checked_sub(1).map(|at| &found[at]);
        assert_eq!(Lost::default().next(|| backward.find()).as_ref(), before, "back from {from}");
    }
}

pub fn reader<D: Disk>(disk: &D, template: &Template, topic: &[u8]) -> Reader<D> {
    Reader::new(disk.clone(), template.clone(), "keep", topic)
}
