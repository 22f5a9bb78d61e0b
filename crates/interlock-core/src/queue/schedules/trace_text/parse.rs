//! Parses the text of a schedule. An error names the line and the reason; no text causes a panic.

use std::fmt::Display;
use std::str::FromStr;

use super::{kind_name, revoke_then_name, then_name, KINDS, REVOKE_THENS, THENS};
use crate::queue::schedules::trace::{Call, PutCall, Step};
use crate::queue::types::limits::{Declared, Value, BETWEEN};
use crate::queue::types::options::NUMBERS;
use crate::queue::types::rules::{Rules, RULES};
use crate::queue::types::{Behind, Kind, Options, Retry, RevokeThen};

pub(in crate::queue::schedules::trace_text) fn parse_options(
    line: &str,
) -> Result<(Options, &'static Rules), String> {
    let mut fields = Fields::parse("options", line.split_ascii_whitespace().skip(1))?;
    let version = fields.number_or("rules", RULES[0].version)?;
    let rules = Rules::find(RULES, version).map_err(|known| {
        format!(
            "options: rules={version} is an unknown version of the rules; allowed: {known}; \
             use the version of Interlock that recorded it, or a later one"
        )
    })?;
    let base = Options::default();
    let mut options = Options {
        max_messages: fields.number_or("max_messages", base.max_messages)?,
        max_bytes: fields.number_or("max_bytes", base.max_bytes)?,
        lease: fields.number_or_none("lease", base.lease)?,
        retry: Retry {
            attempts: fields.number_or_none("retry.attempts", base.retry.attempts)?,
            first: fields.number_or("retry.first", base.retry.first)?,
            factor: fields.number_or("retry.factor", base.retry.factor)?,
            longest: fields.number_or("retry.longest", base.retry.longest)?,
            jitter: fields.number_or("retry.jitter", base.retry.jitter)?,
            then: fields.one_of("retry.then", base.retry.then, &THENS, then_name)?,
        },
        ..base
    };
    for one in &NUMBERS {
        let value = fields.number_or(one.name, (one.get)(&options))?;
        if !(one.set)(&mut options, value) {
            return Err(fields.wrong(one.name, format!("{value} is too large")));
        }
    }
    options.limits = fields.declared("limits")?;
    options.weights = fields.declared("weights")?;
    options.behind = fields.behind()?.unwrap_or_default();
    fields.finish()?;
    if !options.retry.factor.is_finite() {
        return Err("options: retry.factor is not finite".into());
    }
    Ok((options, rules))
}

pub(in crate::queue::schedules::trace_text) fn parse_step(line: &str) -> Result<Step, String> {
    let mut words = line.split_ascii_whitespace();
    let time = words.next().ok_or("empty; wanted: TIME CALL [field=value ...]")?;
    let now =
        time.parse().map_err(|_| format!("the time is {time:?}; allowed: a whole number of µs"))?;
    let call = words.next().ok_or("no call after the time")?;
    Ok(Step { now, call: parse_call(call, words)? })
}

