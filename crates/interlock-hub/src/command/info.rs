//! INFO: the counters and figures of a running hub, in sections as Redis has them.

use std::fmt::Write;
use std::fs;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use interlock_engine::Figures;
use interlock_journal::JournalError;

use crate::access::registry::Part;
use crate::shared::Shared;
use crate::system::time::{now, Time};
use crate::tables::served::ServedTable;

/// The named sections, or all.
pub fn text(shared: &Shared, now: Time, sections: &[&[u8]]) -> String {
    let all = [&b"all"[..], b"everything", b"default"];
    let is = |name: &[u8], wanted: &&[u8]| wanted.eq_ignore_ascii_case(name);
    let every = sections.is_empty() || sections.iter().any(|s| all.iter().any(|name| is(name, s)));
    // As in Redis, a line for each command is only for who asks for it.
    let detailed = sections.iter().any(|s| all[..2].iter().any(|name| is(name, s)));
    let mut text = String::new();
    let known = figures(shared, now).into_iter();
    let known = known.map(|(title, figures)| {
        (title, figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    });
    for (title, figures) in known.chain(details(shared)) {
        let every = if title == COMMANDS { detailed } else { every };
        if every || sections.iter().any(|wanted| is(title.as_bytes(), wanted)) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            let _ = write!(text, "# {title}\r\n");
            for (name, value) in figures {
                let _ = write!(text, "{name}:{value}\r\n");
            }
        }
    }
    text
}

