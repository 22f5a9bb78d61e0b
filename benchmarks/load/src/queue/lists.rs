//! A list of Redis, and one for each client with what it has in hand: LPUSH, LMOVE or BLMOVE, and
//! LREM. It knows no keys.

use std::collections::VecDeque;
use std::io;

use crate::connection::Connection;
use crate::queue::book::Book;
use crate::queue::side::{payload, word, words, Side, Take};
use crate::resp::{wrong, Reader};

pub struct Lists {
    clients: Vec<Client>,
}

#[derive(Default)]
struct Client {
    /// Its list of what it has in hand.
    hand: Vec<u8>,
    expected: VecDeque<Reply>,
    /// Number and due time of what it took, which make up the payload again.
    held: Vec<(u64, u64)>,
}

enum Reply {
    Push,
    Remove,
    Move,
}

impl Lists {
    pub fn new(clients: usize) -> Self {
        let client = |number| Client { hand: hand(number), ..Client::default() };
        Lists { clients: (0..clients).map(client).collect() }
    }
}

impl Side for Lists {
    fn prepare(&mut self, connection: &mut Connection) -> io::Result<()> {
        self.clear(connection)
    }

    fn put(
        &mut self,
        client: usize,
        out: &mut Vec<u8>,
        count: usize,
        due: u64,
        book: &mut Book,
    ) -> usize {
        words(out, 2 + count);
        word(out, b"LPUSH");
        word(out, LIST);
        for _ in 0..count {
            let message = book.put(client);
            payload(out, book, message, due);
        }
        self.clients[client].expected.push_back(Reply::Push);
        1
    }

    fn next(&mut self, client: usize, out: &mut Vec<u8>, take: Take, book: &mut Book) -> usize {
        let one = &mut self.clients[client];
        let settled = one.held.len();
        for (message, due) in one.held.drain(..) {
            // The oldest is the last of the list: found at once when looked for from there.
            words(out, 4);
            out.extend_from_slice(b"$4\r\nLREM\r\n");
            word(out, &one.hand);
            out.extend_from_slice(b"$2\r\n-1\r\n");
            payload(out, book, message, due);
            book.settle(message);
            one.expected.push_back(Reply::Remove);
        }
        for _ in 0..take.count {
            if take.wait > 0 {
                words(out, 6);
                word(out, b"BLMOVE");
            } else {
                words(out, 5);
                word(out, b"LMOVE");
            }
            word(out, LIST);
            word(out, &one.hand);
            out.extend_from_slice(b"$5\r\nRIGHT\r\n$4\r\nLEFT\r\n");
            if take.wait > 0 {
                word(out, format!("{:.3}", take.wait as f64 / 1e6).as_bytes());
            }
            one.expected.push_back(Reply::Move);
        }
        settled + take.count
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
            Some(Reply::Push) => drop(reader.integer()?),
            Some(Reply::Remove) => {
                let removed = u64::try_from(reader.integer()?).map_err(|_| wrong(reply))?;
                book.confirm(removed, 1);
            }
            Some(Reply::Move) => {
                if let Some(text) = reader.maybe()? {
                    let (message, due) = book.read(text)?;
                    book.came_keyless(message, client);
                    came(due);
                    one.held.push((message, due));
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
        words(&mut request, 2 + self.clients.len());
        word(&mut request, b"DEL");
        word(&mut request, LIST);
        self.clients.iter().for_each(|one| word(&mut request, &one.hand));
        Reader::new(&connection.ask(&request)?).map(drop)
    }
}

fn hand(client: usize) -> Vec<u8> {
    format!("load:{client}").into_bytes()
}

const LIST: &[u8] = b"load";
