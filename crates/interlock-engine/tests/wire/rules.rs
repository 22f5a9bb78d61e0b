//! A journal keeps its meaning when the rules change: it is replayed by those it was written with
//! (clause 20).

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use interlock_core::queue::types::rules::{Rules, RULES};
use interlock_engine::durable::{Durable, OpenError, Repair, Report};
use interlock_engine::{Durability, Engine, EngineSettings, Function, Outcome, Recorded};
use interlock_journal::storage::simulated::Simulated;
use interlock_journal::storage::Fill;
use interlock_journal::JournalSettings;

use crate::replaying::{look, random_call};
use crate::{strings, KEY, START};

/// The versions that a program knows once somebody has changed a rule: the backoff.
static CHANGED: [Rules; 2] = [
    Rules { version: 1, backoff: |_, _, attempt| 1_000 * u64::from(attempt) },
    Rules { version: 2, backoff: |_, _, attempt| 9_000 * u64::from(attempt) },
];

type Started = (Arc<Durable<Simulated>>, Engine, Report);

fn start(disk: &Simulated, rules: &'static [Rules], repair: Repair) -> Result<Started, OpenError> {
    let durable = Arc::new(Durable::new());
    let journal: Option<Arc<dyn interlock_engine::Journal>> = Some(durable.clone());
    let durability = Durability::Always;
    let settings = EngineSettings { durability, journal, rules, ..EngineSettings::default() };
    let engine = Engine::new(settings);
    let (segment, longest) = (8_192, 1 << 20);
    let settings =
        JournalSettings { segment, fill: Fill::Written, longest, ..JournalSettings::default() };
    let report = durable.open(&engine, disk.clone(), settings, repair)?;
    Ok((durable, engine, report))
}

fn ask(engine: &Engine, text: &str, now: u64) -> Vec<String> {
    let mut words = text.split(' ').map(|word| if word == "-" { "" } else { word });
    let function = format!("il1_{}", words.next().unwrap());
    let function = Function::named(function.as_bytes()).expect("a function");
    let (args, mut out, mut served) = (words.collect::<Vec<_>>(), Vec::new(), Vec::new());
    let outcome = engine.call(function, Some(KEY), &args[..], now, None, &mut out, &mut served);
    assert_eq!(outcome, Outcome::Done, "{text}");
    strings(&out).expect("no error")
}

/// Leases the one message, which fails. Returns how long it backs off, µs.
fn backoff_of_a_failure(engine: &Engine, durable: &Durable<Simulated>, now: u64) -> u64 {
    let grant = ask(engine, "lease me 0 0 1 500 any", now);
    ask(engine, &format!("settle me 0 NACK {} {} - e", grant[0], grant[4]), now);
    durable.commit().unwrap();
    due(engine) - now
}

/// Due time of the one message that backs off.
fn due(engine: &Engine) -> u64 {
    let scanned = ask(engine, "scan 0 10", START);
    let state = scanned.iter().position(|one| one == "backing_off").expect("one backs off");
    let due = scanned[state..].iter().find(|one| one.len() == 16).expect("it is due");
    due.parse().unwrap()
}

#[test]
fn a_journal_of_old_rules_keeps_its_meaning_after_the_rules_change() {
    let disk = Simulated::new(1);
    let (durable, engine, _) = start(&disk, &CHANGED[..1], Repair::Refuse).unwrap();
    ask(&engine, "put - 0 0 p 0 0 0", START);
    assert_eq!(backoff_of_a_failure(&engine, &durable, START), 1_000);
    drop((durable, engine));

    let disk = disk.restart();
    let (durable, engine, report) = start(&disk, &CHANGED, Repair::Refuse).unwrap();
    assert!(report.replayed > 0 && report.snapshot.is_none(), "{report}");
    assert_eq!(due(&engine), START + 1_000, "as it was when its client was answered");
    // What it does itself it does by the new rules, and they are in its own journal.
    assert_eq!(backoff_of_a_failure(&engine, &durable, START + 1_000), 18_000);
    let look_at = |engine: &Engine| look(engine, START + 50_000, &[0; 4]);
    drop((durable, engine));
    let again = disk.restart();
    let (durable, engine, report) = start(&again, &CHANGED, Repair::Refuse).unwrap();
    assert_eq!((due(&engine), report.segments), (START + 1_000 + 18_000, 2));
    // A state needs no rules: behind a snapshot the old segments are not asked for theirs.
    durable.snapshot(&engine).unwrap();
    let before = look_at(&engine);
    drop((durable, engine));
    let only_new: &'static [Rules] = &CHANGED[1..];
    let (_durable, engine, report) = start(&again.restart(), only_new, Repair::Refuse).unwrap();
    assert!(report.snapshot.is_some());
    assert_eq!(look_at(&engine), before);
}

