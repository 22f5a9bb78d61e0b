"""Several rows of an outbox that one statement inserts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["RowList"]

DEDUP = 6
"""Place of the dedup string in a row's values."""


class RowList:
    """The rows of one task, in order.

    Args:
        table: the table, quoted.
        rows: the values of each row, and what comes back with its result.
        sent: SQL for the time of a row's send, which is part of its identity; None: not needed.
    """

    def __init__(self, table: str, rows: list[tuple[Sequence[Any], Any]], sent: str | None) -> None:
        self._table, self._sent = table, sent
        self.rows = rows

    def insert(self) -> tuple[str, Sequence[Any]]:
        """Return the statement, and its values."""
        queue, task = self.rows[0][0][:2]
        columns = zip(*(values[2:] for values, _ in self.rows), strict=True)
        payload, keys, shared, delay, dedup, options = map(list, columns)
        # Without a dedup string nothing can conflict, and the check of each index costs a third of
        # the insert.
        conflict = "on conflict do nothing " if any(one is not None for one in dedup) else ""
        sent, sents = "", ""
        if self._sent is not None:
            sent, sents = f", {self._sent} as sent", ", array_agg(sent order by id)"
        # One row comes back for all, which every library returns alike. The ids rise in the order
        # of the list.
        text = (
            "with given as (select * from unnest({}::bytea[], {}::text[], {}::text[], "
            "{}::float8[], {}::text[], {}::text[]) as t "
            "(payload, keys, shared, delay, dedup, options)), "
            f"sent as (insert into {self._table} "
            "(queue, task, payload, keys, shared, delay, dedup, options) "
            "select {}, {}, payload, keys::bytea[], shared::bytea[], delay, dedup, options "
            f"from given {conflict}returning id, dedup{sent}) "
            f"select array_agg(id order by id), array_agg(dedup order by id){sents} from sent"
        )
        return text, [
            payload, list(map(_array, keys)), list(map(_array, shared)), delay, dedup, options,
            queue, task,
        ]  # fmt: skip

    def are_known(self, found: Any) -> bool:
        """Return whether some were not inserted, by what the statement returned."""
        return len(found[0] or ()) < len(self.rows)

    def known(self) -> tuple[str, Sequence[Any]]:
        """Return the statement that finds the rows which have the dedup strings, and its values."""
        text = (
            f"select array_agg(dedup), array_agg(id) from {self._table} where queue = {{}} "
            "and dedup = any({}::text[]) and state is distinct from 'dead'"
        )
        given = [values[DEDUP] for values, _ in self.rows if values[DEDUP] is not None]
        return text, [self.rows[0][0][0], given]

    def sent(self, found: Any, known: Any) -> Iterator[tuple[Any, tuple[int, ...] | None, bool]]:
        """Return for each row what comes back with its result, its identity, and whether it was
        known.

        Args:
            found: what the first statement returned.
            known: what the second one returned; None: it was not needed.
        """
        ids, dedups, *sents = (each or () for each in found)
        inserted = deque(zip(zip(ids, *sents, strict=True), dedups, strict=True))
        before = {} if known is None else dict(zip(known[0] or (), known[1] or (), strict=True))
        for values, result in self.rows:
            dedup = values[DEDUP]
            if inserted and inserted[0][1] == dedup:
                yield result, inserted.popleft()[0], False
            else:
                id = before.get(dedup)
                yield result, None if id is None else (id,), True


def _array(keys: Sequence[bytes]) -> str:
    # As a text: all arrays in an array would need as many elements.
    return "{" + ",".join(f'"\\\\x{key.hex()}"' for key in keys) + "}"
