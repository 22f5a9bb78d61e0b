//! Measures pipelines to a hub over sockets, in calls a second: `rows KIND CONNECTIONS PIPELINE SECONDS`.
//! KIND: `ping`, `own` (HSET to a table that the hub writes), or `given` (to one that a loop writes, which
//! answers all that it finds at once and does nothing else).

use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{channel, Sender};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use interlock_hub::server::Server;
use interlock_hub::shared::settings::{Live, Settings};
use interlock_hub::tables::served::{ServedTable, Tables};
use interlock_hub::tables::writes::{Answers, RowWrites, Write};
use interlock_table::{Location, Options, Schema, Table};

struct Loop(Sender<Vec<Write>>);

impl RowWrites for Loop {
    fn write(&self, writes: Vec<Write>) {
        // Whoever does not listen has ended.
        let _ = self.0.send(writes);
    }
}

fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |at: usize, usual| given.get(at).map_or(usual, |text| text.parse().expect("a number"));
    let kind = given.first().map_or("given", String::as_str);
    let (connections, pipeline, seconds) = (number(1, 16), number(2, 100), number(3, 3));
    let path = std::env::temp_dir().join(format!("interlock-rows-{}", std::process::id()));
    let (schema, options) = (
        Schema::parse("a: I64").expect("columns"),
        Options { capacity: 10_000, ..Options::default() },
    );
    let table = Table::open(&Location::Path(path.clone()), &schema, &options).expect("a table");
    let (give, calls) = channel::<Vec<Write>>();
    thread::spawn(move || {
        for first in &calls {
            let mut answers = Answers::default();
            for write in std::iter::once(first).chain(calls.try_iter()).flatten() {
                answers.add(write.waiting, b":0\r\n");
            }
        }
    });
    let served = match kind {
        "given" => ServedTable::written("given".into(), &table, Arc::new(Loop(give)), None),
        _ => ServedTable::new("own".into(), &table),
    };
    let live = Live { tables: Tables::new([served]), ..Live::default() };
    let server = Server::start(Settings { port: 0, workers: 1, live, ..Settings::default() });
    let server = server.expect("a server");
    let done = AtomicU64::new(0);
    let until = Instant::now() + Duration::from_secs(seconds as u64);
    thread::scope(|scope| {
        for client in 0..connections {
            let (address, done) = (server.addresses()[0].clone(), &done);
            let (request, reply) = match kind {
                "ping" => ("*1\r\n$4\r\nPING\r\n".to_owned(), 7),
                kind => (hset(kind, client), 4),
            };
            scope.spawn(move || {
                let mut stream = TcpStream::connect(address).expect("the hub");
                stream.set_nodelay(true).expect("a socket");
                // The row is there before it counts.
                stream.write_all(request.as_bytes()).expect("the hub");
                stream.read_exact(&mut vec![0; reply]).expect("a reply");
                let request = request.repeat(pipeline);
                let mut told = vec![0; reply * pipeline];
                while Instant::now() < until {
                    stream.write_all(request.as_bytes()).expect("the hub");
                    stream.read_exact(&mut told).expect("replies");
                    done.fetch_add(pipeline as u64, Relaxed);
                }
            });
        }
    });
    println!("{}", done.load(Relaxed) / seconds as u64);
    drop(std::fs::remove_file(&path));
}

fn hset(table: &str, client: usize) -> String {
    let row = format!("{table}:{client:03}");
    format!("*4\r\n$4\r\nHSET\r\n${}\r\n{row}\r\n$1\r\na\r\n$1\r\n5\r\n", row.len())
}
