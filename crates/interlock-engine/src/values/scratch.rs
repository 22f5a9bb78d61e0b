//! Allocations that a call leaves for the next one on its thread: to take memory from the allocator and to
//! give it back costs more than most of what a call does with it.

use std::cell::RefCell;
use std::ops::Deref;

/// Bytes that differ between two sizes of room for a payload.
const STEP: usize = 32;
/// Longer payloads have room of their own.
const LONGEST: usize = 512;
/// Bytes of unused room that a thread keeps for payloads, at most.
const KEPT: usize = 128 << 10;
/// Elements of a list whose room is kept, at most.
const LISTED: usize = 1 << 12;

/// Bytes of a message, in room that is a little larger.
#[derive(Debug)]
pub struct Payload {
    room: Box<[u8]>,
    length: u32,
    /// A number of the payload's owner, in space that would be empty otherwise.
    pub beside: u32,
}

/// Unused allocations, by size.
struct Unused {
    by_size: [Vec<Box<[u8]>>; LONGEST / STEP],
    bytes: usize,
}

thread_local! {
    static UNUSED: RefCell<Unused> =
        const { RefCell::new(Unused { by_size: [const { Vec::new() }; LONGEST / STEP], bytes: 0 }) };
}

impl Payload {
    #[inline]
    pub fn new(bytes: &[u8], beside: u32) -> Self {
        let length = u32::try_from(bytes.len()).expect("payloads are shorter than 4 GiB");
        if bytes.is_empty() || bytes.len() > LONGEST {
            return Payload { room: bytes.into(), length, beside };
        }
        let size = (bytes.len() - 1) / STEP;
        // A thread that ends has none any more.
        let unused = UNUSED.try_with(|unused| {
            let mut unused = unused.borrow_mut();
            let room = unused.by_size[size].pop()?;
            unused.bytes -= room.len();
            Some(room)
        });
        let mut room = match unused {
            Ok(Some(room)) => room,
            _ => vec![0; (size + 1) * STEP].into_boxed_slice(),
        };
        room[..bytes.len()].copy_from_slice(bytes);
        Payload { room, length, beside }
    }
}

impl Deref for Payload {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.room[..self.length as usize]
    }
}

impl Drop for Payload {
    #[inline]
    fn drop(&mut self) {
        let length = self.room.len();
        if length == 0 || length > LONGEST || !length.is_multiple_of(STEP) {
            return;
        }
        let room = std::mem::take(&mut self.room);
        let _ = UNUSED.try_with(|unused| {
            let mut unused = unused.borrow_mut();
            if unused.bytes + length <= KEPT {
                unused.bytes += length;
                unused.by_size[length / STEP - 1].push(room);
            }
        });
    }
}

/// The room of a list, for one whose elements are of the same size and live otherwise.
#[inline]
pub fn emptied<T, U>(mut list: Vec<T>) -> Vec<U> {
    if list.capacity() > LISTED {
        return Vec::new();
    }
    list.clear();
    // The standard library collects in place if it can; otherwise only the room is lost.
    list.into_iter().map(|_| unreachable!("it is empty")).collect()
}

#[cfg(test)]
mod tests {
    use crate::values::scratch::*;

    #[test]
    fn a_payload_in_reused_memory_has_its_own_bytes() {
        let mut rng = fastrand::Rng::with_seed(6);
        let mut held: Vec<(Payload, Vec<u8>)> = Vec::new();
        for round in 0..20_000 {
            let bytes: Vec<u8> = (0..rng.usize(..700)).map(|_| rng.u8(..)).collect();
            held.push((Payload::new(&bytes, round), bytes));
            if held.len() > rng.usize(1..300) {
                let (payload, bytes) = held.swap_remove(rng.usize(..held.len()));
                assert_eq!(*payload, *bytes);
            }
        }
        held.clear();
        UNUSED.with(|unused| {
            let unused = unused.borrow();
            let kept: usize = unused.by_size.iter().flatten().map(|room| room.len()).sum();
            assert_eq!(kept, unused.bytes);
            assert!((1..=KEPT).contains(&kept), "{kept} bytes");
        });
    }

    #[test]
    fn memory_of_a_list_is_reused_by_one_of_another_lifetime() {
        let mut list: Vec<&'static str> = Vec::with_capacity(50);
        list.push("a");
        let room = list.as_ptr().addr();
        let mut other: Vec<&str> = emptied(list);
        assert_eq!((other.capacity(), other.as_ptr().addr()), (50, room));
        let text = String::from("b");
        other.push(&text);
        assert_eq!(emptied::<_, u8>(Vec::<u8>::with_capacity(LISTED + 1)).capacity(), 0);
    }
}