fn parse_call<'a>(name: &'a str, words: impl Iterator<Item = &'a str>) -> Result<Call, String> {
    if name == "put_many" {
        return parse_batch(words);
    }
    let mut fields = Fields::parse(name, words)?;
    let call = match name {
        "put" => Call::Put(parse_put(&mut fields)?),
        "lease" => Call::Lease {
            kind: fields.one_of("kind", Kind::Any, &KINDS, kind_name)?,
            limit: fields.number_or("limit", 1)?,
        },
        "ack" => Call::Ack { token: fields.number("token")? },
        "nack" => Call::Nack {
            token: fields.number("token")?,
            delay: fields.optional_number("delay")?,
            error: fields.text("error")?.unwrap_or_default(),
        },
        "reject" => Call::Reject {
            token: fields.number("token")?,
            reason: fields.text("reason")?.unwrap_or_default(),
        },
        "exhaust" => Call::Exhaust {
            token: fields.number("token")?,
            error: fields.text("error")?.unwrap_or_default(),
        },
        "release" => Call::Release { token: fields.number("token")? },
        "defer" => Call::Defer { token: fields.number("token")?, delay: fields.number("delay")? },
        "extend" => Call::Extend { token: fields.number("token")?, by: fields.number("by")? },
        "cancel" => Call::Cancel { id: fields.number("id")? },
        "revoke" => Call::Revoke {
            id: fields.number("id")?,
            then: fields.one_of("then", RevokeThen::Retry, &REVOKE_THENS, revoke_then_name)?,
        },
        "retry" => Call::Retry { id: fields.number("id")? },
        "skip" => Call::Skip { id: fields.number("id")? },
        "bury" => Call::Bury { id: fields.number("id")? },
        "requeue" => Call::Requeue { id: fields.number("id")? },
        "discard" => Call::Discard { id: fields.number("id")? },
        "pause" => Call::Pause { key: fields.key("key")? },
        "resume" => Call::Resume { key: fields.key("key")? },
        "limits" => Call::Limits { limits: fields.declared("limits")? },
        "weights" => Call::Weights { weights: fields.declared("weights")? },
        "behind" => Call::Behind { behind: fields.behind()?.ok_or("behind: no field behind")? },
        "close_limit" => Call::CloseLimit {
            name: fields.key("name")?.ok_or("close_limit: no field name")?,
            delay: fields.number("delay")?,
        },
        "explain" => Call::Explain { id: fields.number("id")?, limit: fields.number("limit")? },
        "explain_key" => Call::ExplainKey {
            key: fields.key("key")?.ok_or("explain_key: no field key")?,
            limit: fields.number("limit")?,
        },
        "stats" => Call::Stats,
        "hot_keys" => Call::HotKeys { limit: fields.number("limit")? },
        "dead_letters" => Call::DeadLetters { limit: fields.number("limit")? },
        "tick" => Call::Tick,
        "cancel_all" => Call::CancelAll,
        _ => return Err(format!("no call is named {name:?}")),
    };
    fields.finish()?;
    Ok(call)
}

fn parse_batch<'a>(words: impl Iterator<Item = &'a str>) -> Result<Call, String> {
    let words: Vec<&str> = words.collect();
    let mut parts = words.split(|word| *word == "|");
    if let Some([stray, ..]) = parts.next() {
        return Err(format!("put_many: {stray:?} precedes the first |"));
    }
    let put = |part: &[&'a str]| {
        let mut fields = Fields::parse("put_many", part.iter().copied())?;
        let put = parse_put(&mut fields)?;
        fields.finish().map(|()| put)
    };
    Ok(Call::PutMany(parts.map(put).collect::<Result<_, _>>()?))
}

fn parse_put(fields: &mut Fields<'_>) -> Result<PutCall, String> {
    Ok(PutCall {
        keys: fields.keys("keys")?,
        shared: fields.keys("shared")?,
        priority: fields.number_or("priority", 0)?,
        delay: fields.number_or("delay", 0)?,
        dedup: fields.text("dedup")?,
        barrier: fields.number_or("barrier", false)?,
        size: fields.number_or("size", 0)?,
        limit: fields.names()?,
        group: fields.group()?,
        coalesce: fields.key("coalesce")?,
        debounce: fields.number_or("debounce", 0)?,
        within: fields.number_or("within", 0)?,
        behind: fields.behind()?,
    })
}

