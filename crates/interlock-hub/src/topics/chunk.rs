//! The messages that one worker published in one turn, encoded once for all subscribers.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::resp::write::bulk;
use crate::topics::directory::{Interest, SubscriptionKind};

/// Frames one behind the other, and who gets which.
#[derive(Default)]
pub struct Chunk {
    bytes: Vec<u8>,
    /// The places where frames begin: the only bytes in which RESP3 differs.
    starts: Vec<u32>,
    resp3: OnceLock<Vec<u8>>,
    pub runs: Vec<Run>,
    /// Workers with a subscriber of at least one run.
    pub workers: u64,
}

/// Consecutive frames of one topic or pattern.
pub struct Run {
    pub kind: SubscriptionKind,
    pub name: Range<u32>,
    pub start: u32,
    pub end: u32,
    pub messages: u32,
    pub workers: u64,
}

/// The chunk under way.
#[derive(Default)]
pub struct Builder {
    open: Chunk,
    sealed: Vec<Arc<Chunk>>,
    /// Bytes in all of them.
    pub size: usize,
    /// Copies to be sent: what a turn's fan-out costs.
    pub copies: u64,
}

impl Chunk {
    pub fn bytes(&self, resp3: bool) -> &[u8] {
        if !resp3 {
            return &self.bytes;
        }
        self.resp3.get_or_init(|| {
            let mut bytes = self.bytes.clone();
            for &start in &self.starts {
                bytes[start as usize] = b'>';
            }
            bytes
        })
    }

    pub fn name(&self, run: &Run) -> &[u8] {
        &self.bytes[run.name.start as usize..run.name.end as usize]
    }
}

impl Builder {
    pub fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// Appends the frame for those who receive `name`, which for a pattern is not the topic.
    pub fn add(
        &mut self,
        kind: SubscriptionKind,
        name: &[u8],
        topic: &[u8],
        message: &[u8],
        to: Interest,
    ) {
        self.begin();
        let chunk = &mut self.open;
        let start = chunk.bytes.len();
        let head: &[u8] = match kind {
            SubscriptionKind::Topic => b"*3\r\n$7\r\nmessage\r\n",
            SubscriptionKind::Shard => b"*3\r\n$8\r\nsmessage\r\n",
            SubscriptionKind::Pattern => b"*4\r\n$8\r\npmessage\r\n",
            SubscriptionKind::Trace => unreachable!("nobody publishes to it"),
        };
        chunk.bytes.reserve(head.len() + name.len() + topic.len() + message.len() + 48);
        chunk.bytes.extend_from_slice(head);
        if kind == SubscriptionKind::Pattern {
            bulk(&mut chunk.bytes, name);
        }
        let named = chunk.bytes.len();
        bulk(&mut chunk.bytes, topic);
        // Behind the frame's first name, whichever it is, stand two bytes of line end.
        let name_end =
            if kind == SubscriptionKind::Pattern { named } else { chunk.bytes.len() } - 2;
        bulk(&mut chunk.bytes, message);
        let end = chunk.bytes.len();
        chunk.starts.push(start as u32);
        chunk.workers |= to.workers;
        self.size += end - start;
        self.copies += u64::from(to.receivers);
        if let Some(last) = chunk.runs.last_mut() {
            let known = last.name.start as usize..last.name.end as usize;
            if last.kind == kind && chunk.bytes[known] == *name {
                last.end = end as u32;
                last.messages += 1;
                last.workers |= to.workers;
                return;
            }
        }
        chunk.runs.push(Run {
            kind,
            name: (name_end - name.len()) as u32..name_end as u32,
            start: start as u32,
            end: end as u32,
            messages: 1,
            workers: to.workers,
        });
    }

    /// Appends a line for those that monitor.
    pub fn add_trace(&mut self, line: &[u8], workers: u64) {
        self.begin();
        let chunk = &mut self.open;
        let start = chunk.bytes.len() as u32;
        chunk.bytes.extend_from_slice(line);
        let end = chunk.bytes.len() as u32;
        chunk.workers |= workers;
        self.size += line.len();
        self.copies += 1;
        match chunk.runs.last_mut() {
            Some(last) if last.kind == SubscriptionKind::Trace => {
                last.end = end;
                last.workers |= workers;
            }
            _ => chunk.runs.push(Run {
                kind: SubscriptionKind::Trace,
                name: start..start,
                start,
                end,
                messages: 0,
                workers,
            }),
        }
    }

