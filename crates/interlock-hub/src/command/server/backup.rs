//! BACKUP: a copy of the journal, read in pieces by the connection that asked for it.

use crate::command::Call;
use crate::resp::parse::integer;

pub fn begin(call: &mut Call<'_, '_>) {
    let journal = call.core.shared.queues.durable.as_ref().and_then(|durable| durable.journal());
    let Some(journal) = journal else {
        return call.error("ERR the hub has no journal: there is nothing to copy");
    };
    let copy = match journal.copy() {
        Ok(copy) => copy,
        Err(error) => return call.error(&format!("ERR the journal cannot be copied: {error}")),
    };
    call.reply.array(1 + copy.parts().len());
    call.reply.integer(copy.last() as i64);
    for part in copy.parts() {
        call.reply.array(3);
        call.reply.bulk(part.name.as_bytes());
        call.reply.integer(part.bytes as i64);
        call.reply.integer(part.length as i64);
    }
    call.state.backup = Some(Box::new(copy));
}

pub fn read(call: &mut Call<'_, '_>) {
    let Some(backup) = &call.state.backup else {
        return call.error("ERR no backup was begun by this connection");
    };
    let number = |at: usize| integer(&call.arguments[at]).and_then(|n| usize::try_from(n).ok());
    let (Some(file), Some(offset), Some(count)) = (number(2), number(3), number(4)) else {
        return call.error("ERR value is not an integer or out of range");
    };
    let Some(part) = backup.parts().get(file).filter(|part| offset as u64 <= part.bytes) else {
        return call.error("ERR value is not an integer or out of range");
    };
    match backup.read(part, offset as u64, count.min(MOST)) {
        Ok(bytes) => call.reply.bulk(&bytes),
        Err(error) => {
            let text = format!("ERR {} cannot be read: {error}", part.name);
            call.error(&text);
        }
    }
}

pub fn end(call: &mut Call<'_, '_>) {
    call.state.backup = None;
    call.reply.ok();
}

/// Bytes of one answer: the worker does nothing else while they are read.
const MOST: usize = 1 << 20;
