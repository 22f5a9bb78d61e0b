//! A connection to the engine that reconnects after a failure, and its pending commands.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use interlock_stores::network::request;

use crate::connection::{look_up, Connection, Place, Places};
use crate::log::{mark, Entry, Id};
use crate::redis::{Settings, FIELD};
use crate::reply::{Bad, Reply};
use crate::trouble::{Kind, Trouble};

pub struct Link {
    state: State,
    /// The index of the address to try next.
    turn: usize,
    failures: u32,
    /// The first entry, until the last one arrives.
    first: Option<Entry>,
    /// True if it appends, so that it asks how large an entry may be.
    appends: bool,
}

enum State {
    Off { again: Option<Instant> },
    LookingUp { places: Places, since: Instant },
    On { connection: Box<Connection>, asked: VecDeque<Asked>, moved: Instant, is_up: bool },
}

/// A command without a reply yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Login,
    Select,
    Replication,
    Memory,
    Largest,
    Add,
    Read,
    /// The entry read last.
    Known,
    First,
    Last,
    /// A lookup of an entry that a checkpoint may rest on; `left`: lookups still to follow.
    Look {
        left: usize,
    },
    Trim,
}

/// A reply.
#[derive(Debug)]
pub enum Heard {
    Up,
    /// Maximum bytes of a command's argument.
    Largest(usize),
    Added(Result<Option<Id>, Trouble>),
    Read(Vec<Entry>),
    Known(Option<u64>),
    Ends(Option<(Entry, Entry)>),
    Looked {
        found: Option<Entry>,
        left: usize,
    },
    Trimmed(Result<u64, Trouble>),
    /// A reply was larger than the limit.
    TooLong,
}

impl Link {
    pub fn new(appends: bool) -> Link {
        let state = State::Off { again: None };
        Link { state, turn: 0, failures: 0, first: None, appends }
    }

    pub fn is_up(&self) -> bool {
        matches!(self.state, State::On { is_up: true, .. })
    }

    /// Sends a command if the connection is up.
    pub fn ask(&mut self, what: Asked, arguments: &[&[u8]]) -> bool {
        let State::On { connection, asked, moved, is_up: true } = &mut self.state else {
            return false;
        };
        if asked.is_empty() {
            *moved = Instant::now();
        }
        request(&mut connection.out, arguments);
        asked.push_back(what);
        true
    }

    /// Closes the connection; the next one is made at once.
    pub fn close(&mut self) {
        self.state = State::Off { again: None };
    }

    /// Closes the connection; the next one is made after a pause.
    pub fn fail(&mut self, settings: &Settings) {
        self.turn += 1;
        self.failures += 1;
        // Other addresses are tried without a pause.
        let is_next = self.failures < settings.addresses.len() as u32;
        let pause = if is_next { Duration::ZERO } else { AGAIN * (1 << self.failures.min(4)) };
        self.state = State::Off { again: Some(Instant::now() + pause) };
    }

    pub fn interest(&self) -> Option<libc::pollfd> {
        match &self.state {
            State::Off { .. } => None,
            State::LookingUp { places, .. } => {
                let fd = places.descriptor();
                Some(libc::pollfd { fd, events: libc::POLLIN, revents: 0 })
            }
            State::On { connection, .. } => Some(connection.interest()),
        }
    }

    /// Notes the results of a poll.
    pub fn polled(&mut self, polled: &[libc::pollfd]) {
        if let State::On { connection, .. } = &mut self.state {
            let fd = connection.interest().fd;
            let found = polled.iter().find(|one| one.fd == fd);
            connection.polled(found.map_or(libc::POLLIN, |one| one.revents));
        }
    }

    /// Sends the pending commands.
    pub fn flush(&mut self) {
        if let State::On { connection, .. } = &mut self.state {
            connection.flush();
        }
    }

    /// Returns whether there may be more replies than [`Link::drive`] has found.
    pub fn may_hold_more(&self) -> bool {
        matches!(&self.state, State::On { connection, .. } if connection.may_hold_more())
    }

    pub fn wake_at(&self, settings: &Settings, slack: Duration) -> Instant {
        match &self.state {
            State::Off { again } => again.unwrap_or_else(Instant::now),
            State::LookingUp { since, .. } => *since + settings.timeout,
            State::On { asked, moved, .. } if !asked.is_empty() => {
                *moved + settings.timeout + slack
            }
            State::On { .. } => Instant::now() + FAR,
        }
    }

