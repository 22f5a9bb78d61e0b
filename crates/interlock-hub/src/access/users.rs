//! The users, and what each may do.
//!
//! Rights are checked with every command, so a user has them ready: which commands, by their
//! declaration's place in memory, and which topics. The configuration owns the rules, the
//! controller the passwords; this module only remembers, by a keyed hash, which passwords were
//! right, so that returning clients need no second check.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;
use interlock_engine::{queue_name, Account, Accounts};
use parking_lot::Mutex;
use ring::hmac;
use std::hash::RandomState;

use crate::catalog::{named, Access, Command};
use crate::glob;
use crate::resp::parse::Arguments;

#[derive(Debug, Default)]
pub struct User {
    pub name: String,
    /// Every connection starts as this user, without a password.
    pub open: bool,
    pub commands: Commands,
    pub publish: Patterns,
    pub subscribe: Patterns,
    pub queues: Patterns,
    /// Patterns of tables whose rows it may read and write.
    pub tables: Patterns,
    /// The account that limits the total memory of the queues it may put into.
    pub account: Option<Arc<Account>>,
    /// As the configuration has it, for those who ask: `commands` and `passwords` alone.
    pub declared: Rules,
}

/// The right that a refused call wants for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Command,
    /// A queue, which is the key of its functions; a table, whose rows are keys.
    Key,
    Channel,
    Password,
}

impl Reason {
    /// As Redis calls it.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
            Reason::Password => "auth",
        }
    }
}

/// The rights of a user, in words.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// `+@class`, `-name`; the last that fits decides.
    pub commands: Vec<String>,
    /// The number of its passwords; their hashes are nobody's business.
    pub passwords: usize,
    /// `&pattern`; `%P&pattern` to publish only, `%S&pattern` to subscribe only.
    pub channels: Vec<Vec<u8>>,
    /// `~il:{pattern}` of queues, `~pattern:*` of tables.
    pub keys: Vec<Vec<u8>>,
}

#[derive(Debug, Default)]
pub enum Commands {
    #[default]
    All,
    /// The `index` of each, in order.
    These(Box<[usize]>),
}

/// Patterns of which a topic, or the name of a queue or table, must match one.
#[derive(Debug, Default)]
pub enum Patterns {
    #[default]
    All,
    These(Box<[Box<[u8]>]>),
}

/// All of them; cloning shares them.
#[derive(Clone, Debug)]
pub struct Users {
    by_name: Arc<HashMap<Vec<u8>, Arc<User>, RandomState>>,
    remembered: Arc<Remembered>,
}

#[derive(Debug)]
struct Remembered {
    key: hmac::Key,
    passwords: Mutex<HashMap<Vec<u8>, Vec<hmac::Tag>, RandomState>>,
}

/// The user that a connection is before it says who it is.
pub const DEFAULT: &str = "default";

impl Default for Users {
    /// Everybody may do everything.
    fn default() -> Self {
        let declared = Rules { commands: vec!["+@all".into()], ..Rules::default() };
        Users::new([User { name: DEFAULT.into(), open: true, declared, ..User::default() }])
    }
}