#[test]
fn random_calls_recorded_under_old_rules_replay_to_the_same_state() {
    let seed = std::env::var("INTERLOCK_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("INTERLOCK_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..40 {
        let disk = Simulated::new(rng.u64(..));
        let (durable, engine, _) = start(&disk, RULES, Repair::Refuse).unwrap();
        let (now, calls) = random_calls(&engine, &durable, &mut rng);
        let version = Rules::current().version;
        let next = Rules { version: version + 1, backoff: |_, _, attempt| u64::from(attempt) };
        let changed: Vec<Rules> = RULES.iter().copied().chain([next]).collect();
        let (_durable, again, _) = start(&disk.restart(), changed.leak(), Repair::Refuse).unwrap();
        // What reads only: a call that is made now applies what is due by the new rules.
        let read = |engine: &Engine| sorted(look(engine, now, &calls))[..46].to_vec();
        assert_eq!(read(&again), read(&engine));
    }
}

#[test]
fn unknown_rules_are_refused_and_no_repair_sets_their_records_aside() {
    let disk = Simulated::new(1);
    let (durable, engine, _) = start(&disk, &CHANGED, Repair::Refuse).unwrap();
    ask(&engine, "put - 0 0 p 0 0 0", START);
    durable.commit().unwrap();
    drop((durable, engine));
    for repair in [Repair::Refuse, Repair::SetAside] {
        let disk = disk.restart();
        let names = disk.list();
        let Err(error) = start(&disk, &CHANGED[..1], repair) else { panic!("started") };
        assert_eq!(
            error.to_string(),
            "segment-00000000000000000001 was written by version 2 of the rules; allowed: 1; start \
             the version of Interlock that wrote it, or a later one"
        );
        assert_eq!(disk.list(), names, "nothing was changed");
    }
    assert!(start(&disk.restart(), &CHANGED, Repair::Refuse).is_ok());
}

/// A released version of the rules must not change. The folder `rules` keeps a journal of each, with
/// what a queue says after it; a change of a default or limit in `wire/` is a change of the rules too.
///
/// For a new version: `INTERLOCK_KEEP_RULES=1 cargo test -p interlock-engine --test wire rules`.
#[test]
fn the_kept_journal_of_each_rules_version_keeps_its_meaning() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/wire/rules");
    for rules in RULES {
        let file = folder.join(format!("{}.txt", rules.version));
        let write = !file.exists() && std::env::var_os("INTERLOCK_KEEP_RULES").is_some();
        if write && *rules == *Rules::current() {
            std::fs::create_dir_all(&folder).unwrap();
            let records = records_of_random_calls();
            let after = after(&records, rules);
            std::fs::write(&file, format!("{records}\n{after}")).unwrap();
        }
        let kept = std::fs::read_to_string(&file).unwrap_or_else(|error| {
            panic!("{}: {error}; set INTERLOCK_KEEP_RULES=1 to write it once", file.display())
        });
        let (records, wanted) = kept.split_once("\n\n").expect("records, an empty line, replies");
        let after = after(&format!("{records}\n"), rules);
        let lines = after.lines().zip(wanted.lines()).filter(|(now, then)| now != then);
        let differ: Vec<String> =
            lines.map(|(now, then)| format!("  it was  {then}\n  it is   {now}")).collect();
        assert!(
            differ.is_empty() && after.lines().count() == wanted.lines().count(),
            "version {} of the rules has changed: a journal that was written by it would mean \
             something else. Add a version instead (CONTRIBUTING, \"a rule of the scheduler\").\n{}",
            rules.version,
            differ.join("\n"),
        );
    }
}

