//! The log on servers that the tests start.

mod server;

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use interlock_node::log::{mark, Event, Id, LogPort, Position};
use interlock_node::redis::{Log, Settings};
use interlock_node::trouble::Kind;
use server::{entries, opened, trouble, until, Server, PROGRAMS};

fn looked(log: &mut Log, positions: &[Position]) -> Vec<bool> {
    assert!(log.look(positions));
    until(log, |event| if let Event::Looked(there) = event { Some(there) } else { None })
}

fn appended(log: &mut Log) -> (u64, Id) {
    until(log, |event| match event {
        Event::Appended { number, id } => Some((number, id.unwrap())),
        Event::Refused { trouble, .. } => panic!("{trouble}"),
        _ => None,
    })
}

/// A log with these entries, read to its end.
fn filled(server: &Server, ids: &[&str]) -> Log {
    for id in ids {
        server.add(id, &format!("entry{id}"));
    }
    let mut log = opened(server.settings());
    assert_eq!(entries(&mut log, ids.len()).len(), ids.len());
    log
}

#[test]
fn entries_are_read_in_the_order_in_which_they_were_appended() {
    for program in PROGRAMS {
        let server = Server::start(program, &[]);
        let (mut writer, mut reader) = (opened(server.settings()), opened(server.settings()));
        until(&mut reader, |event| match event {
            Event::Read { entries, at_end, .. } => (entries.is_empty() && at_end).then_some(()),
            _ => None,
        });
        let bytes = |number: u64| [number.to_string().as_bytes(), b"\0\r\n$-1\r\n"].concat();
        assert_eq!(writer.begin(&bytes(1)), Some(1));
        let numbers: Vec<u64> = (2..=500).map(|n| writer.append(&bytes(n)).unwrap()).collect();
        assert_eq!(numbers, (2..=500).collect::<Vec<_>>());
        assert_eq!(writer.under_way().0, 500);
        let ids: Vec<(u64, Id)> = (0..500).map(|_| appended(&mut writer)).collect();
        assert_eq!(writer.under_way(), (0, 0));
        let found = entries(&mut reader, 500);
        for (n, ((number, id), entry)) in ids.into_iter().zip(&found).enumerate() {
            assert_eq!((number, id, bytes(n as u64 + 1)), (number, entry.id, entry.bytes.clone()));
        }
        // Another log continues from the middle.
        let middle = &found[249];
        let mut other = Log::new(server.settings());
        other.read_from(Some(Position { id: middle.id, mark: Some(mark(&middle.bytes)) }));
        assert_eq!(entries(&mut other, 250), found[250..]);
        // A new entry wakes a waiting read.
        writer.append(b"late").unwrap();
        appended(&mut writer);
        assert_eq!(entries(&mut other, 1)[0].bytes, b"late");
    }
}

#[test]
fn a_missing_log_is_created_only_by_its_first_entry() {
    let server = Server::start("redis-server", &[]);
    let mut log = opened(server.settings());
    log.append(b"x").unwrap();
    assert_eq!(trouble(&mut log).kind, Kind::Gone);
    log.begin(b"genesis").unwrap();
    log.append(b"x").unwrap();
    assert_eq!(entries(&mut log, 2)[0].bytes, b"genesis");
}

#[test]
fn long_entries_are_read_in_smaller_portions() {
    let server = Server::start("valkey-server", &[]);
    let mut log = opened(server.settings());
    log.begin(b"genesis").unwrap();
    for n in 0..30u8 {
        log.append(&vec![n; 1 << 20]).unwrap();
    }
    let found = entries(&mut log, 31);
    assert!(found[1..].iter().enumerate().all(|(n, one)| one.bytes == vec![n as u8; 1 << 20]));
}

#[test]
fn a_late_reply_proves_nothing_later_than_its_request() {
    let server = Server::start("redis-server", &[]);
    let (mut log, mut writer) = (filled(&server, &["5-1"]), opened(server.settings()));
    let read = |event| match event {
        Event::Read { entries, at_end, as_of } => Some((entries.len(), at_end, as_of)),
        _ => None,
    };
    let (count, at_end, mut first) = until(&mut log, read);
    assert_eq!((count, at_end), (0, true));
    let before = loop {
        // The read waits for more entries.
        log.drive(Instant::now());
        server.signal(libc::SIGSTOP);
        writer.append(b"x").unwrap();
        writer.drive(Instant::now());
        let before = Instant::now();
        server.signal(libc::SIGCONT);
        let (count, at_end, as_of) = until(&mut log, read);
        if count == 0 {
            // On a busy machine its wait had ended before the server stopped.
            let mut last = (0, false, as_of);
            while last.0 == 0 {
                last = until(&mut log, read);
            }
            first = last.2;
            continue;
        }
        assert_eq!((count, at_end), (1, true));
        assert!(first <= as_of && as_of <= before, "{first:?} {as_of:?} {before:?}");
        break before;
    };
    // A read that waited in vain reports the end of its wait.
    let (count, _, later) = until(&mut log, read);
    assert!(count == 0 && later >= before, "{later:?} {before:?}");
}

