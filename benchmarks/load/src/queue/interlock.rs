//! The wire of Interlock, as a hub and as Redis with the library speak it.
//!
//! Each client puts under one name and consumes under another, so that of each there is one
//! numbered call under way, whose reply the server keeps.

use std::collections::VecDeque;
use std::io;
use std::process;

use crate::connection::Connection;
use crate::net;
use crate::options::Options;
use crate::queue::book::{Book, Shape};
use crate::queue::frame::{name, Frame};
use crate::queue::side::{number, word, words, Side, Take};
use crate::resp::{decimal, wrong, Reader};

pub struct Interlock {
    key: Vec<u8>,
    clients: Vec<Client>,
    /// Calls have numbers, so that the server keeps their replies for a repeat.
    numbered: bool,
    /// The durability that the queue is declared with; `None`: with none.
    durability: Option<&'static [u8]>,
    /// A message of a put.
    put: Frame,
    /// A message of a lease, behind its id.
    lease: Frame,
}

struct Client {
    producer: Vec<u8>,
    consumer: Vec<u8>,
    calls: u64,
    expected: VecDeque<Reply>,
    token: Vec<u8>,
    held: Vec<Held>,
}

/// A message that it leased.
struct Held {
    message: u64,
    /// As it came, so that it need not be written anew.
    id: [u8; ID],
    length: usize,
}

enum Reply {
    /// Answer to a put of this number of messages, from this number on.
    Put(u64, usize),
    /// Answer to this number of settlements, and a lease.
    Next(usize),
}

impl Interlock {
    pub fn new(shape: Shape, clients: usize, options: &Options) -> Self {
        let run = format!("{:x}-{:x}", process::id(), net::now());
        let client = |number| Client {
            producer: format!("producer-{run}-{number}").into_bytes(),
            consumer: format!("consumer-{run}-{number}").into_bytes(),
            calls: 0,
            expected: VecDeque::new(),
            token: Vec::new(),
            held: Vec::new(),
        };
        let mut keys = Vec::new();
        number(&mut keys, shape.each as u64);
        number(&mut keys, 0);
        let mut counts = keys.clone();
        number(&mut counts, 0);
        Interlock {
            put: Frame::new(shape, b"", &counts),
            lease: Frame::new(shape, b"$0\r\n\r\n$1\r\n1\r\n", &keys),
            key: format!("il:{{load-{run}}}").into_bytes(),
            clients: (0..clients).map(client).collect(),
            numbered: options.numbered,
            durability: match options.durable {
                0 => None,
                1 => Some(b"everysec"),
                _ => Some(b"always"),
            },
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
        if reader.text()? != b"1" {
            return Err(wrong(&reply));
        }
        if let Some(durability) = self.durability {
            let mut request = Vec::new();
            call(&mut request, b"il1_configure", &self.key, 2);
            word(&mut request, b"DURABILITY");
            word(&mut request, durability);
            Reader::new(&connection.ask(&request)?)?;
        }
        Ok(())
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
            self.put.push(out, message, due, book);
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
        let mut acknowledge = b"$3\r\nACK\r\n".to_vec();
        word(&mut acknowledge, &one.token);
        for held in &one.held {
            out.extend_from_slice(&acknowledge);
            word(out, &held.id[..held.length]);
            book.settle(held.message);
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
                    let message = lease(&self.lease, &mut reader, book, came)?;
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

/// Reads a message that was leased, and looks at each of its bytes.
#[inline]
fn lease(
    frame: &Frame,
    reader: &mut Reader,
    book: &mut Book,
    came: &mut impl FnMut(u64),
) -> io::Result<Held> {
    let text = reader.text()?;
    let id = decimal(text).filter(|_| text.len() <= ID).ok_or_else(|| wrong(text))?;
    let (message, due) = match frame.read(reader.rest(), book) {
        Some((message, due, length)) => {
            reader.skip(length);
            (message, due)
        }
        None => slowly(reader, book)?,
    };
    book.came(message, id)?;
    came(due);
    let mut held = Held { message, id: [0; ID], length: text.len() };
    held.id[..text.len()].copy_from_slice(text);
    Ok(held)
}

/// The same message word by word: its keys may come in another order, and if anything is not as it
/// was put, the error says what.
fn slowly(reader: &mut Reader, book: &Book) -> io::Result<(u64, u64)> {
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
    let mut keys = Vec::new();
    for _ in 0..book.shape.each {
        keys.push(reader.text()?);
    }
    keys.sort_unstable();
    let mut put: Vec<_> = book.lanes(message).iter().map(|lane| name(*lane)).collect();
    put.sort_unstable();
    if keys != put {
        return Err(io::Error::other(format!("message {message} came with other keys")));
    }
    Ok((message, due))
}

/// µs: longer than any run.
const DURATION: u64 = 600_000_000;
/// Digits of an id, at most.
const ID: usize = 16;
pub const MOST_KEYS: usize = 64;