    /// Does everything that is possible without blocking. `slack`: how much longer than the timeout
    /// a reply may take.
    ///
    /// # Errors
    ///
    /// The connection has ended; commands without a reply are lost.
    pub fn drive(
        &mut self,
        now: Instant,
        settings: &Settings,
        slack: Duration,
        heard: &mut VecDeque<Heard>,
    ) -> Result<(), Trouble> {
        let done = self.step(now, settings, slack, heard);
        if done.is_err() {
            self.fail(settings);
        }
        done
    }

    fn step(
        &mut self,
        now: Instant,
        settings: &Settings,
        slack: Duration,
        heard: &mut VecDeque<Heard>,
    ) -> Result<(), Trouble> {
        match &mut self.state {
            State::Off { again } if again.is_some_and(|again| again > now) => return Ok(()),
            State::Off { .. } => {
                let address = address(settings, self.turn);
                match look_up(address).map_err(|error| unreachable(address, &error))? {
                    Ok(places) => self.connect(&places, now, settings)?,
                    Err(places) => self.state = State::LookingUp { places, since: now },
                }
            }
            State::LookingUp { places, since } => {
                let address = address(settings, self.turn);
                match places.found() {
                    Some(found) => {
                        let found = found.map_err(|error| unreachable(address, &error))?;
                        self.connect(&found, now, settings)?;
                    }
                    None if now >= *since + settings.timeout => {
                        let text = format!(
                            "{address} was not found in {:?}: check the name, or its name servers",
                            settings.timeout
                        );
                        return Err(Trouble::new(Kind::Unreachable, text));
                    }
                    None => return Ok(()),
                }
            }
            State::On { .. } => {}
        }
        self.listen(now, settings, slack, heard)
    }

    fn connect(
        &mut self,
        places: &[Place],
        now: Instant,
        settings: &Settings,
    ) -> Result<(), Trouble> {
        let address = address(settings, self.turn);
        let turn = self.turn / settings.addresses.len().max(1);
        let Some(place) = places.get(turn % places.len().max(1)) else {
            let text = format!("{address} has no address: check the name");
            return Err(Trouble::new(Kind::Unreachable, text));
        };
        let made = Connection::begin(place, settings.tls.as_ref(), settings.timeout);
        let mut connection = Box::new(made.map_err(|error| unreachable(address, &error))?);
        let (mut asked, out) = (VecDeque::new(), &mut connection.out);
        if let Some(password) = &settings.password {
            let user = settings.user.as_deref().map(str::as_bytes);
            let login = [Some(b"AUTH".as_slice()), user, Some(password.as_bytes())];
            request(out, &login.into_iter().flatten().collect::<Vec<_>>());
            asked.push_back(Asked::Login);
        }
        if settings.database != 0 {
            request(out, &[b"SELECT", settings.database.to_string().as_bytes()]);
            asked.push_back(Asked::Select);
        }
        request(out, &REPLICATION);
        request(out, &MEMORY);
        asked.extend([Asked::Replication, Asked::Memory]);
        if self.appends {
            request(out, &LARGEST);
            asked.push_back(Asked::Largest);
        }
        self.first = None;
        self.state = State::On { connection, asked, moved: now, is_up: false };
        Ok(())
    }