#[test]
fn reading_continues_after_an_engine_restart_without_loss() {
    for program in PROGRAMS {
        let mut server =
            Server::start(program, &["--appendonly", "yes", "--appendfsync", "always"]);
        let (mut log, mut reader) = (opened(server.settings()), opened(server.settings()));
        log.begin(b"genesis").unwrap();
        let (_, id) = appended(&mut log);
        entries(&mut reader, 1);
        server.signal(libc::SIGSTOP);
        let numbers: Vec<u64> = (0..3).map(|_| log.append(b"x").unwrap()).collect();
        log.drive(Instant::now());
        server.kill();
        until(&mut log, |event| match event {
            Event::Unknown { first, last, trouble } => {
                assert_eq!((first, last), (numbers[0], numbers[2]));
                assert_eq!(trouble.kind, Kind::Unreachable);
                Some(())
            }
            _ => None,
        });
        assert_eq!((log.append(b"y"), log.under_way()), (None, (0, 0)));
        server.run();
        until(&mut log, |event| (event == Event::Open).then_some(()));
        log.append(b"y").unwrap();
        let (_, after) = appended(&mut log);
        assert!(after > id);
        let found = entries(&mut reader, 1);
        assert_eq!(found.last().map(|entry| &entry.bytes[..]), Some(&b"y"[..]));
    }
}

#[test]
fn the_loss_of_the_engine_s_data_is_noticed() {
    let mut server = Server::start("redis-server", &[]);
    let mut log = filled(&server, &["5-1", "6-1"]);
    server.kill();
    server.run();
    let found = until(&mut log, |event| match event {
        Event::Trouble(trouble) if trouble.kind.is_of_history() => Some(trouble),
        _ => None,
    });
    assert_eq!(found.kind, Kind::Gone);
    // Reading resumes where the owner says.
    log.read_from(None);
    until(&mut log, |event| match event {
        Event::Read { entries, at_end, .. } => (entries.is_empty() && at_end).then_some(()),
        _ => None,
    });
    server.add("7-1", "new");
    assert_eq!(entries(&mut log, 1)[0].bytes, b"new");
}

#[test]
fn damage_to_a_log_during_reading_is_reported_by_its_kind() {
    let key = String::from_utf8_lossy(server::STREAM).into_owned();
    for program in PROGRAMS {
        let server = Server::start(program, &[]);
        for (steps, kind, text) in [
            // A replica that has lost its tail was promoted; its ids may be lower than those read
            // before.
            (
                vec![
                    "DEL KEY",
                    "XADD KEY 5-1 e entry5-1",
                    "XADD KEY 6-1 e entry6-1",
                    "XADD KEY 6-2 e other",
                ],
                Kind::Forked,
                "ends at 6-2",
            ),
            (
                vec!["DEL KEY", "XADD KEY 5-1 e entry5-1", "XADD KEY 6-1 e entry6-1"],
                Kind::Forked,
                "ends at 6-1",
            ),
            (
                vec![
                    "DEL KEY",
                    "XADD KEY 5-1 e entry5-1",
                    "XADD KEY 6-1 e entry6-1",
                    "XADD KEY 7-1 e other",
                ],
                Kind::Forked,
                "is another now",
            ),
            (vec!["XADD KEY 8-1 e x", "XDEL KEY 7-1"], Kind::Forked, "is missing now"),
            (vec!["XADD KEY 8-1 e x", "XTRIM KEY MINID 8-1"], Kind::Trimmed, "begins at 8-1"),
            (vec!["DEL KEY"], Kind::Gone, "is missing"),
            (vec!["FLUSHALL", "XADD KEY 9-1 e x"], Kind::Trimmed, "begins at 9-1"),
        ] {
            server.say("FLUSHALL");
            let mut log = filled(&server, &["5-1", "6-1", "7-1"]);
            // In one transaction, or the reader sees the states in between.
            let steps: Vec<String> = steps.iter().map(|one| one.replace("KEY", &key)).collect();
            server.say(&format!("MULTI\r\n{}\r\nEXEC", steps.join("\r\n")));
            let found = trouble(&mut log);
            assert_eq!(found.kind, kind, "{steps:?}: {found}");
            assert!(found.text.contains(text), "{steps:?}: {found}");
            // Nothing more is read before the owner says from where.
            assert_eq!(log.wait(Instant::now() + Duration::from_millis(20)), None);
        }
        server.say("FLUSHALL");
        let mut log = filled(&server, &["5-1"]);
        server.say(&format!("DEL {key}"));
        server.say(&format!("SET {key} x"));
        assert_eq!(trouble(&mut log).kind, Kind::WrongType);
    }
}

