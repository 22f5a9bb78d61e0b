//! `il1_announce`, `il1_workers`, `il1_ask`: who works at a queue, and what they are asked.
//!
//! It is ephemeral, and separate from the queues, so that an announcement creates no queue.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use hashbrown::HashMap;
use interlock_core::queue::types::Time;

use crate::calls::read::Strings;
use crate::queue::shared::{Account, Context, Shared};
use crate::queue::Queue;
use crate::values::args::{refuse, Args, Read, Reader};
use crate::values::reply;
use crate::wire::codes::Code;
use crate::wire::limits::*;

/// The time at which a worker is forgotten, its queue and its name.
type End = (Time, Box<[u8]>, Box<[u8]>);

/// The workers of all queues.
#[derive(Default)]
pub struct Workers {
    queues: HashMap<Box<[u8]>, Directory, std::hash::RandomState>,
    /// The next one first.
    ends: BTreeSet<End>,
}

/// The workers of one queue.
#[derive(Default)]
struct Directory {
    workers: BTreeMap<Box<[u8]>, Worker>,
    /// The number of the last request.
    last: u64,
    /// The accounts in which they count.
    accounts: Vec<Arc<Account>>,
}

struct Worker {
    text: Box<[u8]>,
    at: Time,
    until: Time,
    requests: VecDeque<(u64, Box<[u8]>)>,
}

/// Bytes that a worker, and a request, take beside their texts, about.
const OVERHEAD: u64 = 320;
/// Bytes of the directory of a queue beside its workers and its name, about.
const OF_A_DIRECTORY: u64 = 1280;

/// Bytes of a worker with this text.
fn of_a_worker(queue: &[u8], name: &[u8], text: &[u8]) -> u64 {
    (text.len() + 2 * name.len() + queue.len()) as u64 + OVERHEAD
}

fn of_a_directory(queue: &[u8]) -> u64 {
    queue.len() as u64 + OF_A_DIRECTORY
}

impl Worker {
    fn weight(&self, queue: &[u8], name: &[u8]) -> u64 {
        let requests = self.requests.iter().map(|(_, text)| text.len() as u64 + OVERHEAD);
        of_a_worker(queue, name, &self.text) + requests.sum::<u64>()
    }
}

impl Directory {
    /// Counts bytes taken, more or less than before.
    fn count(&self, shared: &Shared, before: u64, after: u64) {
        // The difference may wrap, as the sum over all queues does; the result is right.
        shared.count_beside(&self.accounts, after.wrapping_sub(before));
    }
}

impl Workers {
    /// Removes expired workers. Returns the time of the next check.
    pub fn expire(&mut self, shared: &Shared, now: Time) -> Time {
        while self.ends.first().is_some_and(|(until, ..)| *until <= now) {
            let (_, queue, worker) = self.ends.pop_first().expect("as just seen");
            self.take_out(shared, &queue, &worker, now);
        }
        self.first_end()
    }

    fn first_end(&self) -> Time {
        self.ends.first().map_or(Time::MAX, |(until, ..)| *until)
    }

    /// Workers count in other accounts from now on.
    pub fn set_accounts(&mut self, shared: &Shared) {
        for (queue, directory) in &mut self.queues {
            let weights = directory.workers.iter().map(|(name, one)| one.weight(queue, name));
            let weight = weights.sum::<u64>() + of_a_directory(queue);
            directory.count(shared, weight, 0);
            directory.accounts = shared.accounts_of(queue);
            directory.count(shared, 0, weight);
        }
    }

    fn take_out(
        &mut self,
        shared: &Shared,
        queue: &[u8],
        name: &[u8],
        now: Time,
    ) -> Option<Worker> {
        let directory = self.queues.get_mut(queue)?;
        let worker = directory.workers.remove(name)?;
        directory.count(shared, worker.weight(queue, name), 0);
        // Its last number is known until the time is beyond it, so none repeats.
        if directory.workers.is_empty() && directory.last <= now {
            directory.count(shared, of_a_directory(queue), 0);
            self.queues.remove(queue);
        }
        Some(worker)
    }

    /// All of a queue go.
    pub fn drop_queue(&mut self, shared: &Shared, queue: &[u8]) {
        let Some(directory) = self.queues.remove(queue) else { return };
        directory.count(shared, of_a_directory(queue), 0);
        for (name, worker) in &directory.workers {
            directory.count(shared, worker.weight(queue, name), 0);
            self.ends.remove(&(worker.until, queue.into(), name.clone()));
        }
    }
}

fn worker<'a, A: Args + ?Sized>(from: &mut Reader<'a, A>) -> Read<&'a [u8]> {
    let name = from.text(MAX_NAME, || "worker".into())?;
    if name.is_empty() {
        return from.bad(|| "worker".into(), "is empty");
    }
    Ok(name)
}

