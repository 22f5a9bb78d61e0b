//! Number of bytes and messages that wait in a spool.

use std::collections::VecDeque;

/// Bytes of messages, in blocks of some: exact enough for a bound.
#[derive(Debug, Default)]
pub struct Sizes {
    /// The last place of each block, messages and bytes in it.
    blocks: VecDeque<(u64, u64, u64)>,
    pub messages: u64,
    pub bytes: u64,
}

const BLOCK: u64 = 64;

impl Sizes {
    pub fn add(&mut self, place: u64, bytes: u64) {
        self.messages += 1;
        self.bytes += bytes;
        match self.blocks.back_mut() {
            Some((last, messages, of)) if *messages < BLOCK => {
                (*last, *messages, *of) = (place, *messages + 1, *of + bytes);
            }
            _ => self.blocks.push_back((place, 1, bytes)),
        }
    }

    pub fn forget(&mut self, place: u64) {
        while let Some(&(last, messages, bytes)) = self.blocks.front() {
            if last > place {
                return;
            }
            self.messages -= messages;
            self.bytes -= bytes;
            self.blocks.pop_front();
        }
    }
}