    fn listen(
        &mut self,
        now: Instant,
        settings: &Settings,
        slack: Duration,
        heard: &mut VecDeque<Heard>,
    ) -> Result<(), Trouble> {
        let State::On { connection, asked, moved, is_up } = &mut self.state else {
            return Ok(());
        };
        let address = address(settings, self.turn);
        let driven = connection.drive(MOST);
        if driven.as_ref().is_ok_and(|moved| *moved) {
            *moved = now;
        }
        while let Some(what) = asked.front().copied() {
            let first = &mut self.first;
            let next = connection.next(MOST, |reply| answer(what, reply, first, settings));
            match next {
                Ok(Some(said)) => heard.extend(said?),
                Ok(None) => break,
                Err(bad) => {
                    if bad == Bad::TooLong {
                        heard.push_back(Heard::TooLong);
                    }
                    return Err(not_understood(address, bad));
                }
            }
            asked.pop_front();
            if asked.is_empty() && !*is_up {
                (*is_up, self.failures) = (true, 0);
                heard.push_back(Heard::Up);
            }
        }
        if asked.is_empty() && connection.held() > 0 {
            let text = format!("{address} has sent an unexpected reply: is it a Redis or Valkey?");
            return Err(Trouble::new(Kind::NotUnderstood, text));
        }
        // A server that does not speak TLS, or speaks nothing else, is as silent as one that is
        // gone.
        let hint = match settings.tls {
            _ if *is_up => "",
            Some(_) => "; if it has no TLS at this port, its URL begins with redis://",
            None => "; if it wants TLS, its URL begins with rediss://",
        };
        driven.map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof => {
                let Trouble { kind, text } = unreachable(address, &error);
                Trouble::new(kind, text + hint)
            }
            _ => unreachable(address, &error),
        })?;
        if connection.has_ended() {
            let text = format!("{address} has closed the connection{hint}");
            return Err(Trouble::new(Kind::Unreachable, text));
        }
        if !asked.is_empty() && now >= *moved + settings.timeout + slack {
            let text = format!("{address} has not answered for {:?}{hint}", settings.timeout);
            return Err(Trouble::new(Kind::Unreachable, text));
        }
        Ok(())
    }

    /// Asks again whether the engine is a primary that does not evict the log.
    pub fn ask_role(&mut self) {
        let _ = self.ask(Asked::Replication, &REPLICATION) && self.ask(Asked::Memory, &MEMORY);
    }
}

/// Interprets a reply; an error ends the connection.
fn answer(
    what: Asked,
    reply: Reply<'_>,
    first: &mut Option<Entry>,
    settings: &Settings,
) -> Result<Option<Heard>, Trouble> {
    let strange = || {
        let text = format!("{} was answered with an unexpected reply", what.name());
        Trouble::new(Kind::NotUnderstood, text)
    };
    if let Reply::Error(error) = reply {
        let trouble = Trouble::of(what.name(), error);
        return match what {
            Asked::Add => Ok(Some(Heard::Added(Err(trouble)))),
            Asked::Trim => Ok(Some(Heard::Trimmed(Err(trouble)))),
            // Users often lack the right to ask. Then assume the default, which is more than
            // enough.
            Asked::Largest => Ok(None),
            _ => Err(trouble),
        };
    }
    Ok(match (what, reply) {
        (Asked::Login | Asked::Select, Reply::Text(_)) => None,
        (Asked::Replication, Reply::Bytes(info)) => {
            let role = field(info, "role").ok_or_else(strange)?;
            if role != "master" {
                let text = format!(
                    "it is a {role:.20} of {:.100}: name the primary, or wait for the failover",
                    field(info, "master_host").unwrap_or("another")
                );
                return Err(Trouble::new(Kind::NotPrimary, text));
            }
            None
        }
        (Asked::Memory, Reply::Bytes(info)) => {
            let policy = field(info, "maxmemory_policy").unwrap_or(KEEPS);
            if policy != KEEPS {
                let text = format!(
                    "its maxmemory-policy is {policy:.40}, which may drop the log: set it to {KEEPS}"
                );
                return Err(Trouble::new(Kind::Evicts, text));
            }
            None
        }
        (Asked::Largest, Reply::List(found)) => match &found[..] {
            [_, Reply::Bytes(bytes)] => {
                let bytes = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
                bytes.map(Heard::Largest)
            }
            _ => None,
        },
        (Asked::Add, Reply::Nil) => Some(Heard::Added(Ok(None))),
        (Asked::Add, Reply::Bytes(id)) => {
            Some(Heard::Added(Ok(Some(Id::read(id).ok_or_else(strange)?))))
        }
        (Asked::Trim, Reply::Number(count)) => {
            Some(Heard::Trimmed(Ok(u64::try_from(count).map_err(|_| strange())?)))
        }
        (Asked::Read, Reply::Nil) => Some(Heard::Read(Vec::new())),
        (Asked::Read, Reply::List(streams)) => {
            let [Reply::List(stream)] = &streams[..] else { return Err(strange()) };
            let [Reply::Bytes(name), entries] = &stream[..] else { return Err(strange()) };
            if *name != settings.stream {
                return Err(strange());
            }
            let entries = entries_of(entries)?;
            Some(Heard::Read(entries.into_iter().map(owned).collect()))
        }
        (Asked::Known, entries) => {
            let entries = entries_of(&entries)?;
            Some(Heard::Known(entries.first().map(|(_, bytes)| mark(bytes))))
        }
        (Asked::Look { left }, entries) => {
            let found = entries_of(&entries)?.into_iter().next().map(owned);
            Some(Heard::Looked { found, left })
        }
        (Asked::First, entries) => {
            *first = entries_of(&entries)?.into_iter().next().map(owned);
            None
        }
        (Asked::Last, entries) => {
            let last = entries_of(&entries)?.into_iter().next().map(owned);
            Some(Heard::Ends(first.take().zip(last)))
        }
        _ => return Err(strange()),
    })
}

