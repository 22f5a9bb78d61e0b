//! The hub with real sockets and threads. No sleep: each wait is for a byte or the end of a thread.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use interlock_hub::server::Server;
use interlock_hub::shared::settings::{Live, OutputLimit, Settings};

fn start(settings: Settings) -> Server {
    Server::start(Settings { port: 0, ..settings }).unwrap()
}

fn with(workers: usize, live: Live) -> Settings {
    Settings { workers, live, ..Settings::default() }
}

struct Client {
    reader: BufReader<TcpStream>,
}

impl Client {
    fn new(server: &Server) -> Self {
        let stream = TcpStream::connect(&server.addresses()[0]).unwrap();
        // A test that waits for nothing fails instead of hanging.
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Client { reader: BufReader::new(stream) }
    }

    fn send(&mut self, text: &str) {
        self.reader.get_mut().write_all(text.as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn lines(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.line()).collect()
    }

    fn subscribe(&mut self, topics: &[&str]) {
        for topic in topics {
            self.send(&format!("SUBSCRIBE {topic}\r\n"));
            self.lines(6);
        }
    }

    /// Topic and text of a message.
    fn message(&mut self) -> (String, String) {
        let mut lines = self.lines(7);
        assert_eq!(lines[2], "message", "{lines:?}");
        let text = lines.pop().unwrap();
        (lines.swap_remove(4), text)
    }
}

fn counter(server: &Server, name: &str) -> u64 {
    let info = server.info();
    info.iter().find(|(known, _)| *known == name).unwrap().1.parse().unwrap()
}

#[test]
fn all_subscribers_of_all_workers_see_all_publishers_in_one_order() {
    const PUBLISHERS: usize = 4;
    const EACH: usize = 6000;
    let server = start(Settings { workers: 2, ..Settings::default() });
    // Dealt in turn: two subscribers on each worker.
    let mut subscribers: Vec<Client> = (0..4).map(|_| Client::new(&server)).collect();
    subscribers.iter_mut().for_each(|client| client.subscribe(&["even", "odd"]));
    let publish = |publisher: usize, mut client: Client| {
        for first in (0..EACH).step_by(4) {
            let request = |n: usize| {
                let topic = if n.is_multiple_of(2) { "even" } else { "odd" };
                format!("PUBLISH {topic} {publisher}:{n}\r\n")
            };
            client.send(&(first..first + 4).map(request).collect::<String>());
            for _ in 0..4 {
                assert_eq!(client.line(), ":4");
            }
        }
    };
    let seen: Vec<Vec<(String, String)>> = thread::scope(|scope| {
        for publisher in 0..PUBLISHERS {
            let client = Client::new(&server);
            scope.spawn(move || publish(publisher, client));
        }
        let read = |mut client: Client| {
            (0..PUBLISHERS * EACH).map(|_| client.message()).collect::<Vec<_>>()
        };
        let threads: Vec<_> =
            subscribers.into_iter().map(|client| scope.spawn(move || read(client))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for other in &seen[1..] {
        assert!(*other == seen[0], "two subscribers saw different orders");
    }
    let different: HashSet<_> = seen[0].iter().collect();
    assert_eq!(different.len(), PUBLISHERS * EACH);
    for publisher in 0..PUBLISHERS {
        let prefix = format!("{publisher}:");
        let own = seen[0].iter().filter_map(|(_, text)| text.strip_prefix(&prefix));
        let expected: Vec<String> = (0..EACH).map(|n| n.to_string()).collect();
        assert!(own.eq(expected.iter()), "publisher {publisher}");
    }
}

#[test]
fn a_subscriber_that_does_not_read_is_disconnected_and_others_lose_nothing() {
    let pubsub = OutputLimit { soft: 0, soft_seconds: 0, hard: 1 << 20 };
    let server = start(with(2, Live { pubsub, ..Live::default() }));
    let (mut paused, mut reading) = (Client::new(&server), Client::new(&server));
    paused.subscribe(&["t"]);
    reading.subscribe(&["t"]);
    let mut publisher = Client::new(&server);
    let message = "x".repeat(60_000);
    let mut sent = 0;
    while counter(&server, "client_output_buffer_limit_disconnections") == 0 {
        publisher.send(&format!("PUBLISH t {message}\r\n"));
        assert!([":1", ":2"].contains(&publisher.line().as_str()));
        assert_eq!(reading.message().1.len(), message.len());
        sent += 1;
        assert!(sent < 1000, "60 MB are owed");
    }
    publisher.send("PUBLISH t last\r\n");
    assert_eq!(publisher.line(), ":1");
    assert_eq!(reading.message().1, "last");
}

#[test]
fn a_subscriber_that_accepts_gaps_learns_how_many_messages_it_missed() {
    let pubsub = OutputLimit { soft: 1 << 20, soft_seconds: 60, hard: 4 << 20 };
    let server = start(with(1, Live { pubsub, ..Live::default() }));
    let mut slow = Client::new(&server);
    slow.send("CLIENT SLOW drop\r\n");
    assert_eq!(slow.line(), "+OK");
    slow.subscribe(&["t"]);
    let mut publisher = Client::new(&server);
    let message = "x".repeat(60_000);
    let mut sent = 0u64;
    while counter(&server, "messages_dropped") < 10 {
        publisher.send(&format!("PUBLISH t {message}\r\n"));
        assert_eq!(publisher.line(), ":1");
        sent += 1;
        assert!(sent < 1000, "60 MB are owed");
    }
    let (mut received, mut missed) = (0, 0);
    while received + missed < sent {
        let lines = slow.lines(5);
        match lines[2].as_str() {
            "message" => {
                slow.lines(2);
                received += 1;
            }
            "missed" => missed += slow.line()[1..].parse::<u64>().unwrap(),
            other => panic!("{other}"),
        }
    }
    assert_eq!((received + missed, missed), (sent, counter(&server, "messages_dropped")));
}

#[test]
fn stopping_answers_received_requests_and_sends_pending_output() {
    let mut server = start(Settings { workers: 2, ..Settings::default() });
    let mut subscribers: Vec<Client> = (0..3).map(|_| Client::new(&server)).collect();
    subscribers.iter_mut().for_each(|client| client.subscribe(&["t"]));
    let mut publisher = Client::new(&server);
    publisher.send("PING\r\n");
    publisher.line();
    let requests: String = (0..500).map(|n| format!("PUBLISH t {n}\r\n")).collect();
    publisher.send(&requests);
    assert_eq!(server.stop(Duration::from_secs(30)), 0);
    assert_eq!(publisher.lines(500), vec![":3"; 500]);
    for client in &mut subscribers {
        for n in 0..500 {
            assert_eq!(client.message().1, n.to_string());
        }
        assert_eq!(client.line(), "", "behind the last message comes the end");
    }
}

#[test]
fn connections_over_the_limit_are_refused_until_others_close() {
    let server = start(with(1, Live { maxclients: 2, ..Live::default() }));
    let (mut one, mut two) = (Client::new(&server), Client::new(&server));
    for client in [&mut one, &mut two] {
        client.send("PING\r\n");
        assert_eq!(client.line(), "+PONG");
    }
    assert_eq!(Client::new(&server).line(), "-ERR max number of clients reached");
    one.send("QUIT\r\n");
    assert_eq!(one.line(), "+OK");
    assert_eq!(one.line(), "");
    let mut three = Client::new(&server);
    three.send("PING\r\n");
    assert_eq!(three.line(), "+PONG");
    assert_eq!(counter(&server, "rejected_connections"), 1);
    let server = start(with(1, Live { max_per_address: 1, ..Live::default() }));
    let _one = Client::new(&server);
    let refusal = Client::new(&server).line();
    assert_eq!(refusal, "-ERR max number of clients reached for this address");
}

#[test]
fn a_large_message_arrives_whole_although_the_socket_takes_it_in_parts() {
    let server = start(Settings { workers: 2, ..Settings::default() });
    let (mut subscriber, mut publisher) = (Client::new(&server), Client::new(&server));
    subscriber.subscribe(&["t"]);
    let message: String = (0..3_000_000).map(|n| char::from(b'a' + (n % 26) as u8)).collect();
    let request = format!("*3\r\n$7\r\nPUBLISH\r\n$1\r\nt\r\n${}\r\n{message}\r\n", message.len());
    publisher.send(&request);
    assert_eq!(publisher.line(), ":1");
    assert!(subscriber.message().1 == message);
}

#[test]
fn a_refused_address_is_named_and_a_socket_file_left_over_is_replaced() {
    let server = start(Settings::default());
    let port = server.addresses()[0].rsplit_once(':').unwrap().1.parse().unwrap();
    let refused = Server::start(Settings { port, ..Settings::default() }).err().unwrap();
    assert!(refused.to_string().starts_with(&format!("cannot listen on 127.0.0.1:{port}: ")));
    let path = std::env::temp_dir().join(format!("interlock-hub-{}.sock", std::process::id()));
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let unix = path.to_str().unwrap().to_owned();
    let mut server = start(Settings { host: String::new(), unix, ..Settings::default() });
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.write_all(b"PING\r\nQUIT\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert_eq!(reply, "+PONG\r\n+OK\r\n");
    server.stop(Duration::from_secs(30));
    assert!(!path.exists());
}

#[test]
fn a_subscriber_that_accepts_gaps_misses_only_messages_beyond_its_limit() {
    let pubsub = OutputLimit { soft: 1000, soft_seconds: 60, hard: 0 };
    let server = start(with(1, Live { pubsub, ..Live::default() }));
    let (mut slow, mut publisher) = (Client::new(&server), Client::new(&server));
    slow.send("CLIENT SLOW drop\r\n");
    assert_eq!(slow.line(), "+OK");
    slow.subscribe(&["t"]);
    publisher.send(&format!("PUBLISH t {}\r\n", "x".repeat(2000)));
    assert_eq!(publisher.line(), ":1");
    // It is owed nothing, so nothing that it reads can make the hub tell it.
    assert_eq!(slow.lines(6), ["*3", "$6", "missed", "$0", "", ":1"]);
    publisher.send("PUBLISH t y\r\n");
    assert_eq!(publisher.line(), ":1");
    assert_eq!(slow.message().1, "y");
}

#[test]
fn a_subscriber_over_its_limit_in_several_topics_at_once_is_counted_once() {
    let pubsub = OutputLimit { soft: 0, soft_seconds: 0, hard: 100 };
    let server = start(with(1, Live { pubsub, ..Live::default() }));
    let (mut slow, mut publisher) = (Client::new(&server), Client::new(&server));
    slow.subscribe(&["a", "b", "c"]);
    let message = "x".repeat(200);
    publisher
        .send(&format!("PUBLISH a {message}\r\nPUBLISH b {message}\r\nPUBLISH c {message}\r\n"));
    assert_eq!(publisher.line(), ":1");
    publisher.lines(2);
    assert_eq!(counter(&server, "client_output_buffer_limit_disconnections"), 1);
}

#[test]
fn a_client_that_half_closed_still_gets_its_replies() {
    let server = start(Settings { workers: 1, ..Settings::default() });
    for _ in 0..50 {
        // Several at once, so that the worker finds more to read while it gathers what it sends.
        let connect = |_| TcpStream::connect(&server.addresses()[0]).unwrap();
        let mut clients: Vec<TcpStream> = (0..16).map(connect).collect();
        for client in &mut clients {
            client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            client.write_all(b"HELLO 3\r\nSUBSCRIBE t\r\nPUBLISH t x\r\nPING\r\n").unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
        }
        for mut client in clients {
            let mut answers = String::new();
            client.read_to_string(&mut answers).unwrap();
            assert!(answers.contains("\r\nt\r\n:1\r\n"), "{answers:?}");
            assert!(answers.contains("+PONG\r\n"), "{answers:?}");
        }
    }
}
