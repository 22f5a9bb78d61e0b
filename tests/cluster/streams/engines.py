"""Engines that keep streams, as processes of the tests, to be stopped, frozen and restarted."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.cluster.nodes import freeze
from tests.hub.servers import free_port, missing

PATIENCE = 60.0


def eventually(
    done: Callable[[], object], what: str | Callable[[], str] = "", wait: float = PATIENCE
) -> None:
    """Wait until something is so."""
    until = time.monotonic() + wait
    while not done():
        if time.monotonic() >= until:
            raise AssertionError(f"not in time: {(what() if callable(what) else what) or done}")
        time.sleep(0.01)


class Engine:
    """A server with its data in a folder, on a port that stays the same."""

    program = ""
    starts = PATIENCE
    """Seconds that its start may take."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        raise NotImplementedError

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        if shutil.which(self.program, path=f"{os.environ['PATH']}:/usr/sbin") is None:
            missing(f"no {self.program}")
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        eventually(self.ready, lambda: f"{self.program}: {self.said()}", self.starts)

    def ready(self) -> bool:
        assert self.process is not None and self.process.poll() is None, self.said()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def said(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(PATIENCE)
            self.process = None

    def kill(self) -> None:
        """End it as kill -9 does."""
        if self.process is not None:
            os.kill(self.pid, signal.SIGKILL)
            self.process.wait(PATIENCE)
            self.process = None

    def close(self) -> None:
        # No one needs what it would still write.
        self.stop(signal.SIGKILL)

    def freeze(self) -> None:
        freeze(self.pid)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid


class Redis(Engine):
    program = "redis-server"

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
        import redis

        assert self.process is not None and self.process.poll() is None, self.said()
        with redis.Redis(port=self.port) as client:
            try:
                return bool(client.ping())
            except redis.ConnectionError:
                return False


class Valkey(Redis):
    program = "valkey-server"


class Nats(Engine):
    program = "nats-server"
    more: tuple[str, ...] = ()
    """Flags of the server, such as those of TLS."""

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


class Rabbitmq(Engine):
    program = "/usr/lib/rabbitmq/bin/rabbitmq-server"
    starts = 3 * PATIENCE

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


class Kafka(Engine):
    program = "java"
    listener = ""
    """One more listener, as NAME://HOST:PORT, and what it needs."""
    more = ""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._controller = free_port()

    @property
    def url(self) -> str:
        return f"kafka://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        jars = kafka_jars()
        settings = self.folder / "kafka.properties"
        java = [
            "java",
            "-Xmx384m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            f"{jars}/*",
        ]
        if not settings.exists():
            broker, controller = (f"127.0.0.1:{port}" for port in (self.port, self._controller))
            here = ",".join(filter(None, (f"PLAINTEXT://{broker}", self.listener)))
            settings.write_text(
                f"process.roles=broker,controller\nnode.id=1\n"
                f"controller.quorum.voters=1@{controller}\n"
                f"listeners={here},CONTROLLER://{controller}\nadvertised.listeners={here}\n"
                f"controller.listener.names=CONTROLLER\n"
                f"listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
                f"SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL\n"
                f"inter.broker.listener.name=PLAINTEXT\nlog.dirs={self.folder}/data\n"
                f"offsets.topic.replication.factor=1\n"
                f"transaction.state.log.replication.factor=1\n"
                f"transaction.state.log.min.isr=1\nlog.retention.check.interval.ms=500\n"
                f"log.initial.task.delay.ms=500\nlog.segment.delete.delay.ms=100\n{self.more}"
            )
            made = subprocess.run(
                [*java, "kafka.tools.StorageTool", "format", "-t", "aW50ZXJsb2Nrc3RyZWFtcw",
                 "-c", str(settings)],
                capture_output=True, text=True, timeout=PATIENCE,
            )  # fmt: skip
            assert made.returncode == 0, made.stdout + made.stderr
        return [*java, "kafka.Kafka", str(settings)]

    def ready(self) -> bool:
        if not super().ready():
            return False
        from confluent_kafka.admin import AdminClient

        asked = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.port}", "log_level": 0})
        try:
            return bool(asked.list_topics(timeout=1.0).brokers)
        except Exception:
            return False


def kafka_jars() -> Path:
    """Kafka itself, by Maven, kept under target/ for the next time."""
    given = os.environ.get("INTERLOCK_KAFKA_JARS")
    folder = Path(given) if given else CACHE / "kafka"
    with open_lock(CACHE):
        if not list(folder.glob("kafka_2*.jar")):
            if shutil.which("mvn") is None:
                missing("no Kafka: install maven")
            pom = Path(__file__).with_name("kafka") / "pom.xml"
            words = ["mvn", "--quiet", "--batch-mode", "--no-transfer-progress", "-f", str(pom)]
            words += [f"-Dmaven.repo.local={CACHE / 'maven'}", f"-DoutputDirectory={folder}"]
            made = subprocess.run(
                [*words, "dependency:copy-dependencies"], capture_output=True, text=True
            )
            if made.returncode:
                missing(f"no Kafka: {made.stdout[-500:]}")
    return folder


@contextlib.contextmanager
def open_lock(folder: Path) -> Iterator[None]:
    """One process at a time fetches."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "kafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


CACHE = Path(__file__).resolve().parents[3] / "target" / "streams"
ENGINES: dict[str, type[Engine]] = {"redis": Redis, "valkey": Valkey, "nats": Nats}
LONG: dict[str, type[Engine]] = {"kafka": Kafka, "rabbitmq": Rabbitmq}
