//! A stream of Redis with a group: XADD, XREADGROUP, XACK and XDEL. It knows no keys.

use std::collections::VecDeque;
use std::io;

use crate::connection::Connection;
use crate::queue::book::Book;
use crate::queue::side::{number, payload, word, words, Side, Take};
use crate::resp::{wrong, Reader};

pub struct Streams {
    clients: Vec<Client>,
}

#[derive(Default)]
struct Client {
    expected: VecDeque<Reply>,
    /// Number and id of what it read.
    held: Vec<(u64, Vec<u8>)>,
    settled: usize,
}

enum Reply {
    Add,
    /// Answer to XACK or XDEL of this number of messages.
    Ack(usize),
    Delete(usize),
    Read,
}

impl Streams {
    pub fn new(clients: usize) -> Self {
        Streams { clients: (0..clients).map(|_| Client::default()).collect() }
    }
}

impl Side for Streams {
    fn prepare(&mut self, connection: &mut Connection) -> io::Result<()> {
        self.clear(connection)?;
        let mut request = Vec::new();
        words(&mut request, 6);
        [b"XGROUP".as_slice(), b"CREATE", STREAM, GROUP, b"0", b"MKSTREAM"]
            .iter()
            .for_each(|text| word(&mut request, text));
        Reader::new(&connection.ask(&request)?).map(drop)
    }

    fn put(
        &mut self,
        client: usize,
        out: &mut Vec<u8>,
        count: usize,
        due: u64,
        book: &mut Book,
    ) -> usize {
        let one = &mut self.clients[client];
        for _ in 0..count {
            let message = book.put(client);
            words(out, 5);
            out.extend_from_slice(b"$4\r\nXADD\r\n");
            word(out, STREAM);
            out.extend_from_slice(b"$1\r\n*\r\n$1\r\nd\r\n");
            payload(out, book, message, due);
            one.expected.push_back(Reply::Add);
        }
        count
    }

    fn next(&mut self, client: usize, out: &mut Vec<u8>, take: Take, book: &mut Book) -> usize {
        let one = &mut self.clients[client];
        let held = one.held.len();
        if held > 0 {
            words(out, 3 + held);
            [b"XACK".as_slice(), STREAM, GROUP].iter().for_each(|text| word(out, text));
            one.held.iter().for_each(|(_, id)| word(out, id));
            words(out, 2 + held);
            [b"XDEL".as_slice(), STREAM].iter().for_each(|text| word(out, text));
            one.held.iter().for_each(|(_, id)| word(out, id));
            one.held.iter().for_each(|(message, _)| book.settle(*message));
            one.held.clear();
            one.expected.extend([Reply::Ack(held), Reply::Delete(held)]);
        }
        words(out, if take.wait > 0 { 11 } else { 9 });
        [b"XREADGROUP".as_slice(), b"GROUP", GROUP].iter().for_each(|text| word(out, text));
        number(out, client as u64);
        word(out, b"COUNT");
        number(out, take.count as u64);
        if take.wait > 0 {
            word(out, b"BLOCK");
            number(out, take.wait.div_ceil(1_000));
        }
        [b"STREAMS".as_slice(), STREAM, b">"].iter().for_each(|text| word(out, text));
        one.expected.push_back(Reply::Read);
        if held > 0 {
            3
        } else {
            1
        }
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
            Some(Reply::Add) => drop(reader.text()?),
            Some(Reply::Ack(sent)) => {
                one.settled = usize::try_from(reader.integer()?).map_err(|_| wrong(reply))?;
                book.confirm(one.settled as u64, sent as u64);
            }
            Some(Reply::Delete(sent)) => {
                if reader.integer()? != sent as i64 {
                    return Err(wrong(reply));
                }
            }
            Some(Reply::Read) => {
                if reader.array()? == 0 {
                    return Ok(());
                }
                reader.array()?;
                if reader.text()? != STREAM {
                    return Err(wrong(reply));
                }
                for _ in 0..reader.array()? {
                    reader.array()?;
                    let id = reader.text()?.to_vec();
                    if reader.array()? != 2 || reader.text()? != b"d" {
                        return Err(wrong(reply));
                    }
                    let (message, due) = book.read(reader.text()?)?;
                    book.came_keyless(message, client);
                    came(due);
                    one.held.push((message, id));
                }
            }
            None => return Err(wrong(reply)),
        }
        Ok(())
    }

    fn held(&self, client: usize) -> usize {
        self.clients[client].held.len()
    }

    fn clear(&mut self, connection: &mut Connection) -> io::Result<()> {
        let mut request = Vec::new();
        words(&mut request, 2);
        [b"DEL".as_slice(), STREAM].iter().for_each(|text| word(&mut request, text));
        Reader::new(&connection.ask(&request)?).map(drop)
    }
}

const STREAM: &[u8] = b"load";
const GROUP: &[u8] = b"all";
