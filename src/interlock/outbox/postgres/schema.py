"""The tables of an outbox, as SQL: one list of statements for each version."""

from __future__ import annotations

import secrets
from typing import Any

from interlock.outbox import versions
from interlock.outbox.postgres.driver import psycopg, quoted
from interlock.outbox.versions import check_version

__all__ = [
    "TIMELINE", "VERSION", "installed", "migrate", "prefix", "prefix_on_timeline", "statements",
]  # fmt: skip

VERSION = 3
TIMELINE = "substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"


def statements(schema: str, since: int = 0) -> list[str]:
    """Return the SQL that brings the tables from a version to the present one; 0: none are there.

    Raises ValueError if the name is not a plain one.
    """
    name = quoted(schema)
    return versions.statements(_VERSIONS, name, f"{name}.outbox_meta", since)


def script(schema: str, since: int = 0) -> str:
    """Return the same as a script of one transaction."""
    return "\n\n".join(["begin;", *statements(schema, since), "commit;"]) + "\n"


def migrate(connection: Any, schema: str) -> tuple[int, int]:
    """Bring the tables to the present version; return the versions before and after.

    Raises WrongVersion if the tables are of a later release.
    """
    with connection.transaction():
        # Two that migrate at once would create the same tables.
        connection.execute("select pg_advisory_xact_lock(hashtext(%s))", (f"{schema}.outbox",))
        before = installed(connection, schema) or 0
        if before > VERSION:
            check_version(_what(schema), before, VERSION)
        for text in statements(schema, before):
            connection.execute(text)
    return before, VERSION


def installed(connection: Any, schema: str) -> int | None:
    """Return the version of the tables, or None if they do not exist."""
    name = f"{quoted(schema)}.outbox_meta"
    if connection.execute("select to_regclass(%s)", (name,)).fetchone()[0] is None:
        return None
    found: int = connection.execute(f"select version from {name}").fetchone()[0]
    return found


def prefix(connection: Any, schema: str) -> str:
    """Return the prefix of the rows' dedup strings. Raises WrongVersion."""
    check_version(_what(schema), installed(connection, schema), VERSION)
    name = quoted(schema)
    found: str = connection.execute(f"select prefix from {name}.outbox_meta").fetchone()[0]
    return found


def prefix_on_timeline(connection: Any, schema: str) -> str:
    """Return the prefix and the timeline of the server, with a dot between them.

    A server begins a new timeline when it was a standby and becomes the primary, and after recovery
    to a point in time: the last transactions may be lost.
    """
    found, errors = prefix(connection, schema), psycopg().errors
    try:
        with connection.transaction():
            return f"{found}.{connection.execute(f'select {TIMELINE}').fetchone()[0]}"
    except (errors.FeatureNotSupported, errors.InsufficientPrivilege, errors.UndefinedFunction):
        # A service with a storage of its own.
        return f"{found}."


def draw_prefix(connection: Any, schema: str) -> str:
    """Draw a new prefix, for a database that was restored: numbers may be used again."""
    drawn = secrets.token_hex(6)
    connection.execute(f"update {quoted(schema)}.outbox_meta set prefix = %s", (drawn,))
    return drawn


def _what(schema: str) -> str:
    return f"outbox in the schema {schema!r}"


