//! TABLE CLIENT and TABLE TIME: what a writer of rows is given, and what it is not.

mod threadless;

use std::sync::{Arc, Mutex};

use interlock_hub::access::users::{Commands, Patterns, User, Users};
use interlock_hub::catalog::all;
use interlock_hub::session::Step;
use interlock_hub::shared::settings::{Live, Settings};
use interlock_hub::tables::served::{ServedTable, Tables};
use interlock_hub::tables::writes::{Numbered, RowWrites, Write};
use interlock_table::{Location, Options, Schema};
use threadless::{Client, Hub};

/// Keeps writes until they are taken.
#[derive(Default)]
struct Kept(Mutex<Vec<Write>>);

impl RowWrites for Kept {
    fn write(&self, writes: Vec<Write>) {
        self.0.lock().unwrap().extend(writes);
    }
}

struct Serving {
    hub: Hub,
    kept: Arc<Kept>,
    path: std::path::PathBuf,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Serving {
    fn new(users: Users) -> Serving {
        let name = format!("interlock-numbered-{}-{}", std::process::id(), fastrand::u64(..));
        let path = std::env::temp_dir().join(name);
        let schema = Schema::parse("a: I64").unwrap();
        let options = Options { capacity: 100, ..Options::default() };
        let table =
            interlock_table::Table::open(&Location::Path(path.clone()), &schema, &options).unwrap();
        let kept = Arc::new(Kept::default());
        let tables = [
            ServedTable::written("kept".into(), &table, kept.clone(), None),
            ServedTable::written("other".into(), &table, kept.clone(), None),
            ServedTable::new("free".into(), &table),
        ];
        let live = Live { tables: Tables::new(tables), users, ..Live::default() };
        Serving { hub: Hub::new(Settings { live, ..Settings::default() }), kept, path }
    }

    /// Returns the answers of now, and the writes that are given.
    fn say(&mut self, client: &mut Client, line: &str) -> (String, Vec<Write>) {
        let (step, _) = self.hub.feed(client, format!("{line}\r\n").as_bytes());
        assert_eq!(step, Step::Idle, "{line}");
        self.hub.local.writes.give();
        let said = String::from_utf8(std::mem::take(&mut client.out)).unwrap();
        (said, std::mem::take(&mut *self.kept.0.lock().unwrap()))
    }

    fn refused(&mut self, line: &str) -> String {
        let mut client = self.hub.client(1);
        let (said, given) = self.say(&mut client, line);
        assert!(given.is_empty(), "{line}");
        said
    }
}

fn words(write: &Write) -> String {
    let words = write.arguments.iter().map(|word| String::from_utf8_lossy(word));
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_writer_gets_a_numbered_command_with_its_client_and_the_following_ones() {
    let mut serving = Serving::new(Users::default());
    let mut client = serving.hub.client(1);
    let lines = "TABLE CLIENT app/1 7 1795000000000 HSET kept:k a 1\r\nHSET kept:k a 2\r\n\
                 table client app/1 8 1795000000000 table barrier kept\r\nTABLE TIME kept\r\n\
                 TABLE CLIENT app/1 9223372036854775807 0 DEL kept:k kept:l";
    let (said, given) = serving.say(&mut client, lines);
    assert_eq!(said, "");
    let named = |number, deadline| Some(Numbered { name: b"app/1".to_vec(), number, deadline });
    let found: Vec<_> = given.iter().map(|one| (one.client.clone(), words(one))).collect();
    let wanted = [
        (named(7, 1_795_000_000_000), "HSET kept:k a 1"),
        (None, "HSET kept:k a 2"),
        (named(8, 1_795_000_000_000), "table barrier kept"),
        (None, "TABLE TIME kept"),
        (named(i64::MAX as u64, 0), "DEL kept:k kept:l"),
    ];
    assert_eq!(found, wanted.map(|(client, words)| (client, words.to_owned())));
}

#[test]
fn only_commands_that_write_rows_can_be_numbered() {
    let mut serving = Serving::new(Users::default());
    let mut count = 0;
    for command in all().flat_map(|command| [command].into_iter().chain(command.subcommands)) {
        let words = command.name.replace('|', " ");
        let least = command.arity.unsigned_abs() as usize - words.split(' ').count();
        let first = if command.name.starts_with("table|m") || command.name == "table|barrier" {
            "kept"
        } else {
            "kept:k"
        };
        let rest: String =
            (0..least).map(|at| if at == 0 { format!(" {first}") } else { " 1".into() }).collect();
        let mut client = serving.hub.client(1);
        let line = format!("TABLE CLIENT c 1 2 {words}{rest}");
        let (said, given) = serving.say(&mut client, &line);
        let writes = command.has_flag("write") && command.name != "table|client";
        let is_of_rows = writes && said.is_empty();
        assert_eq!(
            given.len(),
            usize::from(is_of_rows || command.name == "table|barrier"),
            "{said}"
        );
        count += given.len();
    }
    let verbs = interlock_rows::Verb::ALL.len();
    assert_eq!(count, verbs + 1, "and TABLE BARRIER");
}

#[test]
fn a_malformed_numbered_command_is_refused_and_not_passed_on() {
    let mut serving = Serving::new(Users::default());
    let long = "x".repeat(129);
    for (line, wanted) in [
        ("TABLE CLIENT c 1 2 PERSIST", "-ERR wrong number of arguments for 'table|client'"),
        (
            "TABLE CLIENT c 0 2 DEL kept:k",
            "-ERR the number is out of range; allowed: 1 to 2^63 - 1",
        ),
        ("TABLE CLIENT c -1 2 DEL kept:k", "-ERR the number is out of range"),
        ("TABLE CLIENT c +1 2 DEL kept:k", "-ERR the number is out of range"),
        ("TABLE CLIENT c 9223372036854775808 2 DEL kept:k", "-ERR the number is out of range"),
        ("TABLE CLIENT c 1 x DEL kept:k", "-ERR the deadline is not a time in ms"),
        ("TABLE CLIENT \"\" 1 2 DEL kept:k", "-ERR the client's name is empty or too long"),
        (&format!("TABLE CLIENT {long} 1 2 DEL kept:k"), "-ERR the client's name is empty or"),
        ("TABLE CLIENT c 1 2 HSET kept:k a", "-ERR wrong number of arguments for 'hset'"),
        ("TABLE CLIENT c 1 2 HGET kept:k a", "-ERR 'hget' does not write rows"),
        ("TABLE CLIENT c 1 2 NONSENSE kept:k", "-ERR unknown command 'NONSENSE'"),
        ("TABLE CLIENT c 1 2 TABLE NONSENSE kept:k", "-ERR unknown subcommand"),
        (
            "TABLE CLIENT c 1 2 TABLE CLIENT d 1 2 DEL kept:k",
            "-ERR 'table|client' does not write rows",
        ),
        ("TABLE CLIENT c 1 2 DEL free:k", "-NOLOG "),
        ("TABLE CLIENT c 1 2 DEL none:k", "-NOLOG "),
        ("TABLE CLIENT c 1 2 DEL kept", "-NOLOG "),
        ("TABLE CLIENT c 1 2 TABLE BARRIER free", "-NOLOG "),
        ("TABLE CLIENT c 1 2 DEL kept:k other:k", "-CROSSTABLE "),
        ("TABLE TIME free", "-NOLOG "),
        ("TABLE TIME none", "-NOLOG "),
    ] {
        let said = serving.refused(line);
        assert!(said.starts_with(wanted), "{line}: {said}");
    }
}

#[test]
fn a_user_without_the_right_to_a_command_cannot_number_it() {
    let user = User {
        name: "default".into(),
        open: true,
        commands: Commands::these(["hset", "table|client"]).unwrap(),
        publish: Patterns::All,
        subscribe: Patterns::All,
        queues: Patterns::All,
        tables: Patterns::these([b"kept".to_vec()]),
        account: None,
        declared: Default::default(),
    };
    let mut serving = Serving::new(Users::new([user]));
    let mut client = serving.hub.client(1);
    assert_eq!(serving.say(&mut client, "TABLE CLIENT c 1 2 HSET kept:k a 1").1.len(), 1);
    for line in ["TABLE CLIENT c 1 2 DEL kept:k", "TABLE CLIENT c 1 2 HSET other:k a 1"] {
        let said = serving.refused(line);
        assert!(said.starts_with("-NOPERM "), "{line}: {said}");
    }
}

/// Any words behind TABLE CLIENT: they are refused, or the writer gets those that the command has.
#[test]
fn any_arguments_get_one_answer() {
    let seed = std::env::var("INTERLOCK_SEED").ok().and_then(|text| text.parse().ok());
    let mut random = fastrand::Rng::with_seed(seed.unwrap_or_else(|| fastrand::u64(..)));
    println!("INTERLOCK_SEED={}", random.get_seed());
    let mut serving = Serving::new(Users::default());
    let known = [
        "TABLE",
        "CLIENT",
        "c",
        "0",
        "1",
        "18446744073709551616",
        "HSET",
        "DEL",
        "TIME",
        "BARRIER",
        "kept",
        "kept:k",
        "other:k",
        "a",
        "",
        "\u{e9}\r\n",
        "client",
        "MSET",
        "SET",
        "ANY",
        "NEVER",
    ];
    let mut given = 0;
    for _ in 0..30_000 {
        let mut line = vec!["TABLE", "CLIENT"];
        if random.bool() {
            line.extend(["c", "1", "2"]);
        }
        let mut more = vec!["TABLE", "SET", "kept:k", "ANY", "NEVER", "a", "1"];
        more.truncate(random.usize(..9));
        if random.bool() {
            more = vec!["DEL", "kept:k", "kept:a"];
        }
        for _ in 0..random.usize(..3) {
            let at = random.usize(..=more.len());
            let word = known[random.usize(..known.len())];
            match more.get_mut(at) {
                Some(place) if random.bool() => *place = word,
                _ => more.insert(at, word),
            }
        }
        line.extend(more);
        let mut bytes = format!("*{}\r\n", line.len());
        line.iter().for_each(|word| bytes.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        let mut client = serving.hub.client(1);
        serving.hub.feed(&mut client, bytes.as_bytes());
        serving.hub.local.writes.give();
        let writes = std::mem::take(&mut *serving.kept.0.lock().unwrap());
        assert_eq!(client.out.is_empty(), writes.len() == 1, "{line:?}");
        for write in writes {
            assert!(line.len() == write.arguments.len() + 5 && write.client.is_some(), "{line:?}");
            given += 1;
        }
    }
    assert!(given > 100, "{given} are too few");
}
