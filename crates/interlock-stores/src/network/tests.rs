//! Tests of the client against scripted servers.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{spawn, JoinHandle};
use std::time::Duration;

use crate::message::Message;
use crate::network::wire::{self, Reply};
use crate::network::{Protocol, Settings, Undelivered, Upstream};

/// An answer of a server to a request.
enum Act {
    Say(&'static str),
    /// Nothing, now or ever: it stops reading too.
    Freeze,
    Cut,
}

/// A server of `connections` connections, each of which `script` begins.
fn server<F>(connections: usize, mut script: impl FnMut(usize) -> F + Send + 'static) -> Server
where
    F: FnMut(&[Vec<u8>]) -> Act + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let run = spawn(move || {
        let mut all = Vec::new();
        for number in 0..connections {
            let (socket, _) = listener.accept().unwrap();
            all.push(serve(socket, script(number)));
        }
        all
    });
    Server { address, run }
}

struct Server {
    address: String,
    run: JoinHandle<Vec<Vec<Vec<Vec<u8>>>>>,
}

/// Answers until the other side ends; returns the requests.
fn serve(mut socket: TcpStream, mut act: impl FnMut(&[Vec<u8>]) -> Act) -> Vec<Vec<Vec<u8>>> {
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (mut bytes, mut requests) = (Vec::new(), Vec::new());
    let mut buffer = [0; 4096];
    loop {
        let mut replies = Vec::new();
        let mut at = 0;
        while let Some((request, length)) = parse(&bytes[at..]) {
            at += length;
            let done = match &request[0][..] {
                b"CLIENT" => Act::Say("-NOPERM no names here\r\n"),
                _ => act(&request),
            };
            requests.push(request);
            match done {
                Act::Say(text) => replies.extend_from_slice(text.as_bytes()),
                Act::Cut => {
                    let _ = socket.write_all(&replies);
                    return requests;
                }
                Act::Freeze => {
                    let _ = socket.write_all(&replies);
                    // Until it is given up there.
                    let mut peeked = [0];
                    while socket.peek(&mut peeked).is_ok_and(|count| count > 0) {
                        let mut rest = Vec::new();
                        let _ = socket.read_to_end(&mut rest);
                    }
                    return requests;
                }
            }
        }
        bytes.drain(..at);
        if socket.write_all(&replies).is_err() {
            return requests;
        }
        match socket.read(&mut buffer) {
            Ok(0) | Err(_) => return requests,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
        }
    }
}

fn parse(bytes: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let mut at = 0;
    let line = |at: &mut usize| {
        let end = bytes.get(*at..)?.iter().position(|byte| *byte == b'\n')? + *at;
        let text = std::str::from_utf8(&bytes[*at + 1..end - 1]).unwrap();
        *at = end + 1;
        text.parse::<usize>().ok()
    };
    let count = line(&mut at)?;
    let mut request = Vec::new();
    for _ in 0..count {
        let length = line(&mut at)?;
        request.push(bytes.get(at..at + length)?.to_vec());
        at += length + 2;
    }
    (at <= bytes.len()).then_some((request, at))
}

fn messages(from: u64, to: u64) -> impl Iterator<Item = Message<'static>> {
    (from..to).map(|number| {
        let (topic, payload): (&[u8], &[u8]) = (b"a\0b\r\n", b"\r\n$5\r\n");
        Message { topic, payload, time: 1_000_000 + number, origin: 0xabc, number }
    })
}

fn upstream(address: &str, protocol: Protocol) -> Upstream {
    let settings = Settings::new(address, protocol, 7);
    Upstream::new(Settings { timeout: Duration::from_secs(20), ..settings })
}

fn numbers(requests: &[Vec<Vec<u8>>]) -> Vec<u64> {
    let relayed = requests.iter().filter(|one| one[0] == b"RELAY" && one[1] != b"OPEN");
    relayed.map(|one| std::str::from_utf8(&one[2]).unwrap().parse().unwrap()).collect()
}