impl Users {
    pub fn new(users: impl IntoIterator<Item = User>) -> Self {
        let by_name = users.into_iter().map(|u| (u.name.clone().into_bytes(), Arc::new(u)));
        let random = ring::rand::SystemRandom::new();
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &random);
        let key = key.expect("the system has random numbers");
        let remembered = Arc::new(Remembered { key, passwords: Mutex::default() });
        Users { by_name: Arc::new(by_name.collect()), remembered }
    }

    /// In the order of their names.
    pub fn all(&self) -> Vec<&Arc<User>> {
        let mut all: Vec<_> = self.by_name.values().collect();
        all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        all
    }

    pub fn named(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }

    /// Returns the accounts in which a queue counts; `None` if no user has one.
    pub fn accounts(&self) -> Option<Accounts> {
        let bounded = self.by_name.values().filter(|user| user.account.is_some());
        let bounded: Vec<Arc<User>> = bounded.cloned().collect();
        let accounts = move |name: &[u8]| {
            let holds = bounded.iter().filter(|user| user.queues.hold(name));
            holds.filter_map(|user| user.account.clone()).collect()
        };
        self.by_name.values().any(|user| user.account.is_some()).then(|| Box::new(accounts) as _)
    }

    /// Returns the user that a new connection is; `None`: it must say so first.
    pub fn anonymous(&self) -> Option<&Arc<User>> {
        self.named(DEFAULT.as_bytes()).filter(|user| user.open)
    }

    /// Returns whether these are the same users, not others that may be called alike.
    pub fn are(&self, other: &Users) -> bool {
        Arc::ptr_eq(&self.remembered, &other.remembered)
    }

    /// Returns whether there is anybody to log in as.
    pub fn have_passwords(&self) -> bool {
        self.by_name.values().any(|user| !user.open)
    }

    /// Returns whether this password was found right before.
    pub fn remembers(&self, name: &[u8], password: &[u8]) -> bool {
        let passwords = self.remembered.passwords.lock();
        let tags = passwords.get(name).map_or(&[][..], Vec::as_slice);
        // In constant time each.
        tags.iter().any(|tag| hmac::verify(&self.remembered.key, password, tag.as_ref()).is_ok())
    }

    pub fn remember(&self, name: &[u8], password: &[u8]) {
        if self.remembers(name, password) {
            return;
        }
        let tag = hmac::sign(&self.remembered.key, password);
        let mut passwords = self.remembered.passwords.lock();
        passwords.entry_ref(name).or_default().push(tag);
    }
}

impl User {
    /// Returns whether this command is allowed, whatever its arguments.
    pub fn may_call(&self, name: &str) -> bool {
        named(name.as_bytes()).is_some_and(|command| self.commands.hold(command))
    }

    /// Returns whether it may know of this topic, and who is subscribed to it.
    pub fn may_see(&self, topic: &[u8]) -> bool {
        self.subscribe.hold(topic) || self.publish.hold(topic)
    }

