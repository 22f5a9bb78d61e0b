//! The keeper of a node's table, without sockets: what it is asked, what waits for it, and how long rows are
//! read.

mod threadless;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use interlock_hub::catalog::{all, Access, Command};
use interlock_hub::session::Step;
use interlock_hub::shared::events::Answer;
use interlock_hub::shared::mailbox::Mail;
use interlock_hub::shared::settings::{Live, Settings};
use interlock_hub::shared::Core;
use interlock_hub::tables::keeper::{Keeper, Limits};
use interlock_hub::tables::served::{ServedTable, Tables};
use interlock_hub::tables::writes::{RowWrites, Write};
use interlock_table::{Location, Options, Schema, Table};
use threadless::{Client, Hub};

/// A writer that answers nothing.
#[derive(Default)]
struct Silent(Mutex<Vec<Write>>);

impl RowWrites for Silent {
    fn write(&self, writes: Vec<Write>) {
        self.0.lock().unwrap().extend(writes);
    }
}

/// A hub with the tables `kept`, `too` of the same keeper, and `free`.
struct Serving {
    hub: Hub,
    keeper: Arc<Keeper>,
    written: Arc<Silent>,
    tables: [Table; 3],
    paths: [PathBuf; 3],
}

impl Serving {
    fn new() -> Serving {
        let keeper = Keeper::new(Limits::default()).unwrap();
        let paths = [0, 1, 2].map(|_| {
            let name = format!("interlock-kept-{}-{}", std::process::id(), fastrand::u64(..));
            std::env::temp_dir().join(name)
        });
        let tables = paths.each_ref().map(|path| {
            let (schema, options) =
                (Schema::parse("a: U32").unwrap(), Options { capacity: 100, ..Options::default() });
            Table::open(&Location::Path(path.clone()), &schema, &options).unwrap()
        });
        let silent = Arc::new(Silent::default());
        let written = |name: &str, table| {
            ServedTable::written(name.into(), table, silent.clone(), Some(keeper.clone()))
        };
        let served = [
            ServedTable::new("free".into(), &tables[0]),
            written("kept", &tables[1]),
            written("too", &tables[2]),
        ];
        let live = Live { tables: Tables::new(served), ..Live::default() };
        let hub = Hub::new(Settings { live, ..Settings::default() });
        Serving { hub, keeper, written: silent, tables, paths }
    }

    /// Says something; returns what is answered at once, and whether the rest waits.
    fn says(&mut self, client: &mut Client, line: &str) -> (String, bool) {
        let (step, _) = self.hub.feed(client, format!("{line}\r\n").as_bytes());
        let said = String::from_utf8(std::mem::take(&mut client.out)).unwrap();
        (said, step == Step::Wait)
    }

