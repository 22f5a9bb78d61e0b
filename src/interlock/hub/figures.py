"""The figures that INFO tells of a hub: each once, with its kind, its unit and what it means.

The page of the reference, `interlock hub info` and /metrics come from here. A figure that the
server has and this table has not is shown by /metrics as one of an unknown kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class MetricKind(Enum):
    """The kind of a figure: what may be done with its value."""

    COUNTER = "counter"
    """Only rises, from 0 at the start: a rate makes sense."""

    GAUGE = "gauge"
    """Rises and falls."""

    LABEL = "label"
    """Tells which hub it is; no quantity."""

    TEXT = "text"
    """Says in words what changes; /metrics has no place for it."""


class Unit(Enum):
    """The unit of a value, by which it is written for people."""

    NUMBER = "number"
    BYTES = "bytes"
    SECONDS = "seconds"
    MOMENT = "moment"
    """Seconds since 1970."""


@dataclass(frozen=True)
class Figure:
    """One figure."""

    name: str
    """As INFO has it."""

    kind: MetricKind
    section: str
    """Under which `interlock hub info` shows it; empty: it does not."""

    label: str
    """Its name there."""

    help: str
    """One line."""

    unit: Unit = Unit.NUMBER
    exposed_as: str = ""
    """The metric's name where it is not made from `name`."""

    @property
    def metric(self) -> str:
        """The name in /metrics; empty for a label and a text."""
        if self.kind in (MetricKind.LABEL, MetricKind.TEXT):
            return ""
        return self.exposed_as or metric_name(self.name, self.kind)


def metric_name(name: str, kind: MetricKind | None = None) -> str:
    """Return a name of INFO as Prometheus would have it: counters end in `_total`, and what INFO
    has in milliseconds is in seconds."""
    if kind is MetricKind.COUNTER:
        name = f"{name.removeprefix('total_')}_total"
    return PREFIX + (f"{name.removesuffix('_ms')}_seconds" if name.endswith("_ms") else name)


def label(name: str, help: str, section: str = "", shown_as: str = "") -> Figure:
    """Return a figure that tells which hub it is."""
    return Figure(name, MetricKind.LABEL, section, shown_as, help)


def words(name: str, section: str, label: str, help: str) -> Figure:
    """Return a figure that is none: it says something."""
    return Figure(name, MetricKind.TEXT, section, label, help)


def gauge(name: str, section: str, label: str, help: str, unit: Unit = Unit.NUMBER,
          exposed_as: str = "") -> Figure:  # fmt: skip
    """Return a figure that rises and falls."""
    return Figure(name, MetricKind.GAUGE, section, label, help, unit, exposed_as)


def counter(name: str, section: str, label: str, help: str, unit: Unit = Unit.NUMBER) -> Figure:
    """Return a figure that only rises."""
    return Figure(name, MetricKind.COUNTER, section, label, help, unit)


PREFIX = "interlock_hub_"

