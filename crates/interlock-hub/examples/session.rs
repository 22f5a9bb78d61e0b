//! Measures the cost of a cycle to a worker beside its system calls: clients of keyed queues as
//! sessions that are fed bytes. Each acknowledges, leases and puts in one piece, as
//! `benchmarks/load` does. Prints ns a message; `session ROUNDS BATCH` runs one batch only, for a
//! profiler.

use std::sync::Arc;
use std::time::Instant;

use interlock_hub::access::registry::Card;
use interlock_hub::session::{Session, Step};
use interlock_hub::shared::mailbox::Mailbox;
use interlock_hub::shared::settings::Settings;
use interlock_hub::shared::{Core, Local, Shared};

const CLIENTS: usize = 8;
const KEYS: usize = 100_000;

struct Client {
    session: Session,
    out: Vec<u8>,
    calls: u64,
    /// The token and the ids of its last lease.
    held: Vec<Vec<u8>>,
}

fn main() {
    let given: Vec<usize> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    if let [rounds, batch] = given[..] {
        return println!("{:.0}", cycles(rounds, batch));
    }
    println!("batch  ns a message");
    for batch in [1, 16, 100] {
        let best = (0..7).map(|_| cycles(100_000 / batch, batch)).fold(f64::MAX, f64::min);
        println!("{batch:5}  {best:6.0}");
    }
}

fn cycles(rounds: usize, batch: usize) -> f64 {
    let mailboxes = vec![Mailbox::new().expect("an eventfd")];
    let shared = Shared::new(Settings::default(), mailboxes, 0).expect("no journal to open");
    let mut local = Local::new(0, shared.live());
    let mut clients: Vec<Client> = (0..CLIENTS as u64)
        .map(|slot| {
            let card = Arc::new(Card::new(slot, 0, slot, 0));
            let session = Session::new(card, slot as u32, &shared.live().users);
            Client { session, out: Vec::new(), calls: 0, held: Vec::new() }
        })
        .collect();
    let (payload, mut at, mut spent) = ("p".repeat(64), 0, 0);
    for round in 0..rounds {
        let client = &mut clients[round % CLIENTS];
        client.calls += 1;
        let request = request(client, round % CLIENTS, batch, &payload, &mut at);
        client.out.clear();
        let begun = Instant::now();
        let mut core = Core { shared: &shared, local: &mut local, now: 0, clock: || 0 };
        let step = answer(client, &request, &mut core);
        spent += begun.elapsed().as_nanos();
        assert!(step == Step::Idle && !client.out.contains(&b'-'), "an error, or more to do");
        client.held = held(&client.out, batch);
    }
    spent as f64 / (rounds * batch) as f64
}

/// A function of its own, by which profilers find it.
#[inline(never)]
fn answer(client: &mut Client, request: &[u8], core: &mut Core<'_>) -> Step {
    client.session.run(request, &mut 0, core, &mut client.out)
}

fn request(client: &Client, number: usize, batch: usize, payload: &str, at: &mut usize) -> Vec<u8> {
    let mut put = words(&format!("FCALL il1_put 1 il:{{q}} producer-{number} {} 0", client.calls));
    for _ in 0..batch {
        put.extend(words(&format!("{payload} 2 0 0")));
        for _ in 0..2 {
            put.push(format!("key:{:06}", *at % KEYS).into_bytes());
            *at += 7919;
        }
    }
    let call = client.calls;
    let head = format!("FCALL il1_next 1 il:{{q}} consumer-{number} {call} 0 {batch} 30000000 any");
    let mut next = words(&head);
    for id in client.held.iter().skip(1) {
        next.extend([b"ACK".to_vec(), client.held[0].clone(), id.clone()]);
    }
    [encoded(&put), encoded(&next)].concat()
}

fn words(text: &str) -> Vec<Vec<u8>> {
    text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn encoded(words: &[Vec<u8>]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend(format!("${}\r\n", word.len()).into_bytes());
        out.extend(word);
        out.extend(b"\r\n");
    }
    out
}

/// The token and the ids in the replies to a put and a lease of `batch` messages with two keys.
fn held(replies: &[u8], batch: usize) -> Vec<Vec<u8>> {
    let lines: Vec<&[u8]> = replies.split(|&byte| byte == b'\n').collect();
    // Nothing in it has line ends but the lines of the protocol: each string is a length and itself.
    let text = |line: &[u8]| line[..line.len() - 1].to_vec();
    let next = 1 + 4 * batch;
    let settled: usize = String::from_utf8(text(lines[next + 2])).unwrap().parse().unwrap();
    let token = next + 3 + 2 * settled + 1;
    let ids = (0..batch).map(|n| text(lines[token + 8 + 16 * n]));
    [text(lines[token])].into_iter().chain(ids).collect()
}
