//! Numbers, texts and lists as msgpack, the format of states.
//!
//! Everything is written in its shortest form, so equal values have equal bytes. Readers take
//! slices of one item; an item of another type reads as `None`.

pub const NIL: &[u8] = &[0xC0];
/// The bytes of every NaN: machines differ in which one they compute.
pub const NAN: u64 = 0x7FF8_0000_0000_0000;

/// Returns the length of the first item. `None`: the item is truncated, or of a type that states do
/// not use.
#[inline]
pub fn length(bytes: &[u8]) -> Option<usize> {
    let first = *bytes.first()?;
    let size = match SIZES[usize::from(first)] {
        0 if first == 0xC4 => 2 + usize::from(*bytes.get(1)?),
        0 => return length_of_any(bytes),
        size => usize::from(size),
    };
    (size <= bytes.len()).then_some(size)
}

/// Lengths of items by their first byte; 0 if it depends on more bytes.
const SIZES: [u8; 256] = {
    let (mut sizes, mut first) = ([0; 256], 0);
    while first < 256 {
        sizes[first] = match first {
            0x00..=0x7F | 0xE0..=0xFF | 0xC0 | 0xC2 | 0xC3 => 1,
            0xA0..=0xBF => 1 + (first & 31) as u8,
            0xCC | 0xD0 => 2,
            0xCD | 0xD1 => 3,
            0xCE | 0xD2 => 5,
            0xCB | 0xCF | 0xD3 => 9,
            _ => 0,
        };
        first += 1;
    }
    sizes
};

fn length_of_any(bytes: &[u8]) -> Option<usize> {
    match head(bytes)? {
        (size, 0) => (size <= bytes.len()).then_some(size),
        _ => length_of_list(bytes),
    }
}

fn length_of_list(bytes: &[u8]) -> Option<usize> {
    let (mut at, mut items) = (0, 1);
    // A list's items follow it, so nesting needs no stack.
    while items > 0 {
        let rest = bytes.get(at..)?;
        let (head, inside) = match rest.first()? {
            0x90..=0x9F | 0xDC | 0xDD => head(rest)?,
            _ => (length(rest)?, 0),
        };
        at += head;
        items = items - 1 + inside;
        // An item has at least one byte.
        if at > bytes.len() || items > bytes.len() - at {
            return None;
        }
    }
    Some(at)
}

/// Returns the length of an item without the items of a list, and their number.
#[inline]
fn head(bytes: &[u8]) -> Option<(usize, usize)> {
    let number = |size: usize| {
        let all = bytes.get(1..1 + size)?;
        Some(all.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    };
    Some(match *bytes.first()? {
        0x00..=0x7F | 0xE0..=0xFF | 0xC0 | 0xC2 | 0xC3 => (1, 0),
        short @ 0x90..=0x9F => (1, usize::from(short & 15)),
        short @ 0xA0..=0xBF => (1 + usize::from(short & 31), 0),
        0xC4 | 0xD9 => (2 + usize::from(*bytes.get(1)?), 0),
        0xC5 | 0xDA => (3 + number(2)?, 0),
        0xC6 | 0xDB => (5 + number(4)?, 0),
        0xCC | 0xD0 => (2, 0),
        0xCD | 0xD1 => (3, 0),
        0xCE | 0xD2 => (5, 0),
        0xCB | 0xCF | 0xD3 => (9, 0),
        0xDC => (3, number(2)?),
        0xDD => (5, number(4)?),
        _ => return None,
    })
}

/// Items of a list.
#[derive(Clone)]
pub struct Items<'a> {
    rest: &'a [u8],
    count: usize,
}

impl<'a> Items<'a> {
    pub fn of(list: &'a [u8]) -> Option<Items<'a>> {
        matches!(list.first()?, 0x90..=0x9F | 0xDC | 0xDD).then_some(())?;
        let (at, count) = head(list)?;
        Some(Items { rest: list.get(at..)?, count })
    }

    /// Number of items left, according to the list.
    pub fn left(&self) -> usize {
        self.count
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.count == 0 {
            return None;
        }
        let (item, rest) = self.rest.split_at_checked(length(self.rest)?)?;
        self.rest = rest;
        self.count -= 1;
        Some(item)
    }

    #[inline]
    fn nth(&mut self, n: usize) -> Option<&'a [u8]> {
        if self.count <= n {
            self.count = 0;
            return None;
        }
        let (mut at, before) = (0, self.rest);
        for _ in 0..n {
            at += length(before.get(at..)?)?;
        }
        (self.rest, self.count) = (before.get(at..)?, self.count - n);
        self.next()
    }
}

