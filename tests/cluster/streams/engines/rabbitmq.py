"""RabbitMQ."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from interlock.cluster.streams.protocol import log_name
from tests.cluster.streams.engines.server import PATIENCE, Engine, Guard
from tests.hub.servers import free_port, missing


class Rabbitmq(Engine):
    program = "/usr/lib/rabbitmq/bin/rabbitmq-server"
    starts = 3 * PATIENCE
    is_slow = True
    unfit: ClassVar = [
        ({"x-max-age": "7D"}, "inequivalent arg 'x-max-age'"),
        ({"x-max-length-bytes": 1_000_000}, "inequivalent arg 'x-max-length-bytes'"),
    ]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        # Where its user may go, unlike to pytest's folder.
        self._own = Path(tempfile.mkdtemp(prefix="interlock-rabbitmq-"))
        self._ports = {"ERL_EPMD_PORT": free_port(), "RABBITMQ_DIST_PORT": free_port()}

    @property
    def url(self) -> str:
        # Small segments, for only whole ones are trimmed.
        return f"rabbitmq+stream://guest:guest@127.0.0.1:{self.port}/?segment=100000"

    def command(self) -> list[str]:
        if not Path(self.program).exists():
            missing("no RabbitMQ: install rabbitmq-server")
        own = self._own
        # Without this line the Erlang port listens on every address.
        (own / "env.conf").write_text(
            'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1}"\n'
        )
        settings = {
            "HOME": own, "RABBITMQ_NODENAME": f"interlock{self.port}@localhost",
            "RABBITMQ_CONF_ENV_FILE": own / "env.conf", "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": self.port, "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_MNESIA_BASE": own / "data", "RABBITMQ_LOG_BASE": own / "log",
            "RABBITMQ_PID_FILE": own / "pid", "RABBITMQ_ENABLED_PLUGINS_FILE": own / "plugins",
            "RABBITMQ_CONFIG_FILE": own / "none", **self._ports,
        }  # fmt: skip
        who = []
        if os.geteuid() == 0:
            for path in (own, own / "env.conf"):
                shutil.chown(path, "rabbitmq", "rabbitmq")
            who = ["setpriv", "--reuid=rabbitmq", "--regid=rabbitmq", "--clear-groups", "--"]
        return [*who, "env", *(f"{k}={v}" for k, v in settings.items()), self.program]

    def policy(self, pattern: str, definition: dict[str, object]) -> None:
        """Set a policy of streams, as an operator does."""
        self.control("set_policy", "--apply-to", "queues", "p", pattern, json.dumps(definition))

    def control(self, *words: str) -> None:
        command = self.command()
        command[-1:] = [self.program.replace("rabbitmq-server", "rabbitmqctl"), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr

    def ready(self) -> bool:
        return super().ready() and "Starting broker... completed" in self.said()

    @property
    def pid(self) -> int:
        # The started program is a script.
        return int((self._own / "pid").read_text())

    def close(self) -> None:
        super().close()
        # It leaves the mapper of its ports behind.
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (folder / "environ").read_bytes().split(b"\0")
                if f"HOME={self._own}".encode() in words:
                    os.kill(int(folder.name), signal.SIGKILL)
        shutil.rmtree(self._own, ignore_errors=True)

    def make_log(self, name: str, settings: dict[str, Any]) -> None:
        arguments = {"x-queue-type": "stream", **settings}
        self._call(
            lambda channel: channel.declare_queue(
                f"il.log.{name}", durable=True, arguments=arguments
            )
        )

    def spoil_log(self, name: str) -> None:
        return None

    def delete_log(self, table: str, dc: str) -> None:
        self._call(lambda channel: channel.queue_delete(f"il.log.{log_name(table, dc)}"))

    def _call(self, call: Callable[[Any], Any]) -> None:
        import aio_pika

        async def run() -> None:
            made = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{self.port}/")
            await call(await made.channel())
            await made.close()

        asyncio.run(run())


class RabbitmqGuard(Guard):
    rights: ClassVar = {"configure": "begin", "write": "append", "read": "entries"}
    _is_made = False

    def deny(self, right: str | None) -> None:
        rabbitmq = self.engine
        assert isinstance(rabbitmq, Rabbitmq)
        if not self._is_made:
            rabbitmq.control("add_user", "node", "node")
            self._is_made = True
        given = {"configure": r"^il\.", "write": r"^amq\.default$", "read": r"^il\."}
        if right is not None:
            given[right] = "^$"
        rabbitmq.control("set_permissions", "node", *given.values())


ENGINES = {"rabbitmq": Rabbitmq}
GUARD = RabbitmqGuard, Rabbitmq