#[test]
fn an_id_that_is_not_above_what_was_read_is_a_lost_tail() {
    let server = Server::start("redis-server", &[]);
    let key = String::from_utf8_lossy(server::STREAM).into_owned();
    // Ahead of any clock, so that the engine counts on from it.
    let mut log = filled(&server, &["99999999999999-5"]);
    server.say(&format!("MULTI\r\nDEL {key}\r\nXADD {key} 99999999999999-2 e x\r\nEXEC"));
    log.append(b"y").unwrap();
    let (mut id, mut kind) = (None, None);
    while id.is_none() || kind.is_none() {
        until(&mut log, |event| match event {
            Event::Appended { id: found, .. } => {
                id = found;
                Some(())
            }
            Event::Trouble(trouble) => {
                kind = Some(trouble.kind);
                Some(())
            }
            _ => None,
        });
    }
    assert_eq!(id, Id::read(b"99999999999999-3"));
    assert_eq!(kind, Some(Kind::Forked));
}

#[test]
fn an_entry_in_flight_may_arrive_below_the_position_read_before_a_loss() {
    let server = Server::start("redis-server", &[]);
    let key = String::from_utf8_lossy(server::STREAM).into_owned();
    let mut log = filled(&server, &["99999999999999-5"]);
    server.say(&format!("MULTI\r\nDEL {key}\r\nXADD {key} 99999999999999-2 e x\r\nEXEC"));
    log.append(b"y").unwrap();
    // The owner has noticed, and reads the log from its beginning.
    log.read_from(None);
    let mut read = Vec::new();
    while read.len() < 2 {
        until(&mut log, |event| match event {
            Event::Trouble(trouble) => panic!("{trouble}"),
            Event::Read { entries, .. } => {
                read.extend(entries.into_iter().map(|entry| entry.bytes));
                Some(())
            }
            _ => None,
        });
    }
    assert_eq!(read, [b"x", b"y"]);
}

#[test]
fn a_log_that_does_not_begin_with_its_first_entry_was_trimmed() {
    let server = Server::start("redis-server", &[]);
    server.add("5-1", "genesis");
    server.add("6-1", "x");
    let settings = || {
        let mut settings = server.settings();
        settings.is_first = |bytes| bytes == b"genesis";
        settings
    };
    let mut log = opened(settings());
    assert_eq!(entries(&mut log, 2).len(), 2);
    let at = |ms, bytes: &[u8]| Position { id: Id { ms, number: 1 }, mark: Some(mark(bytes)) };
    assert_eq!(looked(&mut log, &[at(6, b"x")]), [true]);
    assert!(log.trim_before(&[at(6, b"x")]));
    until(&mut log, |event| (event == Event::Trimmed(Ok(1))).then_some(()));
    // A reader that has read the log continues.
    server.add("7-1", "y");
    assert_eq!(entries(&mut log, 1)[0].bytes, b"y");
    assert!(log.ask_ends());
    let (first, last) = until(&mut log, |event| match event {
        Event::Ends(ends) => ends,
        _ => None,
    });
    assert_eq!((first.id.ms, last.id.ms), (6, 7));
    let mut late = opened(settings());
    let found = trouble(&mut late);
    assert!(found.kind == Kind::Trimmed && found.text.contains("6-1"), "{found}");
}