/// Figures whose names are not known before.
fn details(shared: &Shared) -> [(&'static str, Vec<(String, String)>); 4] {
    let tables = tables(shared).into_iter().map(|(name, figures)| {
        let figures = figures.into_iter().map(|(figure, value)| format!("{figure}={value}"));
        (format!("table_{name}"), figures.collect::<Vec<_>>().join(","))
    });
    let stores = stores(shared).into_iter().map(|(name, figures)| {
        let figures = figures.into_iter().map(|(figure, value)| format!("{figure}={value}"));
        (format!("store_{name}"), figures.collect::<Vec<_>>().join(","))
    });
    let commands = shared.statistics.commands().into_iter();
    let commands = commands.map(|(name, tally)| (format!("cmdstat_{name}"), tally.line()));
    let errors = shared.statistics.errors().into_iter();
    let errors =
        errors.map(|(kind, count)| (format!("errorstat_{kind}"), format!("count={count}")));
    [
        ("Tables", tables.collect()),
        ("Stores", stores.collect()),
        (COMMANDS, commands.collect()),
        ("Errorstats", errors.collect()),
    ]
}

/// The figures of the first `most` queues by name, and the number of queues.
pub fn queues(shared: &Shared, most: usize) -> (Vec<(String, Figures)>, usize) {
    let (all, count) = shared.queues.engine.figures(most);
    let named = |(name, figures): (Box<[u8]>, _)| (String::from_utf8_lossy(&name).into(), figures);
    (all.into_iter().map(named).collect(), count)
}

/// Figures about what holds messages up, for the first `most` queues with any.
pub fn stalls(shared: &Shared, most: usize) -> Vec<(String, Vec<(&'static str, u64)>)> {
    let all = shared.queues.engine.stalls(most, shared.queues.now());
    all.into_iter()
        .map(|(name, figures)| (String::from_utf8_lossy(&name).into(), figures))
        .collect()
}

/// The figures of each table, by its name. Those that require counting a large table may be missing
/// at first, and are later some seconds old.
pub fn tables(shared: &Shared) -> Vec<(String, Vec<(&'static str, u64)>)> {
    let live = shared.live();
    let figures = |served: &Arc<ServedTable>| {
        let table = served.table();
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        let mut figures = vec![
            ("slots", table.slots()),
            ("capacity", table.made().capacity),
            ("bytes", table.bytes()),
            ("commands", served.calls.load(relaxed)),
        ];
        if let Some(counted) = served.statistics() {
            figures.extend([
                ("rows", counted.rows()),
                ("expired", counted.expired),
                ("moves", counted.moves),
                ("overwritten", counted.overwritten),
                ("overwritten_expired", counted.overwritten_expired),
                ("retries", counted.retries),
                ("recovered", counted.recovered),
            ]);
        }
        (served.name.clone(), figures)
    };
    let mut all: Vec<_> = live.tables.all().iter().map(figures).collect();
    all.sort_unstable();
    all
}

/// The figures of each store, by its name.
pub fn stores(shared: &Shared) -> Vec<(String, Vec<(&'static str, u64)>)> {
    let mut all = shared.stores.told(shared.queues.wall());
    all.sort_unstable();
    all
}

const COMMANDS: &str = "Commandstats";

type Section = (&'static str, Vec<(&'static str, String)>);

/// Returns what INFO shows, without its sections.
pub fn flat(shared: &Shared) -> Vec<(&'static str, String)> {
    figures(shared, now()).into_iter().flat_map(|(_, all)| all).collect()
}

/// Returns what INFO shows, for those who want it as values.
pub fn figures(shared: &Shared, now: Time) -> Vec<Section> {
    let cards = shared.registry.all();
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    let owed = cards.iter().map(|card| card.held(Part::Owed));
    let subscriptions = cards.iter().map(|card| card.held(Part::Subscribed));
    let unread = cards.iter().map(|card| card.unread.load(relaxed));
    let blocked = cards.iter().filter(|card| card.blocked.load(relaxed)).count();
    let subscribed = cards.iter().filter(|card| card.is_subscribed()).count();
    let uptime = now.saturating_sub(shared.started) / 1_000_000;
    let (refused, reclaimed) = shared.queues.engine.refused_and_reclaimed();
    let mut stats: Vec<(&str, String)> = Vec::new();
    stats.extend(shared.counters.all().into_iter().map(|(name, value)| (name, value.to_string())));
    let rates = shared.statistics.rates(now, &shared.counters);
    stats.push(("instantaneous_ops_per_sec", format!("{:.0}", rates.commands)));
    stats.push(("instantaneous_input_kbps", format!("{:.2}", rates.input / 1024.0)));
    stats.push(("instantaneous_output_kbps", format!("{:.2}", rates.output / 1024.0)));
    stats.push(("pubsubshard_channels", shared.directory.shard_count().to_string()));
    stats.push(("pubsub_channels", shared.directory.topic_count().to_string()));
    stats.push(("pubsub_patterns", shared.directory.pattern_count().to_string()));
    vec![
        (
            "Server",
            vec![
                // Clients derive the protocol's commands from this version.
                ("redis_version", crate::catalog::REDIS_VERSION.to_owned()),
                ("redis_mode", "standalone".to_owned()),
                ("os", os()),
                ("arch_bits", usize::BITS.to_string()),
                ("multiplexing_api", "epoll".to_owned()),
                ("interlock_version", env!("CARGO_PKG_VERSION").to_owned()),
                ("process_id", std::process::id().to_string()),
                ("run_id", shared.run_id.clone()),
                ("tcp_port", shared.settings.port.to_string()),
                ("uptime_in_seconds", uptime.to_string()),
                ("uptime_in_days", (uptime / 86_400).to_string()),
                ("io_threads_active", shared.mailboxes.len().to_string()),
            ],
        ),
        (
            "Clients",
            vec![
                ("connected_clients", cards.len().to_string()),
                ("maxclients", shared.live().maxclients.to_string()),
                ("pubsub_clients", subscribed.to_string()),
                ("blocked_clients", blocked.to_string()),
                ("client_output_buffer_bytes", owed.sum::<usize>().to_string()),
                ("client_query_buffer_bytes", unread.sum::<usize>().to_string()),
                ("client_subscription_bytes", subscriptions.sum::<usize>().to_string()),
                ("clients_bytes", shared.clients_bytes().to_string()),
                ("clients_memory", shared.live().clients_memory.to_string()),
            ],
        ),
        (
            "Queues",
            vec![
                ("queues", shared.queues.engine.count().to_string()),
                ("queues_bytes", shared.queues.engine.used().to_string()),
                ("queues_memory", shared.live().queues_memory.to_string()),
                ("queues_refused", refused.to_string()),
                ("queues_reclaimed", reclaimed.to_string()),
            ],
        ),
        ("Clock", clock(shared)),
        ("Memory", crate::system::memory::figures()),
        ("Persistence", journal(shared)),
        ("Stats", stats),
        ("Replication", vec![("role", "master".to_owned()), ("connected_slaves", "0".to_owned())]),
        ("CPU", cpu()),
        ("Cluster", vec![("cluster_enabled", "0".to_owned())]),
    ]
}

/// Returns the state of the journal, if there is one.
fn journal(shared: &Shared) -> Vec<(&'static str, String)> {
    let journal = shared.queues.durable.as_ref().and_then(|durable| durable.journal());
    let standing = journal.map(|journal| journal.standing()).unwrap_or_default();
    let state = match standing.refused {
        _ if journal.is_none() => "none",
        None => "ok",
        Some(JournalError::Short(_)) => "short",
        Some(JournalError::Full(_)) => "full",
        Some(JournalError::Closed) => "closed",
        Some(JournalError::Failed(_) | JournalError::TooLong(..)) => "failed",
    };
    let well = standing.refused.is_none();
    let since = standing.since.and_then(|since| since.duration_since(UNIX_EPOCH).ok());
    // A line of its own.
    let error = standing.refused.map_or(String::new(), |refused| refused.to_string());
    let (last, durable, bytes) = journal.map_or((0, 0, 0), |journal| {
        // First what is on disk: it is never more than what there is.
        let durable = journal.durable();
        (journal.last(), durable, journal.bytes())
    });
    let ahead = shared.queues.ahead() as f64 / 1e6;
    vec![
        // Clients wait for this before they send anything.
        ("loading", "0".to_owned()),
        // Monitoring tools for Redis read these figures.
        ("aof_enabled", u8::from(journal.is_some()).to_string()),
        ("aof_last_write_status", if well { "ok" } else { "err" }.to_owned()),
        ("journal_state", state.to_owned()),
        ("journal_ok", u8::from(well).to_string()),
        ("journal_trouble_since", since.map_or(0, |since| since.as_secs()).to_string()),
        ("journal_error", error.replace(['\r', '\n'], " ")),
        ("journal_records", last.to_string()),
        ("journal_unsynced_records", (last - durable).to_string()),
        ("journal_bytes_since_snapshot", bytes.to_string()),
        ("journal_clock_ahead_seconds", format!("{ahead:.3}")),
    ]
}

/// Returns the figures of the wall clock.
fn clock(shared: &Shared) -> Vec<(&'static str, String)> {
    let clock = shared.queues.clock();
    let is_stable = clock.read_wall().is_stable;
    let (jumps, distrusted) = clock.jumps();
    vec![
        ("clock_jumps", jumps.to_string()),
        ("clock_distrusted_seconds", format!("{:.3}", distrusted as f64 / 1e6)),
        ("clock_stable", u8::from(is_stable).to_string()),
    ]
}

/// Figures of the whole process.
fn cpu() -> Vec<(&'static str, String)> {
    // SAFETY: the kernel fills the struct, of which all zeros is a valid value.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |time: libc::timeval| format!("{}.{:06}", time.tv_sec, time.tv_usec);
    let (system, user) = (seconds(usage.ru_stime), seconds(usage.ru_utime));
    vec![("used_cpu_sys", system), ("used_cpu_user", user)]
}

fn os() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Linux {} {}", release.trim(), std::env::consts::ARCH)
}
