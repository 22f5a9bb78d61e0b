//! Queues that only collect their records: a lost, doubled or misplaced record shows at once.

use std::collections::BTreeMap;

use interlock_journal::record::Record;
use interlock_journal::storage::Storage;
use interlock_journal::{open, Entry, Journal, JournalSettings, OpenError, Repair, Replay, Report};

/// The last version of the rules by which these are replayed.
pub const KNOWN_RULES: u32 = 2;

/// The values of each queue, each with the record's sequence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queues {
    pub told: BTreeMap<u32, Vec<(u64, Vec<u8>)>>,
}

impl Queues {
    pub fn tell(&mut self, queue: u32, sequence: u64, value: &[u8]) {
        self.told.entry(queue).or_default().push((sequence, value.to_vec()));
    }

    /// Returns a queue's values, as its state in a snapshot.
    pub fn state(&self, queue: u32) -> Vec<u8> {
        let mut state = Vec::new();
        for (sequence, value) in &self.told[&queue] {
            state.extend(sequence.to_le_bytes());
            state.extend((value.len() as u32).to_le_bytes());
            state.extend(value);
        }
        state
    }

    /// Returns what they had been told up to a record.
    pub fn up_to(&self, last: u64) -> Queues {
        let mut told = self.told.clone();
        told.values_mut().for_each(|told| told.retain(|(sequence, _)| *sequence <= last));
        told.retain(|_, told| !told.is_empty());
        Queues { told }
    }
}

impl Replay for Queues {
    fn snapshot(&mut self, queue: u32, mut state: &[u8]) -> Result<(), String> {
        let told = self.told.entry(queue).or_default();
        while let Some((sequence, rest)) = state.split_first_chunk::<8>() {
            let (length, rest) = rest.split_first_chunk::<4>().ok_or("cut short")?;
            let (value, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
            told.push((u64::from_le_bytes(*sequence), value.to_vec()));
            state = rest;
        }
        Ok(())
    }

    fn rules(&mut self, version: u32) -> Result<(), String> {
        if version <= KNOWN_RULES {
            return Ok(());
        }
        Err(format!("1 to {KNOWN_RULES}"))
    }

    fn call(&mut self, record: &Record<'_>) -> Result<(), String> {
        let arguments: Vec<&[u8]> = record.arguments().collect();
        let [value, length] = arguments[..] else { return Err(format!("{arguments:?}")) };
        assert_eq!(length, value.len().to_string().as_bytes());
        assert_eq!((record.time, record.function), (record.sequence * 3, value.len() as u8));
        self.tell(record.queue, record.sequence, value);
        Ok(())
    }
}

/// Appends a value to a queue. The sequence must be the next one, because the time repeats it.
pub fn append<S: Storage>(
    journal: &Journal<S>,
    queues: &mut Queues,
    queue: u32,
    value: &[u8],
) -> Result<u64, interlock_journal::JournalError> {
    let expected = journal.last() + 1;
    let entry = Entry { queue, time: expected * 3, function: value.len() as u8 };
    let length = value.len().to_string();
    let sequence = journal.append(entry, [value, length.as_bytes()])?;
    assert_eq!(sequence, expected);
    queues.tell(queue, sequence, value);
    Ok(sequence)
}

/// Opens a journal, and what was in it.
pub fn reopen<S: Storage>(
    storage: S,
    settings: JournalSettings,
    repair: Repair,
) -> Result<(Journal<S>, Report, Queues), OpenError> {
    let mut queues = Queues::default();
    let (journal, report) = open(storage, settings, repair, &mut queues)?;
    Ok((journal, report, queues))
}
