//! ACL: who there is, who may do what, and who was refused.

use std::collections::BTreeSet;

use interlock_engine::queue_name;
use ring::rand::{SecureRandom, SystemRandom};

use crate::access::users::{named_row, Reason};
use crate::catalog::{all, find, Access, Command};
use crate::command::Call;
use crate::resp::parse::integer;

pub fn whoami(call: &mut Call<'_, '_>) {
    let name = call.state.card.user_name();
    call.reply.bulk(name.as_bytes());
}

pub fn users(call: &mut Call<'_, '_>) {
    let live = call.core.local.live.clone();
    let all = live.users.all();
    call.reply.array(all.len());
    all.iter().for_each(|user| call.reply.bulk(user.name.as_bytes()));
}

/// A line for each, as ACL SETUSER of Redis would take it. Passwords are counted, not shown.
pub fn list(call: &mut Call<'_, '_>) {
    let live = call.core.local.live.clone();
    let all = live.users.all();
    call.reply.array(all.len());
    for user in all {
        let rules = user.rules();
        let mut words: Vec<Vec<u8>> = ["user", &user.name, "on"].map(|word| word.into()).into();
        if user.open {
            words.push(b"nopass".into());
        }
        words.extend(vec![HIDDEN.into(); rules.passwords]);
        words.extend(rules.keys);
        words.extend(rules.channels);
        words.extend(rules.commands.into_iter().map(Vec::from));
        call.reply.bulk(&words.join(&b' '));
    }
}

pub fn getuser(call: &mut Call<'_, '_>) {
    let live = call.core.local.live.clone();
    let Some(user) = live.users.named(&call.arguments[2]) else { return call.reply.null() };
    let rules = user.rules();
    let reply = &mut call.reply;
    reply.map(6);
    reply.bulk(b"flags");
    let flags: &[&[u8]] = if user.open { &[b"on", b"nopass"] } else { &[b"on"] };
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag));
    reply.bulk(b"passwords");
    reply.array(rules.passwords);
    (0..rules.passwords).for_each(|_| reply.bulk(&HIDDEN.as_bytes()[1..]));
    let texts: [(&str, Vec<u8>); 3] = [
        ("commands", rules.commands.join(" ").into_bytes()),
        ("keys", rules.keys.join(&b' ')),
        ("channels", rules.channels.join(&b' ')),
    ];
    for (name, text) in texts {
        reply.bulk(name.as_bytes());
        reply.bulk(&text);
    }
    reply.bulk(b"selectors");
    reply.array(0);
}

/// The classes of commands, or the commands of one.
pub fn cat(call: &mut Call<'_, '_>) {
    let subcommands = |command: &'static Command| [command].into_iter().chain(command.subcommands);
    let every = || all().flat_map(subcommands);
    match call.arguments.get(2) {
        _ if call.arguments.len() > 3 => call.wrong_count("ACL"),
        None => {
            let classes: BTreeSet<&str> =
                every().flat_map(|command| command.categories).copied().collect();
            call.reply.array(classes.len());
            classes.iter().for_each(|class| call.reply.bulk(&class.as_bytes()[1..]));
        }
        Some(class) => {
            let is = |known: &&str| class.eq_ignore_ascii_case(&known.as_bytes()[1..]);
            let of: Vec<&str> =
                every().filter(|c| c.categories.iter().any(is)).map(|c| c.name).collect();
            if of.is_empty() {
                let text = [b"ERR Unknown category '", class, b"'"].concat();
                return call.error_bytes(&text);
            }
            call.reply.array(of.len());
            of.iter().for_each(|name| call.reply.bulk(name.as_bytes()));
        }
    }
}

/// Tells whether a user could make this call; nothing is done.
pub fn dryrun(call: &mut Call<'_, '_>) {
    let live = call.core.local.live.clone();
    let name = &call.arguments[2];
    let Some(user) = live.users.named(name) else {
        let text = [b"ERR User '", name, b"' not found"].concat();
        return call.error_bytes(&text);
    };
    let arguments = call.arguments.behind(3);
    let Ok(command) = find(arguments) else {
        let text = [b"ERR Command '", &arguments[0], b"' not found"].concat();
        return call.error_bytes(&text);
    };
    if let Some(text) = command.wrong_arity(arguments) {
        return call.error(&text);
    }
    match user.refusal(command, arguments) {
        None => call.reply.ok(),
        Some((reason, object)) => call.reply.bulk(&would_be_refused(reason, object)),
    }
}

