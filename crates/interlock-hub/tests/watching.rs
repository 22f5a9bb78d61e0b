//! The hub as it is seen from outside: beats of its workers, and sockets that it was handed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use interlock_hub::server::Server;
use interlock_hub::shared::mailbox::{Mail, Mailbox};
use interlock_hub::shared::settings::Settings;
use interlock_hub::shared::Shared;

fn start(inherited: Vec<i32>) -> Server {
    let settings = Settings { port: 0, workers: 2, inherited, ..Settings::default() };
    Server::start(settings).unwrap()
}

fn refusal(fd: i32) -> String {
    let settings = Settings { inherited: vec![fd], ..Settings::default() };
    Server::start(settings).err().unwrap().to_string()
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn new(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        // A test that waits for nothing fails instead of hanging.
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Client(BufReader::new(stream))
    }

    fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Its worker has taken all mail that came before this.
    fn ping(&mut self) {
        self.send("PING\r\n");
        assert_eq!(self.line(), "+PONG");
    }
}

#[test]
fn each_worker_answers_each_beat() {
    let server = start(Vec::new());
    // Dealt in turn: one on each worker.
    let mut clients = [0, 1].map(|_| Client::new(&server.addresses()[0]));
    for beats in 0..3 {
        assert_eq!(server.shared().beats.answered(), [beats, beats]);
        assert_eq!(server.shared().pulse(), [true, true]);
        clients.iter_mut().for_each(Client::ping);
    }
}

#[test]
fn a_hanging_worker_gets_no_further_beats_until_it_answers() {
    let server = start(Vec::new());
    let mut clients = [0, 1].map(|_| Client::new(&server.addresses()[0]));
    clients.iter_mut().for_each(Client::ping);
    let [hanging, other] = &mut clients;
    hanging.send("CLIENT ID\r\n");
    let id: u64 = hanging.line()[1..].parse().unwrap();
    let cards = server.shared().registry.all();
    let card = cards.iter().find(|card| card.id == id).unwrap();
    let worker = card.worker;
    {
        let _name = card.name.lock();
        // To answer this, its worker needs what is held here.
        let before = card.command.load(Relaxed);
        hanging.send("CLIENT GETNAME\r\n");
        while card.command.load(Relaxed) == before {
            thread::yield_now();
        }
        server.shared().pulse();
        for _ in 0..3 {
            other.ping();
            assert_eq!(server.shared().pulse(), [worker != 0, worker != 1]);
        }
    }
    assert_eq!(hanging.line(), "$-1");
    clients.iter_mut().for_each(Client::ping);
    assert_eq!(server.shared().pulse(), [true, true]);
}

#[test]
fn beats_do_not_pile_up_in_a_mailbox_that_nobody_empties() {
    let mailboxes = vec![Mailbox::new().unwrap(), Mailbox::new().unwrap()];
    let shared = Shared::new(Settings::default(), mailboxes, 0).unwrap();
    assert_eq!(shared.pulse(), [true, true]);
    shared.beats.answer(1);
    for _ in 0..10 {
        assert!(!shared.pulse()[0]);
    }
    assert!(matches!(shared.mailboxes[0].take().as_slice(), [Mail::Beat]));
    assert_eq!(shared.mailboxes[1].take().len(), 2);
}

#[test]
fn passed_sockets_are_served_and_still_belong_to_their_owner() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    let path = std::env::temp_dir().join(format!("interlock-handed-{}.sock", std::process::id()));
    let unix = UnixListener::bind(&path).unwrap();
    let name = format!("interlock-handed-{}", std::process::id());
    let named = SocketAddr::from_abstract_name(&name).unwrap();
    let nameless = UnixListener::bind_addr(&named).unwrap();
    let mut server = start(vec![tcp.as_raw_fd(), unix.as_raw_fd(), nameless.as_raw_fd()]);
    let told = [address.to_string(), format!("unix:{}", path.display()), format!("unix:@{name}")];
    assert_eq!(server.addresses(), told);
    let info = server.info();
    assert!(info.contains(&("tcp_port", address.port().to_string())), "{info:?}");
    Client::new(&told[0]).ping();
    for mut stream in
        [UnixStream::connect(&path).unwrap(), UnixStream::connect_addr(&named).unwrap()]
    {
        stream.write_all(b"QUIT\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert_eq!(reply, "+OK\r\n");
    }
    server.stop(Duration::from_secs(30));
    assert!(path.exists());
    // The next hub finds who came in between.
    let mut early = TcpStream::connect(address).unwrap();
    early.write_all(b"QUIT\r\n").unwrap();
    let next = start(vec![tcp.as_raw_fd()]);
    let mut reply = String::new();
    early.read_to_string(&mut reply).unwrap();
    assert_eq!(reply, "+OK\r\n");
    drop(next);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_descriptor_that_is_not_a_listening_stream_socket_is_refused() {
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    for fd in [udp.as_raw_fd(), connected.as_raw_fd()] {
        let told = format!("cannot listen on descriptor {fd}: it is not a listening stream socket");
        assert_eq!(refusal(fd), told);
    }
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(refusal(file.as_raw_fd()).ends_with("it is not a listening stream socket"));
    assert!(refusal(-1).contains("Bad file descriptor"));
    assert!(refusal(1 << 20).contains("Bad file descriptor"));
}