    /// Takes one call, whose arguments are returned, and answers it; returns what the client is sent.
    fn answers(&mut self, client: &mut Client, reply: &str) -> (String, String) {
        let taken = self.keeper.take(1).pop().expect("a call");
        let arguments = taken.arguments.arguments().from(0).map(String::from_utf8_lossy);
        let arguments = arguments.collect::<Vec<_>>().join(" ");
        self.keeper.answer([(taken.number, reply.as_bytes().to_vec())]);
        let mail = self.hub.shared.mailboxes[0].take();
        let [Mail::Replies(replies)] = &mail[..] else { panic!("replies") };
        for (token, reply) in replies {
            assert_eq!(*token, client.session.state.card.token);
            let mut core =
                Core { shared: &self.hub.shared, local: &mut self.hub.local, now: 0, clock: || 0 };
            client.session.answered(Answer::Reply(reply.clone()), &mut core, &mut client.out);
        }
        self.hub.feed(client, b"");
        (arguments, String::from_utf8(std::mem::take(&mut client.out)).unwrap())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.paths.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
}

/// The commands on rows, with as many arguments as each takes, of which the first is this.
fn calls(first: &str) -> Vec<(&'static Command, String)> {
    let known = all().flat_map(|command| [command].into_iter().chain(command.subcommands));
    let on_rows = known.filter_map(|command| {
        let row = format!("{first}:k");
        let first = match command.access {
            Access::Row | Access::Rows | Access::TableRow => &row,
            Access::TableName => first,
            _ => return None,
        };
        let name = command.name.replace('|', " ");
        let given = name.split(' ').count() + 1;
        let left = (command.arity.unsigned_abs() as usize).saturating_sub(given);
        Some((command, format!("{name} {first}{}", " 1".repeat(left))))
    });
    on_rows.collect()
}

#[test]
fn every_command_that_writes_rows_goes_to_the_writer_and_no_other() {
    let mut serving = Serving::new();
    serving.tables[1]
        .write(b"k", &[7], Default::default(), interlock_table::Where::Anywhere)
        .unwrap();
    let mut given = 0;
    for (number, (command, line)) in calls("kept").into_iter().enumerate() {
        let mut client = serving.hub.client(number as u32 + 1);
        let (said, waits) = serving.says(&mut client, &format!("{line}\r\nPING"));
        let goes = matches!(command.name, "table|barrier" | "table|time");
        assert_eq!(waits, goes || command.has_flag("write"), "{line}: {said}");
        assert_eq!(said.is_empty(), waits, "{line}: {said}");
        let mut core = Core {
            shared: &serving.hub.shared,
            local: &mut serving.hub.local,
            now: 0,
            clock: || 0,
        };
        core.local.writes.give();
        let taken = std::mem::take(&mut *serving.written.0.lock().unwrap());
        assert_eq!(taken.len(), usize::from(waits), "{line}");
        for write in taken {
            let words = write.arguments.iter().map(|word| String::from_utf8_lossy(word));
            assert_eq!(words.collect::<Vec<_>>().join(" "), line);
            given += 1;
        }
        client.session.close(&mut core);
    }
    assert!(given > 19, "{given}");
    let there = serving.tables[1].get(b"k").unwrap().unwrap();
    assert_eq!(there.words(), [7], "the hub wrote nothing");
    for (number, (_, line)) in calls("free").into_iter().chain(calls("none")).enumerate() {
        let mut client = serving.hub.client(number as u32 + 500);
        assert!(!serving.says(&mut client, &line).1, "{line}");
    }
}

#[test]
fn commands_after_node_wait_and_run_in_order() {
    let mut serving = Serving::new();
    let mut client = serving.hub.client(1);
    let lines = "PING\r\nNODE one\r\nECHO x\r\nNODE two\r\nHSET free:k a 3\r\nPING";
    assert_eq!(serving.says(&mut client, lines), ("+PONG\r\n".into(), true));
    assert_eq!(serving.tables[0].get(b"k").unwrap(), None, "not before its turn");
    let (taken, said) = serving.answers(&mut client, "-NODE no\r\n");
    assert_eq!((&taken[..], &said[..]), ("NODE one", "-NODE no\r\n$1\r\nx\r\n"));
    let (taken, said) = serving.answers(&mut client, ":1\r\n");
    assert_eq!((&taken[..], &said[..]), ("NODE two", ":1\r\n:1\r\n+PONG\r\n"));
    assert!(serving.tables[0].get(b"k").unwrap().is_some());
    // A silent client is not told either.
    assert!(serving.says(&mut client, "CLIENT REPLY OFF\r\nNODE three").1);
    assert_eq!(serving.answers(&mut client, ":0\r\n").1, "");
}

#[test]
fn one_call_cannot_write_several_tables_if_one_is_kept_by_a_node() {
    let mut serving = Serving::new();
    let mut client = serving.hub.client(1);
    serving.says(&mut client, "HSET free:k a 1");
    for line in ["DEL free:k kept:k", "UNLINK kept:k free:k", "DEL kept:k too:k"] {
        let (said, waits) = serving.says(&mut client, line);
        assert!(said.starts_with("-CROSSTABLE table '") && !waits, "{said}");
    }
    let (said, waits) = serving.says(&mut client, "DEL free:k kept:k none:k");
    assert!(said.starts_with("-NOTABLE ") && !waits, "{said}");
    assert!(serving.tables[0].get(b"k").unwrap().is_some(), "nothing was done");
    assert_eq!(serving.says(&mut client, "EXISTS free:k kept:k").0, ":1\r\n");
    let (said, waits) = serving.says(&mut client, "DEL kept:k kept:l\r\nPING");
    assert!(said.is_empty() && waits, "{said}");
}

#[test]
fn stale_rows_are_not_read_and_other_commands_still_answer() {
    let mut serving = Serving::new();
    let mut client = serving.hub.client(1);
    serving.keeper.set_fresh_until(Some(0));
    for (command, line) in calls("kept") {
        if command.has_flag("write") || matches!(command.name, "table|barrier" | "table|time") {
            continue;
        }
        let (said, _) = serving.says(&mut client, &line);
        let is_read = command.name != "table|info";
        assert_eq!(said.starts_with("-STALE "), is_read, "{line}: {said}");
    }
    assert!(serving.says(&mut client, "SCAN 0").0.starts_with("-STALE "));
    assert!(serving.says(&mut client, "SCAN 0 MATCH free:*").0.starts_with("*2\r\n"));
    assert!(serving.says(&mut client, "TABLE LIST").0.starts_with("*3\r\n"));
    for (_, line) in calls("free") {
        assert!(!serving.says(&mut client, &line).0.starts_with("-STALE "), "{line}");
    }
    serving.keeper.set_fresh_until(Some(1));
    assert_eq!(serving.says(&mut client, "EXISTS kept:k").0, ":0\r\n");
}

#[test]
fn a_call_of_a_connection_that_closes_is_forgotten() {
    let mut serving = Serving::new();
    let (mut first, mut second) = (serving.hub.client(1), serving.hub.client(2));
    assert!(serving.says(&mut first, "NODE one").1);
    assert!(serving.says(&mut second, "NODE two").1);
    let mut core =
        Core { shared: &serving.hub.shared, local: &mut serving.hub.local, now: 0, clock: || 0 };
    first.session.close(&mut core);
    assert_eq!(serving.answers(&mut second, ":0\r\n"), ("NODE two".into(), ":0\r\n".into()));
    assert!(serving.keeper.take(9).is_empty());
}

#[test]
fn node_commands_go_to_the_keeper_and_are_refused_without_one() {
    let mut serving = Serving::new();
    let mut client = serving.hub.client(1);
    assert!(serving.says(&mut client, "NODE anything you like").1);
    let (taken, said) = serving.answers(&mut client, "+OK\r\n");
    assert_eq!((&taken[..], &said[..]), ("NODE anything you like", "+OK\r\n"));
    serving.keeper.end();
    assert!(serving.says(&mut client, "NODE STATUS").0.starts_with("-NODE "));
    let mut alone = Hub::new(Settings::default());
    let mut client = alone.client(1);
    assert!(alone
        .talk(&mut client, b"NODE STATUS\r\n")
        .starts_with("-ERR this hub is not a node "));
}
