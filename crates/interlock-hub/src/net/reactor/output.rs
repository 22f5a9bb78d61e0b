//! The output owed to one client: its replies, and its parts of shared chunks.
//!
//! A part of a chunk is sent directly from the chunk. What the socket does not take at once is
//! copied out: one paused subscriber of a rare topic would otherwise keep every chunk it has a line
//! in. So limits count the bytes really held: bytes owed, and those already sent of blocks begun.
//!
//! A client that prefers losing messages to being disconnected has each run of them in a segment of
//! its own, so that the oldest can be taken out; at their place it is sent their number.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::resp::write::Writer;
use crate::shared::settings::OutputLimit;
use crate::system::time::Time;
use crate::topics::chunk::Chunk;

#[derive(Default)]
pub struct Output {
    queue: VecDeque<Segment>,
    /// Behind the queue: replies go here.
    pub tail: Vec<u8>,
    /// Bytes of the first segment already sent.
    sent: usize,
    /// In the queue, sent parts included.
    queued: usize,
    /// The socket is full: nothing is shared, and nothing sent until it has room.
    pub blocked: bool,
    over_since: Option<Time>,
    /// Droppable messages that were sent, since it was last asked.
    pub sent_messages: u64,
}

enum Segment {
    Own(Vec<u8>),
    /// `droppable`: number of messages that may be taken out; 0: it must stay.
    Shared {
        chunk: Arc<Chunk>,
        resp3: bool,
        start: u32,
        end: u32,
        droppable: u32,
    },
    Droppable {
        bytes: Box<[u8]>,
        messages: u32,
    },
    /// Reports how many messages were dropped here.
    Missed {
        count: u64,
        bytes: Vec<u8>,
    },
}

impl Output {
    /// Appends a part of a chunk; `droppable` is the number of messages that may be taken out, or
    /// 0.
    pub fn share(&mut self, chunk: &Arc<Chunk>, run: Range<u32>, resp3: bool, droppable: u32) {
        let Range { start, end } = run;
        let length = (end - start) as usize;
        let first = self.queue.is_empty() && self.tail.is_empty();
        if droppable > 0 && (self.blocked || !first) {
            let bytes = chunk.bytes(resp3)[start as usize..end as usize].into();
            self.close_tail();
            return self.push(Segment::Droppable { bytes, messages: droppable });
        }
        // A droppable segment is not extended by data that must be sent.
        if let (true, Some(Segment::Shared { chunk: last, end: last_end, droppable: 0, .. })) =
            (self.tail.is_empty(), self.queue.back_mut())
        {
            if Arc::ptr_eq(last, chunk) && *last_end == start {
                *last_end = end;
                self.queued += length;
                return;
            }
        }
        if self.blocked || (!first && length < WORTH_SHARING) {
            return self.copy(&chunk.bytes(resp3)[start as usize..end as usize]);
        }
        self.close_tail();
        self.push(Segment::Shared { chunk: chunk.clone(), resp3, start, end, droppable });
    }

    /// Drops the oldest messages until there is room for `length` more bytes under `most`. Returns how many
    /// were dropped, and whether there is room now.
    pub fn make_room(&mut self, length: usize, most: usize) -> (u64, bool) {
        let mut dropped = 0;
        if length + OVERHEAD > most {
            // Dropping messages cannot make enough room.
            return (0, false);
        }
        // A message that was partly sent must be sent completely.
        let mut at = usize::from(self.sent > 0);
        while self.held() + length + OVERHEAD > most {
            match self.queue.get(at) {
                None => return (dropped, false),
                Some(Segment::Droppable { messages, bytes }) => {
                    // The client may speak another protocol by what comes behind.
                    let (messages, resp3) = (u64::from(*messages), is_resp3(bytes));
                    dropped += messages;
                    let taken = self.queue.remove(at).expect("it was found");
                    self.queued -= taken.weight();
                    self.miss(at, messages, resp3);
                    if !matches!(self.queue.get(at), Some(Segment::Droppable { .. })) {
                        at += 1;
                    }
                }
                Some(_) => at += 1,
            }
        }
        (dropped, true)
    }

    /// Notes messages that were not taken in.
    pub fn miss_last(&mut self, messages: u64, resp3: bool) {
        self.close_tail();
        self.miss(self.queue.len(), messages, resp3);
    }

    /// Notes that `messages` messages are missing before the segment `at`.
    fn miss(&mut self, at: usize, messages: u64, resp3: bool) {
        let before = at.checked_sub(1).filter(|&before| before > 0 || self.sent == 0);
        match before.and_then(|before| self.queue.get_mut(before)) {
            Some(Segment::Missed { count, bytes }) if is_resp3(bytes) == resp3 => {
                self.queued -= bytes.len();
                *count += messages;
                *bytes = missed(*count, resp3);
                self.queued += bytes.len();
                return;
            }
            _ => {}
        }
        let segment = Segment::Missed { count: messages, bytes: missed(messages, resp3) };
        self.queued += segment.weight();
        self.queue.insert(at, segment);
    }