_VERSIONS = (
    (
        "create schema if not exists @;",
        """
create table @.outbox_meta (
    version integer not null,
    prefix text not null default substr(md5(random()::text || clock_timestamp()::text), 1, 12),
    -- What the relay reports; see the reference.
    relay text,                      -- its process
    session integer,                 -- its server process
    position bigint not null default 0,
    gaps integer not null default 0,
    waits text,
    reported timestamptz
);""",
        "insert into @.outbox_meta (version) values (0);",
        "create sequence @.outbox_numbers;",
        """
create table @.outbox (
    id bigint generated always as identity primary key,
    number bigint,                   -- the place in the order, drawn while the transaction commits
    queue text not null,
    task text not null,
    payload bytea not null,
    keys bytea[] not null,
    shared bytea[] not null,
    delay double precision,          -- seconds from the commit
    dedup text,
    options text not null,           -- of the put, as JSON
    created timestamptz not null default clock_timestamp(),
    due timestamptz,
    attempts integer not null default 0,
    state text check (state in ('held', 'dead')),
    error text
) with (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);""",
        "create unique index outbox_by_number on @.outbox (number);",
        """
create unique index outbox_by_dedup on @.outbox (queue, dedup)
    where dedup is not null and state is distinct from 'dead';""",
        "create index outbox_by_state on @.outbox (state, id) where state is not null;",
        """
-- With its owner's rights: a sender needs only to insert. All names are qualified, because the
-- sender chooses the search path.
create function @.outbox_arrive() returns trigger language plpgsql security definer as $$
begin
    update @.outbox
    set number = pg_catalog.nextval('@.outbox_numbers'::pg_catalog.regclass),
        due = pg_catalog.clock_timestamp()
            operator(pg_catalog.+) pg_catalog.make_interval(secs => new.delay)
    where id operator(pg_catalog.=) new.id;
    return null;
end $$;""",
        """
-- Deferred: it runs while the transaction commits, before that releases its locks. Events fire in
-- the order of the inserts; the name only orders triggers of one event, this one last.
create constraint trigger zz_outbox_arrive after insert on @.outbox
    deferrable initially deferred for each row execute function @.outbox_arrive();""",
        """
-- PREPARE TRANSACTION refuses a transaction that notifies: `set local interlock.notify = off`.
create function @.outbox_wake() returns trigger language plpgsql as $$
begin
    if pg_catalog.lower(pg_catalog.current_setting('interlock.notify', true))
        operator(pg_catalog.=) any ('{off}'::pg_catalog.text[]) then
        return null;
    end if;
    perform pg_catalog.pg_notify(pg_catalog.concat(tg_table_schema, '.outbox'), '');
    return null;
end $$;""",
        """
create trigger outbox_wake after insert on @.outbox
    for each statement execute function @.outbox_wake();""",
    ),
    # A number for each commit instead of each row: no row is written a second time.
    (
        "drop trigger zz_outbox_arrive on @.outbox;",
        "drop function @.outbox_arrive();",
        "drop trigger outbox_wake on @.outbox;",
        "drop function @.outbox_wake();",
        """
create table @.outbox_commits (
    number bigint primary key,       -- the place in the order, drawn while the transaction commits
    batch bigint not null,           -- of its rows
    at timestamptz not null default clock_timestamp()
) with (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);""",
        "create unique index outbox_commits_by_batch on @.outbox_commits (batch);",
        "create sequence @.outbox_batches;",
        # Each row that is there becomes a commit of its own.
        "alter table @.outbox add column batch bigint;",
        """
update @.outbox o set batch = nextval('@.outbox_batches'),
    number = coalesce(number, nextval('@.outbox_numbers'));""",
        """
insert into @.outbox_commits (number, batch, at)
select number, batch, coalesce(due - make_interval(secs => delay), due, created) from @.outbox;""",
        """
-- Once in a transaction: its rows belong to one batch. With its owner's rights: a sender needs only
-- to insert. All names are qualified, because the sender chooses the search path. The setting ends
-- with the transaction, or with the savepoint that is rolled back.
create function @.outbox_begin() returns bigint language plpgsql security definer as $$
begin
    return pg_catalog.set_config('interlock.outbox_batch',
        pg_catalog.nextval('@.outbox_batches'::pg_catalog.regclass)::pg_catalog.text, true);
end $$;""",
        """
alter table @.outbox drop column number, drop column due, alter column batch set not null,
    alter column batch set default case
        when current_setting('interlock.outbox_batch', true) <> ''
        then current_setting('interlock.outbox_batch', true)::bigint
        else @.outbox_begin()
    end;""",
        "create unique index outbox_by_batch on @.outbox (batch, id);",
        """
create view @.outbox_rows as
    select o.*, c.number, c.at, c.at + make_interval(secs => coalesce(o.delay, 0)) as due
    from @.outbox o left join @.outbox_commits c using (batch);""",
        """
-- PREPARE TRANSACTION refuses a transaction that notifies: `set local interlock.notify = off`.
create function @.outbox_arrive() returns trigger language plpgsql security definer as $$
begin
    insert into @.outbox_commits (number, batch)
    values (pg_catalog.nextval('@.outbox_numbers'::pg_catalog.regclass), new.batch);
    -- Rows that follow, as after `set constraints all immediate`, are another batch.
    if pg_catalog.current_setting('interlock.outbox_batch', true)
        operator(pg_catalog.=) new.batch::pg_catalog.text then
        perform pg_catalog.set_config('interlock.outbox_batch', '', true);
    end if;
    if pg_catalog.lower(pg_catalog.current_setting('interlock.notify', true))
        operator(pg_catalog.=) any ('{off}'::pg_catalog.text[]) then
        return null;
    end if;
    perform pg_catalog.pg_notify(pg_catalog.concat(tg_table_schema, '.outbox'), '');
    return null;
end $$;""",
        """
-- Deferred: it runs while the transaction commits, before that releases its locks. One event for a
-- batch, of the first row that is really inserted.
create constraint trigger zz_outbox_arrive after insert on @.outbox
    deferrable initially deferred for each row when (case
        when current_setting('interlock.outbox_event', true) = new.batch::text then false
        else set_config('interlock.outbox_event', new.batch::text, true) <> ''
    end) execute function @.outbox_arrive();""",
    ),
    (
        """
-- Results of calls whose rows are deleted: each is written by the transaction that deletes the row.
create table @.outbox_results (
    id bigint primary key,           -- of the row
    sent bigint not null,            -- µs from 1970
    state text not null check (state in ('acked', 'expired', 'cancelled')),
    result bytea,                    -- MessagePack
    error text,
    expires timestamptz not null
) with (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);""",
        "create index outbox_results_by_expiry on @.outbox_results (expires);",
    ),
)