/// Reads an integer of up to 64 bits.
#[inline]
pub fn integer(item: &[u8]) -> Option<i128> {
    let (first, rest) = item.split_first()?;
    let unsigned = |size: usize| {
        if let (8, Some(eight)) = (size, rest.first_chunk()) {
            return Some(u64::from_be_bytes(*eight));
        }
        let all = rest.get(..size)?;
        Some(all.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte)))
    };
    Some(match first {
        0x00..=0x7F => i128::from(*first),
        0xE0..=0xFF => i128::from(*first as i8),
        0xCC => i128::from(unsigned(1)?),
        0xCD => i128::from(unsigned(2)?),
        0xCE => i128::from(unsigned(4)?),
        0xCF => i128::from(unsigned(8)?),
        0xD0 => i128::from(unsigned(1)? as i8),
        0xD1 => i128::from(unsigned(2)? as i16),
        0xD2 => i128::from(unsigned(4)? as i32),
        0xD3 => i128::from(unsigned(8)? as i64),
        _ => return None,
    })
}

pub fn unsigned(item: &[u8]) -> Option<u64> {
    integer(item)?.try_into().ok()
}

/// Reads an integer, which is stored as text if it has more than 64 bits.
pub fn number(item: &[u8]) -> Option<i128> {
    integer(item).or_else(|| std::str::from_utf8(text(item)?).ok()?.parse().ok())
}

pub fn float(item: &[u8]) -> Option<f64> {
    let (first, rest) = item.split_first()?;
    (*first == 0xCB).then(|| rest.try_into().ok().map(f64::from_be_bytes))?
}

pub fn boolean(item: &[u8]) -> Option<bool> {
    match item {
        [0xC2] => Some(false),
        [0xC3] => Some(true),
        _ => None,
    }
}

/// Returns the bytes of a text without checking that they are UTF-8.
pub fn text(item: &[u8]) -> Option<&[u8]> {
    let at = match item.first()? {
        0xA0..=0xBF => 1,
        0xD9 => 2,
        0xDA => 3,
        0xDB => 5,
        _ => return None,
    };
    item.get(at..)
}

#[inline]
pub fn bytes(item: &[u8]) -> Option<&[u8]> {
    let at = match item.first()? {
        0xC4 => 2,
        0xC5 => 3,
        0xC6 => 5,
        _ => return None,
    };
    item.get(at..)
}

/// Writes a number from `-2**63` to `2**64 - 1`; others are truncated.
pub fn put_integer(to: &mut Vec<u8>, number: i128) {
    match number {
        -32..=0x7F => to.push(number as u8),
        0x80..=0xFF => to.extend([0xCC, number as u8]),
        0x100..=0xFFFF => put(to, 0xCD, &(number as u16).to_be_bytes()),
        0x1_0000..=0xFFFF_FFFF => put(to, 0xCE, &(number as u32).to_be_bytes()),
        0x1_0000_0000.. => put(to, 0xCF, &(number as u64).to_be_bytes()),
        -0x80..=-33 => to.extend([0xD0, number as u8]),
        -0x8000..=-0x81 => put(to, 0xD1, &(number as i16).to_be_bytes()),
        -0x8000_0000..=-0x8001 => put(to, 0xD2, &(number as i32).to_be_bytes()),
        ..=-0x8000_0001 => put(to, 0xD3, &(number as i64).to_be_bytes()),
    }
}

/// Overwrites a number. Returns false and changes nothing if the length differs.
pub fn write_over(item: &mut [u8], number: i128) -> bool {
    let mut written = [0; 9];
    let (first, size) = match number {
        -32..=0x7F => (number as u8, 0),
        0x80..=0xFF => (0xCC, 1),
        0x100..=0xFFFF => (0xCD, 2),
        0x1_0000..=0xFFFF_FFFF => (0xCE, 4),
        0x1_0000_0000..=0xFFFF_FFFF_FFFF_FFFF => (0xCF, 8),
        // Negative numbers are rare.
        _ => return false,
    };
    if item.len() != size + 1 {
        return false;
    }
    written[0] = first;
    written[1..=size].copy_from_slice(&(number as u64).to_be_bytes()[8 - size..]);
    item.copy_from_slice(&written[..=size]);
    true
}