    /// Returns why this call is not allowed, and what the right would be to.
    pub fn refusal<'a>(
        &self,
        command: &'a Command,
        arguments: Arguments<'a>,
    ) -> Option<(Reason, &'a [u8])> {
        if !self.commands.hold(command) {
            return Some((Reason::Command, command.name.as_bytes()));
        }
        let first_not = |from, holds: &dyn Fn(&[u8]) -> bool| {
            arguments.from(from).find(|topic| !holds(topic)).map(|topic| (Reason::Channel, topic))
        };
        match command.access {
            Access::None => None,
            Access::Publish => {
                let topic = arguments.get(1).unwrap_or_default();
                (!self.publish.hold(topic)).then_some((Reason::Channel, topic))
            }
            Access::Relay => {
                let topic = arguments.get(4).filter(|topic| !self.publish.hold(topic));
                topic.map(|topic| (Reason::Channel, topic))
            }
            Access::Stream => {
                let topic = arguments.get(1).unwrap_or_default();
                (!self.subscribe.hold(topic)).then_some((Reason::Channel, topic))
            }
            Access::Streams => {
                let refused = topics_of(arguments).find(|topic| !self.subscribe.hold(topic));
                refused.map(|topic| (Reason::Channel, topic))
            }
            Access::Topics => first_not(1, &|topic| self.subscribe.hold(topic)),
            Access::Patterns => first_not(1, &|pattern| self.subscribe.hold_all_of(pattern)),
            Access::Queue if matches!(self.queues, Patterns::All) => None,
            // A key that names no queue is the function's to refuse.
            Access::Queue => {
                let key = arguments.get(3).unwrap_or_default();
                let name = queue_name(key);
                name.is_some_and(|name| !self.queues.hold(name)).then_some((Reason::Key, key))
            }
            // So is what names no row.
            Access::Row | Access::Rows | Access::TableRow => {
                let (from, count) = match command.access {
                    Access::Rows => (1, usize::MAX),
                    Access::Row => (1, 1),
                    _ => (2, 1),
                };
                let holds = |key| named_row(key).is_none_or(|(name, _)| self.tables.hold(name));
                let refused = arguments.from(from).take(count).find(|key| !holds(key));
                refused.map(|key| (Reason::Key, key))
            }
            Access::TableName => {
                let name = arguments.get(2).unwrap_or_default();
                (!self.tables.hold(name)).then_some((Reason::Key, name))
            }
        }
    }

    /// Its rights as rules of ACL SETUSER, and the marks of its passwords.
    pub fn rules(&self) -> Rules {
        let Rules { mut commands, passwords, .. } = self.declared.clone();
        if commands.first().is_none_or(|rule| rule != "+@all") {
            commands.insert(0, "-@all".into());
        }
        let (publish, subscribe) = (self.publish.texts(), self.subscribe.texts());
        let signed = |sign: &str, pattern: &[u8]| [sign.as_bytes(), pattern].concat();
        let published = publish
            .iter()
            .map(|pattern| signed(if subscribe.contains(pattern) { "&" } else { "%P&" }, pattern));
        let rest = subscribe.iter().filter(|pattern| !publish.contains(pattern));
        let channels = published.chain(rest.map(|pattern| signed("%S&", pattern))).collect();
        let queues = self.queues.texts().into_iter();
        let queues = queues.map(|pattern| [&b"~il:{"[..], pattern, b"}"].concat());
        let tables = self.tables.texts().into_iter();
        let tables = tables.map(|pattern| [&b"~"[..], pattern, b":*"].concat());
        let keys = queues.chain(tables).collect();
        Rules { commands, passwords, channels, keys }
    }
}

/// Returns the table and the key that `table:key` names.
#[inline]
pub fn named_row(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().take(LONGEST_TABLE + 1).position(|byte| *byte == b':')?;
    Some((&text[..end], &text[end + 1..]))
}

/// The topics that XREAD names.
pub fn topics_of<'a>(arguments: Arguments<'a>) -> impl Iterator<Item = &'a [u8]> {
    let places = streams_of(arguments);
    arguments.from(places.start).take(places.len())
}

/// The places of all topics and patterns of a command.
pub fn topic_places(command: &Command, arguments: Arguments<'_>) -> Range<usize> {
    let end = arguments.len();
    match command.access {
        Access::Publish | Access::Stream => 1..2,
        Access::Relay => 4..5,
        Access::Topics | Access::Patterns => 1..end,
        Access::Streams => streams_of(arguments),
        // Commands that every user may call for any topic.
        _ => match command.name {
            "unsubscribe" | "punsubscribe" | "sunsubscribe" => 1..end,
            "pubsub|channels" | "pubsub|numsub" | "pubsub|shardchannels" | "pubsub|shardnumsub" => {
                2..end
            }
            "pubsub|clients" => 2..end.min(3),
            _ => 0..0,
        },
    }
}

/// The places of the topics that XREAD names: the first half of the arguments after STREAMS.
fn streams_of(arguments: Arguments<'_>) -> Range<usize> {
    let is_head = |word: &[u8]| word.eq_ignore_ascii_case(b"streams");
    // Skips values of COUNT and BLOCK.
    let streams = arguments.from(1).position(is_head).map_or(arguments.len(), |at| at + 2);
    let left = arguments.len() - streams.min(arguments.len());
    streams..streams + left / 2
}

/// Bytes of the name of a table, at most.
const LONGEST_TABLE: usize = 200;

