//! The data of a queue, in addition to its messages, that an export needs.

use interlock_core::queue::parts::dead::Dead;

use crate::calls::put::options::Given;
use crate::calls::read::{bytes_of, Strings};
use crate::queue::{Body, Queue};
use crate::values::args::{Args, Read, Reader};
use crate::values::words::to_bytes;
use crate::wire::limits::{MAX_BATCH, MAX_TOLD};

impl Queue {
    /// `il1_scan` of the dead letters, told as messages are.
    pub fn scan_dead<A: Args + ?Sized>(
        &self,
        from: &mut Reader<'_, A>,
        cursor: u64,
        count: usize,
        newest: bool,
        out: &mut Vec<u8>,
    ) -> Read<()> {
        from.end()?;
        let (mut told, mut next, mut left, mut bytes) = (Strings::default(), 0, count, 0);
        let mut tell = |letters: &mut dyn Iterator<Item = &Dead<Body>>| {
            for dead in letters {
                tell_dead(dead, &mut told);
                left -= 1;
                bytes += bytes_of(dead);
                if left == 0 || bytes >= MAX_TOLD {
                    // Whose page is full does not know whether there are more.
                    next = dead.id;
                    break;
                }
            }
        };
        match cursor {
            0 if newest => tell(&mut self.scheduler.all_dead().rev()),
            0 => tell(&mut self.scheduler.all_dead()),
            id if newest => {
                if let Some(mut letters) = self.scheduler.dead_before(id) {
                    tell(&mut letters);
                }
            }
            id => {
                if let Some(mut letters) = self.scheduler.dead_after(id) {
                    tell(&mut letters);
                }
            }
        }
        told.end_behind(next, out);
        Ok(())
    }

    /// `il1_paused`.
    pub fn tell_paused(&self, cursor: u64, out: &mut Vec<u8>) {
        let mut told = Strings::default();
        let next = self.scheduler.scan_paused(cursor, MAX_BATCH, |key| told.text(key));
        told.end_behind(next, out);
    }
}

/// `il1_peek` of a dead letter: no lease, and nothing that it waits for.
pub fn peek_dead(dead: &Dead<Body>, mut told: Strings, out: &mut Vec<u8>) {
    told.text(b"dead");
    (0..3).for_each(|_| told.text(b""));
    told.number(dead.died_at);
    told.number(0);
    tell_dead(dead, &mut told);
    told.end(out);
}

fn tell_dead(dead: &Dead<Body>, told: &mut Strings) {
    told.number(dead.id);
    told.text(b"");
    told.number(dead.attempts.into());
    told.text(&dead.payload.data);
    let shared = dead.keys.iter().filter(|(_, shared)| *shared).count();
    let given = Given {
        priority: dead.priority,
        dedup: None,
        window: None,
        barrier: dead.barrier,
        result: dead.payload.result,
        quiet: dead.quiet,
        retry: dead.retry.as_ref(),
        limit: dead.limit.clone(),
        group: &dead.group,
        coalesced: None,
        behind: dead.behind,
        run: &dead.run,
    };
    let options = given.told();
    told.number((dead.keys.len() - shared) as u64);
    told.number(shared as u64);
    told.number(options.count as u64 / 2);
    dead.keys.iter().for_each(|(key, _)| told.text(key.as_bytes()));
    told.append(&options);
    told.text(b"dead");
    told.number(dead.died_at);
    told.text(&to_bytes(&dead.error));
}