FIGURES = (
    label("interlock_version", "version of the hub", "server", "version"),
    label("redis_version", "version of Redis whose commands it has", "server", "redis version"),
    label("redis_mode", "standalone"),
    label("process_id", "number of the process", "server", "process"),
    label("tcp_port", "TCP port; 0 without one", "server", "TCP port"),
    label("run_id", "a number of this run of the hub", "server", "run"),
    label("os", "operating system"),
    label("arch_bits", "64"),
    label("multiplexing_api", "epoll"),
    label("loading", "0, for there is nothing to load"),
    label("role", "master"),
    label("cluster_enabled", "0, because a hub is not part of a cluster"),
    gauge("uptime_in_seconds", "server", "uptime", "seconds since the start", Unit.SECONDS,
          "interlock_hub_uptime_seconds"),
    words("uptime_in_days", "", "", "the same in whole days"),
    gauge("io_threads_active", "server", "workers", "threads that serve connections", Unit.NUMBER,
          "interlock_hub_workers"),
    counter("configurations_applied", "server", "reconfigured",
            "changes of the configuration since the start"),
    counter("used_cpu_user", "server", "CPU, own", "seconds of CPU spent in the process",
            Unit.SECONDS),
    counter("used_cpu_sys", "server", "CPU, kernel", "seconds of CPU spent in the kernel for it",
            Unit.SECONDS),
    gauge("connected_clients", "connections", "open", "connections that are open"),
    gauge("maxclients", "connections", "at most", "how many may be open"),
    gauge("pubsub_clients", "connections", "subscribed", "connections with a subscription"),
    gauge("blocked_clients", "connections", "waiting for a queue",
          "connections whose call waits for a message, for room or for a result"),
    counter("total_connections_received", "connections", "taken", "connections taken"),
    counter("rejected_connections", "connections", "refused, too many",
            "connections refused for maxclients"),
    counter("rejected_connections_address", "connections", "refused, address",
            "connections refused for max_per_address"),
    counter("accept_errors", "connections", "not accepted",
            "times that no connection could be taken, for want of descriptors"),
    gauge("connected_slaves", "", "", "0, for there is no replication"),
    counter("messages_published", "messages", "published",
            "messages published, received or not"),
    counter("messages_delivered", "messages", "delivered", "copies handed to subscribers"),
    counter("messages_dropped", "messages", "dropped",
            "copies left out for subscribers that asked for it by CLIENT SLOW drop"),
    counter("messages_relayed", "messages", "relayed", "messages that other hubs brought"),
    counter("messages_relayed_again", "messages", "again",
            "messages that other hubs brought again, of which subscribers get no copy"),
    counter("relay_circles", "messages", "in circles",
            "messages left out: they had been here, or in 16 hubs, which relay in a circle"),
    gauge("pubsub_channels", "messages", "topics", "topics that have a subscriber"),
    gauge("pubsubshard_channels", "messages", "shard topics",
          "shard topics that have a subscriber"),
    gauge("pubsub_patterns", "messages", "patterns", "patterns that have a subscriber"),
    gauge("queues", "queues", "queues", "keyed queues that there are"),
    gauge("queues_bytes", "queues", "bytes",
          "memory of their messages and of all that is kept of them", Unit.BYTES),
    gauge("queues_memory", "queues", "at most", "what they may take; 0 is no bound", Unit.BYTES),
    counter("queues_refused", "queues", "refused for memory",
            "calls refused with OOM, for all queues or a user's take what they may"),
    counter("queues_reclaimed", "queues", "given back",
            "queues that went unasked, for nothing was in them"),
    words("journal_state", "journal", "state",
          "none; ok; short: puts are refused; full: every change is, until there is room; failed: "
          "every change is, until the hub is started again; closed"),
    words("journal_error", "journal", "trouble",
          "why calls are refused, in the words that they get"),
    gauge("journal_ok", "", "", "0 while calls are refused for the journal, else 1"),
    gauge("journal_trouble_since", "journal", "since",
          "when that began, seconds since 1970; 0 while all is well", Unit.MOMENT,
          "interlock_hub_journal_trouble_since_timestamp_seconds"),
    gauge("journal_records", "journal", "records", "number of the last record"),
    gauge("journal_unsynced_records", "journal", "not synced",
          "records of which the disk has not confirmed yet that it has them"),
    gauge("journal_bytes_since_snapshot", "journal", "since the snapshot",
          "bytes written since the last snapshot, or since the start", Unit.BYTES),
    gauge("journal_clock_ahead_seconds", "journal", "clock behind by",
          "seconds by which the time of queues is ahead of the system clock; negative: behind",
          Unit.SECONDS),
    counter("clock_jumps", "clock", "jumps", "times that the system clock was set, by over 1 s"),
    gauge("clock_distrusted_seconds", "clock", "distrusted",
          "seconds by which the system clock is ahead of the time used for dates, while a jump is "
          "not followed; negative if it is behind", Unit.SECONDS),
    gauge("clock_stable", "clock", "stable",
          "1 once the system clock has not jumped for 10 minutes; until then nothing is deleted by "
          "age"),
    label("aof_enabled", "1 with a journal, for those who look for it"),
    words("aof_last_write_status", "", "", "ok or err, for those who look for it"),
    counter("total_commands_processed", "requests", "understood", "requests understood"),
    gauge("instantaneous_ops_per_sec", "requests", "a second",
          "requests understood a second, over the last two", Unit.NUMBER,
          "interlock_hub_requests_per_second"),
    gauge("instantaneous_input_kbps", "", "", "KiB received a second, over the last two"),
    gauge("instantaneous_output_kbps", "", "", "KiB sent a second, over the last two"),
    counter("total_error_replies", "requests", "answered by an error",
            "requests answered by an error"),
    counter("login_failures", "requests", "logins refused",
            "passwords that were wrong, or of a user that there is not"),
    counter("login_refusals", "requests", "logins sent away",
            "logins told to try again, for too many waited"),
    counter("permission_errors", "requests", "without the right",
            "requests refused for the user has no right to them"),
    counter("subscriptions_refused", "requests", "subscriptions refused",
            "calls refused for limits.pubsub.subscriptions"),
    counter("total_net_input_bytes", "requests", "received", "bytes received", Unit.BYTES),
    counter("total_net_output_bytes", "requests", "sent", "bytes sent", Unit.BYTES),
    counter("client_output_buffer_limit_disconnections", "disconnections", "read too slowly",
            "connections closed for what they were owed, by limits.normal or limits.pubsub"),
    counter("client_query_buffer_limit_disconnections", "disconnections", "request too long",
            "connections closed over query_limit"),
    counter("evicted_clients", "disconnections", "held the most",
            "connections closed for all together held more than limits.clients"),
    counter("protocol_errors", "disconnections", "not the protocol",
            "connections closed for what is not the Redis protocol"),
    counter("idle_disconnections", "disconnections", "idle",
            "connections closed over idle_timeout"),
    counter("connections_killed", "disconnections", "killed",
            "connections closed by CLIENT KILL"),
    counter("tls_errors", "disconnections", "TLS failed",
            "connections closed for a handshake that failed, or what broke TLS later"),
    counter("http_disconnections", "disconnections", "spoke HTTP",
            "connections closed for they spoke HTTP, as a browser does that was tricked"),
    counter("login_timeouts", "disconnections", "never logged in",
            "connections closed over login_timeout"),
    counter("permission_disconnections", "disconnections", "rights ended",
            "connections closed for a change of users took what they had"),
    counter("connections_cut", "disconnections", "cut at the end",
            "connections closed at the end of a drain that were owed something still"),
    gauge("used_memory_rss", "memory", "resident", "memory of the process, in bytes", Unit.BYTES,
          "process_resident_memory_bytes"),
    gauge("used_memory_rss_peak", "memory", "its peak", "the most that it was, in bytes",
          Unit.BYTES, "interlock_hub_resident_memory_peak_bytes"),
    gauge("used_memory", "", "", "the same as used_memory_rss, for those who look for it",
          Unit.BYTES, "interlock_hub_used_memory_bytes"),
    gauge("client_output_buffer_bytes", "memory", "owed to clients",
          "bytes that clients have not read yet", Unit.BYTES),
    gauge("client_query_buffer_bytes", "memory", "unfinished requests",
          "bytes of requests that are not complete", Unit.BYTES),
    gauge("client_subscription_bytes", "memory", "subscriptions",
          "bytes that subscriptions of clients take, about", Unit.BYTES),
    gauge("clients_bytes", "memory", "clients, all",
          "what all clients make the hub keep: owed, unfinished requests, subscriptions",
          Unit.BYTES),
    gauge("clients_memory", "memory", "at most",
          "what that may be, limits.clients; 0 is no bound", Unit.BYTES),
)  # fmt: skip

