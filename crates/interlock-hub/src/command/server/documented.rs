//! COMMAND: the declarations, as clients and redis-cli ask for them.

use crate::catalog::{all, named, Access, Argument, Command};
use crate::command::Call;
use crate::glob;
use crate::resp::write::Writer;

pub fn command(call: &mut Call<'_, '_>) {
    call.reply.array(all().count());
    all().for_each(|command| describe(&mut call.reply, command));
}

pub fn count(call: &mut Call<'_, '_>) {
    call.reply.integer(all().count() as i64);
}

pub fn info(call: &mut Call<'_, '_>) {
    if call.arguments.len() == 2 {
        return command(call);
    }
    if too_many(call) {
        return;
    }
    call.reply.array(call.arguments.len() - 2);
    for name in call.arguments.from(2) {
        match named(name) {
            Some(command) => describe(&mut call.reply, command),
            None => call.reply.null(),
        }
    }
}

/// A short name asks for a long answer.
fn too_many(call: &mut Call<'_, '_>) -> bool {
    let many = call.arguments.len() - 2 > MOST;
    if many {
        call.error(&format!("ERR more than {MOST} commands"));
    }
    many
}

const MOST: usize = 1_000;

pub fn docs(call: &mut Call<'_, '_>) {
    if too_many(call) {
        return;
    }
    let wanted: Vec<&Command> = match call.arguments.len() {
        2 => all().collect(),
        _ => call.arguments.from(2).filter_map(named).collect(),
    };
    call.reply.map(wanted.len());
    wanted.into_iter().for_each(|command| document(&mut call.reply, command));
}

pub fn list(call: &mut Call<'_, '_>) {
    let count = call.arguments.len();
    let is_filter = count == 5 && call.is(2, "FILTERBY");
    let word = call.arguments.get(4).unwrap_or_default().to_ascii_lowercase();
    let all = all().flat_map(|command| [command].into_iter().chain(command.subcommands));
    let wanted: Vec<&Command> = if count == 2 {
        all.collect()
    } else if is_filter && call.is(3, "ACLCAT") {
        let category = [&b"@"[..], &word].concat();
        let has = |command: &&Command| command.categories.iter().any(|c| c.as_bytes() == category);
        all.filter(has).collect()
    } else if is_filter && call.is(3, "PATTERN") {
        if let Some(text) = glob::refusal(&word) {
            return call.error(&text);
        }
        all.filter(|command| glob::matches(&word, command.name.as_bytes())).collect()
    } else if is_filter && call.is(3, "MODULE") {
        Vec::new()
    } else {
        return call.syntax_error();
    };
    call.reply.array(wanted.len());
    wanted.iter().for_each(|command| call.reply.bulk(command.name.as_bytes()));
}

/// Returns arguments as a line of help writes them: ` <name>`, ` [TOKEN <name> ...]`.
pub fn usage(arguments: &[Argument]) -> String {
    let shown = |argument: &Argument| {
        let inner = argument.arguments.iter().map(inner_usage);
        let mut text = match argument.kind {
            "block" => inner.collect::<Vec<_>>().join(" "),
            "oneof" => format!("({})", inner.collect::<Vec<_>>().join("|")),
            _ => inner_usage(argument),
        };
        if !argument.token.is_empty() && !argument.arguments.is_empty() {
            text = format!("{} {text}", argument.token);
        }
        if argument.flags.contains(&"multiple") {
            text = format!("{text} [{text} ...]");
        }
        if argument.flags.contains(&"optional") {
            text = format!("[{text}]");
        }
        format!(" {text}")
    };
    arguments.iter().map(shown).collect()
}

fn inner_usage(argument: &Argument) -> String {
    let name = format!("<{}>", argument.name);
    match (argument.kind, argument.token) {
        ("block" | "oneof", _) => usage(std::slice::from_ref(argument)).trim_start().to_owned(),
        ("pure-token", token) => token.to_owned(),
        (_, "") => name,
        (_, token) => format!("{token} {name}"),
    }
}