impl Asked {
    fn name(self) -> &'static str {
        match self {
            Asked::Login => "AUTH",
            Asked::Select => "SELECT",
            Asked::Replication | Asked::Memory => "INFO",
            Asked::Largest => "CONFIG",
            Asked::Add => "XADD",
            Asked::Read => "XREAD",
            Asked::Known | Asked::First | Asked::Look { .. } => "XRANGE",
            Asked::Last => "XREVRANGE",
            Asked::Trim => "EVAL/XTRIM",
        }
    }
}

fn owned((id, bytes): (Id, &[u8])) -> Entry {
    Entry { id, time: id.ms, bytes: bytes.to_vec() }
}

fn entries_of<'a>(reply: &Reply<'a>) -> Result<Vec<(Id, &'a [u8])>, Trouble> {
    let Reply::List(entries) = reply else { return Err(not_entries()) };
    entries.iter().map(|one| entry_of(one).ok_or_else(not_entries)).collect()
}

/// Parses an entry with the one field of the log's entries.
fn entry_of<'a>(reply: &Reply<'a>) -> Option<(Id, &'a [u8])> {
    let Reply::List(parts) = reply else { return None };
    let [Reply::Bytes(id), Reply::List(fields)] = &parts[..] else { return None };
    let id = Id::read(id)?;
    match &fields[..] {
        [Reply::Bytes(FIELD), Reply::Bytes(bytes)] => Some((id, bytes)),
        // Written by somebody else: the owner sees that it is not its own.
        _ => Some((id, &[])),
    }
}

fn not_entries() -> Trouble {
    Trouble::new(Kind::NotUnderstood, "its answer is not a list of stream entries")
}

fn field<'a>(info: &'a [u8], name: &str) -> Option<&'a str> {
    let info = std::str::from_utf8(info).ok()?;
    let of = |line: &'a str| line.strip_prefix(name)?.strip_prefix(':');
    info.lines().find_map(of).map(str::trim_end)
}

fn address(settings: &Settings, turn: usize) -> &str {
    let addresses = &settings.addresses;
    addresses.get(turn % addresses.len().max(1)).map_or("", String::as_str)
}

fn unreachable(address: &str, error: &io::Error) -> Trouble {
    let why = match error.kind() {
        io::ErrorKind::UnexpectedEof => "it closed the connection".to_owned(),
        _ => error.to_string(),
    };
    Trouble::new(Kind::Unreachable, format!("{address}: {why}"))
}

fn not_understood(address: &str, bad: Bad) -> Trouble {
    let text = match bad {
        Bad::Garbage => format!(
            "{address} does not speak the Redis protocol: check the address, and whether it wants TLS"
        ),
        Bad::TooLong => {
            format!("{address} has sent a reply of more than {} MiB", MOST >> 20)
        }
    };
    Trouble::new(Kind::NotUnderstood, text)
}

const REPLICATION: [&[u8]; 2] = [b"INFO", b"replication"];
const MEMORY: [&[u8]; 2] = [b"INFO", b"memory"];
const LARGEST: [&[u8]; 3] = [b"CONFIG", b"GET", b"proto-max-bulk-len"];
const KEEPS: &str = "noeviction";
/// The first pause before reconnecting; it doubles up to sixteen times as long.
const AGAIN: Duration = Duration::from_millis(50);
/// Wait while there is nothing to do.
const FAR: Duration = Duration::from_secs(60);
/// Maximum bytes of a reply.
pub const MOST: usize = 256 << 20;
