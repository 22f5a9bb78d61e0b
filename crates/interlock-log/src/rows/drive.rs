//! A table as the machine that a log drives.

use super::table::{Rows, When};
use crate::codec::Damaged;
use crate::entry::Command;
use crate::machine::{Image, Judge, Machine, Moment, Origin, Outcome, Winner};

impl Machine for Rows {
    fn begin(genesis: &[u8]) -> Result<Self, Damaged> {
        Rows::of_genesis(genesis)
    }

    fn writer(&self) -> u64 {
        Rows::writer(self)
    }

    fn advance(&mut self, time: u64) {
        self.pass(time);
    }

    fn next_due(&self) -> Option<u64> {
        self.store().next_due()
    }

    fn changes(&self) -> u64 {
        self.store().changes()
    }

    fn look_ahead(&mut self, commands: &[Command]) {
        Rows::look_ahead(self, commands);
    }

    fn apply(&mut self, arguments: &[&[u8]], moment: &Moment<'_>, reply: &mut Vec<u8>) -> Outcome {
        let place = |existing| moment.place(existing);
        let when = When {
            time: moment.time,
            reading: moment.stamp,
            lineage: moment.lineage,
            put_back: moment.put_back,
            writer: moment.writer,
            late: moment.late,
            lost: moment.missed,
            sent: moment.sent,
            place: &place,
        };
        let before = self.store().changes();
        self.has_missed = false;
        match self.run(arguments, &when, reply) {
            Ok(()) if self.has_missed && self.store().changes() == before => Outcome::Missed,
            Ok(()) if self.store().changes() == before => Outcome::Unchanged,
            Ok(()) => Outcome::Done,
            Err(_) => Outcome::Refused,
        }
    }

    fn is_bare(&mut self, time: u64) {
        Rows::is_bare(self, time);
    }

    fn take_short(&mut self) -> u64 {
        std::mem::take(&mut self.short)
    }

    fn comes_back(&mut self, writer: u64) {
        Rows::comes_back(self, writer);
    }

    fn is_own(&self, writer: u64) -> bool {
        self.writers().is_own(writer)
    }

    fn of_writers(&self, writers: &[u64]) -> Option<Self> {
        Some(Rows::of_writers(self, writers))
    }

    fn takes_back(&self, writer: u64) -> bool {
        Rows::takes_back(self, writer)
    }

    fn has_joined(&self) -> bool {
        self.writers().has_joined()
    }

    fn far_part(&self, than: &Self, name: &[u8], since: u64) -> (Option<u64>, Option<Self>) {
        Rows::far_part(self, than, name, since)
    }

    fn join(&mut self, other: Self, judge: &Judge<'_>, origin: Origin<'_>) -> u64 {
        let place = |ours, theirs| match judge.place(ours, theirs) {
            Winner::Ours(ours) => (ours, theirs),
            Winner::Theirs(theirs) => (ours, theirs),
        };
        match origin {
            Origin::Own => self.take_in(&other, &place),
            Origin::Far(centre) => self.take_far(&other, centre),
        }
    }

    fn replace(&mut self, other: Self, time: u64) -> u64 {
        self.become_other(&other, time)
    }

    fn newest(&self) -> u64 {
        self.store().newest()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.write(out);
    }

    fn image(&self) -> Image {
        Box::new(Rows::image(self))
    }

    fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        Rows::read(bytes)
    }
}
