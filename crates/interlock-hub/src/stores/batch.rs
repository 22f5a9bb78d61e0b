//! Messages on their way to a store: what one worker published in one turn.

use interlock_stores::Message;

#[derive(Debug, Default)]
pub struct Batch {
    /// Topics and payloads, one behind the other.
    bytes: Vec<u8>,
    messages: Vec<Entry>,
    /// Messages numbered by another hub: index among the messages, origin and number.
    relayed: Vec<(u32, u128, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    topic: u32,
    payload: u32,
    time: u64,
}

impl Batch {
    pub fn push(&mut self, topic: &[u8], payload: &[u8], time: u64) {
        self.bytes.extend_from_slice(topic);
        self.bytes.extend_from_slice(payload);
        // Neither is longer: frames are bounded below that.
        self.messages.push(Entry {
            topic: topic.len() as u32,
            payload: payload.len() as u32,
            time,
        });
    }

    /// A message of another hub.
    pub fn push_relayed(&mut self, message: &Message<'_>) {
        let Message { topic, payload, time, origin, number } = *message;
        self.relayed.push((self.messages.len() as u32, origin, number));
        self.push(topic, payload, time);
    }

    pub fn len(&self) -> usize {
        self.messages.len()
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Bytes that it counts for in the bound of a queue.
    pub fn weight(&self) -> usize {
        self.bytes.len() + self.messages.len() * OVERHEAD + self.relayed.len() * RELAYED
    }

    /// Bytes of the payloads.
    pub fn payload(&self) -> u64 {
        self.messages.iter().map(|one| u64::from(one.payload)).sum()
    }

    /// µs since 1970 at which its first message was published.
    pub fn time(&self) -> Option<u64> {
        self.messages.first().map(|one| one.time)
    }

    pub fn iter(&self) -> impl Iterator<Item = Message<'_>> {
        let (mut at, mut relayed) = (0, self.relayed.iter().peekable());
        self.messages.iter().zip(0..).map(move |(one, place)| {
            let topic = &self.bytes[at..at + one.topic as usize];
            at += topic.len();
            let payload = &self.bytes[at..at + one.payload as usize];
            at += payload.len();
            let named = relayed.next_if(|(of, ..)| *of == place);
            let (origin, number) = named.map_or((0, 0), |(_, origin, number)| (*origin, *number));
            Message { topic, payload, time: one.time, origin, number }
        })
    }
}

/// Returns the bytes that one message counts for.
pub fn weight(message: &Message<'_>) -> usize {
    let named = if message.origin == 0 { 0 } else { RELAYED };
    message.topic.len() + message.payload.len() + OVERHEAD + named
}

const OVERHEAD: usize = std::mem::size_of::<Entry>();
const RELAYED: usize = std::mem::size_of::<(u32, u128, u64)>();
