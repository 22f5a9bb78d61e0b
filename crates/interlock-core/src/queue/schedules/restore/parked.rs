//! Restores the messages that are parked, and the work that is left for those behind a failure.

use super::Placed;
use crate::key::Key;
use crate::queue::parts::parked::{Dying, Parking};
use crate::queue::scheduler::Scheduler;
use crate::queue::schedules::bytes::{Damaged, Reader};
use crate::queue::schedules::dump::BEFORE_PARKED;
use crate::queue::types::message::STUCK;
use crate::queue::types::State;

impl<P> Scheduler<P> {
    pub(super) fn restore_parked(
        &mut self,
        reader: &mut Reader<'_>,
        version: u8,
        placed: &[Placed<'_>],
    ) -> Result<(), Damaged> {
        self.parked.set_resweep(None);
        for message in placed {
            if self.records[message.at].state == Some(State::Held) {
                self.note_held(message.at);
            }
            if self.records.marks(message.at) & STUCK != 0 {
                self.note_stuck(message.at);
            }
        }
        let paused: Vec<Key> = self.lanes.all_paused(0).map(|(_, lane)| lane.key.clone()).collect();
        paused.iter().for_each(|key| self.parked.shut(key));
        if version <= BEFORE_PARKED {
            return Ok(());
        }
        for _ in 0..reader.number("count of parked messages")? {
            let id = reader.number("parked message")?;
            let [first, times, since] = [0; 3].map(|_| reader.number("parking"));
            let (first, times, since) = (first?, times? as u32, since?);
            let key = reader.string("key of a parked message")?;
            let Some(at) = self.records.find(id) else { return reader.damaged("parked message") };
            if key.is_empty() == (self.records[at].state == Some(State::Parked)) || first == 0 {
                return reader.damaged("parked message");
            }
            let keys = self.parked.give_keys(at);
            self.parked.restore(at, Parking { first, times, since, under: None, keys });
            if !key.is_empty() {
                let size = self.payload_size(at);
                self.parked.list(at, Key::new(key), size);
            }
        }
        if self.records.all().filter(|(_, m)| m.state == Some(State::Parked)).count() as u64
            != self.parked.count()
        {
            return reader.damaged("parked message");
        }
        for _ in 0..reader.number("count of dying messages")? {
            let id = reader.number("dying message")?;
            let held = |at: &u32| self.records[*at].state == Some(State::Held);
            let Some(at) = self.records.find(id).filter(held) else {
                return reader.damaged("dying message");
            };
            let sequence = self.records.sequence(at);
            self.parked.add_dying(sequence, Dying { message: at, told: None });
        }
        for _ in 0..reader.number("count of sweeps")? {
            self.parked.sweep(&Key::new(reader.string("swept key")?));
        }
        if reader.byte("sweep of all keys")? != 0 {
            let last = Key::new(reader.string("swept key")?);
            self.parked.set_resweep(Some(last));
        }
        Ok(())
    }
}
