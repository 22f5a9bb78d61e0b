"""The rights on the tables that each part of a program needs, as SQL."""

from __future__ import annotations

from typing import Literal

from interlock.outbox.postgres.driver import quoted, sqlstate

__all__ = ["Part", "grants", "with_grants"]

Part = Literal["producer", "reader", "worker", "relay", "monitor"]

_RIGHTS: dict[Part, tuple[str, ...]] = {
    "producer": ("insert, select (id, created, queue, dedup, state) on @.outbox",),
    "reader": (
        "select (id, created, state, error, attempts, options) on @.outbox",
        "select on @.outbox_results",
    ),
    "worker": (
        "select, update (attempts, error, state), delete on @.outbox",
        "insert, select (id, sent), delete on @.outbox_results",
    ),
    "relay": (
        "select, update (error, state) on @.outbox",
        "select, delete on @.outbox_commits",
        "select (id, expires), delete on @.outbox_results",
        "select, update (relay, session, position, gaps, waits, reported) on @.outbox_meta",
    ),
    "monitor": (
        "select on @.outbox, @.outbox_rows, @.outbox_commits, @.outbox_meta, @.outbox_results",
        "select on @.outbox_numbers, @.outbox_id_seq",
    ),
}


def grants(part: Part, schema: str, role: str) -> list[str]:
    """Return the statements that give a role what one part needs, and no more."""
    name = quoted(schema)
    rights = ("usage on schema @", *_RIGHTS[part])
    return [f"grant {right.replace('@', name)} to {role};" for right in rights]


def with_grants(error: BaseException, part: Part, schema: str) -> str:
    """Return the text of an error; if a right is missing, followed by the statements that grant
    it; if the server is read-only, by what to do."""
    text, code = str(error).strip(), sqlstate(error)
    if code == DENIED and "row-level security" in text:
        return f"{text}; turn it off: alter table ... disable row level security"
    if code == DENIED:
        return f"{text}; a {part} needs: {' '.join(grants(part, schema, 'ROLE'))}"
    if code == READ_ONLY or (code == WRONG_STATE and "recovery" in text):
        return (
            f"{text}; the server is a standby, or default_transaction_read_only is on: name the "
            "primary, or all servers and target_session_attrs=read-write"
        )
    return text


DENIED = "42501"
"""SQLSTATE insufficient_privilege."""
READ_ONLY = "25006"
"""SQLSTATE read_only_sql_transaction."""
WRONG_STATE = "55000"
"""SQLSTATE object_not_in_prerequisite_state."""
