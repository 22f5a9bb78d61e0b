//! The commands by which a client says who it is: AUTH, HELLO.

use std::sync::atomic::Ordering::Relaxed;

use super::{is_printable, BAD_NAME, LONGEST_NAME, LONG_NAME};
use crate::access::users::{Reason, DEFAULT};
use crate::catalog::REDIS_VERSION;
use crate::command::pending::{Login, LoginCommand, Pending};
use crate::command::state::State;
use crate::command::{ask, Call};
use crate::resp::parse::integer;
use crate::resp::write::Writer;
use crate::shared::events::{Answer, Level, Question};
use crate::shared::Core;
use crate::watch::counters::add;

enum Outcome {
    Done,
    Refused,
    Asked,
    /// The password was not checked, because too many checks are running.
    Busy(String),
}

pub fn auth(call: &mut Call<'_, '_>) {
    let (user, password) = match call.arguments.len() {
        2 => {
            let open = call.core.local.live.users.anonymous().is_some();
            if open {
                return call.error(NO_PASSWORD);
            }
            (DEFAULT.as_bytes(), 1)
        }
        3 => (&call.arguments[1], 2),
        _ => return call.syntax_error(),
    };
    let (user, password) = (user.to_vec(), call.arguments[password].to_vec());
    let login =
        Login { user, password, by: LoginCommand::Auth, users: call.core.local.live.users.clone() };
    match log_in(call.state, call.core, login) {
        Outcome::Done => call.reply.ok(),
        Outcome::Refused => call.error(WRONG_PASSWORD),
        // Only the controller returns these.
        Outcome::Busy(_) | Outcome::Asked => {}
    }
}

pub fn hello(call: &mut Call<'_, '_>) {
    let mut resp3 = call.state.resp3;
    if let Some(version) = call.arguments.get(1) {
        resp3 = match integer(version) {
            None => return call.error("ERR Protocol version is not an integer or out of range"),
            Some(2) => false,
            Some(3) => true,
            Some(_) => return call.error("NOPROTO unsupported protocol version"),
        };
    }
    let (mut at, mut login) = (2, None);
    while at < call.arguments.len() {
        let left = call.arguments.len() - at - 1;
        if call.is(at, "AUTH") && left >= 2 {
            let (user, password) = (&call.arguments[at + 1], &call.arguments[at + 2]);
            let (user, password) = (user.to_vec(), password.to_vec());
            let users = call.core.local.live.users.clone();
            login = Some(Login { user, password, by: LoginCommand::Hello { resp3 }, users });
            at += 3;
        } else if call.is(at, "SETNAME") && left >= 1 {
            let name = &call.arguments[at + 1];
            if !is_printable(name) {
                return call.error(BAD_NAME);
            }
            if name.len() > LONGEST_NAME {
                return call.error(LONG_NAME);
            }
            // At once, as in Redis: it stays although a later option is wrong.
            *call.state.card.name.lock() = name.into();
            at += 2;
        } else {
            let head: &[u8] = b"ERR Syntax error in HELLO option '";
            let text = [head, &call.arguments[at], b"'"].concat();
            return call.error_bytes(&text);
        }
    }
    match login.map(|login| log_in(call.state, call.core, login)) {
        Some(Outcome::Refused) => return call.error(WRONG_PASSWORD),
        Some(Outcome::Busy(_) | Outcome::Asked) => return,
        Some(Outcome::Done) | None => {}
    }
    if call.state.user.is_none() {
        return call.error(HELLO_FIRST);
    }
    greet(call.state, resp3, &mut call.reply);
}

fn greet(state: &mut State, resp3: bool, reply: &mut Writer<'_>) {
    state.resp3 = resp3;
    reply.resp3 = resp3;
    state.card.resp.store(if resp3 { 3 } else { 2 }, Relaxed);
    reply.map(7);
    // Clients look at these: what they know of a Redis 7.0 they may rely on here.
    for (key, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply.bulk(key.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.integer(if resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.integer(state.card.id as i64);
    for (key, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(key.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
}

fn log_in(state: &mut State, core: &Core<'_>, login: Login) -> Outcome {
    let users = &login.users;
    let user = users.named(&login.user).cloned();
    match user {
        Some(user) if user.open => {
            state.become_user(Some(user), false);
            Outcome::Done
        }
        Some(user) if users.remembers(&login.user, &login.password) => {
            state.become_user(Some(user), true);
            Outcome::Done
        }
        // Also asked for an unknown user if any user has a password: the time of the reply must not
        // reveal which users exist.
        _ if users.have_passwords() && core.shared.settings.controlled => {
            let (user, password) = (login.user.clone(), login.password.clone());
            let host = state.card.host().to_owned();
            let question = Question::Password { host, user, password };
            ask(state, core, question, Pending::Login(login));
            Outcome::Asked
        }
        _ => {
            failed(state, core, &login.user);
            Outcome::Refused
        }
    }
}

fn failed(state: &State, core: &Core<'_>, user: &[u8]) {
    add(&core.shared.counters.login_failures, 1);
    core.shared.denials.add(Reason::Password, b"AUTH", user, &state.card, core.now);
    let user = user[..user.len().min(64)].escape_ascii();
    let text = format!("login failed: user \"{user}\" from {}", state.card.address);
    core.shared.events.log(Level::Warning, text);
}

/// The controller has looked at the password.
pub fn answered(
    login: Login,
    answer: Answer,
    state: &mut State,
    core: &mut Core<'_>,
    mut reply: Writer<'_>,
) {
    let (users, by) = (core.local.live.users.clone(), login.by);
    let outcome = if !users.are(&login.users) {
        // The password may be outdated, or another user's: the answer is worth nothing.
        log_in(state, core, Login { users, ..login })
    } else {
        match (answer, users.named(&login.user)) {
            (Answer::Accepted, Some(user)) => {
                users.remember(&login.user, &login.password);
                state.become_user(Some(user.clone()), true);
                Outcome::Done
            }
            (Answer::Refused(text), _) if !text.starts_with("WRONGPASS") => Outcome::Busy(text),
            _ => {
                failed(state, core, &login.user);
                Outcome::Refused
            }
        }
    };
    match (outcome, by) {
        (Outcome::Asked, _) => {}
        (Outcome::Busy(text), _) => {
            add(&core.shared.counters.login_refusals, 1);
            core.count_error(text.as_bytes());
            reply.error(text.as_bytes());
        }
        (Outcome::Refused, _) => {
            core.count_error(WRONG_PASSWORD.as_bytes());
            reply.error(WRONG_PASSWORD.as_bytes());
        }
        (Outcome::Done, LoginCommand::Auth) => reply.ok(),
        (Outcome::Done, LoginCommand::Hello { resp3 }) => greet(state, resp3, &mut reply),
    }
}

pub const WITHOUT_LOGIN: &str = "NOAUTH Authentication required.";
const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the \
     default user. Are you sure your configuration is correct?";
const HELLO_FIRST: &str = "NOAUTH HELLO must be called with the client already authenticated, \
     otherwise the HELLO AUTH <user> <pass> option can be used to authenticate the client and \
     select the RESP protocol version at the same time";
