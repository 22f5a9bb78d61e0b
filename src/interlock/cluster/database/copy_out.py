"""The rows of a COPY from PostgreSQL as bytes, by libpq: no object is made of a row."""

from __future__ import annotations

import select
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import pq

AT_ONCE = 1 << 20
"""Bytes from which on rows are yielded."""
_HEAD = 15
"""Bytes of a COPY in the binary format before the length of what extends its head."""
_END = b"\xff\xff"


def copied(connection: Any, query: bytes, timeout: float) -> Iterator[bytes]:
    """Yield whole rows of a binary COPY, many at once.

    Args:
        timeout: seconds for which the server may be silent.

    Raises:
        psycopg.Error: the server refuses it, or is silent or gone.
    """
    server: pq.abc.PGconn = connection.pgconn
    readable = select.poll()
    readable.register(server.socket, select.POLLIN)

    def wait() -> None:
        if not readable.poll(timeout * 1000):
            raise psycopg.OperationalError(f"it has sent nothing for {timeout:g} s")
        server.consume_input()

    server.send_query(query)
    while server.flush() or server.is_busy():
        wait()
    _check(server.get_result(), pq.ExecStatus.COPY_OUT)
    rows, is_first = bytearray(), True
    while (found := server.get_copy_data(1))[0] >= 0:
        length, data = found
        if not length:
            wait()
            continue
        if is_first:
            is_first = False
            data = data[_HEAD + 4 + int.from_bytes(data[_HEAD : _HEAD + 4], "big") :]
        if data == _END:
            continue
        rows += data
        if len(rows) >= AT_ONCE:
            yield bytes(rows)
            rows.clear()
    _check(server.get_result(), pq.ExecStatus.COMMAND_OK)
    if rows:
        yield bytes(rows)


def _check(result: pq.abc.PGresult | None, wanted: pq.ExecStatus) -> None:
    if result is None or result.status != wanted:
        text = b"" if result is None else result.error_message
        raise psycopg.OperationalError(text.decode(errors="replace") or "no answer to a COPY")
