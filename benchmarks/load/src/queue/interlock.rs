//! The wire of Interlock, as a hub and as Redis with the library speak it.
//!
//! Each client puts under one name and consumes under another, so that of each there is one
//! numbered call under way, whose reply the server keeps.

use std::collections::VecDeque;
use std::io;
use std::process;

use crate::connection::Connection;
use crate::net;
use crate::queue::book::Book;
use crate::queue::side::{number, payload, word, words, Side, Take};
use crate::resp::{wrong, Reader};

pub struct Interlock {
    key: Vec<u8>,
    clients: Vec<Client>,
    /// Calls have numbers, so that the server keeps their replies for a repeat.
    numbered: bool,
}

struct Client {
    producer: Vec<u8>,
    consumer: Vec<u8>,
    calls: u64,
    expected: VecDeque<Reply>,
    token: Vec<u8>,
    /// Number and id of what it leased.
    held: Vec<(u64, u64)>,
}

enum Reply {
    /// To a put of so many messages, from this number on.
    Put(u64, usize),
    /// To settlements, so many, and a lease.
    Next(usize),
}

impl Interlock {
    pub fn new(clients: usize, numbered: bool) -> Self {
        let run = format!("{:x}-{:x}", process::id(), net::now());
        let client = |number| Client {
            producer: format!("producer-{run}-{number}").into_bytes(),
            consumer: format!("consumer-{run}-{number}").into_bytes(),
            calls: 0,
            expected: VecDeque::new(),
            token: Vec::new(),
            held: Vec::new(),
        };
        Interlock {
            key: format!("il:{{load-{run}}}").into_bytes(),
            clients: (0..clients).map(client).collect(),
            numbered,
        }
    }
}

fn call(out: &mut Vec<u8>, function: &[u8], key: &[u8], arguments: usize) {
    words(out, 4 + arguments);
    word(out, b"FCALL");
    word(out, function);
    word(out, b"1");
    word(out, key);
}

impl Side for Interlock {
    fn prepare(&mut self, connection: &mut Connection) -> io::Result<()> {
        let mut request = Vec::new();
        words(&mut request, 3);
        [b"FCALL".as_slice(), b"il1_version", b"0"]
            .iter()
            .for_each(|text| word(&mut request, text));
        let reply = connection.ask(&request)?;
        let mut reader = Reader::new(&reply)?;
        reader.array()?;
        match reader.text()? {
            b"1" => Ok(()),
            _ => Err(wrong(&reply)),
        }
    }

    fn put(
        &mut self,
        client: usize,
        out: &mut Vec<u8>,
        count: usize,
        due: u64,
        book: &mut Book,
    ) -> usize {
        let each = book.shape.each;
        let one = &mut self.clients[client];
        one.calls += 1;
        call(out, b"il1_put", &self.key, 3 + count * (4 + each));
        word(out, &one.producer);
        number(out, if self.numbered { one.calls } else { 0 });
        word(out, b"0");
        let mut first = None;
        for _ in 0..count {
            let message = book.put(client);
            first.get_or_insert(message);
            payload(out, book, message, due);
            number(out, each as u64);
            out.extend_from_slice(b"$1\r\n0\r\n$1\r\n0\r\n");
            for place in 0..each {
                push_key(out, book.key(message, place));
            }
        }
        one.expected.push_back(Reply::Put(first.unwrap_or(0), count));
        1
    }

    fn next(&mut self, client: usize, out: &mut Vec<u8>, take: Take, book: &mut Book) -> usize {
        let one = &mut self.clients[client];
        one.calls += 1;
        call(out, b"il1_next", &self.key, 6 + 3 * one.held.len());
        word(out, &one.consumer);
        number(out, if self.numbered { one.calls } else { 0 });
        number(out, take.wait);
        number(out, take.count as u64);
        number(out, DURATION);
        word(out, b"any");
        for (message, id) in &one.held {
            out.extend_from_slice(b"$3\r\nACK\r\n");
            word(out, &one.token);
            number(out, *id);
            book.settle(*message);
        }
        one.expected.push_back(Reply::Next(one.held.len()));
        one.held.clear();
        1
    }

