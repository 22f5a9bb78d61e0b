"""NATS JetStream."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
from collections.abc import Callable
from typing import Any, ClassVar

from interlock.cluster.streams.protocol import log_name
from tests.cluster.streams.engines.server import Engine, Guard, eventually


class Nats(Engine):
    program = "nats-server"
    more: tuple[str, ...] = ()
    """Flags of the server, such as those of TLS."""
    unfit: ClassVar = [
        ({"max_msgs": 100}, "its max_msgs is 100, .* nats stream edit"),
        ({"max_bytes": 1000}, "its max_bytes is 1000, .* nats stream edit"),
        ({"max_age": 3600}, "its max_age is 3600.*, .* nats stream edit"),
        ({"max_age": 3600, "discard": "new"}, "its max_age is 3600.*, .* nats stream edit"),
        ({"max_msgs_per_subject": 5}, "its max_msgs_per_subject is 5, .* nats stream edit"),
        ({"retention": "interest"}, "its retention is interest; a log needs limits"),
        ({"storage": "memory"}, "its storage is memory; a log needs file"),
        ({"no_ack": True}, "its no_ack is True; a log needs False"),
    ]

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return [
            self.program, "-js", "-a", "127.0.0.1", "-p", str(self.port),
            "-sd", str(self.folder / "data"), *self._flags(), *self.more,
        ]  # fmt: skip

    def _flags(self) -> list[str]:
        told = subprocess.run([self.program, "-v"], capture_output=True, text=True).stdout
        if tuple(map(int, re.findall(r"\d+", told)[:2])) < (2, 10):
            return []
        # It has the setting that the documentation asks for.
        settings = self.folder / "settings"
        settings.write_text("jetstream { sync_interval: always }\n")
        return ["-c", str(settings)]

    def ready(self) -> bool:
        return super().ready() and "Server is ready" in self.said()

    def make_log(self, name: str, settings: dict[str, Any]) -> None:
        made = {"name": f"il-log-{name}", "subjects": [f"il.log.{name}"], **settings}
        with_nats(self, lambda js: js.add_stream(**made))

    def delete_log(self, table: str, dc: str) -> None:
        with_nats(self, lambda js: js.delete_stream(f"il-log-{log_name(table, dc)}"))

    def spoil_log(self, name: str) -> str:
        made = {"name": f"il-log-{name}", "subjects": [f"il.log.{name}"], "max_age": 3600}
        with_nats(self, lambda js: js.update_stream(**made))
        return "its max_age is 3600"


def with_nats(engine: Engine, call: Callable[[Any], Any]) -> None:
    import nats

    async def run() -> None:
        client = await nats.connect(engine.url)
        await call(client.jetstream())
        await client.close()

    asyncio.run(run())


class GuardedNats(Nats):
    """One with users: `admin`, and `node`."""

    denied = "none"

    @property
    def url(self) -> str:
        return f"nats://admin:admin@127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        self.write()
        return [self.program, "-c", str(self.folder / "settings")]

    def write(self) -> None:
        # Flags of JetStream would not live through a reload.
        publishes, subscribes = self.denied, "none"
        if self.denied.startswith("_INBOX"):
            publishes, subscribes = subscribes, publishes
        (self.folder / "settings").write_text(
            f'host: 127.0.0.1, port: {self.port}, jetstream: {{store_dir: "{self.folder}/data"}}\n'
            "authorization { users: [ {user: admin, password: admin}, {user: node, password: node, "
            f'permissions: {{publish: {{deny: ["{publishes}"]}}, '
            f'subscribe: {{deny: ["{subscribes}"]}}}}}} ] }}'
        )


class NatsGuard(Guard):
    rights: ClassVar = {
        "il.log.>": "append",
        "$JS.API.STREAM.INFO.>": "append",
        "$JS.API.STREAM.CREATE.>": "begin",
        "$JS.API.CONSUMER.>": "entries",
        "$JS.API.STREAM.MSG.GET.>": "look",
        "$JS.API.STREAM.PURGE.>": "trim",
        "_INBOX.>": "append",
    }

    def deny(self, right: str | None) -> None:
        nats = self.engine
        assert isinstance(nats, GuardedNats) and nats.process is not None
        nats.denied = right or "none"
        nats.write()
        log = nats.folder / "log"
        reloads = log.read_text().count("Reloaded server configuration")
        nats.process.send_signal(signal.SIGHUP)
        eventually(lambda: log.read_text().count("Reloaded server configuration") > reloads)


ENGINES = {"nats": Nats}
GUARD = NatsGuard, GuardedNats