/// The fields of one call, each to be taken once.
struct Fields<'a> {
    call: &'a str,
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Fields<'a> {
    fn parse(call: &'a str, words: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for word in words {
            let (name, value) = word
                .split_once('=')
                .ok_or_else(|| format!("{call}: {word:?} is not of the form field=value"))?;
            if pairs.iter().any(|(known, _)| *known == name) {
                return Err(format!("{call}: {name} is given twice"));
            }
            pairs.push((name, value));
        }
        Ok(Fields { call, pairs })
    }

    fn take(&mut self, name: &str) -> Option<&'a str> {
        let at = self.pairs.iter().position(|(known, _)| *known == name)?;
        Some(self.pairs.swap_remove(at).1)
    }

    fn finish(self) -> Result<(), String> {
        match self.pairs.first() {
            Some((name, _)) => Err(format!("{}: no field is named {name:?}", self.call)),
            None => Ok(()),
        }
    }

    fn wrong(&self, name: &str, why: impl Display) -> String {
        format!("{}: {name}: {why}", self.call)
    }

    /// A number, or whatever else the type reads; `None` if the field is not there.
    fn optional_number<T: FromStr<Err: Display>>(
        &mut self,
        name: &str,
    ) -> Result<Option<T>, String> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        value.parse().map(Some).map_err(|why| self.wrong(name, format!("{value:?}: {why}")))
    }

    fn number<T: FromStr<Err: Display>>(&mut self, name: &str) -> Result<T, String> {
        self.optional_number(name)?.ok_or_else(|| format!("{}: no field {name}", self.call))
    }

    fn number_or<T: FromStr<Err: Display>>(&mut self, name: &str, other: T) -> Result<T, String> {
        Ok(self.optional_number(name)?.unwrap_or(other))
    }

    fn number_or_none<T>(&mut self, name: &str, other: Option<T>) -> Result<Option<T>, String>
    where
        T: FromStr<Err: Display>,
    {
        if self.pairs.contains(&(name, "none")) {
            self.take(name);
            return Ok(None);
        }
        Ok(self.optional_number(name)?.or(other))
    }

    fn one_of<T: Copy>(
        &mut self,
        name: &str,
        other: T,
        all: &[T],
        spell: fn(T) -> &'static str,
    ) -> Result<T, String> {
        let Some(value) = self.take(name) else {
            return Ok(other);
        };
        all.iter().copied().find(|one| spell(*one) == value).ok_or_else(|| {
            let allowed = all.iter().map(|one| spell(*one)).collect::<Vec<_>>().join(", ");
            self.wrong(name, format!("{value:?}; allowed: {allowed}"))
        })
    }

    fn key(&mut self, name: &str) -> Result<Option<Vec<u8>>, String> {
        self.take(name)
            .map(|value| unescape(value).map_err(|why| self.wrong(name, why)))
            .transpose()
    }

    fn keys(&mut self, name: &str) -> Result<Vec<Vec<u8>>, String> {
        let Some(value) = self.take(name) else {
            return Ok(Vec::new());
        };
        value.split(',').map(|key| unescape(key).map_err(|why| self.wrong(name, why))).collect()
    }

    fn declared<V: Value>(&mut self, name: &str) -> Result<Declared<V>, String> {
        let text = self.key(name)?.unwrap_or_default();
        Declared::parse(&text).map_err(|why| self.wrong(name, why))
    }

    fn group(&mut self) -> Result<Vec<u8>, String> {
        let group = self.key("group")?.unwrap_or_default();
        if group.contains(&BETWEEN) {
            return Err(self.wrong("group", "has the byte 0x1F"));
        }
        Ok(group)
    }

    fn behind(&mut self) -> Result<Option<Behind>, String> {
        let given = self.pairs.iter().any(|(name, _)| *name == "behind");
        let value = self.one_of("behind", Behind::Wait, &Behind::ALL, Behind::word)?;
        Ok(given.then_some(value))
    }

    fn names(&mut self) -> Result<Vec<Vec<u8>>, String> {
        let names = self.keys("limit")?;
        let wrong = names.iter().any(|name| name.is_empty() || name.contains(&BETWEEN));
        if wrong {
            return Err(self.wrong("limit", "has an empty name, or one with the byte 0x1F"));
        }
        Ok(names)
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, String> {
        let Some(bytes) = self.key(name)? else {
            return Ok(None);
        };
        String::from_utf8(bytes).map(Some).map_err(|_| self.wrong(name, "not UTF-8"))
    }
}

fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digit = |at: usize| rest.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        let (Some(high), Some(low)) = (digit(0), digit(1)) else {
            return Err(format!("{text:?}: % wants two hexadecimal digits"));
        };
        bytes.push((high * 16 + low) as u8);
        rest = &rest[2..];
    }
    Ok(bytes)
}