#[test]
fn a_trim_based_on_lost_entries_removes_nothing() {
    for program in PROGRAMS {
        let server = Server::start(program, &[]);
        server.add("5-1", "a");
        server.add("6-1", "b");
        let mut log = opened(server.settings());
        let at = |ms, bytes: &[u8]| Position { id: Id { ms, number: 1 }, mark: Some(mark(bytes)) };
        let all = [at(4, b"?"), at(5, b"a"), at(6, b"a"), at(6, b"b")];
        assert_eq!(looked(&mut log, &all), [false, true, false, true]);
        assert!(!log.trim_before(&[at(6, b"a")]), "it is another");
        let cut = |log: &mut Log| {
            assert!(log.trim_before(&[at(5, b"a"), at(6, b"b")]));
            until(log, |event| if let Event::Trimmed(done) = event { done.ok() } else { None })
        };
        // The engine returns with fewer entries and continues with the same id.
        server.say("XDEL il:log:{test} 6-1");
        server.say("XSETID il:log:{test} 5-1");
        server.add("6-1", "c");
        assert_eq!(cut(&mut log), 0);
        server.say("DEL il:log:{test}");
        server.add("3-1", "d");
        assert_eq!(cut(&mut log), 0);
        assert!(server.say("XLEN il:log:{test}").contains('1'), "a log with lower ids is whole");
        server.say("DEL il:log:{test}");
        server.add("5-1", "a");
        server.add("6-1", "b");
        assert_eq!(cut(&mut log), 1);
    }
}

#[test]
fn each_command_that_the_user_may_not_run_is_named() {
    for program in PROGRAMS {
        let server = Server::start(program, &[]);
        server.add("5-1", "x");
        let as_user = |rules: &str| {
            server.say(&format!("ACL SETUSER node reset on >secret ~il:* +@all {rules}"));
            let mut settings = server.settings();
            (settings.user, settings.password) = (Some("node".into()), Some("secret".into()));
            let mut log = Log::new(settings);
            log.read_from(None);
            log
        };
        let mut log = as_user("");
        assert_eq!(entries(&mut log, 1).len(), 1);
        for command in ["info", "xread", "xrange", "xadd", "xtrim", "eval", "xrevrange"] {
            let mut log = as_user(&format!("-{command}"));
            let found = until(&mut log, |event| match event {
                Event::Trouble(trouble)
                | Event::Refused { trouble, .. }
                | Event::Trimmed(Err(trouble)) => Some(Some(trouble)),
                Event::Open => Some(None),
                _ => None,
            });
            let found = found.unwrap_or_else(|| {
                log.append(b"y");
                let first = Position { id: Id { ms: 5, number: 1 }, mark: Some(mark(b"x")) };
                log.look(&[first]);
                log.ask_ends();
                let told = |event| match event {
                    Event::Trouble(trouble)
                    | Event::Refused { trouble, .. }
                    | Event::Unknown { trouble, .. }
                    | Event::Trimmed(Err(trouble)) => Some(Some(trouble)),
                    Event::Looked(_) => Some(None),
                    _ => None,
                };
                until(&mut log, told).unwrap_or_else(|| {
                    log.trim_before(&[first]);
                    until(&mut log, told).expect("no look is under way")
                })
            });
            let rule = if matches!(command, "eval" | "xtrim") { "eval +xtrim" } else { command };
            let wanted = format!("allow it the command (rule +{rule})");
            assert!(
                found.kind == Kind::Denied && found.text.contains(&wanted),
                "{command}: {found}"
            );
        }
        let mut log = as_user("resetkeys ~other");
        let found = trouble(&mut log);
        assert!(found.kind == Kind::Denied && found.text.contains("~KEY"), "{found}");

        let mut settings = server.settings();
        settings.password = Some("wrong".into());
        settings.user = Some("node".into());
        let mut log = Log::new(settings.clone());
        assert_eq!(trouble(&mut log).kind, Kind::Login);
        settings.user = None;
        server.say("CONFIG SET requirepass other");
        assert_eq!(trouble(&mut Log::new(settings.clone())).kind, Kind::Login);
        settings.password = None;
        assert_eq!(trouble(&mut Log::new(settings)).kind, Kind::Login);
    }
}

