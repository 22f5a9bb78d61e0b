//! A writer of rows that answers late and in any order, from other threads.

use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::mpsc::{channel, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use interlock_hub::server::Server;
use interlock_hub::tables::writes::{Answers, RowWrites, Waiting, Write};
use interlock_table::{Location, Options, Schema, Table};

/// A table in a file that goes with it.
pub struct Place(PathBuf);

impl Place {
    pub fn new() -> Place {
        let name = format!("interlock-written-{}-{}", std::process::id(), fastrand::u64(..));
        Place(std::env::temp_dir().join(name))
    }

    pub fn open(&self) -> Table {
        let options = Options { capacity: 10_000, ..Options::default() };
        let schema = Schema::parse("a: I64, f: F64").unwrap();
        Table::open(&Location::Path(self.0.clone()), &schema, &options).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub struct Client {
    pub stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    pub fn new(server: &Server) -> Self {
        let stream = TcpStream::connect(&server.addresses()[0]).unwrap();
        // A test that waits for nothing fails instead of hanging.
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        let reader = BufReader::with_capacity(4096, stream.try_clone().unwrap());
        Client { stream, reader }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub fn lines(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.line()).collect()
    }

    /// Leaves without a farewell.
    pub fn reset(self) {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        // SAFETY: a valid option of its size.
        unsafe {
            let size = size_of::<libc::linger>() as u32;
            let option = (&raw const linger).cast();
            let fd = self.stream.as_raw_fd();
            assert_eq!(libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, option, size), 0);
        }
    }

    /// One reply, as it came.
    fn reply(&mut self) -> Vec<u8> {
        let mut whole = Vec::new();
        let mut missing = 1;
        while missing > 0 {
            missing -= 1;
            let from = whole.len();
            assert!(self.reader.read_until(b'\n', &mut whole).unwrap() > 0, "the hub has closed");
            let head = std::str::from_utf8(&whole[from..]).unwrap().trim_end();
            let count = || head[1..].parse::<i64>().unwrap();
            match head.as_bytes()[0] {
                b'$' if count() >= 0 => {
                    let (from, length) = (whole.len(), count() as usize + 2);
                    whole.resize(from + length, 0);
                    self.reader.read_exact(&mut whole[from..]).unwrap();
                }
                b'*' | b'~' | b'>' => missing += count().max(0),
                b'%' => missing += count() * 2,
                _ => {}
            }
        }
        whole
    }
}

/// Holds answers back while it is closed.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<Held>, Condvar)>);

#[derive(Default)]
struct Held {
    closed: bool,
    /// Writes taken since it was closed.
    count: usize,
}

impl Gate {
    pub fn close(&self) {
        *self.0 .0.lock().unwrap() = Held { closed: true, count: 0 };
    }

    #[allow(dead_code, reason = "each test program has what all of them need")]
    pub fn open(&self) {
        self.0 .0.lock().unwrap().closed = false;
        self.0 .1.notify_all();
    }

    pub fn count(&self) -> usize {
        self.0 .0.lock().unwrap().count
    }

    pub fn wait_for(&self, count: usize) {
        let held = self.0 .0.lock().unwrap();
        drop(self.0 .1.wait_while(held, |held| held.count < count).unwrap());
    }

    fn taken(&self, count: usize) {
        self.0 .0.lock().unwrap().count += count;
        self.0 .1.notify_all();
    }

    fn pass(&self) {
        let held = self.0 .0.lock().unwrap();
        drop(self.0 .1.wait_while(held, |held| held.closed).unwrap());
    }
}

type Replies = Vec<(Waiting, Vec<u8>)>;

pub struct Slow {
    given: Sender<Vec<Write>>,
    gate: Gate,
}

impl RowWrites for Slow {
    fn write(&self, writes: Vec<Write>) {
        self.gate.taken(writes.len());
        self.given.send(writes).unwrap();
    }
}

impl Slow {
    /// Has a hub do the calls, which answers at once.
    pub fn start(behind: &Server, gate: Gate, seed: u64) -> Arc<Slow> {
        let (given, calls) = channel();
        let random = Rng::with_seed(seed);
        let mut speaks: [Client; 2] = [Client::new(behind), Client::new(behind)];
        speaks[1].send(b"CLIENT REPLY SKIP\r\nHELLO 3\r\n");
        let answerers: Vec<_> = (0..3).map(|number| answerer(&gate, seed + number)).collect();
        thread::spawn(move || write(&calls, &mut speaks, &answerers, random));
        Arc::new(Slow { given, gate })
    }
}

/// Does calls in their order, and hands their replies on in any.
fn write(
    calls: &Receiver<Vec<Write>>,
    speaks: &mut [Client; 2],
    answerers: &[Sender<Replies>],
    mut random: Rng,
) {
    let mut held = Replies::new();
    loop {
        let batch = match calls.try_recv() {
            Ok(batch) => batch,
            Err(TryRecvError::Empty) if held.is_empty() => match calls.recv() {
                Ok(batch) => batch,
                Err(_) => return,
            },
            Err(TryRecvError::Disconnected) if held.is_empty() => return,
            Err(_) => Vec::new(),
        };
        for Write { waiting, arguments, .. } in batch {
            if arguments.iter().nth(1).is_some_and(|row| row == b"kept:dropped") {
                continue;
            }
            let client = &mut speaks[usize::from(waiting.resp3())];
            let mut call = format!("*{}\r\n", arguments.len()).into_bytes();
            for argument in arguments.iter() {
                call.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
                call.extend_from_slice(argument);
                call.extend_from_slice(b"\r\n");
            }
            client.send(&call);
            let reply = client.reply();
            held.push((waiting, reply));
        }
        random.shuffle(&mut held);
        let some = held.split_off(random.usize(0..=held.len()));
        random.choice(answerers).unwrap().send(some).unwrap();
    }
}

fn answerer(gate: &Gate, seed: u64) -> Sender<Replies> {
    let (give, given) = channel::<Replies>();
    let (gate, mut random) = (gate.clone(), Rng::with_seed(seed));
    thread::spawn(move || {
        for some in given {
            let mut answers = Answers::default();
            for (waiting, reply) in some {
                gate.pass();
                match random.u8(0..10) {
                    0 => waiting.answer(reply),
                    1 => {
                        answers.send();
                        answers.add(waiting, reply);
                    }
                    _ => answers.add(waiting, reply),
                }
            }
        }
    });
    give
}

#[allow(dead_code, reason = "each test program has what all of them need")]
pub fn allow_files(count: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a valid place for the limits.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = limit.rlim_max.min(limit.rlim_cur.max(count));
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
}
