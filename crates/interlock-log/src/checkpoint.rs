//! A state with its place in the log. A node loads one when it starts, goes back to one after a
//! loss, and is given one if it has none.

use crate::apply::Whole;
use crate::codec::{checksum, put_number, Damaged, Reader};
use crate::entry::{digest, Mark};
use crate::machine::Machine;

/// An entry's id in the engine: ids increase, with gaps.
pub type Id = (u64, u64);

/// The place of the last entry of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    pub mark: Mark,
    /// The last entry's id; `None` at the beginning of a log.
    pub id: Option<Id>,
    /// Checksum of the last entry alone.
    pub entry: u64,
}

impl Place {
    /// Returns the place after the next entry.
    #[must_use]
    pub fn then(self, id: Id, entry: &[u8]) -> Self {
        let entry = digest(entry);
        Self { mark: self.mark.then(entry), id: Some(id), entry }
    }

    /// Returns whether `found`, which the log has at the last entry's id, is the last entry. Every
    /// log contains the beginning.
    pub fn is_in_log(&self, found: Option<&[u8]>) -> bool {
        self.id.is_none() || found.is_some_and(|entry| digest(entry) == self.entry)
    }

    /// Returns whether this is the last entry.
    pub fn is(&self, id: Id, entry: &[u8]) -> bool {
        self.id == Some(id) && digest(entry) == self.entry
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        self.mark.encode(out);
        let (upper, lower) = self.id.unwrap_or_default();
        out.push(u8::from(self.id.is_some()));
        put_number(out, upper);
        put_number(out, lower);
        out.extend_from_slice(&self.entry.to_le_bytes());
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, Damaged> {
        let mark = Mark::decode(reader)?;
        let some = reader.byte()?;
        let id = (reader.number()?, reader.number()?);
        if some > 1 || (some == 0 && id != (0, 0)) {
            return Err(Damaged);
        }
        Ok(Self { mark, id: (some == 1).then_some(id), entry: reader.word()? })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint<M> {
    pub place: Place,
    pub state: Whole<M>,
}

const VERSION: u8 = 1;

/// Makes the bytes of a checkpoint when called.
pub type Later = Box<dyn FnOnce() -> Vec<u8> + Send>;

fn sealed(place: Place, encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![VERSION];
    place.encode(&mut out);
    encode(&mut out);
    let sum = checksum(2, &out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

impl<M: Machine> Checkpoint<M> {
    /// Returns the bytes of a checkpoint at a place; the last eight are a checksum.
    pub fn bytes(place: Place, state: &Whole<M>) -> Vec<u8> {
        sealed(place, |out| state.encode(out))
    }

    /// Returns a function that makes the same bytes, for another thread to call while the state
    /// changes.
    pub fn later(place: Place, state: &Whole<M>) -> Later {
        let image = state.image();
        Box::new(move || sealed(place, image))
    }

    /// # Errors
    ///
    /// The bytes are damaged or not a checkpoint of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        let (bytes, sum) = bytes.split_at(bytes.len().checked_sub(8).ok_or(Damaged)?);
        if sum != checksum(2, bytes).to_le_bytes() {
            return Err(Damaged);
        }
        let mut reader = Reader::new(bytes);
        if reader.byte()? != VERSION {
            return Err(Damaged);
        }
        let place = Place::decode(&mut reader)?;
        let state = Whole::decode(&mut reader)?;
        reader.end()?;
        Ok(Self { place, state })
    }
}