/// Ten fields, as Redis 7 has them.
fn describe(reply: &mut Writer<'_>, command: &Command) {
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.integer(i64::from(command.arity));
    names(reply, command.flags);
    let (first, last, step) = command.topics.unwrap_or_default();
    [first, last, step].into_iter().for_each(|number| reply.integer(i64::from(number)));
    names(reply, command.categories);
    reply.set(command.tips.len());
    command.tips.iter().for_each(|tip| reply.bulk(tip.as_bytes()));
    match command.topics {
        None => reply.set(0),
        Some((first, last, step)) => {
            reply.set(1);
            key_specification(reply, command, (first, last, step));
        }
    }
    reply.set(command.subcommands.len());
    command.subcommands.iter().for_each(|sub| describe(reply, sub));
}

fn names(reply: &mut Writer<'_>, names: &[&str]) {
    reply.set(names.len());
    names.iter().for_each(|name| reply.simple(name));
}

fn key_specification(
    reply: &mut Writer<'_>,
    command: &Command,
    (first, last, step): (i32, i32, i32),
) {
    let text = |reply: &mut Writer<'_>, words: &[&str]| {
        words.iter().for_each(|word| reply.bulk(word.as_bytes()));
    };
    reply.map(3);
    text(reply, &["flags"]);
    let flags: &[&str] = match command.access {
        Access::Stream => &["RO", "access"],
        Access::Row | Access::Rows if command.has_flag("readonly") => &["RO", "access"],
        Access::Row | Access::Rows => &["RW", "update"],
        _ => &["not_key"],
    };
    names(reply, flags);
    text(reply, &["begin_search"]);
    reply.map(2);
    text(reply, &["type", "index", "spec"]);
    reply.map(1);
    text(reply, &["index"]);
    reply.integer(i64::from(first));
    text(reply, &["find_keys"]);
    reply.map(2);
    text(reply, &["type", "range", "spec"]);
    reply.map(3);
    // Counted from the first one.
    let last = if last < 0 { last } else { last - first };
    for (name, number) in [("lastkey", last), ("keystep", step), ("limit", 0)] {
        text(reply, &[name]);
        reply.integer(i64::from(number));
    }
}

fn document(reply: &mut Writer<'_>, command: &Command) {
    reply.bulk(command.name.as_bytes());
    let lists = [!command.arguments.is_empty(), !command.subcommands.is_empty()];
    reply.map(4 + lists.iter().filter(|&&present| present).count());
    for (key, value) in [
        ("summary", command.summary),
        ("since", command.since),
        ("group", command.group),
        ("complexity", command.complexity),
    ] {
        reply.bulk(key.as_bytes());
        reply.bulk(value.as_bytes());
    }
    if lists[0] {
        reply.bulk(b"arguments");
        arguments(reply, command.arguments);
    }
    if lists[1] {
        reply.bulk(b"subcommands");
        reply.map(command.subcommands.len());
        command.subcommands.iter().for_each(|sub| document(reply, sub));
    }
}

fn arguments(reply: &mut Writer<'_>, all: &[Argument]) {
    reply.array(all.len());
    for argument in all {
        let texts = [
            ("name", argument.name),
            ("type", argument.kind),
            ("token", argument.token),
            ("since", argument.since),
            ("deprecated_since", argument.deprecated_since),
        ];
        let texts = texts.into_iter().filter(|(_, value)| !value.is_empty());
        let (flags, inner) = (!argument.flags.is_empty(), !argument.arguments.is_empty());
        reply.map(texts.clone().count() + usize::from(flags) + usize::from(inner));
        for (key, value) in texts {
            reply.bulk(key.as_bytes());
            reply.bulk(value.as_bytes());
        }
        if flags {
            reply.bulk(b"flags");
            names(reply, argument.flags);
        }
        if inner {
            reply.bulk(b"arguments");
            arguments(reply, argument.arguments);
        }
    }
}
