//! Tables whose rows another writes, with real sockets: a client gets the same replies as from a
//! hub that does the same calls itself, one after the other, however late and in which order they
//! are answered.
//!
//! The seed is printed; `INTERLOCK_SEED` repeats a run. No sleep: each wait is for a byte or the end of a thread.

mod threadless;
mod writer;

use std::io::Read;
use std::net::Shutdown;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use interlock_hub::catalog::all;
use interlock_hub::server::Server;
use interlock_hub::session::Step;
use interlock_hub::shared::mailbox::Mail;
use interlock_hub::shared::settings::{Live, Settings};
use interlock_hub::shared::Core;
use interlock_hub::tables::served::{ServedTable, Tables};
use interlock_hub::tables::writes::{RowWrites, Write};
use threadless::Hub;
use writer::{Client, Gate, Place, Slow};

/// A hub whose table `kept` a slow writer writes, by a hub that does it at once.
struct Serving {
    server: Server,
    gate: Gate,
    _behind: Server,
    _places: [Place; 2],
}

fn serve(tables: Vec<Arc<ServedTable>>, workers: usize) -> Server {
    let live = Live { tables: Tables::new(tables), ..Live::default() };
    Server::start(Settings { port: 0, workers, live, ..Settings::default() }).unwrap()
}

impl Serving {
    fn new(seed: u64, workers: usize) -> Serving {
        let places = [Place::new(), Place::new()];
        let [kept, free] = places.each_ref().map(Place::open);
        let behind = serve(vec![ServedTable::new("kept".into(), &kept)], 1);
        let gate = Gate::default();
        let slow = Slow::start(&behind, gate.clone(), seed);
        let tables = vec![
            ServedTable::written("kept".into(), &kept, slow, None),
            ServedTable::new("free".into(), &free),
        ];
        Serving { server: serve(tables, workers), gate, _behind: behind, _places: places }
    }
}

