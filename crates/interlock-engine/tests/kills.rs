//! A process with durable queues is killed in the midst of its work: whatever it had said is so after a
//! restart, nothing is there twice, and keys keep their order. `INTERLOCK_KILLS` says how often; 20.
#![cfg(target_os = "linux")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use fastrand::Rng;
use interlock_engine::durable::{Durable, Repair};
use interlock_engine::values::reply;
use interlock_engine::{Durability, Engine, EngineSettings, Function, Outcome};
use interlock_journal::storage::{disk::Disk, Fill};

const FOLDER: &str = "INTERLOCK_ENGINE_FOLDER";
const KEY: &[u8] = b"il:{q}";
const THREADS: u64 = 3;
const KEYS: usize = 12;

fn start(folder: &Path) -> (Arc<Durable>, Engine) {
    let durable = Arc::new(Durable::new());
    let journal: Arc<dyn interlock_engine::Journal> = durable.clone();
    let durability = Durability::Always;
    let settings =
        EngineSettings { durability, journal: Some(journal), ..EngineSettings::default() };
    let engine = Engine::new(settings);
    let settings = interlock_journal::JournalSettings {
        segment: 64 << 10,
        fill: Fill::Written,
        ..interlock_journal::JournalSettings::default()
    };
    let disk = Disk::open(folder).unwrap();
    let report = durable.open(&engine, disk, settings, Repair::Refuse);
    report.unwrap_or_else(|error| panic!("{error}"));
    (durable, engine)
}

fn call(engine: &Engine, function: Function, args: &[&str], now: u64) -> Vec<String> {
    let (mut out, mut served) = (Vec::new(), Vec::new());
    let outcome = engine.call(function, Some(KEY), args, now, None, &mut out, &mut served);
    assert_eq!(outcome, Outcome::Done, "{args:?}");
    let strings = reply::parse(&out).expect("no error");
    strings.into_iter().map(|text| String::from_utf8(text.to_vec()).unwrap()).collect()
}

fn say(text: &str) {
    // One write: lines of two threads do not mix.
    std::io::stdout().write_all(text.as_bytes()).unwrap();
}

/// Not a test of its own: what the child does.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let (durable, engine) = start(Path::new(&folder));
    // A queue's time does not fall: after a restart it stands still for a while.
    let clock = AtomicU64::new(0);
    let now = || 1_000_000_000_000_000 + clock.fetch_add(1, Ordering::Relaxed);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (durable, engine, now) = (&durable, &engine, &now);
            scope.spawn(move || work(durable, engine, thread, now));
        }
        scope.spawn(|| loop {
            durable.journal().unwrap().tick().unwrap();
            durable.journal().unwrap().prepare().unwrap();
            durable.snapshot(&engine).unwrap();
        });
    });
}

fn work(durable: &Durable, engine: &Engine, thread: u64, now: &impl Fn() -> u64) {
    let mut rng = Rng::new();
    let mut held: Vec<(String, String)> = Vec::new();
    loop {
        let keys = [rng.usize(..KEYS), rng.usize(..KEYS)].map(|key| format!("k{key}"));
        let payload = format!("{thread}:{}", rng.u64(..));
        let args = ["", "0", "0", &payload, "2", "0", "0", &keys[0], &keys[1]];
        let id = call(engine, Function::Put, &args, now()).swap_remove(0);
        durable.commit().unwrap();
        say(&format!("put {id} {payload}\n"));

        let mut args =
            vec!["".to_owned(), "0".into(), "0".into(), "2".into(), "900000".into(), "any".into()];
        let settled: Vec<(String, String)> = std::mem::take(&mut held);
        let mut tries = String::new();
        for (token, id) in &settled {
            args.extend(["ACK".to_owned(), token.clone(), id.clone()]);
            tries += &format!("tries {id}\n");
        }
        say(&tries);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let answer = call(engine, Function::Next, &args, now());
        durable.commit().unwrap();
        let mut said = String::new();
        for ((_, id), answer) in settled.iter().zip(&answer[1..]) {
            if answer == "ACKED" {
                said += &format!("acked {id}\n");
            }
        }
        say(&said);
        let lease = &answer[1 + settled.len()..];
        // ID SEQUENCE ATTEMPT PAYLOAD 2 0 KEY KEY, or one key less where both were the same.
        let mut at = 4;
        while at < lease.len() {
            held.push((lease[0].clone(), lease[at].clone()));
            at += 6 + lease[at + 4].parse::<usize>().unwrap();
        }
    }
}