#[test]
fn an_engine_that_evicts_or_is_full_or_follows_another_is_not_used() {
    for program in PROGRAMS {
        let server = Server::start(program, &[]);
        let mut log = filled(&server, &["5-1"]);
        server.say("CONFIG SET maxmemory 1000000");
        log.append(&vec![0; 1000]).unwrap();
        let found = trouble(&mut log);
        assert!(found.kind == Kind::OutOfMemory && found.text.contains("maxmemory"), "{found}");
        // Reading continues, and appending does too once there is room.
        server.say("CONFIG SET maxmemory 0");
        log.append(b"z").unwrap();
        assert_eq!(entries(&mut log, 1)[0].bytes, b"z");

        // While the log is read, the engine is checked once a second.
        server.say("CONFIG SET maxmemory-policy allkeys-lru");
        let found = trouble(&mut log);
        assert!(found.kind == Kind::Evicts && found.text.contains("noeviction"), "{found}");
        server.say("CONFIG SET maxmemory-policy noeviction");
        let mut log = opened(server.settings());
        entries(&mut log, 2);

        server.say("REPLICAOF 127.0.0.1 1");
        let found = trouble(&mut log);
        assert_eq!(found.kind, Kind::NotPrimary, "{found}");
        let mut other = Log::new(server.settings());
        let found = trouble(&mut other);
        assert!(found.kind == Kind::NotPrimary && found.text.contains("127.0.0.1"), "{found}");
        // After its promotion it is used.
        server.say("REPLICAOF NO ONE");
        until(&mut other, |event| (event == Event::Open).then_some(()));
    }
}

#[test]
fn the_next_address_is_tried_when_one_is_not_the_primary() {
    let (one, two) = (Server::start("redis-server", &[]), Server::start("redis-server", &[]));
    one.say("REPLICAOF 127.0.0.1 1");
    two.add("5-1", "x");
    let mut settings = one.settings();
    settings.addresses = vec![one.address(), "127.0.0.1:1".into(), two.address()];
    let mut log = opened(settings);
    assert_eq!(entries(&mut log, 1)[0].bytes, b"x");
}

#[test]
fn an_engine_that_does_not_answer_is_given_up() {
    let server = Server::start("redis-server", &[]);
    let mut settings = server.settings();
    settings.timeout = Duration::from_millis(100);
    let mut log = opened(settings);
    server.signal(libc::SIGSTOP);
    log.append(b"x").unwrap();
    let found = trouble(&mut log);
    server.signal(libc::SIGCONT);
    assert!(found.kind == Kind::Unreachable && found.text.contains("has not answered"), "{found}");
    until(&mut log, |event| (event == Event::Open).then_some(()));
}

/// A fake engine that sends arbitrary replies.
#[test]
fn garbage_in_the_log_is_reported_and_not_stored() {
    let folder = std::env::temp_dir().join(format!("interlock-node-fake-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let said = Arc::new(Mutex::new(Vec::new()));
    let answers = said.clone();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let Ok(mut socket) = socket else { return };
            // The client may already have closed the connection.
            let _ = socket.write_all(&answers.lock().unwrap());
            let _ = socket.read(&mut [0; 65536]);
        }
    });
    let good = b"$11\r\nrole:master\r\n$27\r\nmaxmemory_policy:noeviction\r\n";
    let pieces: [&[u8]; 14] = [
        b"*",
        b"$",
        b"+",
        b"-",
        b":",
        b"\r\n",
        b"1",
        b"3\r\n",
        b"-1\r\n",
        b"a\r\n",
        b"\0\xff",
        b"$3\r\n5-1\r\n",
        b"*1\r\n*2\r\n$13\r\nil:log:{test}\r\n",
        b"*2\r\n$1\r\ne\r\n$1\r\nx\r\n",
    ];
    let settings = Settings::new(&format!("unix:{}", path.display()), server::STREAM);
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..500 {
        let mut bytes = if round % 2 == 0 { good.to_vec() } else { Vec::new() };
        for _ in 0..1 + random.usize(..20) {
            bytes.extend_from_slice(pieces[random.usize(..pieces.len())]);
        }
        *said.lock().unwrap() = bytes.clone();
        let mut settings = settings.clone();
        settings.timeout = Duration::from_millis(5);
        let mut log = Log::new(settings);
        log.read_from(None);
        let end = Instant::now() + Duration::from_millis(10);
        while let Some(event) = log.wait(end) {
            if let Event::Trouble(trouble) = event {
                assert!(!trouble.text.is_empty());
                break;
            }
        }
    }
    // Replies that announce more than the limit are refused before they arrive.
    for bytes in [&b"*1000000000\r\n"[..], b"$99999999999\r\n", b"hello\r\n"] {
        *said.lock().unwrap() = bytes.to_vec();
        let mut log = Log::new(settings.clone());
        assert_eq!(trouble(&mut log).kind, Kind::NotUnderstood);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