impl Queue {
    /// `il1_announce`.
    pub fn announce<A: Args + ?Sized>(
        &self,
        from: &mut Reader<'_, A>,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Read<()> {
        let name = worker(from)?;
        let ttl = from.natural(0, MAX_SPAN, || "ttl".into())?;
        let text = from.text(MAX_ANNOUNCED, || "text".into())?;
        from.end()?;
        let (shared, now) = (cx.shared, cx.now.max(self.scheduler.last_time()));
        let mut workers = shared.workers.lock();
        workers.expire(shared, now);
        let known = workers.queues.get(&self.name);
        let before = known.and_then(|directory| directory.workers.get(name));
        let (had, end) =
            before.map_or((0, None), |one| (one.weight(&self.name, name), Some(one.until)));
        if ttl > 0 {
            let more = of_a_worker(&self.name, name, text)
                + known.map_or(of_a_directory(&self.name), |_| 0);
            if more > had && more - had > cx.free() {
                return Err(cx.out_of_memory(more - had, from.called));
            }
            if had == 0 && known.is_some_and(|one| one.workers.len() >= MAX_WORKERS) {
                let text = format_args!("more than {MAX_WORKERS} workers");
                return refuse(Code::TooBig, from.called, text);
            }
        }
        if let Some(end) = end {
            workers.ends.remove(&(end, self.name.clone(), name.into()));
        }
        let requests = if ttl == 0 {
            let gone = workers.take_out(shared, &self.name, name, now);
            gone.map(|worker| worker.requests).unwrap_or_default()
        } else {
            let until = now + ttl;
            workers.ends.insert((until, self.name.clone(), name.into()));
            let directory = workers.queues.entry_ref(&*self.name).or_insert_with(|| {
                let accounts = shared.accounts_of(&self.name);
                let new = Directory { accounts, ..Directory::default() };
                new.count(shared, 0, of_a_directory(&self.name));
                new
            });
            let new = Worker { text: text.into(), at: now, until, requests: VecDeque::new() };
            let weight = new.weight(&self.name, name);
            let old = directory.workers.insert(name.into(), new);
            directory.count(shared, had, weight);
            old.map(|worker| worker.requests).unwrap_or_default()
        };
        let end = workers.first_end();
        drop(workers);
        shared.sweep_beside_at(end);
        reply::array(out, 2 * requests.len());
        for (number, text) in &requests {
            reply::number(out, *number);
            reply::text(out, text);
        }
        Ok(())
    }

    /// `il1_workers`.
    pub fn workers<A: Args + ?Sized>(
        &self,
        from: &mut Reader<'_, A>,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Read<()> {
        let after = from.text(MAX_NAME, || "after".into())?;
        let count = from.natural(1, MAX_BATCH as u64, || "count".into())? as usize;
        from.end()?;
        let now = cx.now.max(self.scheduler.last_time());
        let mut workers = cx.shared.workers.lock();
        workers.expire(cx.shared, now);
        let mut told = Strings::default();
        if let Some(directory) = workers.queues.get(&self.name) {
            let (mut left, mut bytes) = (count, 0);
            let behind = (Bound::Excluded(after), Bound::Unbounded);
            for (name, worker) in directory.workers.range::<[u8], _>(behind) {
                told.text(name);
                told.number(now.saturating_sub(worker.at));
                told.number(worker.until - now);
                told.text(&worker.text);
                left -= 1;
                bytes += name.len() + worker.text.len();
                if left == 0 || bytes >= MAX_TOLD {
                    break;
                }
            }
        }
        told.end(out);
        Ok(())
    }

    /// `il1_ask`.
    pub fn ask<A: Args + ?Sized>(
        &self,
        from: &mut Reader<'_, A>,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Read<()> {
        let name = worker(from)?;
        let text = from.text(MAX_ASKED, || "text".into())?;
        from.end()?;
        let (shared, now) = (cx.shared, cx.now.max(self.scheduler.last_time()));
        let mut workers = shared.workers.lock();
        workers.expire(shared, now);
        let directory = workers.queues.get_mut(&self.name);
        let Some(directory) = directory.filter(|one| one.workers.contains_key(name)) else {
            reply::array(out, 0);
            return Ok(());
        };
        let bytes = text.len() as u64 + OVERHEAD;
        if bytes > cx.free() {
            return Err(cx.out_of_memory(bytes, from.called));
        }
        directory.last = now.max(directory.last + 1);
        let number = directory.last;
        let worker = directory.workers.get_mut(name).expect("as just seen");
        let before = worker.weight(&self.name, name);
        if worker.requests.len() == MAX_REQUESTS {
            worker.requests.pop_front();
        }
        worker.requests.push_back((number, text.into()));
        let after = worker.weight(&self.name, name);
        directory.count(shared, before, after);
        reply::array(out, 1);
        reply::number(out, number);
        Ok(())
    }
}