    fn push(&mut self, segment: Segment) {
        self.queued += segment.weight();
        self.queue.push_back(segment);
    }

    /// Bytes held for this client.
    pub fn held(&self) -> usize {
        self.queued + self.tail.len()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.tail.is_empty()
    }

    /// Returns whether a limit is exceeded now.
    pub fn is_over(&mut self, limit: &OutputLimit, now: Time) -> bool {
        let held = self.held();
        if limit.hard > 0 && held > limit.hard {
            return true;
        }
        if limit.soft == 0 || held <= limit.soft {
            self.over_since = None;
            return false;
        }
        let since = *self.over_since.get_or_insert(now);
        now.saturating_sub(since) > limit.soft_seconds * 1_000_000
    }

    /// Returns whether `pieces` has at most one: there is nothing before the replies.
    #[inline]
    pub fn is_in_one_piece(&self) -> bool {
        self.queue.is_empty()
    }

    /// Up to `most` bytes to send, in at most `parts.len()` pieces; how many pieces.
    pub fn pieces<'a>(&'a self, parts: &mut [&'a [u8]], most: usize) -> usize {
        let (mut count, mut left, mut skip) = (0, most, self.sent);
        let all = self.queue.iter().map(Segment::bytes).chain([&self.tail[..]]);
        for bytes in all {
            let bytes = &bytes[skip..];
            skip = 0;
            if left == 0 || count == parts.len() {
                break;
            }
            if !bytes.is_empty() {
                parts[count] = &bytes[..bytes.len().min(left)];
                left -= parts[count].len();
                count += 1;
            }
        }
        count
    }

    /// Removes bytes that were sent.
    pub fn consume(&mut self, mut bytes: usize) {
        bytes += self.sent;
        self.sent = 0;
        while let Some(first) = self.queue.front() {
            let length = first.bytes().len();
            if bytes < length {
                self.sent = bytes;
                return;
            }
            bytes -= length;
            self.queued -= first.weight();
            match self.queue.pop_front() {
                Some(Segment::Droppable { messages: sent, .. })
                | Some(Segment::Shared { droppable: sent, .. }) => {
                    self.sent_messages += u64::from(sent);
                }
                _ => {}
            }
        }
        if bytes == self.tail.len() {
            self.tail.clear();
        } else if bytes > 0 {
            // It becomes a segment of its own, because the rest of it is not moved.
            self.close_tail();
            self.sent = bytes;
        }
        if self.queue.is_empty() && self.queue.capacity() > 8 {
            self.queue = VecDeque::new();
        }
    }

    /// Copies out what the socket did not take, and drops the references to chunks.
    pub fn unshare(&mut self) {
        self.blocked = true;
        if !self.queue.iter().any(|segment| matches!(segment, Segment::Shared { .. })) {
            return;
        }
        let queue = std::mem::take(&mut self.queue);
        let tail = std::mem::take(&mut self.tail);
        let mut skip = std::mem::take(&mut self.sent);
        self.queued = 0;
        for segment in queue {
            match segment {
                // A message that is not partly sent can still be dropped.
                Segment::Shared { chunk, resp3, start, end, droppable }
                    if droppable > 0 && skip == 0 =>
                {
                    let bytes = chunk.bytes(resp3)[start as usize..end as usize].into();
                    self.close_tail();
                    self.push(Segment::Droppable { bytes, messages: droppable });
                }
                Segment::Droppable { .. } | Segment::Missed { .. } if skip == 0 => {
                    self.close_tail();
                    self.push(segment);
                }
                Segment::Own(bytes) if skip == 0 && bytes.len() >= BLOCK / 2 => {
                    self.close_tail();
                    self.queued += bytes.len();
                    self.queue.push_back(Segment::Own(bytes));
                }
                segment => {
                    if let Segment::Shared { droppable: sent, .. }
                    | Segment::Droppable { messages: sent, .. } = segment
                    {
                        // It can no longer be dropped.
                        self.sent_messages += u64::from(sent);
                    }
                    self.copy(&segment.bytes()[skip..]);
                }
            }
            skip = 0;
        }
        self.copy(&tail);
    }

    fn copy(&mut self, bytes: &[u8]) {
        if self.tail.len() + bytes.len() > BLOCK {
            self.close_tail();
        }
        self.tail.extend_from_slice(bytes);
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            self.queued += self.tail.len();
            let mut tail = std::mem::take(&mut self.tail);
            if tail.capacity() > tail.len() * 2 {
                tail.shrink_to_fit();
            }
            self.queue.push_back(Segment::Own(tail));
        }
    }
}

