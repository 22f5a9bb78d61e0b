//! Compares a node's log with bare Redis commands in one run:
//! `cargo run --release -p interlock-node --example hop_and_rate -- HOST:PORT [ROUNDS]`, with a
//! dedicated Redis at that address.
//!
//! Another process (this program again) reads. *Hop*: time from an append until the reader has the
//! entry. *Rate*: entries whose body has this many commands; *under way*: entries not yet answered.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use interlock_node::log::{Event, LogPort};
use interlock_node::redis::{Log, Settings};

fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A bare connection that sends requests and counts the lines of replies.
struct Bare(TcpStream, Vec<u8>);

impl Bare {
    fn new(address: &str) -> Bare {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        Bare(socket, Vec::new())
    }

    /// Reads this many lines.
    fn lines(&mut self, count: usize) -> Vec<u8> {
        let (mut buffer, mut looked, mut seen) = ([0; 65536], 0, 0);
        loop {
            while let Some(end) = self.1[looked..].iter().position(|byte| *byte == b'\n') {
                looked += end + 1;
                seen += 1;
                if seen == count {
                    return self.1.drain(..looked).collect();
                }
            }
            looked = self.1.len();
            let count = self.0.read(&mut buffer).unwrap();
            assert!(count > 0, "the server has gone");
            self.1.extend_from_slice(&buffer[..count]);
        }
    }
}

fn xadd(out: &mut Vec<u8>, stream: &str, body: &[u8]) {
    let head =
        format!("*5\r\n$4\r\nXADD\r\n${}\r\n{stream}\r\n$1\r\n*\r\n$1\r\ne\r\n", stream.len());
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(format!("${}\r\n", body.len()).as_bytes());
    out.extend_from_slice(body);
    out.extend_from_slice(b"\r\n");
}

/// Reads `count` entries and reports when it received each.
fn reader(address: &str, stream: &str, count: usize, is_bare: bool) {
    let mut times = Vec::with_capacity(count);
    if is_bare {
        let mut bare = Bare::new(address);
        let mut last = "0-0".to_owned();
        println!("ready");
        while times.len() < count {
            let ask = format!(
                "*8\r\n$5\r\nXREAD\r\n$5\r\nCOUNT\r\n$4\r\n1000\r\n$5\r\nBLOCK\r\n$4\r\n5000\r\n\
                 $7\r\nSTREAMS\r\n${}\r\n{stream}\r\n${}\r\n{last}\r\n",
                stream.len(),
                last.len()
            );
            bare.0.write_all(ask.as_bytes()).unwrap();
            // The bodies contain no line ends: each entry has 8 lines, after 5 lines of header.
            let head = bare.lines(5);
            let text = String::from_utf8_lossy(&head).into_owned();
            let entries: usize = text.lines().nth(4).unwrap()[1..].parse().unwrap();
            let found = bare.lines(8 * entries);
            let text = String::from_utf8_lossy(&found);
            last = text.lines().nth(8 * (entries - 1) + 2).unwrap().to_owned();
            times.extend(std::iter::repeat_n(now(), entries));
        }
    } else {
        let mut log =
            Log::new(Settings { is_first: |_| true, ..Settings::new(address, stream.as_bytes()) });
        log.read_from(None);
        let mut is_ready = false;
        while times.len() < count {
            match log.wait(Instant::now() + Duration::from_secs(30)) {
                Some(Event::Read { entries, .. }) => {
                    if !is_ready {
                        println!("ready");
                        is_ready = true;
                    }
                    times.extend(std::iter::repeat_n(now(), entries.len()));
                }
                Some(Event::Trouble(trouble)) => panic!("{trouble}"),
                Some(_) => {}
                None => panic!("nothing comes"),
            }
        }
    }
    let text: Vec<String> = times.iter().map(u64::to_string).collect();
    println!("{}", text.join(" "));
}

struct Reads(std::process::Child);