#[test]
fn messages_arrive_unchanged_and_in_order() {
    let server = server(1, |_| |_: &[Vec<u8>]| Act::Say("+OK\r\n"));
    let mut upstream = upstream(&server.address, Protocol::Relay);
    assert!(!upstream.is_connected());
    upstream.deliver(messages(1, 5000)).unwrap();
    upstream.deliver(messages(5000, 5001)).unwrap();
    upstream.deliver(messages(0, 0)).unwrap();
    assert!(upstream.is_connected());
    let counters = upstream.counters();
    assert_eq!((counters.connects, counters.sent, counters.acknowledged), (1, 5000, 5000));
    drop(upstream);
    let requests = server.run.join().unwrap().remove(0);
    let sender = format!("{:032x}", 7);
    assert_eq!(requests[1], [b"RELAY".to_vec(), b"OPEN".to_vec(), sender.into_bytes()]);
    assert_eq!(numbers(&requests), (1..5001).collect::<Vec<_>>());
    let expected: [&[u8]; 6] = [
        b"RELAY",
        b"00000000000000000000000000000abc",
        b"1",
        b"1000001",
        b"a\0b\r\n",
        b"\r\n$5\r\n",
    ];
    assert_eq!(requests[2], expected);
}

#[test]
fn a_broken_delivery_reports_the_acknowledged_number_and_continues_there() {
    const ALL: u64 = 3000;
    let mut random = fastrand::Rng::with_seed(crate::tests::seed());
    let cuts: Vec<u64> = (0..20).map(|_| random.u64(1..400)).collect();
    let server = server(cuts.len() + 1, move |connection| {
        let mut left = cuts.get(connection).copied().unwrap_or(u64::MAX);
        move |_: &[Vec<u8>]| {
            left -= 1;
            if left == 0 {
                Act::Cut
            } else {
                Act::Say("+OK\r\n")
            }
        }
    });
    let mut upstream = upstream(&server.address, Protocol::Relay);
    let (mut next, mut breaks) = (0, 0);
    while next < ALL {
        // A few at a time, so that there are breaks between two as well.
        let end = (next + random.u64(1..500)).min(ALL);
        match upstream.deliver(messages(next, end)) {
            Ok(()) => next = end,
            Err(Undelivered { acknowledged, error }) => {
                assert!(next + acknowledged as u64 <= end, "{error}");
                next += acknowledged as u64;
                breaks += 1;
                assert!(breaks < 100, "{error}");
            }
        }
    }
    assert!(breaks > 0, "it was never cut");
    drop(upstream);
    // Whoever takes each number once, and none twice, has them all and in order.
    let mut taken = 0;
    // Connections that were not needed.
    let mut used = Vec::new();
    for _ in 0..=20 {
        if let Ok(socket) = TcpStream::connect(&server.address) {
            used.push(socket);
        }
    }
    drop(used);
    for requests in server.run.join().unwrap() {
        for number in numbers(&requests) {
            assert!(number <= taken, "there is a gap before {number}: {taken}");
            taken = taken.max(number + 1);
        }
    }
    assert_eq!(taken, ALL);
}

#[test]
fn a_refusal_gives_advice_and_ends_the_delivery_there() {
    for (protocol, said, advice) in [
        (Protocol::Relay, "-NOPERM no\r\n", "right to the command and to publish"),
        (Protocol::Relay, "-ERR unknown command 'RELAY', with args\r\n", "\"publish\" or \"xadd\""),
        (Protocol::Xadd, "-WRONGTYPE Operation\r\n", "key of another type"),
        (Protocol::Publish, "-READONLY You can't\r\n", "name its primary"),
        (Protocol::Publish, "-OOM command\r\n", "accepts nothing at the moment"),
    ] {
        let server = server(1, move |_| {
            let mut count = 0;
            move |request: &[Vec<u8>]| {
                count += u64::from(request.get(1).is_none_or(|word| word != b"OPEN"));
                if count == 4 {
                    Act::Say(said)
                } else {
                    Act::Say("+OK\r\n")
                }
            }
        });
        let mut upstream = upstream(&server.address, protocol);
        let undelivered = upstream.deliver(messages(1, 9)).unwrap_err();
        let text = undelivered.error.to_string();
        assert_eq!(undelivered.acknowledged, 3, "{text}");
        assert!(text.contains(advice) && text.contains(said[1..].trim()), "{text}");
        assert!(text.contains(&server.address), "{text}");
        drop(upstream);
        server.run.join().unwrap();
    }
}