impl Segment {
    /// Returns the bytes that it counts for in the limits.
    fn weight(&self) -> usize {
        match self {
            Segment::Droppable { bytes, .. } => bytes.len() + OVERHEAD,
            other => other.bytes().len(),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Segment::Own(bytes) | Segment::Missed { bytes, .. } => bytes,
            Segment::Droppable { bytes, .. } => bytes,
            Segment::Shared { chunk, resp3, start, end, .. } => {
                &chunk.bytes(*resp3)[*start as usize..*end as usize]
            }
        }
    }
}

/// The protocol of a push.
fn is_resp3(push: &[u8]) -> bool {
    push.first() == Some(&b'>')
}

fn missed(count: u64, resp3: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut push = Writer { out: &mut bytes, resp3 };
    push.push(3);
    push.bulk(b"missed");
    push.bulk(b"");
    push.integer(count as i64);
    bytes
}

/// The cost of a segment beside its bytes: its place in the queue, and its allocation.
const OVERHEAD: usize = 64;
/// Below this a copy costs less than a piece of its own in a send.
const WORTH_SHARING: usize = 4096;
const BLOCK: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use crate::net::reactor::output::*;
    use crate::topics::chunk::Builder;
    use crate::topics::directory::{Interest, SubscriptionKind};

    fn chunk(message: &[u8]) -> Arc<Chunk> {
        let mut builder = Builder::default();
        builder.add(
            SubscriptionKind::Topic,
            b"t",
            b"t",
            message,
            Interest { receivers: 1, workers: 1 },
        );
        builder.take().remove(0)
    }

    #[test]
    fn bytes_are_sent_in_order_however_the_socket_accepts_them() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..300 {
            let (mut output, mut expected, mut sent) = (Output::default(), Vec::new(), Vec::new());
            for _ in 0..random.usize(1..30) {
                if random.bool() {
                    let reply = vec![random.u8(..); random.usize(0..2000)];
                    output.tail.extend_from_slice(&reply);
                    expected.extend_from_slice(&reply);
                } else {
                    let chunk = chunk(&vec![random.u8(..); random.usize(0..20_000)]);
                    let resp3 = random.bool();
                    let end = chunk.bytes(false).len() as u32;
                    output.share(&chunk, 0..end, resp3, 0);
                    expected.extend_from_slice(chunk.bytes(resp3));
                }
                if random.u8(..4) == 0 {
                    let mut parts = [&[][..]; 3];
                    let count = output.pieces(&mut parts, random.usize(1..9000));
                    let bytes = parts[..count].concat();
                    let taken = random.usize(0..=bytes.len());
                    sent.extend_from_slice(&bytes[..taken]);
                    output.consume(taken);
                    if random.bool() {
                        output.unshare();
                    }
                    output.blocked = false;
                }
                assert!(output.held() >= expected.len() - sent.len());
            }
            while !output.is_empty() {
                let mut parts = [&[][..]; 3];
                let count = output.pieces(&mut parts, 5000);
                sent.extend_from_slice(&parts[..count].concat());
                let bytes = parts[..count].concat().len();
                output.consume(bytes);
            }
            assert!(sent == expected);
            assert_eq!(output.held(), 0);
        }
    }

    #[test]
    fn a_blocked_socket_keeps_no_chunk_alive() {
        let mut output = Output::default();
        let chunk = chunk(&[b'x'; 10_000]);
        let all = 0..chunk.bytes(false).len() as u32;
        output.share(&chunk, all.clone(), false, 0);
        assert_eq!(Arc::strong_count(&chunk), 2);
        output.unshare();
        output.share(&chunk, all, false, 0);
        assert_eq!(Arc::strong_count(&chunk), 1);
        assert_eq!(output.held(), 2 * chunk.bytes(false).len());
    }

    /// Reads what a client is sent: the messages' numbers, and how many were missed where.
    fn read(bytes: &[u8]) -> Vec<(char, usize)> {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let mut found = Vec::new();
        for frame in text.split("*3\r\n").skip(1) {
            let lines: Vec<&str> = frame.split("\r\n").collect();
            let missed = lines[1] == "missed";
            let value = if missed { &lines[4][1..] } else { lines[5].trim_start_matches('x') };
            found.push((if missed { '-' } else { '+' }, value.parse().unwrap()));
        }
        found
    }

    #[test]
    fn the_oldest_messages_are_dropped_and_the_gap_reported_in_their_place() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut total_missed = 0;
        for _ in 0..300 {
            let most = random.usize(500..4000);
            let (mut output, mut sent, mut dropped) = (Output::default(), Vec::new(), 0);
            let count = random.usize(10..60);
            for number in 0..count {
                let message = format!("{}{number}", "x".repeat(random.usize(0..300)));
                let chunk = chunk(message.as_bytes());
                let end = chunk.bytes(false).len() as u32;
                let (taken, fits) = output.make_room(end as usize, most);
                dropped += taken;
                if fits {
                    output.share(&chunk, 0..end, false, 1);
                } else {
                    output.miss_last(1, false);
                    dropped += 1;
                }
                if random.bool() {
                    let mut parts = [&[][..]; 3];
                    let pieces = output.pieces(&mut parts, random.usize(1..900));
                    let bytes = parts[..pieces].concat();
                    let taken = random.usize(0..=bytes.len());
                    sent.extend_from_slice(&bytes[..taken]);
                    output.consume(taken);
                    output.unshare();
                    output.blocked = random.bool();
                }
                assert!(output.held() <= most + 400, "{} of {most}", output.held());
            }
            while !output.is_empty() {
                let mut parts = [&[][..]; 3];
                let pieces = output.pieces(&mut parts, 5000);
                let bytes = parts[..pieces].concat();
                sent.extend_from_slice(&bytes);
                output.consume(bytes.len());
            }
            let mut next = 0;
            let mut missed = 0;
            for (kind, value) in read(&sent) {
                if kind == '+' {
                    assert_eq!(value, next, "in order, and every gap told before");
                    next += 1;
                } else {
                    missed += value;
                    next += value;
                }
            }
            assert_eq!((next, missed as u64), (count, dropped));
            assert_eq!(output.sent_messages, count as u64 - dropped);
            assert_eq!((output.held(), output.queued), (0, 0));
            total_missed += missed;
        }
        assert!(total_missed > 1000, "{total_missed}");
    }

    #[test]
    fn dropped_messages_are_reported_in_the_connection_s_protocol() {
        for resp3 in [false, true] {
            let (mut output, mut expected) = (Output::default(), Vec::new());
            let chunk = chunk(&[b'x'; 100]);
            let all = 0..chunk.bytes(false).len() as u32;
            output.unshare();
            output.share(&chunk, all.clone(), resp3, 1);
            output.share(&chunk, all, resp3, 1);
            // From here on it speaks the other one.
            output.tail.extend_from_slice(b"the answer to HELLO");
            assert_eq!(output.make_room(100, 300), (2, true));
            expected.extend_from_slice(&missed(2, resp3));
            output.miss_last(1, !resp3);
            expected.extend_from_slice(b"the answer to HELLO");
            expected.extend_from_slice(&missed(1, !resp3));
            let mut parts = [&[][..]; 8];
            let count = output.pieces(&mut parts, 5000);
            assert_eq!(parts[..count].concat(), expected);
        }
    }

    #[test]
    fn monitor_lines_are_not_dropped_with_messages() {
        let mut builder = Builder::default();
        builder.add(
            SubscriptionKind::Topic,
            b"t",
            b"t",
            b"1",
            Interest { receivers: 1, workers: 1 },
        );
        builder.add_trace(b"+a line\r\n", 1);
        let chunk = builder.take().remove(0);
        let [message, line] = &chunk.runs[..] else { panic!("{}", chunk.runs.len()) };
        let mut output = Output::default();
        output.share(&chunk, message.start..message.end, false, 1);
        output.share(&chunk, line.start..line.end, false, 0);
        output.unshare();
        assert_eq!(output.make_room(0, 100), (1, true));
        let mut parts = [&[][..]; 8];
        let count = output.pieces(&mut parts, 5000);
        assert_eq!(parts[..count].concat(), [&missed(1, false)[..], b"+a line\r\n"].concat());
    }

    #[test]
    fn the_soft_limit_may_be_exceeded_for_its_seconds_and_the_hard_one_never() {
        let limit = OutputLimit { soft: 10, soft_seconds: 60, hard: 20 };
        let mut output = Output { tail: vec![0; 11], ..Output::default() };
        assert!(!output.is_over(&limit, 0));
        assert!(!output.is_over(&limit, 60_000_000));
        assert!(output.is_over(&limit, 60_000_001));
        output.consume(5);
        assert_eq!(output.held(), 11, "bytes sent of a block are still held");
        output.consume(6);
        assert!(!output.is_over(&limit, 61_000_000));
        output.tail = vec![0; 11];
        assert!(!output.is_over(&limit, 100_000_000), "the time begins anew");
        output.tail = vec![0; 21];
        assert!(output.is_over(&limit, 100_000_000));
    }
}
