//! Notes about messages behind failures: how many are parked, and how many went with a message that is held.

use crate::key::Key;
use crate::queue::parts::watch::{Event, PAUSE};
use crate::queue::scheduler::Scheduler;
use crate::queue::types::{Behind, Time};

/// Facts that were not noted yet.
#[derive(Debug, Default)]
pub struct Unsaid {
    /// The last key under which one was parked, if enough are for a note.
    parked: Option<Key>,
    /// The last key with which messages went, and the message that is held.
    gone: Option<(Key, u64)>,
    buried: u64,
    cancelled: u64,
    /// The time of the next note.
    next: Time,
    /// Parked messages at the last note.
    noted: u64,
}

impl<P> Scheduler<P> {
    /// A message was parked under a key. It is noted at the first, and whenever twice as many are parked.
    pub(super) fn watch_parked(&mut self, key: &Key) {
        if !self.watch.is_on() {
            return;
        }
        let (count, unsaid) = (self.parked.count(), &mut self.watch.unsaid);
        if count == 1 {
            unsaid.noted = 0;
        }
        if count >= 2 * unsaid.noted {
            unsaid.parked = Some(key.clone());
        }
    }

    /// A message is about to be buried or cancelled with one that is held.
    pub(super) fn watch_gone(&mut self, at: u32, held: u32, behind: Behind) {
        if !self.watch.is_on() {
            return;
        }
        let id = self.records[held].id;
        let keys = self.keys_of(at).into_iter().map(|(key, _)| key);
        let shared = keys.into_iter().find(|key| self.parked.held_on(key.as_bytes()) == Some(held));
        let unsaid = &mut self.watch.unsaid;
        unsaid.gone = shared.map(|key| (key, id)).or(unsaid.gone.take());
        match behind {
            Behind::Cancel => unsaid.cancelled += 1,
            _ => unsaid.buried += 1,
        }
    }

    /// Notes what happened behind failures since the last note, at most once a second.
    pub(in crate::queue) fn note_behind(&mut self) {
        let (now, unsaid) = (self.now, &mut self.watch.unsaid);
        if unsaid.parked.is_none() && unsaid.gone.is_none() {
            return;
        }
        if now < unsaid.next {
            let next = unsaid.next;
            self.watch.look_at(next);
            self.earliest_due = self.earliest_due.min(next);
            return;
        }
        unsaid.next = now + PAUSE;
        let (buried, cancelled) = (unsaid.buried, unsaid.cancelled);
        (unsaid.buried, unsaid.cancelled) = (0, 0);
        let (parked, gone) = (unsaid.parked.take(), unsaid.gone.take());
        if let Some((key, behind)) = gone {
            let key = key.as_bytes().to_vec();
            self.watch.push(Event::Swept { key, behind, buried, cancelled });
        }
        let first = parked.as_ref().and_then(|key| self.parked.under(key.as_bytes()).next());
        if let (Some(key), Some(first)) = (parked, first) {
            let count = self.parked.count();
            self.watch.unsaid.noted = count;
            let since = self.parked.parking(first).map_or(now, |parking| parking.since);
            let stuck = self.parked.stuck_on(key.as_bytes()).next();
            let behind = stuck.map(|at| self.records[at].id);
            let (key, waited) = (key.as_bytes().to_vec(), now.saturating_sub(since));
            self.watch.push(Event::Parked { count, key, waited, behind });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyRef;
    use crate::queue::parts::watch::{Limits, Watch};
    use crate::queue::scheduler::Put;
    use crate::queue::types::{Kind, Options, RevokeThen};

    const SECOND: Time = 1_000_000;

    fn watched(behind: Behind) -> Scheduler<()> {
        let watch = Watch::new(Limits { slow_wait: 3_600 * SECOND, ..Limits::default() });
        Scheduler::new(Options { behind, ..Options::default() }, watch)
    }

    fn put(scheduler: &mut Scheduler<()>, now: Time) -> u64 {
        let put = Put { keys: &[KeyRef::new(b"a")], ..Put::default() };
        scheduler.put(now, &put, &mut Some(())).unwrap().id
    }

    fn notes(scheduler: &mut Scheduler<()>) -> Vec<Event> {
        let events = scheduler.watch.take_events();
        events
            .into_iter()
            .filter(|one| matches!(one, Event::Parked { .. } | Event::Swept { .. }))
            .collect()
    }

    fn parked(count: u64, waited: Time) -> Event {
        Event::Parked { count, key: b"a".to_vec(), waited, behind: None }
    }

    #[test]
    fn parked_messages_are_noted_once_a_second_whenever_there_are_twice_as_many() {
        let mut scheduler = watched(Behind::Park);
        scheduler.pause(SECOND, Some(KeyRef::new(b"a")));
        put(&mut scheduler, SECOND);
        assert_eq!(notes(&mut scheduler), [parked(1, 0)]);
        put(&mut scheduler, SECOND);
        assert!(notes(&mut scheduler).is_empty(), "within a second");
        put(&mut scheduler, 2 * SECOND);
        assert_eq!(notes(&mut scheduler), [parked(2, SECOND)], "a call comes up with it first");
        put(&mut scheduler, 9 * SECOND);
        assert_eq!(notes(&mut scheduler), [parked(4, 8 * SECOND)]);
    }

    #[test]
    fn of_a_sweep_of_many_one_note_tells_how_many_went_with_which_message() {
        for behind in [Behind::Bury, Behind::Cancel] {
            let mut scheduler = watched(behind);
            let held = put(&mut scheduler, 1);
            (0..50).for_each(|_| _ = put(&mut scheduler, 1));
            let grant = scheduler.lease(2, Kind::Any, 0).unwrap();
            scheduler.revoke(3, held, RevokeThen::Hold);
            let (buried, cancelled) = if behind == Behind::Bury { (50, 0) } else { (0, 50) };
            let key = b"a".to_vec();
            let swept = Event::Swept { key, behind: grant.id, buried, cancelled };
            assert_eq!(notes(&mut scheduler), [swept]);
        }
    }
}
