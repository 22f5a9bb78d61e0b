//! The calls that the loads make on either side of a row.

use std::io;

use crate::connection::Connection;
use crate::queue::book::Book;

/// The way a round asks for messages.
#[derive(Clone, Copy, Debug)]
pub struct Take {
    /// Maximum number.
    pub count: usize,
    /// µs that the server may hold the answer back until there is something; 0: not at all.
    pub wait: u64,
}

/// A queue as one kind of server has it, used by several clients, each with a connection.
pub trait Side {
    /// Before the first round.
    fn prepare(&mut self, connection: &mut Connection) -> io::Result<()>;

    /// Appends the puts of this number of new messages. Gives how many replies they will have.
    fn put(
        &mut self,
        client: usize,
        out: &mut Vec<u8>,
        count: usize,
        due: u64,
        book: &mut Book,
    ) -> usize;

    /// Appends the settlements of all that the client holds, and asks for more. Gives how many
    /// replies they will have.
    fn next(&mut self, client: usize, out: &mut Vec<u8>, take: Take, book: &mut Book) -> usize;

    /// The replies of a client, one by one in the order of its requests. `came` is given when each
    /// message that came was due.
    fn reply(
        &mut self,
        client: usize,
        reply: &[u8],
        book: &mut Book,
        came: &mut impl FnMut(u64),
    ) -> io::Result<()>;

    /// Messages that came and are not settled.
    fn held(&self, client: usize) -> usize;

    /// At the end: what the server kept only for this run.
    fn clear(&mut self, connection: &mut Connection) -> io::Result<()>;
}

/// The number of a command's words, then words.
pub fn words(out: &mut Vec<u8>, count: usize) {
    line(out, b'*', count as u64);
}

pub fn word(out: &mut Vec<u8>, word: &[u8]) {
    line(out, b'$', word.len() as u64);
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

pub fn number(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0; 20];
    let digits = decimal(number, &mut digits);
    line(out, b'$', digits.len() as u64);
    out.extend_from_slice(digits);
    out.extend_from_slice(b"\r\n");
}

/// A payload.
pub fn payload(out: &mut Vec<u8>, book: &Book, number: u64, due: u64) {
    line(out, b'$', book.shape.payload as u64);
    book.write(out, number, due);
    out.extend_from_slice(b"\r\n");
}

#[inline]
fn line(out: &mut Vec<u8>, kind: u8, number: u64) {
    out.push(kind);
    let mut digits = [0; 20];
    out.extend_from_slice(decimal(number, &mut digits));
    out.extend_from_slice(b"\r\n");
}

#[inline]
fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}