#[test]
fn messages_after_a_refused_one_are_not_sent_to_redis_twice() {
    let server = server(2, |connection| {
        move |request: &[Vec<u8>]| {
            let number: u64 = std::str::from_utf8(&request[10]).unwrap().parse().unwrap();
            let refuses = connection == 0 && [3, 6].contains(&number);
            Act::Say(if refuses { "-OOM\r\n" } else { "$3\r\n1-1\r\n" })
        }
    });
    let mut upstream = upstream(&server.address, Protocol::Xadd);
    let undelivered = upstream.deliver(messages(1, 9)).unwrap_err();
    assert_eq!(undelivered.acknowledged, 2);
    upstream.deliver(messages(3, 12)).unwrap();
    assert_eq!(upstream.counters().acknowledged, 11);
    drop(upstream);
    let mut times: HashMap<Vec<u8>, usize> = HashMap::new();
    for request in server.run.join().unwrap().iter().flatten().filter(|one| one[0] == b"XADD") {
        *times.entry(request[10].clone()).or_default() += 1;
    }
    let twice: Vec<_> =
        times.iter().filter(|(_, times)| **times == 2).map(|(one, _)| one).collect();
    assert_eq!((times.len(), twice.len()), (11, 2), "{times:?}");
}

#[test]
fn an_upstream_that_makes_no_progress_is_given_up() {
    let server = server(1, |_| {
        let mut count = 0;
        move |_: &[Vec<u8>]| {
            count += 1;
            if count == 100 {
                Act::Freeze
            } else {
                Act::Say("+OK\r\n")
            }
        }
    });
    let settings = Settings::new(&server.address, Protocol::Relay, 7);
    let mut upstream = Upstream::new(Settings { timeout: Duration::from_millis(300), ..settings });
    let undelivered = upstream.deliver(messages(0, 200)).unwrap_err();
    assert_eq!(undelivered.error.kind(), std::io::ErrorKind::TimedOut);
    assert!(undelivered.acknowledged < 99 + 1, "{}", undelivered.acknowledged);
    assert!(undelivered.error.to_string().contains("nothing moved for 0.3 s"));
    assert!(!upstream.is_connected());
    server.run.join().unwrap();
}

#[test]
fn a_waiting_delivery_can_be_ended_by_another_thread() {
    let (tell, told) = std::sync::mpsc::channel();
    let server = server(1, move |_| {
        let tell = tell.clone();
        move |request: &[Vec<u8>]| match request[1] == b"OPEN" {
            true => Act::Say("+OK\r\n"),
            false => {
                let _ = tell.send(());
                Act::Freeze
            }
        }
    });
    let mut upstream = upstream(&server.address, Protocol::Relay);
    let stop = upstream.stop();
    let waits = spawn(move || upstream.deliver(messages(0, 10)).unwrap_err());
    told.recv_timeout(Duration::from_secs(20)).unwrap();
    stop.store(true, Relaxed);
    let undelivered = waits.join().unwrap();
    assert_eq!(undelivered.error.kind(), std::io::ErrorKind::Interrupted);
    server.run.join().unwrap();
}

#[test]
fn a_connection_closed_while_idle_is_reopened() {
    let server = server(2, |_| |_: &[Vec<u8>]| Act::Say("+OK\r\n"));
    let mut upstream = upstream(&server.address, Protocol::Relay);
    upstream.deliver(messages(0, 5)).unwrap();
    upstream.break_off();
    // The end is there before anything is sent.
    while upstream.is_connected() {
        std::thread::yield_now();
    }
    upstream.deliver(messages(5, 10)).unwrap();
    assert_eq!(upstream.counters().connects, 2);
    drop(upstream);
    let all = server.run.join().unwrap();
    assert_eq!(numbers(&all.concat()), (0..10).collect::<Vec<_>>());
}

