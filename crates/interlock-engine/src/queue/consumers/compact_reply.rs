//! The short form of the reply to a lease, stored when complete replies take too much memory: it leaves out
//! the data that the queue has.

use crate::calls::settle::Answer;
use crate::values::reply;
use crate::wire::functions::Function;

#[derive(Debug, PartialEq, Eq)]
pub struct Short {
    /// Answers to an `il1_next`.
    pub answers: Option<Box<[Answer]>>,
    pub token: u64,
    pub deadline: u64,
    /// In the order in which they were leased.
    pub ids: Box<[u64]>,
}

impl Short {
    /// Returns the short form of a reply; `None` if it leases nothing.
    pub fn of(function: Function, reply: &[u8]) -> Option<Short> {
        let parts = match function {
            Function::Lease | Function::Next => reply::parse(reply).ok()?,
            _ => return None,
        };
        let (answers, lease) = match function {
            Function::Next => {
                let count = number(parts[0])? as usize;
                let answers: Option<Box<[Answer]>> =
                    parts[1..=count].iter().map(|text| Answer::of(text)).collect();
                (Some(answers?), &parts[1 + count..])
            }
            _ => (None, &parts[..]),
        };
        let [token, deadline, _next, count, messages @ ..] = lease else { return None };
        let mut ids = Vec::with_capacity(number(count)? as usize);
        let mut left = messages;
        while let [id, _sequence, _attempt, _payload, exclusive, shared, keys @ ..] = left {
            ids.push(number(id)?);
            left = &keys[number(exclusive)? as usize + number(shared)? as usize..];
        }
        let (token, deadline) = (number(token)?, number(deadline)?);
        Some(Short { answers, token, deadline, ids: ids.into() })
    }

    pub fn bytes(&self) -> usize {
        8 * self.ids.len() + self.answers.as_ref().map_or(0, |answers| answers.len())
    }
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