/// The records of random calls, a line each: time, number, arguments.
fn records_of_random_calls() -> String {
    let disk = Simulated::new(1);
    let (durable, engine, _) = start(&disk, RULES, Repair::Refuse).unwrap();
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..4 {
        random_calls(&engine, &durable, &mut rng);
    }
    drop((durable, engine));
    struct Lines(String);
    impl interlock_journal::Replay for Lines {
        fn snapshot(&mut self, _: u32, _: &[u8]) -> Result<(), String> {
            Err("no snapshot was made".into())
        }
        fn call(&mut self, record: &interlock_journal::Record<'_>) -> Result<(), String> {
            if record.function > 0 {
                write!(self.0, "{} {}", record.time, record.function).unwrap();
                record.arguments().for_each(|one| self.0 += &format!(" {}", one.escape_ascii()));
                self.0.push('\n');
            }
            Ok(())
        }
    }
    let mut lines = Lines(String::new());
    let settings = JournalSettings { segment: 8_192, ..JournalSettings::default() };
    interlock_journal::open(disk.restart(), settings, Repair::Refuse, &mut lines).unwrap();
    lines.0
}

/// Replays records, and returns what the queue then replies: all that can be read, and the messages it
/// leases for two seconds, whose leases all expire.
fn after(records: &str, rules: &'static Rules) -> String {
    let engine = Engine::new(EngineSettings::default());
    let mut now = START;
    for line in records.lines() {
        let mut words = line.split(' ');
        now = words.next().unwrap().parse().unwrap();
        let number = words.next().unwrap().parse().unwrap();
        let args: Vec<&str> = words.collect();
        let recorded = Recorded::of_number(number).expect("a record");
        engine.replay(b"q", recorded, &args[..], now, rules).expect("it was done then");
    }
    let mut said = String::new();
    // Without the figures, of the queue and of limits: a further one changes no rule.
    for reply in sorted(look(&engine, now, &[0; 4])).into_iter().skip(2) {
        writeln!(said, "{}", reply.map_or_else(|error| error, |all| all.join(" "))).unwrap();
    }
    for _ in 0..40 {
        now += 50_000;
        let granted = ask(&engine, "lease me 0 0 1000 10 any", now);
        writeln!(said, "{}", granted.join(" ")).unwrap();
    }
    said
}

fn sorted(mut replies: Vec<Result<Vec<String>, String>>) -> Vec<Result<Vec<String>, String>> {
    // A scan goes through messages and lanes as they lie, in no order.
    for scanned in replies[3..5].iter_mut().flatten() {
        scanned.sort();
    }
    replies
}

fn random_calls(
    engine: &Engine,
    durable: &Durable<Simulated>,
    rng: &mut fastrand::Rng,
) -> (u64, [u64; 4]) {
    let (mut now, mut calls) = (START, [0u64; 4]);
    let mut leased: Vec<(String, String)> = vec![("5".into(), "6".into())];
    for _ in 0..100 {
        now += if rng.bool() { 0 } else { rng.u64(..30) };
        let (function, args) = random_call(rng, &mut calls, &leased);
        let (mut out, mut served) = (Vec::new(), Vec::new());
        engine.call(function, Some(KEY), &args[..], now, None, &mut out, &mut served);
        durable.commit().unwrap();
        let Ok(all) = (if out.is_empty() { Ok(Vec::new()) } else { strings(&out) }) else {
            continue;
        };
        let numbers: Vec<String> = all.into_iter().filter(|one| one.len() == 16).collect();
        for token in numbers.iter().take(6) {
            leased.extend(numbers.iter().take(6).map(|id| (token.clone(), id.clone())));
        }
        let from = leased.len().saturating_sub(40);
        leased.drain(..from);
    }
    (now, calls)
}
