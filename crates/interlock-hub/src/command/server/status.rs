//! The commands that operators and clients of Redis send to any server: TIME, ROLE, LATENCY,
//! CLUSTER.

use crate::command::Call;

/// The time for dates, in seconds and µs since 1970: a timetable goes by it.
pub fn time(call: &mut Call<'_, '_>) {
    let now = call.core.shared.queues.wall();
    call.reply.array(2);
    call.reply.bulk((now / 1_000_000).to_string().as_bytes());
    call.reply.bulk((now % 1_000_000).to_string().as_bytes());
}

/// A master without replicas.
pub fn role(call: &mut Call<'_, '_>) {
    call.reply.array(3);
    call.reply.bulk(b"master");
    call.reply.integer(0);
    call.reply.array(0);
}

/// Returns no samples, like a Redis whose latency monitor is off.
pub fn no_samples(call: &mut Call<'_, '_>) {
    call.reply.array(0);
}

pub fn reset(call: &mut Call<'_, '_>) {
    call.reply.integer(0);
}

pub fn doctor(call: &mut Call<'_, '_>) {
    call.reply.verbatim(
        "Latency is not monitored here. SLOWLOG GET shows the slowest commands, INFO commandstats \
         what each command takes, /metrics how busy the hub is.",
    );
}

pub fn cluster(call: &mut Call<'_, '_>) {
    call.error("ERR This instance has cluster support disabled");
}
