"""An engine that refuses the user of a node, or has no room: the report of it."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import pytest
import redis

from interlock.cluster.streams import (
    ChangeStream,
    StreamDenied,
    StreamUnavailable,
    StreamUnfit,
    open_log,
)
from interlock.cluster.streams.protocol import log_name
from tests.cluster.streams.engines import Engine, Kafka, Nats, Rabbitmq, Redis, eventually
from tests.cluster.streams.test_logs import position, read_all, with_nats
from tests.hub.servers import free_port

DC = "dc"


class Guard:
    """An engine with a user of nodes, `node`, that can be denied one right at a time."""

    rights: ClassVar[dict[str, str]] = {}
    """Each right, and a call that needs it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def deny(self, right: str | None) -> None:
        """Take this right from the user, and give it all others."""
        raise NotImplementedError

    def names(self, right: str) -> str:
        """Return words about a missing right that an error must have."""
        return "its user lacks a right: "

    def url(self, login: str) -> str:
        parts = urlsplit(self.engine.url)
        host = parts.netloc.rpartition("@")[2]
        return parts._replace(netloc=f"{login}@{host}").geturl()

    @contextmanager
    def opened(self, login: str = "node:node", table: str = "t") -> Iterator[ChangeStream]:
        stream = open_log(self.url(login), table, DC, role="append")
        yield stream
        stream.close()

    @contextmanager
    def as_admin(self) -> Iterator[ChangeStream]:
        stream = open_log(self.engine.url, "t", DC, role="append")
        yield stream
        stream.close()


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


class GuardedKafka(Kafka):
    """One with a second listener, for `node`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.guarded = free_port()
        self.listener = f"SASL_PLAINTEXT://127.0.0.1:{self.guarded}"
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        self.more = (
            "sasl.enabled.mechanisms=PLAIN\nsuper.users=User:ANONYMOUS\n"
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
            "listener.name.sasl_plaintext.plain.sasl.jaas.config="
            f'{module} required user_node="node";\n'
        )


class KafkaGuard(Guard):
    rights: ClassVar = {
        "WRITE": "append",
        "DESCRIBE_CONFIGS": "append",
        "CREATE": "begin",
        "READ": "entries",
        "DELETE": "trim",
    }

    def url(self, login: str) -> str:
        assert isinstance(self.engine, GuardedKafka)
        return f"kafka://{login}@127.0.0.1:{self.engine.guarded}/?sasl.mechanism=PLAIN"

    def deny(self, right: str | None) -> None:
        from confluent_kafka.admin import (  # type: ignore[attr-defined]
            AclBinding,
            AclBindingFilter,
            AclOperation,
            AclPermissionType,
            AdminClient,
            ResourcePatternType,
            ResourceType,
        )

        topics = ResourceType.TOPIC, "il-", ResourcePatternType.PREFIXED, "User:node", "*"
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.engine.port}"})
        wanted = AclBindingFilter(*topics, AclOperation.ANY, AclPermissionType.DENY)
        for one in admin.delete_acls([wanted]).values():
            one.result()
        given = [AclBinding(*topics, AclOperation.ALL, AclPermissionType.ALLOW)]
        if right is not None:
            operation = AclOperation[right]
            given.append(AclBinding(*topics, operation, AclPermissionType.DENY))
        for one in admin.create_acls(given).values():
            one.result()


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


GUARDS: dict[str, tuple[type[Guard], type[Engine]]] = {
    "redis": (RedisGuard, Redis),
    "nats": (NatsGuard, GuardedNats),
    "kafka": (KafkaGuard, GuardedKafka),
    "rabbitmq": (RabbitmqGuard, Rabbitmq),
}


@pytest.fixture(params=GUARDS)
def guard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Guard]:
    if request.param in ("kafka", "rabbitmq") and os.environ.get("INTERLOCK_STREAMS") != "all":
        pytest.skip(f"{request.param} takes its time: with INTERLOCK_STREAMS=all")
    made, engine_type = GUARDS[request.param]
    engine = engine_type(tmp_path)
    engine.start()
    yield made(engine)
    engine.close()


@pytest.mark.watchdog(180)
def test_a_denied_operation_is_named(guard: Guard) -> None:
    guard.deny(None)
    with guard.opened() as stream:
        stream.begin(b"0")
        stream.append([b"1", b"2"])
        first, second, _ = (position(one) for one in read_all(stream, "", 3))
    calls: dict[str, Callable[[ChangeStream], object]] = {
        "append": lambda stream: stream.append([b"3"]),
        "append several": lambda stream: stream.append([b"3", b"4"]),
        "begin": lambda stream: stream.begin(b"0"),
        "entries": lambda stream: stream.entries("", 10, 0.5),
        "look": lambda stream: stream.look([first]),
        "ends": lambda stream: stream.ends(),
        "trim": lambda stream: stream.trim([second]),
    }
    for right, name in guard.rights.items():
        guard.deny(right)
        said: list[str] = []

        def is_denied(name: str = name, said: list[str] = said) -> bool:
            # A log of its own for each one that is begun.
            table = uuid.uuid4().hex if name == "begin" else "t"
            with guard.opened(table=table) as stream:
                try:
                    calls[name](stream)
                except StreamDenied as error:
                    said.append(str(error))
            return bool(said)

        # Rights take a moment at some.
        eventually(is_denied, f"{right}: not denied")
        assert "its user lacks a right: " in said[0] and guard.names(right) in said[0]
        guard.deny(None)
        with guard.opened() as stream:
            eventually(lambda: _is_done(calls[name], stream), f"{right}: not done")  # noqa: B023
    refused = pytest.raises(StreamDenied, match="check the user and the password in the URL")
    with guard.opened("node:wrong") as stream, refused:
        stream.largest()


def _is_done(call: Callable[[ChangeStream], object], stream: ChangeStream) -> bool:
    try:
        call(stream)
    except StreamUnavailable:
        return False
    return True


def test_a_full_log_refuses_entries_and_keeps_those_it_has(tmp_path: Path) -> None:
    nats = Nats(tmp_path)
    nats.start()
    name = log_name("t", DC)
    stream = {"name": f"il-log-{name}", "subjects": [f"il.log.{name}"], "max_bytes": 10_000}
    with_nats(nats, lambda js: js.add_stream(**stream))
    log = open_log(nats.url, "t", DC, role="append")
    try:
        with pytest.raises(StreamUnfit, match="its max_bytes is 10000"):
            log.begin(b"0")
        with_nats(nats, lambda js: js.update_stream(**stream, discard="new"))
        log.begin(b"0")
        with pytest.raises(StreamUnavailable, match="nothing can be appended before its limit"):
            log.append([b"x" * 1000] * 20)
        found = read_all(log, "", len(log.entries("", 100, 0.1).entries))
        assert found[0].data == b"0" and len(found) > 8
        assert log.trim([position(found[5])]) == 5
        log.append([b"y" * 1000])
    finally:
        log.close()
        nats.close()