/// Writes an integer, as text if it has more than 64 bits.
pub fn put_number(to: &mut Vec<u8>, number: i128) {
    if (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&number) {
        put_integer(to, number);
    } else {
        put_text(to, number.to_string().as_bytes());
    }
}

pub fn put_float(to: &mut Vec<u8>, float: f64) {
    let bits = if float.is_nan() { NAN } else { float.to_bits() };
    put(to, 0xCB, &bits.to_be_bytes());
}

pub fn put_boolean(to: &mut Vec<u8>, is: bool) {
    to.push(if is { 0xC3 } else { 0xC2 });
}

pub fn put_text(to: &mut Vec<u8>, text: &[u8]) {
    match text.len() {
        size @ ..=31 => to.push(0xA0 | size as u8),
        size => put_size(to, [0xD9, 0xDA, 0xDB], size),
    }
    to.extend_from_slice(text);
}

pub fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    put_size(to, [0xC4, 0xC5, 0xC6], bytes.len());
    to.extend_from_slice(bytes);
}

/// Writes the header of a list with this number of items.
pub fn put_list(to: &mut Vec<u8>, count: usize) {
    match count {
        0..=15 => to.push(0x90 | count as u8),
        16..=0xFFFF => put(to, 0xDC, &(count as u16).to_be_bytes()),
        _ => put(to, 0xDD, &(count as u32).to_be_bytes()),
    }
}

fn put_size(to: &mut Vec<u8>, [one, two, four]: [u8; 3], size: usize) {
    match size {
        0..=0xFF => to.extend([one, size as u8]),
        0x100..=0xFFFF => put(to, two, &(size as u16).to_be_bytes()),
        _ => put(to, four, &(size as u32).to_be_bytes()),
    }
}

#[inline]
fn put(to: &mut Vec<u8>, first: u8, rest: &[u8]) {
    to.push(first);
    to.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_survive_encoding_in_the_shortest_form() {
        for (number, size) in [
            (0, 1),
            (127, 1),
            (128, 2),
            (255, 2),
            (256, 3),
            (65_535, 3),
            (65_536, 5),
            (1 << 32, 9),
            ((1 << 64) - 1, 9),
            (-1, 1),
            (-32, 1),
            (-33, 2),
            (-128, 2),
            (-129, 3),
            (-32_768, 3),
            (-32_769, 5),
            (-(1 << 31), 5),
            (-(1 << 31) - 1, 9),
            (-(1 << 63), 9),
        ] {
            let mut item = Vec::new();
            put_integer(&mut item, number);
            assert_eq!((integer(&item), item.len()), (Some(number), size), "{number}");
            let mut over = vec![0xC1; size];
            assert_eq!(write_over(&mut over, number), number >= -32, "{number}");
            assert_eq!(over == item, number >= -32, "{number}");
            assert!(!write_over(&mut vec![0xC1; size + 1], number), "{number}");
            assert_eq!(length(&item), Some(size));
        }
        for number in [1 << 64, -(1 << 63) - 1, i128::MAX] {
            let mut item = Vec::new();
            put_number(&mut item, number);
            assert_eq!((number_of(&item), integer(&item)), (Some(number), None));
        }
    }

    fn number_of(item: &[u8]) -> Option<i128> {
        number(item)
    }

    #[test]
    fn texts_bytes_and_lists_survive_encoding_and_a_cut_one_has_no_length() {
        for size in [0, 1, 31, 32, 255, 256, 65_535, 65_536] {
            let (mut as_text, mut as_bytes, all) = (Vec::new(), Vec::new(), vec![b'x'; size]);
            put_text(&mut as_text, &all);
            put_bytes(&mut as_bytes, &all);
            assert_eq!((text(&as_text), bytes(&as_bytes)), (Some(&all[..]), Some(&all[..])));
            assert_eq!(length(&as_text), Some(as_text.len()));
            assert_eq!(length(&as_bytes[..as_bytes.len() - 1]), None);
            let mut list = Vec::new();
            put_list(&mut list, size);
            (0..size).for_each(|_| list.push(0xC0));
            assert_eq!(length(&list), Some(list.len()));
            assert_eq!(Items::of(&list).unwrap().left(), size);
            assert!(size == 0 || length(&list[..list.len() - 1]).is_none());
        }
        assert_eq!(length(&[0xDD, 255, 255, 255, 255, 0]), None);
        assert_eq!(length(&[0x91; 9]), None);
    }
}
