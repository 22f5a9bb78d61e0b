"""Peers that keep rows in a server of this machine, over a Unix socket: memcached and Redis."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks.interpreters import NotPrepared
from benchmarks.servers import memcached, redis_on_socket
from benchmarks.tables.store import Store, packed, token


class Memcached(Store):
    """memcached and pymemcache: a row as bytes, and the unread count under a key of its own.

    Only so can it be raised there, and read without the rest.
    """

    name = "memcached"
    share = 0.03

    def __init__(self, keys: Sequence[str], place: str | None = None) -> None:
        try:
            from pymemcache.client.base import Client
        except ImportError:
            raise NotPrepared("no pymemcache: make bench installs it") from None
        self._server = ExitStack()
        self.place = place or self._server.enter_context(memcached())
        # Nothing waits in the client: what is sent goes.
        self.client = Client(self.place, no_delay=True, default_noreply=False)
        if place is None:
            super().__init__(keys)

    def load(self, tokens: dict[str, str]) -> None:
        for key, text in tokens.items():
            self.client.set(key, packed(text), noreply=True)
            self.client.set(f"{key}:unread", b"0", noreply=True)

    def get_column(self, keys: Sequence[str]) -> list[int]:
        get = self.client.get
        return [int(get(f"{key}:unread")) for key in keys]

    def set_column(self, keys: Sequence[str], value: int) -> None:
        put, text = self.client.set, str(value)
        for key in keys:
            put(f"{key}:unread", text)

    def incr(self, keys: Sequence[str]) -> None:
        incr = self.client.incr
        for key in keys:
            incr(f"{key}:unread", 1)

    def get_row(self, keys: Sequence[str]) -> list[Any]:
        get = self.client.get
        return [get(key) for key in keys]

    def set_row(self, keys: Sequence[str], rows: Sequence[Any]) -> None:
        put = self.client.set
        for key, row in zip(keys, rows, strict=True):
            put(key, row)

    def miss(self, keys: Sequence[str]) -> list[Any]:
        return self.get_row(keys)

    def get_many(self, batches: Sequence[list[str]]) -> list[list[int]]:
        get = self.client.get_many
        found = []
        for batch in batches:
            names = [f"{key}:unread" for key in batch]
            counts = get(names)
            found.append([int(counts[name]) for name in names])
        return found

    def close(self) -> None:
        self.client.close()
        self._server.close()


class Redis(Store):
    """Redis and redis-py with hiredis: a hash for each row."""

    name = "Redis"
    share = 0.02

    def __init__(self, keys: Sequence[str], place: str | None = None) -> None:
        try:
            import redis
        except ImportError:
            raise NotPrepared("no redis-py: make bench installs it") from None
        self._server = ExitStack()
        self.place = place or self._server.enter_context(redis_on_socket())
        self.client: Any = redis.Redis(unix_socket_path=self.place)
        if place is None:
            super().__init__(keys)

    def load(self, tokens: dict[str, str]) -> None:
        rows = list(tokens.items())
        for start in range(0, len(rows), 1_000):
            with self.client.pipeline(transaction=False) as pipeline:
                for key, text in rows[start : start + 1_000]:
                    pipeline.hset(key, mapping=_fields(text))
                pipeline.execute()

    def get_column(self, keys: Sequence[str]) -> list[int]:
        get = self.client.hget
        return [int(get(key, "unread")) for key in keys]

    def set_column(self, keys: Sequence[str], value: int) -> None:
        put = self.client.hset
        for key in keys:
            put(key, "unread", value)

    def incr(self, keys: Sequence[str]) -> None:
        incr = self.client.hincrby
        for key in keys:
            incr(key, "unread", 1)

    def get_row(self, keys: Sequence[str]) -> list[Any]:
        get = self.client.hgetall
        return [get(key) for key in keys]

    def rows_of(self, keys: Sequence[str]) -> list[Any]:
        return [_fields(token(key)) for key in keys]

    def set_row(self, keys: Sequence[str], rows: Sequence[Any]) -> None:
        put = self.client.hset
        for key, row in zip(keys, rows, strict=True):
            put(key, mapping=row)

    def miss(self, keys: Sequence[str]) -> list[Any]:
        get = self.client.hget
        return [get(key, "unread") for key in keys]

    def get_many(self, batches: Sequence[list[str]]) -> list[list[int]]:
        found = []
        for batch in batches:
            with self.client.pipeline(transaction=False) as pipeline:
                for key in batch:
                    pipeline.hget(key, "unread")
                found.append([int(count) for count in pipeline.execute()])
        return found

    def close(self) -> None:
        self.client.close()
        self._server.close()


def _fields(text: str) -> dict[str, str | int]:
    return {"app_id": 666, "unread": 0, "background": 0, "token": text}