impl Reads {
    fn start(address: &str, stream: &str, count: usize, is_bare: bool) -> Reads {
        let program = std::env::current_exe().unwrap();
        let kind = if is_bare { "bare" } else { "log" };
        let mut command = Command::new(program);
        command.args(["--read", address, stream, &count.to_string(), kind]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let told = child.stdout.as_mut().unwrap();
        let mut ready = [0; 6];
        told.read_exact(&mut ready).unwrap();
        Reads(child)
    }

    fn times(mut self) -> Vec<u64> {
        let mut text = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        self.0.wait().unwrap();
        text.split_whitespace().map(|one| one.parse().unwrap()).collect()
    }
}

/// Appends `count` entries, at most `most` of them under way; returns when each was sent.
fn append(
    address: &str,
    stream: &str,
    body: &[u8],
    count: usize,
    most: usize,
    is_bare: bool,
    pause: Duration,
) -> Vec<u64> {
    let mut sent = Vec::with_capacity(count);
    if is_bare {
        let mut bare = Bare::new(address);
        while sent.len() < count {
            let some = most.min(count - sent.len());
            let mut out = Vec::new();
            (0..some).for_each(|_| xadd(&mut out, stream, body));
            sent.extend(std::iter::repeat_n(now(), some));
            bare.0.write_all(&out).unwrap();
            // Each reply to XADD has two lines.
            bare.lines(2 * some);
            std::thread::sleep(pause);
        }
        return sent;
    }
    let mut log =
        Log::new(Settings { is_first: |_| true, ..Settings::new(address, stream.as_bytes()) });
    while log.wait(Instant::now() + Duration::from_secs(5)) != Some(Event::Open) {}
    let mut answered = 0;
    while answered < count {
        while sent.len() < count && log.under_way().0 < most {
            sent.push(now());
            log.begin(body).unwrap();
        }
        match log.wait(Instant::now() + Duration::from_secs(30)) {
            Some(Event::Appended { .. }) => answered += 1,
            other => panic!("{other:?}"),
        }
        std::thread::sleep(pause);
    }
    sent
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn run(
    address: &str,
    body: &[u8],
    count: usize,
    most: usize,
    is_bare: bool,
    pause: Duration,
) -> (Vec<u64>, Vec<u64>) {
    let stream = format!("il:log:{{hop-{}}}", now());
    let reads = Reads::start(address, &stream, count, is_bare);
    let sent = append(address, &stream, body, count, most, is_bare, pause);
    let times = reads.times();
    let mut bare = Bare::new(address);
    bare.0.write_all(format!("DEL {stream}\r\n").as_bytes()).unwrap();
    bare.lines(1);
    (sent, times)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, address, stream, count, kind] = &arguments[..] {
        if flag == "--read" {
            return reader(address, stream, count.parse().unwrap(), kind == "bare");
        }
    }
    let Some(address) = arguments.first() else {
        eprintln!("hop_and_rate HOST:PORT [ROUNDS]");
        std::process::exit(2);
    };
    let rounds: usize = arguments.get(1).map_or(5, |text| text.parse().unwrap());
    let hop = |is_bare| {
        let pause = Duration::from_micros(300);
        let (sent, times) = run(address, &[b'x'; 40], 1500, 1, is_bare, pause);
        let hops = sent.iter().zip(&times).map(|(sent, time)| (*time - *sent) as f64 / 1000.0);
        median(hops.collect())
    };
    let (bare, ours): (Vec<f64>, Vec<f64>) = (0..rounds).map(|_| (hop(true), hop(false))).unzip();
    let (bare, ours) = (median(bare), median(ours));
    println!("hop: bare {bare:.0} us, log {ours:.0} us: {:.2}", ours / bare);
    for (commands, count, most) in
        [(1, 20_000, 1), (1, 100_000, 100), (16, 50_000, 8), (100, 20_000, 8), (100, 20_000, 100)]
    {
        let body = vec![b'x'; 40 * commands];
        let rate = |is_bare| {
            let count = if most == 1 { count / 4 } else { count };
            let (sent, times) = run(address, &body, count, most, is_bare, Duration::ZERO);
            count as f64 * commands as f64 / ((times[times.len() - 1] - sent[0]) as f64 / 1e9)
        };
        let (bare, ours): (Vec<f64>, Vec<f64>) =
            (0..rounds).map(|_| (rate(true), rate(false))).unzip();
        let (bare, ours) = (median(bare), median(ours));
        println!(
            "{commands} commands an entry, {most} under way: bare {bare:.0}/s, log {ours:.0}/s: {:.2}",
            ours / bare
        );
    }
}
