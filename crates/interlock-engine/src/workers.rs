//! `il1_announce`, `il1_workers`, `il1_ask`: who works at a queue, and what they are asked.
//!
//! It is ephemeral, and lies beside the queues by their names, so that to announce oneself makes no queue.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use hashbrown::HashMap;
use interlock_core::queue::types::Time;

use crate::args::{refuse, Args, Read, Reader};
use crate::queue::Queue;
use crate::read::Strings;
use crate::reply;
use crate::shared::{Account, Context, Shared};
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

/// Those of one queue.
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
const OVERHEAD: u64 = 256;

impl Worker {
    fn weight(&self, name: &[u8]) -> u64 {
        let requests = self.requests.iter().map(|(_, text)| text.len() as u64 + OVERHEAD);
        self.text.len() as u64 + 3 * name.len() as u64 + OVERHEAD + requests.sum::<u64>()
    }
}

impl Directory {
    /// So many bytes more, or less, are taken.
    fn count(&self, shared: &Shared, before: u64, after: u64) {
        // It wraps to what it should be, as the sum of all queues does.
        let more = after.wrapping_sub(before);
        shared.used.fetch_add(more, Ordering::Relaxed);
        self.accounts.iter().for_each(|account| account.add(more));
    }
}

impl Workers {
    /// Those whose time is over go.
    fn expire(&mut self, shared: &Shared, now: Time) {
        while self.ends.first().is_some_and(|(until, ..)| *until <= now) {
            let (_, queue, worker) = self.ends.pop_first().expect("as just seen");
            self.take_out(shared, &queue, &worker, now);
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
        directory.count(shared, worker.weight(name), 0);
        // Its last number is known until the time is beyond it, for none comes again.
        if directory.workers.is_empty() && directory.last <= now {
            self.queues.remove(queue);
        }
        Some(worker)
    }

    /// All of a queue go.
    pub fn drop_queue(&mut self, shared: &Shared, queue: &[u8]) {
        let Some(directory) = self.queues.remove(queue) else { return };
        for (name, worker) in &directory.workers {
            directory.count(shared, worker.weight(name), 0);
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
        let (had, end) = before.map_or((0, None), |one| (one.weight(name), Some(one.until)));
        if ttl > 0 {
            let more = text.len() as u64 + 3 * name.len() as u64 + OVERHEAD;
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
            let directory = workers.queues.entry_ref(&*self.name).or_insert_with(|| Directory {
                accounts: shared.accounts_of(&self.name),
                ..Directory::default()
            });
            let new = Worker { text: text.into(), at: now, until, requests: VecDeque::new() };
            let weight = new.weight(name);
            let old = directory.workers.insert(name.into(), new);
            directory.count(shared, had, weight);
            old.map(|worker| worker.requests).unwrap_or_default()
        };
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
        let before = worker.weight(name);
        if worker.requests.len() == MAX_REQUESTS {
            worker.requests.pop_front();
        }
        worker.requests.push_back((number, text.into()));
        let after = worker.weight(name);
        directory.count(shared, before, after);
        reply::array(out, 1);
        reply::number(out, number);
        Ok(())
    }
}
