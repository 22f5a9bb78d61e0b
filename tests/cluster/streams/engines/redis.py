"""Redis and Valkey."""

from __future__ import annotations

from typing import ClassVar

import redis

from tests.cluster.streams.engines.server import Engine, Guard


class Redis(Engine):
    program = "redis-server"
    unfit: ClassVar = []

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return [
            self.program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
            "--appendonly", "yes", "--appendfsync", "always", "--dir", str(self.folder),
            "--repl-diskless-sync-delay", "0",
        ]  # fmt: skip

    def ready(self) -> bool:
        assert self.process is not None and self.process.poll() is None, self.said()
        with redis.Redis(port=self.port) as client:
            try:
                return bool(client.ping())
            except redis.ConnectionError:
                return False

    def spoil_log(self, name: str) -> None:
        return None

    def delete_log(self, table: str, dc: str) -> None:
        with redis.Redis(port=self.port) as client:
            client.delete(f"il:log:{{{table}.{dc}}}")


class Valkey(Redis):
    program = "valkey-server"


class RedisGuard(Guard):
    rights: ClassVar = {
        "xadd": "append",
        "multi": "append several",
        "exec": "append several",
        "xread": "entries",
        "xrange": "look",
        "xrevrange": "ends",
        "xtrim": "trim",
    }

    def deny(self, right: str | None) -> None:
        with redis.Redis.from_url(self.engine.url) as admin:
            taken = [] if right is None else [f"-{right}"]
            rules = ("on", ">node", "~il:*", "+@all", *taken)
            admin.execute_command("ACL", "SETUSER", "node", *rules)

    def names(self, right: str) -> str:
        return f"give it +{right} with ACL SETUSER"


ENGINES = {"redis": Redis, "valkey": Valkey}
GUARD = RedisGuard, Redis