#[derive(Default)]
struct Said {
    put: BTreeMap<u64, String>,
    tried: BTreeSet<u64>,
    acked: BTreeSet<u64>,
}

impl Said {
    /// False: the line says something else.
    fn hear(&mut self, line: &str) -> bool {
        let words: Vec<&str> = line.split(' ').collect();
        let Some(Ok(id)) = words.get(1).map(|word| word.parse()) else { return false };
        match words[..] {
            ["put", _, payload] => drop(self.put.insert(id, payload.to_owned())),
            ["tries", _] => drop(self.tried.insert(id)),
            ["acked", _] => drop(self.acked.insert(id)),
            _ => return false,
        }
        true
    }
}

#[test]
fn a_killed_process_recovers_everything_it_acknowledged() {
    let kills =
        std::env::var("INTERLOCK_KILLS").map_or(20, |kills| kills.parse().expect("a number"));
    let mut rng = Rng::with_seed(7);
    let folder =
        std::env::temp_dir().join(format!("interlock-engine-kills-{}", std::process::id()));
    let mut said = Said::default();
    for kill in 0..kills {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .env(FOLDER, &folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut left = rng.u32(1..600);
        while left > 0 {
            let line = lines.next().expect("the child works until it is killed");
            left -= u32::from(said.hear(&line));
        }
        child.kill().unwrap();
        // Of what it said before it was killed the last line may be cut.
        let rest: Vec<String> = lines.collect();
        let whole = rest.len().saturating_sub(1);
        for line in &rest[..whole] {
            said.hear(line);
        }
        child.wait().unwrap();
        if let Some(line) = rest.last() {
            // It is half of a line, or a whole one: what it names is left open.
            said.tried.extend(line.split(' ').nth(1).and_then(|id| id.parse::<u64>().ok()));
        }
        let (durable, engine) = start(&folder);
        check(&engine, &said, kill);
        drop((engine, durable));
    }
    assert!(!said.acked.is_empty());
    std::fs::remove_dir_all(folder).unwrap();
}

fn check(engine: &Engine, said: &Said, kill: u32) {
    let mut found: BTreeMap<u64, (String, Vec<String>)> = BTreeMap::new();
    let mut cursor = "0".to_owned();
    loop {
        let page = call(engine, Function::Scan, &[&cursor, "1024"], 0);
        let mut at = 1;
        while at < page.len() {
            // ID SEQUENCE ATTEMPT PAYLOAD EXCLUSIVE SHARED OPTIONS KEYS STATE DUE ERROR
            let keys = page[at + 4].parse::<usize>().unwrap();
            let id = page[at].parse().unwrap();
            let of = page[at + 7..at + 7 + keys].to_vec();
            let before = found.insert(id, (page[at + 3].clone(), of));
            assert!(before.is_none(), "kill {kill}: {id} is there twice");
            at += 10 + keys;
        }
        cursor.clone_from(&page[0]);
        if cursor == "0" {
            break;
        }
    }
    for (id, payload) in said.put.iter().filter(|(id, _)| !said.tried.contains(id)) {
        let there = found.get(id).unwrap_or_else(|| panic!("kill {kill}: {id} is lost"));
        assert_eq!(&there.0, payload);
    }
    for id in &said.acked {
        assert!(
            !found.contains_key(id),
            "kill {kill}: {id} was acked, and exists after the restart"
        );
    }
    // In front of each key stands the first of those that are on it.
    for key in 0..KEYS {
        let key = format!("k{key}");
        let on: Vec<u64> =
            found.iter().filter(|(_, (_, keys))| keys.contains(&key)).map(|(id, _)| *id).collect();
        let told = call(engine, Function::Explain, &["key", &key, "1000"], 0);
        if let Some(first) = on.first() {
            assert_eq!(told[2], first.to_string(), "kill {kill}: {key} is out of order");
        } else {
            assert_eq!(told, [] as [String; 0], "kill {kill}");
        }
    }
}
