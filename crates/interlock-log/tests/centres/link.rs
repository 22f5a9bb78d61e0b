//! Links: changed rows of one data centre go into the log of the other, with notes of how far they
//! were sent, as in `links.py` and the node's `outside.rs`.

use fastrand::Rng;
use interlock_log::apply::Whole;
use interlock_log::checkpoint::Id;
use interlock_log::codec::checksum;
use interlock_log::entry::{Body, Entry, Mark, Source};
use interlock_log::rows::{Held, Rows, Writers};

use crate::centre::{settings, Centre};

/// The place up to which a data centre has another's rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    mark: Mark,
    number: u64,
    /// The last entry that was sent.
    last: Option<(Id, u64)>,
}

/// Makes a node send the rows that the other data centre lacks. Returns whether there is nothing
/// left to send.
pub fn send(near: &mut Centre, i: usize, far: &mut Centre, random: &mut Rng, fails: bool) -> bool {
    let place = far.notes.clone().filter(|note| {
        note.last.is_none_or(|(id, sum)| {
            far.engine.at(Some(id)).is_some_and(|bytes| checksum(1, bytes) == sum)
        })
    });
    let replica = &near.nodes[i].replica;
    if !replica.serves() || replica.owes() {
        return false;
    }
    let (mark, number) =
        place.as_ref().map_or((Mark { position: 0, checksum: 1 }, 0), |it| (it.mark, it.number));
    let state = replica.state();
    let Some(machine) = &state.machine else { return false };
    let (now, last) = (replica.place().mark, machine.store().changes());
    if mark.position > now.position && !near.engine.after(replica.place().id).is_empty() {
        return false;
    }
    let is_known = replica.has_mark(mark) == Some(true) && number <= last;
    let (time, writers) = (state.now, machine.writers().clone());
    let mut rows: Vec<Held> = Vec::new();
    match machine.store().held_since(number, 1000).filter(|_| is_known) {
        Some(found) => rows.extend(found.into_iter().filter(|held| !held.is_theirs())),
        None => {
            let image = machine.store().image();
            let is_behind = is_known && !image.forgot_since(number);
            rows.extend(image.since(if is_behind { number } else { 0 }));
            if !is_behind && !is_known && place.is_some() {
                near.notes = None;
                near.say(|| "has the other send all rows again".to_owned());
            }
        }
    }
    if far.engine.log.is_empty() {
        return false; // the other data centre has no stream
    }
    let before = place.as_ref().map_or(Mark::default(), |it| it.mark);
    let mut note = Note { mark: now, number: last, last: place.as_ref().and_then(|it| it.last) };
    let is_done = rows.is_empty() && place.as_ref() == Some(&note);
    let sent = rows.len();
    near.say(|| format!("node {i} sends {sent} rows"));
    for part in rows.chunks(2) {
        let pairs: Vec<_> = part.iter().map(|held| (held.key(), held.state())).collect();
        if !put(near, far, &pairs, (time, &writers, before), random, fails, &mut note) {
            return false;
        }
    }
    if sent > 0 && !put(near, far, &[], (time, &writers, now), random, fails, &mut note) {
        return false;
    }
    far.notes = Some(note);
    is_done
}

fn put(
    near: &Centre,
    far: &mut Centre,
    rows: &[(&[u8], &[u8])],
    (time, writers, mark): (u64, &Writers, Mark),
    random: &mut Rng,
    fails: bool,
    note: &mut Note,
) -> bool {
    let mut genesis = Vec::new();
    settings(near.dc).encode(&mut genesis);
    let mut bytes = Vec::new();
    let rows = Rows::of(settings(near.dc), rows.iter().copied()).with_writers(writers.clone());
    Whole::of(genesis, rows).encode(&mut bytes);
    let source = Some(Source { name: near.dc.as_bytes().to_vec(), mark, time });
    let body = Body::State { source, bytes };
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