fn would_be_refused(reason: Reason, object: &[u8]) -> Vec<u8> {
    let (head, tail) = match reason {
        Reason::Command | Reason::Password => ("run", "command"),
        Reason::Key => ("access", "key"),
        Reason::Channel => ("access", "channel"),
    };
    let head = format!("This user has no permissions to {head} the '");
    [head.as_bytes(), object, b"' ", tail.as_bytes()].concat()
}

/// As an error of the call itself: first as Redis says it, then the key of the configuration that gives the
/// right.
pub fn refused(reason: Reason, command: &Command, object: &[u8], user: &str) -> String {
    let named = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MOST_NAMED)]);
        format!("{:?}", text)
    };
    let (what, needs) = match reason {
        Reason::Key => {
            let needs = match (queue_name(object), named_row(object)) {
                (Some(queue), _) => format!("a pattern for {} in queues", named(queue)),
                (None, Some((table, _))) => format!("a pattern for {} in tables", named(table)),
                (None, None) => format!("a pattern for {} in tables", named(object)),
            };
            ("access one of the keys used as arguments".to_owned(), needs)
        }
        Reason::Channel => {
            let publishes = matches!(command.access, Access::Publish | Access::Relay);
            let key = if publishes { "publish" } else { "subscribe" };
            let needs = format!("a pattern for {} in topics or {key}", named(object));
            ("access one of the channels used as arguments".to_owned(), needs)
        }
        Reason::Command | Reason::Password => {
            let classes = command.categories.iter().filter(|class| !is_of_many(class));
            let class = classes.map(|class| format!(" or {class:?}")).next().unwrap_or_default();
            let needs = format!("{:?}{class} in commands", command.name);
            (format!("run the '{}' command", command.name), needs)
        }
    };
    format!("NOPERM this user has no permissions to {what}; on this hub [[user]] {user:?} needs {needs}")
}

/// Returns whether a class is too wide to advise.
fn is_of_many(class: &str) -> bool {
    let wide = ["@slow", "@fast", "@dangerous", "@scripting", "@keyspace", "@blocking", "@queue"];
    wide.contains(&class)
}

/// Bytes of a name that a refusal shows.
const MOST_NAMED: usize = 128;

/// Lists who was refused what, the newest first; RESET forgets it.
pub fn log(call: &mut Call<'_, '_>) {
    let mut count = 10;
    match call.arguments.get(2) {
        _ if call.arguments.len() > 3 => return call.wrong_count("ACL"),
        Some(word) if word.eq_ignore_ascii_case(b"reset") => {
            call.core.shared.denials.clear();
            return call.reply.ok();
        }
        Some(number) => match integer(number) {
            Some(number) => count = usize::try_from(number).unwrap_or(0),
            None => return call.error("ERR value is not an integer or out of range"),
        },
        None => {}
    }
    let now = call.core.now;
    let found = call.core.shared.denials.newest(count);
    let reply = &mut call.reply;
    reply.array(found.len());
    for denial in found {
        reply.map(7);
        reply.bulk(b"count");
        reply.integer(denial.count as i64);
        let age = format!("{:.3}", now.saturating_sub(denial.at) as f64 / 1e6);
        for (name, value) in [
            ("reason", denial.reason.name().as_bytes()),
            ("context", b"toplevel"),
            ("object", &denial.object),
            ("username", &denial.user),
        ] {
            reply.bulk(name.as_bytes());
            reply.bulk(value);
        }
        reply.bulk(b"age-seconds");
        reply.double(&age);
        reply.bulk(b"client-info");
        reply.bulk(denial.client.as_bytes());
    }
}

/// Random hexadecimal digits, 256 bits unless the call gives a number.
pub fn genpass(call: &mut Call<'_, '_>) {
    let bits = match call.arguments.get(2) {
        _ if call.arguments.len() > 3 => return call.wrong_count("ACL"),
        None => Some(256),
        Some(given) => integer(given),
    };
    let Some(bits) = bits else {
        return call.error("ERR value is not an integer or out of range");
    };
    let Ok(bits @ 1..=4096) = usize::try_from(bits) else {
        return call.error(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a \
             positive number up to 4096",
        );
    };
    let digits = bits.div_ceil(4);
    let mut bytes = vec![0u8; digits.div_ceil(2)];
    if SystemRandom::new().fill(&mut bytes).is_err() {
        return call.error("ERR the system has no random numbers");
    }
    let mut text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    text.truncate(digits);
    call.reply.bulk(text.as_bytes());
}

const HIDDEN: &str = "#(hidden)";