TABLE_FIGURES = (
    gauge("rows", "table", "rows", "live rows, as last counted"),
    gauge("slots", "table", "slots", "places for rows"),
    gauge("capacity", "table", "capacity", "rows that the table surely holds"),
    gauge("bytes", "table", "bytes", "memory of the table", Unit.BYTES),
    gauge("expired", "table", "expired",
          "rows that have expired and whose slot nobody has needed yet, as last counted"),
    counter("commands", "table", "commands", "commands of this hub that named it"),
    counter("moves", "table", "moves", "rows that made room for another by moving"),
    counter("overwritten", "table", "overwritten",
            "live rows that were overwritten, for the table was full"),
    counter("overwritten_expired", "table", "overwritten, expired",
            "expired rows whose slot another key got"),
    counter("retries", "table", "read again",
            "reads that were made again, for a write came between"),
    counter("recovered", "table", "recovered",
            "writers that died within a write, which others finished or undid"),
)  # fmt: skip
"""Of each table, by a label: a line `table_NAME` of INFO has them as `rows=5,slots=16,...`."""

STORE_FIGURES = (
    counter("accepted", "store", "accepted", "messages that were taken into the queue"),
    counter("accepted_bytes", "store", "accepted", "bytes of these", Unit.BYTES),
    counter("written", "store", "written", "messages that are written"),
    counter("written_bytes", "store", "written", "bytes of these", Unit.BYTES),
    gauge("in_flight", "store", "in flight", "messages that are taken and not yet written"),
    gauge("in_flight_bytes", "store", "in flight",
          "bytes of the queue that are taken, of what it may hold", Unit.BYTES),
    gauge("oldest_age_ms", "store", "oldest, ms",
          "milliseconds since the oldest message in flight or spooled was published"),
    gauge("spooled", "store", "spooled", "messages that wait in a spool to be delivered"),
    gauge("spooled_bytes", "store", "spooled",
          "bytes of these, with what is kept of each", Unit.BYTES),
    counter("replayed", "store", "replayed", "messages that were delivered out of a spool"),
    gauge("upstreams", "store", "upstreams", "servers that it sends messages to"),
    gauge("connected", "store", "connected", "servers among them that it is connected with"),
    counter("dropped", "store", "dropped", "messages that were left out, for the queue was full"),
    counter("retries", "store", "retries", "attempts to write that failed and are made again"),
    counter("errors", "store", "errors", "failures that were logged, each kind once"),
    counter("unsure", "store", "unsure",
            "messages that were written, and may be lost, for a sync failed later"),
    counter("lost", "store", "lost",
            "messages of a spool that damage has destroyed, as far as known"),
    counter("set_aside", "store", "set aside", "damaged files of a spool that were set aside"),
    counter("files_begun", "store", "files begun", "files that were begun"),
    counter("files_compressed", "store", "files compressed", "closed files that were compressed"),
    counter("files_removed", "store", "files removed", "files that were removed as old"),
    gauge("failing", "store", "failing", "1 while it cannot write, else 0"),
)  # fmt: skip
"""Of each store, by a label: a line `store_NAME` of INFO has them as `accepted=5,written=5,...`."""

BY_NAME = {figure.name: figure for figure in FIGURES}