impl Commands {
    /// Returns the commands of these names, as COMMAND INFO takes them; `Err`: an unknown name.
    pub fn these<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let index = |name: &str| {
            let command = named(name.as_bytes()).ok_or_else(|| name.to_owned())?;
            Ok(command.index())
        };
        let indices: Result<Vec<usize>, String> = names.into_iter().map(index).collect();
        let mut indices = indices?;
        indices.sort_unstable();
        Ok(Commands::These(indices.into()))
    }

    fn hold(&self, command: &Command) -> bool {
        match self {
            Commands::All => true,
            Commands::These(indices) => indices.binary_search(&command.index()).is_ok(),
        }
    }
}

impl Patterns {
    /// `*` among them means all.
    pub fn these(patterns: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let patterns: Vec<Box<[u8]>> = patterns.into_iter().map(Into::into).collect();
        if patterns.iter().any(|pattern| **pattern == *b"*") {
            return Patterns::All;
        }
        Patterns::These(patterns.into())
    }

    fn texts(&self) -> Vec<&[u8]> {
        match self {
            Patterns::All => vec![b"*"],
            Patterns::These(patterns) => patterns.iter().map(AsRef::as_ref).collect(),
        }
    }

    pub fn hold(&self, topic: &[u8]) -> bool {
        match self {
            Patterns::All => true,
            Patterns::These(patterns) => patterns.iter().any(|own| glob::matches(own, topic)),
        }
    }

    /// Returns whether all that `pattern` matches is surely allowed: it is one of the own patterns,
    /// or begins with all that one of them asks for.
    pub fn hold_all_of(&self, pattern: &[u8]) -> bool {
        let Patterns::These(patterns) = self else { return true };
        let literal = &pattern[..glob::literal_prefix(pattern)];
        patterns.iter().any(|own| {
            let prefix = &own[..glob::literal_prefix(own)];
            **own == *pattern || (&own[prefix.len()..] == b"*" && literal.starts_with(prefix))
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::access::users::*;

    fn topics(patterns: &[&str]) -> Patterns {
        Patterns::these(patterns.iter().map(|pattern| pattern.as_bytes().to_vec()))
    }

    #[test]
    fn a_pattern_is_allowed_only_if_all_it_matches_is() {
        let own = topics(&["orders.*", "news", "a?c", "e\\*"]);
        for allowed in ["orders.*", "orders.eu.*", "orders.?", "orders.[ab]", "orders.x", "a?c"] {
            assert!(own.hold_all_of(allowed.as_bytes()), "{allowed}");
        }
        for refused in ["*", "order*", "news*", "a*c", "abc*", "", "e*", "ordersx.*", "o[r]ders.*"]
        {
            assert!(!own.hold_all_of(refused.as_bytes()), "{refused}");
        }
        assert!(topics(&["a", "*"]).hold_all_of(b"*"));
    }

    #[test]
    fn an_allowed_pattern_matches_no_topic_that_is_not_allowed() {
        let mut random = fastrand::Rng::with_seed(11);
        let mut string = |from: &[u8], most: usize| -> Vec<u8> {
            (0..random.usize(0..=most)).map(|_| from[random.usize(0..from.len())]).collect()
        };
        let mut held = 0;
        for _ in 0..200_000 {
            let own = Patterns::these([string(b"aab*?[]\\", 4)]);
            let (pattern, topic) = (string(b"aab*?[]\\", 5), string(b"ab*", 5));
            if own.hold_all_of(&pattern) && glob::matches(&pattern, &topic) {
                held += 1;
                assert!(own.hold(&topic), "{own:?} {pattern:?} {topic:?}");
            }
        }
        assert!(held > 1000, "{held} cases are too few to prove anything");
    }

    #[test]
    fn a_password_is_remembered_for_its_user_alone() {
        let users = Users::default();
        users.remember(b"a", b"secret");
        assert!(users.clone().remembers(b"a", b"secret"));
        assert!(!users.remembers(b"a", b"other") && !users.remembers(b"b", b"secret"));
        assert!(!Users::default().remembers(b"a", b"secret"), "other users, other memory");
    }
}