#[test]
fn messages_in_flight_do_not_exceed_the_window() {
    let payload = vec![b'x'; 100_000];
    let server = server(1, |_| {
        let mut held = 0;
        move |request: &[Vec<u8>]| {
            if request[1] == b"OPEN" {
                return Act::Say("+OK\r\n");
            }
            held += 1;
            // Replies are sent only in groups: more than the window never arrive before one.
            Act::Say(match held {
                42 => {
                    held = 0;
                    HEAP
                }
                _ => "",
            })
        }
    });
    let mut upstream = upstream(&server.address, Protocol::Relay);
    let all = (0..420).map(|number| Message {
        topic: b"t",
        payload: &payload,
        time: 0,
        origin: 1,
        number,
    });
    upstream.deliver(all).unwrap();
    drop(upstream);
    assert_eq!(numbers(&server.run.join().unwrap().remove(0)).len(), 420);
}

#[test]
fn a_peer_that_is_not_an_upstream_is_recognised() {
    let server = server(1, |_| |_: &[Vec<u8>]| Act::Say("HTTP/1.1 400 Bad Request\r\n\r\n"));
    let mut upstream = upstream(&server.address, Protocol::Relay);
    let error = upstream.deliver(messages(0, 10)).unwrap_err().error;
    assert!(error.to_string().contains("does not speak the Redis protocol"), "{error}");
    server.run.join().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let free = listener.local_addr().unwrap().to_string();
    drop(listener);
    let error = self::upstream(&free, Protocol::Relay).deliver(messages(0, 1)).unwrap_err().error;
    assert!(error.to_string().contains("start the upstream"), "{error}");
}

#[test]
fn the_error_of_an_upstream_at_its_connection_limit_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let full = spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(b"-ERR max number of clients reached\r\n").unwrap();
    });
    let error = upstream(&address, Protocol::Relay).deliver(messages(0, 1)).unwrap_err().error;
    assert!(error.to_string().contains("max number of clients"), "{error}");
    full.join().unwrap();
}

#[test]
fn a_password_is_not_shown() {
    let mut settings = Settings::new("h:1", Protocol::Relay, 7);
    settings.password = Some("secret".into());
    assert!(!format!("{:?} {:?}", settings.clone(), Upstream::new(settings)).contains("secret"));
}

#[test]
fn replies_may_be_split_anywhere_and_garbage_is_refused() {
    let bytes = b"+OK\r\n:12\r\n:-1\r\n-ERR a\r\n$3\r\n1-1\r\n$0\r\n\r\n";
    let mut at = 0;
    let mut found = Vec::new();
    while at < bytes.len() {
        let mut end = at;
        loop {
            match wire::reply(&bytes[at..end]).unwrap() {
                Some((reply, length)) => {
                    assert_eq!(at + length, end, "not before it is whole");
                    found.push(reply);
                    at += length;
                    break;
                }
                None => end += 1,
            }
        }
    }
    let refused = Reply::Refused("ERR a".into());
    let done = Reply::Done;
    let expected = [&done, &done, &done, &refused, &done, &done];
    assert!(found.iter().eq(expected), "{found:?}");
    for garbage in
        ["HTTP/1.1\r\n", ":\r\n", ":x\r\n", "$-1\r\n", "$99999999\r\n", "+OK\n", "*1\r\n"]
    {
        assert!(wire::reply(garbage.as_bytes()).is_err(), "{garbage:?}");
    }
    assert!(wire::reply(&vec![b'+'; 1 << 17]).is_err());
}

const HEAP: &str = concat!(
    "+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n",
    "+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n",
    "+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n",
    "+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n",
    "+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n",
    "+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n",
);
