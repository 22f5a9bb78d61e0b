//! Consumers as bytes: each keeps its number, for leases name it.

use interlock_core::queue::schedules::bytes::{number, string, Damaged, Reader};

use crate::calls::settle::Answer;
use crate::queue::consumers::{Consumer, Consumers, Kept, Short, NONE};
use crate::queue::dump::{read_with_room, string_with_room};
use crate::wire::functions::Function;

const ANSWERS: [Answer; 6] =
    [Answer::Acked, Answer::Retried, Answer::Dead, Answer::Held, Answer::Released, Answer::Lost];
/// The functions whose replies are stored.
const FUNCTIONS: [Function; 4] = [Function::Put, Function::Lease, Function::Settle, Function::Next];

impl Consumers {
    pub fn dump(&self, out: &mut Vec<u8>) {
        number(out, self.all.len() as u64);
        number(out, self.by_name.len() as u64);
        for (name, &at) in &self.by_name {
            let Consumer { call, function, at: time, kept, .. } = &self.all[at as usize];
            number(out, u64::from(at));
            string(out, name);
            number(out, *call);
            let function = FUNCTIONS.iter().position(|one| one == function).expect("one of all");
            out.push(function as u8);
            number(out, *time);
            match kept {
                Kept::Nothing => out.push(0),
                Kept::Reply(reply) => {
                    out.push(1);
                    string_with_room(out, reply);
                }
                Kept::Half(answers) => {
                    out.push(2);
                    write_answers(out, answers);
                }
                Kept::Dropped => out.push(3),
                Kept::Short(short) => {
                    out.push(if short.answers.is_some() { 5 } else { 4 });
                    write_answers(out, short.answers.as_deref().unwrap_or_default());
                    number(out, short.token);
                    number(out, short.deadline);
                    number(out, short.ids.len() as u64);
                    short.ids.iter().for_each(|&id| number(out, id));
                }
            }
        }
        // The order in which replies were kept, and in which numbers are used again.
        let mut at = self.first;
        let mut kept = Vec::new();
        while let Some(here) = at {
            kept.push(here);
            at = Some(self.all[here as usize].after).filter(|&after| after != NONE);
        }
        for list in [&kept, &self.free] {
            number(out, list.len() as u64);
            list.iter().for_each(|&at| number(out, u64::from(at)));
        }
        number(out, self.crowd as u64);
    }

    pub fn restored(reader: &mut Reader<'_>) -> Result<Consumers, Damaged> {
        let mut consumers = Consumers::default();
        let all: u32 = reader.small("count of consumers")?;
        for _ in 0..reader.number("count of names")? {
            let at: u32 = reader.small("number of a consumer")?;
            let name = reader.string("name of a consumer")?;
            let call = reader.number("call")?;
            let function = FUNCTIONS.get(usize::from(reader.byte("function")?)).copied();
            let function = function.map_or_else(|| reader.damaged("function"), Ok)?;
            let time = reader.number("time of a call")?;
            let kept = read_kept(reader)?;
            if at >= all || consumers.by_name.insert(name.into(), at).is_some() {
                return reader.damaged("consumer");
            }
            consumers.bytes += kept.bytes();
            consumers.name_bytes += name.len();
            let name = name.into();
            // Not by the count that is claimed: damage must not ask for all memory.
            consumers.make_room(at);
            consumers.all[at as usize] =
                Consumer { name, call, function, at: time, kept, ..Consumer::unknown() };
        }
        for _ in 0..reader.number("count of kept replies")? {
            let at = reader.small("number of a consumer")?;
            if at >= all || consumers.first == Some(at) {
                return reader.damaged("number of a consumer");
            }
            consumers.make_room(at);
            consumers.unlink(at);
            consumers.link(at);
        }
        for _ in 0..reader.number("count of free numbers")? {
            let at = reader.small("free number")?;
            if at >= all {
                return reader.damaged("free number");
            }
            consumers.make_room(at);
            consumers.free.push(at);
        }
        consumers.crowd = reader.small("count of names")?;
        if consumers.all.len() != all as usize {
            return reader.damaged("all consumers");
        }
        Ok(consumers)
    }

    /// Numbers up to this one are there.
    fn make_room(&mut self, at: u32) {
        while self.all.len() <= at as usize {
            self.all.push(Consumer::unknown());
        }
    }
}

fn read_kept(reader: &mut Reader<'_>) -> Result<Kept, Damaged> {
    Ok(match reader.byte("kept reply")? {
        0 => Kept::Nothing,
        1 => Kept::Reply(read_with_room(reader, "kept reply")?),
        2 => Kept::Half(read_answers(reader)?),
        3 => Kept::Dropped,
        form @ (4 | 5) => {
            let answers = read_answers(reader)?;
            let answers = (form == 5).then(|| answers.into_boxed_slice());
            let (token, deadline) = (reader.number("token")?, reader.number("deadline")?);
            let mut ids = Vec::new();
            for _ in 0..reader.number("count of ids")? {
                ids.push(reader.number("id")?);
            }
            Kept::Short(Short { answers, token, deadline, ids: ids.into() })
        }
        _ => return reader.damaged("kept reply"),
    })
}

fn write_answers(out: &mut Vec<u8>, answers: &[Answer]) {
    number(out, answers.len() as u64);
    let code = |answer| ANSWERS.iter().position(|one| one == answer);
    out.extend(answers.iter().map(|one| code(one).expect("one of all") as u8));
}

fn read_answers(reader: &mut Reader<'_>) -> Result<Vec<Answer>, Damaged> {
    let mut answers = Vec::new();
    for _ in 0..reader.number("count of answers")? {
        let answer = ANSWERS.get(usize::from(reader.byte("answer")?)).copied();
        answers.push(answer.map_or_else(|| reader.damaged("answer"), Ok)?);
    }
    Ok(answers)
}