    fn reply(
        &mut self,
        client: usize,
        reply: &[u8],
        book: &mut Book,
        came: &mut impl FnMut(u64),
    ) -> io::Result<()> {
        let one = &mut self.clients[client];
        let mut reader = Reader::new(reply)?;
        match one.expected.pop_front() {
            Some(Reply::Put(first, count)) => {
                let mut last = 0;
                if reader.array()? != 2 * count {
                    return Err(wrong(reply));
                }
                for message in first..first + count as u64 {
                    let id = reader.number()?;
                    if id <= last || reader.text()? != b"0" {
                        return Err(wrong(reply));
                    }
                    book.name(message, id)?;
                    last = id;
                }
            }
            Some(Reply::Next(settled)) => {
                reader.array()?;
                if reader.number()? != settled as u64 {
                    return Err(wrong(reply));
                }
                let mut taken = 0;
                for _ in 0..settled {
                    taken += u64::from(reader.text()? == b"ACKED");
                }
                book.confirm(taken, settled as u64);
                one.token.clear();
                one.token.extend_from_slice(reader.text()?);
                let (_deadline, _next) = (reader.text()?, reader.text()?);
                for _ in 0..reader.number()? {
                    let message = lease(&mut reader, book, came)?;
                    one.held.push(message);
                }
            }
            None => return Err(wrong(reply)),
        }
        if reader.is_through() {
            Ok(())
        } else {
            Err(wrong(reply))
        }
    }

    fn held(&self, client: usize) -> usize {
        self.clients[client].held.len()
    }

    fn clear(&mut self, _: &mut Connection) -> io::Result<()> {
        Ok(())
    }
}

/// Reads a message that was leased, and looks at each of its bytes: its number and its id.
fn lease(
    reader: &mut Reader,
    book: &mut Book,
    came: &mut impl FnMut(u64),
) -> io::Result<(u64, u64)> {
    let id = reader.number()?;
    let (sequence, attempt) = (reader.text()?, reader.text()?);
    let (message, due) = book.read(reader.text()?)?;
    let (exclusive, shared) = (reader.number()?, reader.number()?);
    if (sequence, attempt) != (b"", b"1") || (exclusive, shared) != (book.shape.each as u64, 0) {
        let text = format!(
            "message {message} came as attempt {:?}, sequence {:?}, with {exclusive} and {shared} keys",
            String::from_utf8_lossy(attempt),
            String::from_utf8_lossy(sequence),
        );
        return Err(io::Error::other(text));
    }
    // In the order of the put; a server that gives them otherwise is asked about each.
    let mut found = [false; MOST_KEYS];
    for place in 0..book.shape.each {
        let text = reader.text()?;
        let mut name = [0; KEY];
        let at = (0..book.shape.each)
            .map(|next| (place + next) % book.shape.each)
            .find(|at| {
                write_key(&mut name, book.key(message, *at));
                text == name
            })
            .ok_or_else(|| io::Error::other(format!("message {message} came with other keys")))?;
        found[at] = true;
    }
    if !found[..book.shape.each].iter().all(|found| *found) {
        return Err(io::Error::other(format!("message {message} came with other keys")));
    }
    book.came(message, id)?;
    came(due);
    Ok((message, id))
}

fn write_key(name: &mut [u8; KEY], mut key: u64) {
    name[0] = b'k';
    for digit in name[1..].iter_mut().rev() {
        *digit = b'0' + (key % 10) as u8;
        key /= 10;
    }
}

#[inline]
fn push_key(out: &mut Vec<u8>, key: u64) {
    let mut name = [0; KEY];
    write_key(&mut name, key);
    word(out, &name);
}

/// µs: longer than any run.
const DURATION: u64 = 600_000_000;
/// Bytes of each key: a letter and the digits of up to ten million.
const KEY: usize = 8;
pub const MOST_KEYS: usize = 64;
