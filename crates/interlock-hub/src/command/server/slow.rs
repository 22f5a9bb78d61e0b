//! SLOWLOG: the commands that took long.

use crate::command::Call;
use crate::resp::parse::integer;

pub fn get(call: &mut Call<'_, '_>) {
    if call.arguments.len() > 3 {
        return call.wrong_count("SLOWLOG");
    }
    let count = match call.arguments.get(2).map(integer) {
        None => 10,
        Some(Some(-1)) => usize::MAX,
        Some(Some(count)) if count >= 0 => count as usize,
        Some(_) => return call.error("ERR count should be greater than or equal to -1"),
    };
    let entries = call.core.shared.slow_log.newest(count.min(MOST_TOLD));
    call.reply.array(entries.len());
    for entry in entries {
        call.reply.array(6);
        call.reply.integer(entry.number as i64);
        call.reply.integer(entry.at as i64);
        call.reply.integer(entry.took as i64);
        call.reply.array(entry.arguments.len());
        entry.arguments.iter().for_each(|argument| call.reply.bulk(argument));
        call.reply.bulk(entry.address.as_bytes());
        call.reply.bulk(&entry.name);
    }
}

/// Entries of one answer, each of about 5 KiB at most.
const MOST_TOLD: usize = 4096;

pub fn len(call: &mut Call<'_, '_>) {
    call.reply.integer(call.core.shared.slow_log.len() as i64);
}

pub fn reset(call: &mut Call<'_, '_>) {
    call.core.shared.slow_log.clear();
    call.reply.ok();
}