fn seed() -> u64 {
    let given = std::env::var("INTERLOCK_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    println!("INTERLOCK_SEED={seed}");
    seed
}

/// The requests of a client whose rows and topics are its own, and whether the last one breaks the protocol.
fn conversation(random: &mut Rng, client: usize) -> (String, bool) {
    let (mut said, mut resp3) = (String::new(), false);
    for number in 0..random.usize(1..400) {
        let key = format!("{client}.{}", random.u8(0..3));
        let value = random.i32(0..1000);
        let line = match random.u8(0..64) {
            0..12 => format!("HSET kept:{key} a {value}"),
            12..24 => format!("HINCRBY kept:{key} a 1"),
            24 => format!("HINCRBYFLOAT kept:{key} f 0.5"),
            25 => format!("DEL kept:{key} kept:{client}.9 kept:{client}.0"),
            26 => format!("TABLE PATCH kept:{key} a {value}"),
            27 => format!("TABLE POP kept:{key}"),
            28 => format!("HINCRBY kept:{key} a {value}x"),
            29 => format!("HSET kept:{key} none 1"),
            30 => format!("HSET kept:{key} a"),
            31 => format!("HSET none:{key} a 1"),
            32 => format!("HSETNX kept:{key} a {value}"),
            33 => format!("PEXPIRE kept:{key} 100000000"),
            34..40 => format!("HGET kept:{key} a"),
            40..42 => format!("HGETALL kept:{key}"),
            42 => format!("EXISTS kept:{key} kept:{client}.0"),
            43..45 => format!("HINCRBY free:{key} a {value}"),
            45 => format!("HGETALL free:{key}"),
            46..48 => format!("ECHO {number}"),
            48 => "EVAL 1 0".into(),
            49 => format!("nonsense {number}"),
            50..52 => "CLIENT REPLY SKIP".into(),
            52 => "CLIENT REPLY OFF".into(),
            53..55 => "CLIENT REPLY ON".into(),
            55 => {
                resp3 = !resp3;
                let greeting = if resp3 { "HELLO 3" } else { "HELLO 2" };
                // Its answer tells the number of the connection.
                format!("CLIENT REPLY SKIP\r\n{greeting}")
            }
            56 if resp3 => format!("SUBSCRIBE t{client}"),
            57 => format!("UNSUBSCRIBE t{client}"),
            58..60 => format!("PUBLISH t{client} {number}"),
            60 => "TABLE BARRIER kept".into(),
            61 => "TABLE BARRIER free".into(),
            62 => {
                // A key of any bytes, as an array.
                let key = format!("{client}\u{1}\r\n\u{e9}{}", random.u8(0..2));
                let row = format!("kept:{key}");
                let head = format!("*4\r\n$7\r\nHINCRBY\r\n${}\r\n{row}", row.len());
                said.push_str(&format!("{head}\r\n$1\r\na\r\n$1\r\n1\r\n"));
                continue;
            }
            _ => "PING".into(),
        };
        // In RESP2 a subscriber may call next to nothing.
        if line == "CLIENT REPLY SKIP\r\nHELLO 2" {
            said.push_str(&format!("UNSUBSCRIBE t{client}\r\n"));
        }
        said.push_str(&line);
        said.push_str("\r\n");
    }
    let breaks = random.u8(0..4) == 0;
    said.push_str(if breaks { "*1\r\n:4\r\n" } else { "QUIT\r\n" });
    (said, breaks)
}

/// Says it in pieces, and returns all that is answered up to the end of the connection.
fn talk(server: &Server, said: &str, random: &mut Rng) -> Vec<u8> {
    let mut client = Client::new(server);
    let mut reader = client.stream.try_clone().unwrap();
    let reads = thread::spawn(move || {
        let mut told = Vec::new();
        reader.read_to_end(&mut told).unwrap();
        told
    });
    let mut left = said.as_bytes();
    while !left.is_empty() {
        let most = 1 << random.u8(1..14);
        let piece = random.usize(1..=left.len().min(most));
        client.send(&left[..piece]);
        left = &left[piece..];
    }
    reads.join().unwrap()
}

#[test]
fn replies_equal_those_of_a_hub_that_runs_one_call_at_a_time() {
    let mut random = Rng::with_seed(seed());
    let serving = Serving::new(random.u64(..), 2);
    let places = [Place::new(), Place::new()];
    let [kept, free] = places.each_ref().map(Place::open);
    let tables = [("kept", &kept), ("free", &free)];
    let tables = tables.map(|(name, table)| ServedTable::new(name.into(), table)).into();
    let plain = serve(tables, 1);
    let mut broken = 0;
    for _ in 0..10 {
        let conversations: Vec<_> =
            (0..6).map(|client| conversation(&mut random, client)).collect();
        thread::scope(|scope| {
            scope.spawn(|| {
                // What holds writes up changes none of their replies.
                let mut other = Client::new(&serving.server);
                for _ in 0..30 {
                    other.send(b"CLIENT PAUSE 1 WRITE\r\n");
                    assert_eq!(other.line(), "+OK");
                }
            });
            let talks: Vec<_> = conversations
                .iter()
                .map(|(said, _)| {
                    let (server, mut random) = (&serving.server, random.fork());
                    scope.spawn(move || talk(server, said, &mut random))
                })
                .collect();
            for ((said, breaks), told) in conversations.iter().zip(talks) {
                let told = told.join().unwrap();
                let wanted = talk(&plain, said, &mut random);
                let (told, wanted) =
                    (String::from_utf8_lossy(&told), String::from_utf8_lossy(&wanted));
                assert!(told == wanted, "{said}\n--- told\n{told}\n--- wanted\n{wanted}");
                broken += usize::from(*breaks);
            }
        });
    }
    assert!(broken > 0, "some of them break the protocol");
}

#[test]
fn a_connection_with_too_many_waiting_writes_is_not_read_while_others_are() {
    let mut serving = Serving::new(1, 1);
    serving.gate.close();
    let (mut client, mut other) = (Client::new(&serving.server), Client::new(&serving.server));
    let write = b"HINCRBY kept:k a 1\r\n";
    client.send(&write.repeat(3000));
    client.send(b"PING\r\n");
    serving.gate.wait_for(1024);
    // Behind a ping it has seen what is there.
    for _ in 0..20 {
        other.send(b"PING\r\n");
        assert_eq!(other.line(), "+PONG");
    }
    assert_eq!(serving.gate.count(), 1024, "no more is taken");
    serving.gate.open();
    for number in 1..=3000 {
        assert_eq!(client.line(), format!(":{number}"));
    }
    assert_eq!(client.line(), "+PONG");
    other.send(b"HGET kept:k a\r\n");
    assert_eq!((other.line(), other.line()), ("$4".into(), "3000".into()));
    // One that is longer than the bound is taken alone.
    let long = "x".repeat(3 << 20);
    let head = "*4\r\n$4\r\nHSET\r\n$6\r\nkept:k\r\n$4\r\nnone\r\n";
    let write = format!("{head}${}\r\n{long}\r\n", long.len());
    client.send(format!("{write}HINCRBY kept:k a 1\r\n").as_bytes());
    let refused = client.line();
    assert!(refused.starts_with("-NOCOLUMN "), "{refused}");
    assert_eq!(client.line(), ":3001");
    assert_eq!(serving.server.stop(Duration::from_secs(30)), 0);
}

#[test]
fn pushed_messages_do_not_wait_for_replies_to_writes() {
    let serving = Serving::new(2, 2);
    let (mut client, mut other) = (Client::new(&serving.server), Client::new(&serving.server));
    client.send(b"CLIENT REPLY SKIP\r\nHELLO 3\r\nSUBSCRIBE t\r\n");
    assert_eq!(client.lines(6)[0], ">3");
    serving.gate.close();
    client.send(b"HSET kept:k a 7\r\nHSET kept:k a\r\nHGET kept:k a\r\n");
    serving.gate.wait_for(1);
    other.send(b"PUBLISH t x\r\n");
    assert_eq!(client.lines(7)[2], "message");
    assert_eq!(other.line(), ":1");
    serving.gate.open();
    assert_eq!(client.line(), ":1");
    assert!(client.line().starts_with("-ERR wrong number of arguments"));
    assert_eq!(client.lines(2), ["$1", "7"]);
}

#[test]
fn a_half_closed_client_gets_all_replies_and_a_closed_one_none() {
    let serving = Serving::new(3, 1);
    for round in 0..20 {
        let mut client = Client::new(&serving.server);
        client.send(&b"HINCRBY kept:k a 1\r\n".repeat(2500));
        client.stream.shutdown(Shutdown::Write).unwrap();
        let mut told = String::new();
        client.stream.read_to_string(&mut told).unwrap();
        let first = round * 2500 + 1;
        let wanted: String = (first..first + 2500).map(|number| format!(":{number}\r\n")).collect();
        assert_eq!(told, wanted);
    }
    for number in 0..100 {
        serving.gate.close();
        let mut leaves = Client::new(&serving.server);
        leaves.send(&b"HINCRBY kept:l a 1\r\n".repeat(50));
        serving.gate.wait_for(1);
        leaves.reset();
        // In the place of the one that left.
        let mut comes = Client::new(&serving.server);
        comes.send(format!("HSET kept:m a {number}\r\nHGET kept:m a\r\n").as_bytes());
        serving.gate.open();
        let text = number.to_string();
        let first = if number == 0 { ":1" } else { ":0" };
        assert_eq!(comes.lines(3), [first, &format!("${}", text.len()), &text]);
    }
}

#[test]
fn a_stopping_hub_answers_writes_and_reports_the_rest_as_unknown() {
    let mut serving = Serving::new(4, 2);
    let mut client = Client::new(&serving.server);
    client.send(b"HINCRBY kept:k a 1\r\nDEL kept:dropped\r\nHINCRBY kept:k a 1\r\n");
    assert_eq!(client.line(), ":1");
    assert!(client.line().starts_with("-UNANSWERED "), "nobody kept it");
    assert_eq!(client.line(), ":2");
    serving.gate.close();
    client.send(b"HINCRBY kept:k a 1\r\nHINCRBY kept:k a 1\r\nPING\r\n");
    serving.gate.wait_for(2);
    let gate = serving.gate.clone();
    let opens = thread::spawn(move || {
        assert_eq!(client.lines(3), [":3", ":4", "+PONG"]);
        assert_eq!(client.stream.read(&mut [0]).unwrap(), 0);
    });
    let stops = thread::spawn(move || (serving.server.stop(Duration::from_secs(30)), serving));
    gate.open();
    opens.join().unwrap();
    let (cut, _serving) = stops.join().unwrap();
    assert_eq!(cut, 0);

    let mut serving = Serving::new(5, 2);
    serving.gate.close();
    let mut client = Client::new(&serving.server);
    client.send(b"HINCRBY kept:k a 1\r\nHINCRBY kept:k a 1\r\nPING\r\n");
    serving.gate.wait_for(2);
    assert_eq!(serving.server.stop(Duration::ZERO), 1);
    assert!(client.line().starts_with("-UNANSWERED "));
    assert!(client.line().starts_with("-UNANSWERED "));
    assert_eq!(client.stream.read(&mut [0]).unwrap(), 0);
    serving.gate.open();
}

#[test]
fn a_thousand_concurrent_writers_each_get_their_own_reply() {
    writer::allow_files(4096);
    let serving = Serving::new(seed(), 2);
    let mut clients: Vec<Client> = (0..1000).map(|_| Client::new(&serving.server)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let line = format!("HINCRBY kept:{number} a {number}\r\n").repeat(10);
        client.send(format!("{line}HGET kept:{number} a\r\n").as_bytes());
    }
    for (number, client) in clients.iter_mut().enumerate() {
        for times in 1..=10 {
            assert_eq!(client.line(), format!(":{}", number * times));
        }
        assert_eq!(client.lines(2)[1], (number * 10).to_string());
    }
}

/// Keeps writes until they are taken.
#[derive(Default)]
struct Kept(Mutex<Vec<Write>>);

impl RowWrites for Kept {
    fn write(&self, writes: Vec<Write>) {
        self.0.lock().unwrap().extend(writes);
    }
}

#[test]
fn other_commands_wait_for_the_replies_of_earlier_writes() {
    let place = Place::new();
    let (table, kept) = (place.open(), Arc::new(Kept::default()));
    let tables = [
        ServedTable::written("kept".into(), &table, kept.clone(), None),
        ServedTable::written("other".into(), &table, Arc::new(Kept::default()), None),
    ];
    let live = Live { tables: Tables::new(tables), ..Live::default() };
    let mut hub = Hub::new(Settings { live, ..Settings::default() });
    let (mut follow, mut slot) = (0, 0);
    for command in all().flat_map(|command| [command].into_iter().chain(command.subcommands)) {
        for name in ["kept", "other"] {
            slot += 1;
            let mut client = hub.client(slot);
            let words = command.name.replace('|', " ");
            let left = command.arity.unsigned_abs() as usize;
            let left = left.saturating_sub(words.split(' ').count());
            let line = format!("{words}{}\r\n", format!(" {name}:1").repeat(left));
            let (step, _) = hub.feed(&mut client, b"HSET kept:k a 1\r\n");
            assert_eq!((step, &client.out[..]), (Step::Idle, &b""[..]));
            hub.local.writes.give();
            let (step, _) = hub.feed(&mut client, line.as_bytes());
            assert_eq!(client.out, b"", "{line}");
            hub.local.writes.give();
            let mut writes = std::mem::take(&mut *kept.0.lock().unwrap());
            let follows = step == Step::Idle;
            // For a call that names a table, `kept:1` does not exist: the refusal waits, nothing
            // else.
            let goes_there = command.has_flag("write") || command.name == "table|barrier";
            assert!(!follows || (goes_there && name == "kept"), "{line}");
            assert_eq!(writes.len(), 1 + usize::from(follows), "{line}");
            follow += usize::from(follows);
            writes.remove(0).waiting.answer(b":1\r\n".to_vec());
            for mail in hub.shared.mailboxes[0].take() {
                let Mail::Written(replies) = mail else { continue };
                let mut core =
                    Core { shared: &hub.shared, local: &mut hub.local, now: 0, clock: || 0 };
                for reply in replies {
                    client.session.written(reply.number, reply.reply, &mut core);
                }
            }
            assert!(client.session.catch_up(&mut client.out), "{line}");
            assert_eq!(client.out, b":1\r\n", "{line}");
            assert_eq!(client.session.state.line.is_some(), follows);
        }
    }
    assert!(follow >= 17, "{follow} commands write rows");
}
