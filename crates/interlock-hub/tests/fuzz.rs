//! Random, mutated and structured input to the parser and to sessions, cut at random points.
//!
//! The seed is printed. `INTERLOCK_SEED` repeats a run, `INTERLOCK_FUZZ_ROUNDS` lengthens it.

mod naive;
mod threadless;

use fastrand::Rng;
use interlock_hub::resp::parse::{Limits, Parsed, Parser};
use interlock_hub::session::Step;
use interlock_hub::shared::settings::Settings;
use threadless::{Client, Hub};

const LIMITS: Limits = Limits { bulk: 1000, strict: false };

#[test]
fn the_parser_reads_any_stream_as_a_naive_one_does_however_it_is_cut() {
    let (mut random, rounds) = setting(30_000);
    let (mut requests, mut refusals) = (0, 0);
    for _ in 0..rounds {
        let stream = stream(&mut random);
        let expected = naive::read(&stream, LIMITS.bulk);
        requests += expected.0.len();
        refusals += usize::from(expected.1.is_some());
        for cuts in [Vec::new(), cuts(&mut random, stream.len()), (1..stream.len()).collect()] {
            let found = read(&stream, &cuts);
            let shown = String::from_utf8_lossy(&stream);
            assert!(found == expected, "{shown:?} cut at {cuts:?}\n{found:?}\n{expected:?}");
        }
    }
    println!("{rounds} streams, {requests} requests, {refusals} refusals, each in three cuts");
    // Or the streams would be of one sort alone.
    assert!(requests > rounds && refusals > rounds / 20 && refusals < rounds);
}

#[test]
fn a_session_answers_any_stream_the_same_however_it_is_cut() {
    let (mut random, rounds) = setting(10_000);
    let mut synced = 0;
    for _ in 0..rounds {
        let stream = conversation(&mut random);
        let (whole, one) = talk(&stream, &[]);
        let pieces = cuts(&mut random, stream.len());
        let (cut, _) = talk(&stream, &pieces);
        let shown = String::from_utf8_lossy(&stream);
        let (whole, cut) = (String::from_utf8_lossy(&whole), String::from_utf8_lossy(&cut));
        assert!(cut == whole, "{shown:?} cut at {pieces:?}\n{cut:?}\n{whole:?}");
        synced += one;
    }
    println!("{rounds} conversations, {synced} deliveries within them");
    assert!(synced > rounds / 2);
}

