//! Links: changed rows of one data centre go into the log of the other, with notes of how far they
//! were sent, as in `links.py` and the node's `outside.rs`.

use fastrand::Rng;
use interlock_log::apply::Whole;
use interlock_log::checkpoint::Id;
use interlock_log::codec::checksum;
use interlock_log::entry::{Body, Entry, Mark, Source};
use interlock_log::heard::Sent;
use interlock_log::rows::{Held, Rows, Writers};

use crate::centre::{settings, Centre};

/// Note of the last report, kept at the other data centre.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    sent: Sent,
    /// The last entry that was sent.
    last: Option<(Id, u64)>,
}

/// Makes a node send the rows that the other data centre lacks. Returns whether there is nothing
/// left to send.
pub fn send(near: &mut Centre, i: usize, far: &mut Centre, random: &mut Rng, fails: bool) -> bool {
    let note = far.notes.clone().filter(|note| {
        note.last.is_none_or(|(id, sum)| {
            far.engine.at(Some(id)).is_some_and(|bytes| checksum(1, bytes) == sum)
        })
    });
    let replica = &near.nodes[i].replica;
    if !replica.serves() || replica.owes() {
        return false;
    }
    let Some(machine) = &replica.state().machine else { return false };
    let is_at_end = near.engine.after(replica.place().id).is_empty();
    let before = note.as_ref().map(|note| &note.sent);
    let (own, other) = (near.dc.as_bytes(), far.dc.as_bytes());
    let Some(mut report) = replica.report(own, other, before, is_at_end) else { return false };
    let (number, last) = (before.map_or(0, |sent| sent.number), machine.store().changes());
    let is_known = report.is_known && number <= last;
    report.sent.number = last;
    let writers = machine.writers().clone();
    let mut rows: Vec<Held> = Vec::new();
    match machine.store().held_since(number, 1000).filter(|_| is_known) {
        Some(found) => rows.extend(found.into_iter().filter(|held| !held.is_theirs())),
        None => {
            let image = machine.store().image();
            let is_behind = is_known && !image.forgot_since(number);
            rows.extend(image.since(if is_behind { number } else { 0 }));
        }
    }
    if far.engine.log.is_empty() {
        return false; // the other data centre has no stream
    }
    let mut made = Note { sent: report.sent, last: note.as_ref().and_then(|it| it.last) };
    let is_done = rows.is_empty() && note.as_ref() == Some(&made);
    near.say(|| format!("node {i} sends {} rows, {:?}", rows.len(), report.source));
    for part in rows.chunks(2) {
        let pairs: Vec<_> = part.iter().map(|held| (held.key(), held.state())).collect();
        if !put(near, far, &pairs, (&report.source, &writers), random, fails, &mut made) {
            return false;
        }
    }
    let is_due = !rows.is_empty() || report.is_due;
    if is_due && !put(near, far, &[], (&report.source, &writers), random, fails, &mut made) {
        return false;
    }
    far.notes = Some(made);
    is_done
}

fn put(
    near: &Centre,
    far: &mut Centre,
    rows: &[(&[u8], &[u8])],
    (source, writers): (&Source, &Writers),
    random: &mut Rng,
    fails: bool,
    note: &mut Note,
) -> bool {
    let mut genesis = Vec::new();
    settings(near.dc).encode(&mut genesis);
    let mut bytes = Vec::new();
    let rows = Rows::of(settings(near.dc), rows.iter().copied()).with_writers(writers.clone());
    Whole::of(genesis, rows).encode(&mut bytes);
    let body = Body::State { source: Some(source.clone()), bytes };
    let (name, nonce) = (b"link".to_vec(), random.u64(..));
    let entry = Entry { name, number: 0, read: Mark::default(), seen: 0, nonce, body }.encode();
    let x = if fails { random.f64() } else { 1.0 };
    if x < 0.03 {
        return false;
    }
    if x < 0.06 {
        far.engine.flying.push(entry);
        return false;
    }
    let sum = checksum(1, &entry);
    let id = far.engine.add(entry);
    note.last = Some((id, sum));
    x > 0.09
}