    pub fn take(&mut self) -> Vec<Arc<Chunk>> {
        self.seal();
        self.size = 0;
        self.copies = 0;
        std::mem::take(&mut self.sealed)
    }

    /// Before something is appended: to a new chunk, where the open one is long enough.
    fn begin(&mut self) {
        if self.open.bytes.len() >= SEALED_AT {
            self.seal();
        }
    }

    fn seal(&mut self) {
        if !self.open.bytes.is_empty() {
            self.sealed.push(Arc::new(std::mem::take(&mut self.open)));
        }
    }
}

/// Offsets have 32 bits, and one more message of 512 MiB must fit.
const SEALED_AT: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use crate::topics::chunk::*;

    #[test]
    fn consecutive_messages_to_one_topic_are_one_run_in_both_protocols() {
        let mut builder = Builder::default();
        let to = Interest { receivers: 1, workers: 0b10 };
        builder.add(SubscriptionKind::Topic, b"t", b"t", b"1", to);
        builder.add(SubscriptionKind::Topic, b"t", b"t", b"2", to);
        builder.add(
            SubscriptionKind::Pattern,
            b"t*",
            b"t",
            b"2",
            Interest { receivers: 1, workers: 1 },
        );
        builder.add(SubscriptionKind::Shard, b"t", b"t", b"3", to);
        let chunks = builder.take();
        let [chunk] = &chunks[..] else { panic!("{}", chunks.len()) };
        assert_eq!((chunk.workers, chunk.runs.len(), builder.is_empty()), (0b11, 3, true));
        let names: Vec<&[u8]> = chunk.runs.iter().map(|run| chunk.name(run)).collect();
        assert_eq!(names, [&b"t"[..], b"t*", b"t"]);
        let text = |run: &Run, resp3| {
            let bytes = &chunk.bytes(resp3)[run.start as usize..run.end as usize];
            String::from_utf8(bytes.to_vec()).unwrap()
        };
        assert_eq!(
            text(&chunk.runs[0], false),
            "*3\r\n$7\r\nmessage\r\n$1\r\nt\r\n$1\r\n1\r\n*3\r\n$7\r\nmessage\r\n$1\r\nt\r\n$1\r\n2\r\n"
        );
        assert_eq!(
            text(&chunk.runs[1], true),
            ">4\r\n$8\r\npmessage\r\n$2\r\nt*\r\n$1\r\nt\r\n$1\r\n2\r\n"
        );
        assert_eq!(text(&chunk.runs[2], true), ">3\r\n$8\r\nsmessage\r\n$1\r\nt\r\n$1\r\n3\r\n");
    }

    #[test]
    fn messages_are_in_order_however_many_chunks_a_turn_fills() {
        let mut random = fastrand::Rng::with_seed(9);
        let (mut builder, mut expected) = (Builder::default(), Vec::new());
        let to = Interest { receivers: 1, workers: 1 };
        while expected.len() < 300 {
            let topic = [b'a' + random.u8(0..3)];
            let message = format!("{:06}", expected.len()) + &"x".repeat(random.usize(0..6000));
            builder.add(SubscriptionKind::Topic, &topic, &topic, message.as_bytes(), to);
            expected.push((topic[0], message));
        }
        let chunks = builder.take();
        assert!(chunks.len() > 2, "{} are no more than one", chunks.len());
        let (mut left, mut size) = (&expected[..], 0);
        for chunk in &chunks {
            for run in &chunk.runs {
                assert_eq!(run.start as usize, size, "no gap, nothing twice");
                size = run.end as usize;
                let mut frames = Vec::new();
                for (topic, message) in left.split_off(..run.messages as usize).unwrap() {
                    assert_eq!(chunk.name(run), [*topic]);
                    frames.extend_from_slice(b"*3\r\n$7\r\nmessage\r\n");
                    bulk(&mut frames, &[*topic]);
                    bulk(&mut frames, message.as_bytes());
                }
                assert!(chunk.bytes(false)[run.start as usize..run.end as usize] == frames);
            }
            assert_eq!(std::mem::take(&mut size), chunk.bytes(false).len());
        }
        assert!(left.is_empty());
    }
}