fn setting(rounds: usize) -> (Rng, usize) {
    let from = |name| std::env::var(name).ok().and_then(|text: String| text.parse::<u64>().ok());
    let seed = from("INTERLOCK_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("INTERLOCK_SEED={seed}");
    let rounds = from("INTERLOCK_FUZZ_ROUNDS").map_or(rounds, |rounds| rounds as usize);
    (Rng::with_seed(seed), rounds)
}

fn read(stream: &[u8], cuts: &[usize]) -> naive::Outcome {
    let (mut parser, mut requests, mut start) = (Parser::default(), Vec::new(), 0);
    let mut room = Vec::new();
    for &end in cuts.iter().chain([&stream.len()]) {
        loop {
            parser.borrow(&mut room);
            match parser.parse(&stream[start..end], &LIMITS) {
                Err(refusal) => return (requests, Some(refusal)),
                Ok(Parsed::Incomplete) => break,
                Ok(Parsed::Request(used)) => {
                    let arguments = parser.arguments(&stream[start..end]);
                    requests.push(arguments.from(0).map(<[u8]>::to_vec).collect());
                    start += used;
                }
            }
        }
        parser.shrink(&mut room);
    }
    (requests, None)
}

fn cuts(random: &mut Rng, length: usize) -> Vec<usize> {
    let mut cuts: Vec<usize> = (0..random.usize(0..8)).map(|_| random.usize(0..=length)).collect();
    cuts.sort_unstable();
    cuts
}

/// Returns what the client is sent, and how often it had to wait for what was published.
fn talk(stream: &[u8], cuts: &[usize]) -> (Vec<u8>, usize) {
    let mut hub = Hub::new(Settings::default());
    // It has others reached by what is published; what they get is not looked at.
    let mut other = hub.client(1);
    hub.feed(&mut other, b"SUBSCRIBE a b\r\nPSUBSCRIBE a*\r\n");
    let (mut client, mut start, mut synced) = (hub.client(2), 0, 0);
    for &end in cuts.iter().chain([&stream.len()]) {
        let (step, deliveries) = feed(&mut hub, &mut client, &stream[start..end]);
        synced += deliveries;
        if step != Step::Idle {
            break;
        }
        start = end;
    }
    (client.out, synced)
}

fn feed(hub: &mut Hub, client: &mut Client, bytes: &[u8]) -> (Step, usize) {
    let (step, runs) = hub.feed(client, bytes);
    (step, runs + hub.deliver(client))
}

/// Requests as they are sent, and many that are not.
fn stream(random: &mut Rng) -> Vec<u8> {
    let mut stream = Vec::new();
    for _ in 0..random.usize(1..6) {
        match random.u8(0..12) {
            0..=6 => {
                let words = (0..random.usize(0..5)).map(|_| word(random)).collect::<Vec<_>>();
                array(&mut stream, &words);
            }
            7 | 8 => {
                let most = random.usize(0..5);
                for _ in 0..most {
                    stream.extend(pick(random, &INLINE));
                    stream.extend(word(random).iter().filter(|&&byte| byte != b'\n'));
                }
                stream.extend(pick(random, &[b"\r\n", b"\n", b"\n\r\n"]));
            }
            9 => stream.extend(pick(random, &HEADS)),
            10 => {
                let many = vec![b"x".to_vec(); random.usize(30..80)];
                array(&mut stream, &many);
            }
            _ => stream.extend((0..random.usize(0..20)).map(|_| random.u8(..))),
        }
    }
    mutate(random, &mut stream);
    stream
}

/// Commands that reach themselves and others, some of them longer than what a parser keeps.
fn conversation(random: &mut Rng) -> Vec<u8> {
    let mut stream = Vec::new();
    for _ in 0..random.usize(1..12) {
        let topic = pick(random, &[b"a", b"b", b"c", b"ab"]).to_vec();
        let verb = pick(random, &VERBS);
        let mut words = vec![verb.to_vec()];
        match verb {
            b"PUBLISH" | b"SPUBLISH" => words.extend([topic, word(random)]),
            b"HELLO" => words.push(pick(random, &[b"2", b"3"]).to_vec()),
            b"CLIENT" => {
                words.extend([b"REPLY".to_vec(), pick(random, &[b"ON", b"SKIP", b"OFF"]).to_vec()])
            }
            b"PING" => words.extend((random.bool()).then_some(topic)),
            b"RESET" => {}
            _ if random.u8(..8) == 0 => {
                words.extend((0..60).map(|number: u8| format!("long-name-{number}").into_bytes()))
            }
            _ => words.push(topic),
        }
        let plain = words.iter().flatten().all(|byte| byte.is_ascii_alphanumeric());
        if plain && random.bool() {
            stream.extend(words.join(&b' '));
            stream.extend(b"\r\n");
        } else {
            array(&mut stream, &words);
        }
    }
    if random.u8(..4) == 0 {
        mutate(random, &mut stream);
    }
    stream
}

fn mutate(random: &mut Rng, stream: &mut Vec<u8>) {
    for _ in 0..[0, 0, 1, 2, 5][random.usize(0..5)] {
        let at = random.usize(0..=stream.len());
        match random.u8(0..5) {
            0 if at < stream.len() => stream[at] = random.u8(..),
            1 if at < stream.len() => stream[at] ^= 1 << random.u8(0..8),
            2 if at < stream.len() => drop(stream.remove(at)),
            3 => stream.insert(
                at,
                *pick(random, &[b"\r", b"\n", b"$", b"*", b"1", b"\""])[..1].first().unwrap(),
            ),
            _ => stream.truncate(at.max(1)),
        }
    }
}

fn word(random: &mut Rng) -> Vec<u8> {
    let alphabet = b"ab\r\n$*01-\"'\\x\0 \xff";
    (0..random.usize(0..10)).map(|_| alphabet[random.usize(0..alphabet.len())]).collect()
}

fn array(stream: &mut Vec<u8>, words: &[Vec<u8>]) {
    stream.extend(format!("*{}\r\n", words.len()).bytes());
    for word in words {
        stream.extend(format!("${}\r\n", word.len()).bytes());
        stream.extend(word);
        stream.extend(b"\r\n");
    }
}

fn pick<'a>(random: &mut Rng, from: &[&'a [u8]]) -> &'a [u8] {
    from[random.usize(0..from.len())]
}

const INLINE: [&[u8]; 8] =
    [b" ", b"PING", b"\"a\\x41\\n\"", b"'b\\'c'", b"\t", b"\"", b"'", b"x\0y"];
const HEADS: [&[u8]; 12] = [
    b"*-1\r\n",
    b"*0\r\n",
    b"*2147483648\r\n",
    b"*2147483647\r\n",
    b"*1\r\n$-1\r\n",
    b"*1\r\n$1001\r\n",
    b"*1\r\n$1000\r\n",
    b"*01\r\n",
    b"*1\r\n$+1\r\n",
    b"*1\r\n:1\r\n",
    b"*1\r\n\r\n",
    b"*\r\n",
];
const VERBS: [&[u8]; 13] = [
    b"PUBLISH",
    b"PUBLISH",
    b"PUBLISH",
    b"SPUBLISH",
    b"SUBSCRIBE",
    b"PSUBSCRIBE",
    b"SSUBSCRIBE",
    b"UNSUBSCRIBE",
    b"PUNSUBSCRIBE",
    b"HELLO",
    b"CLIENT",
    b"PING",
    b"RESET",
];
