"""Kafka, by Maven."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from interlock.cluster.streams.kafka_settings import LOG
from interlock.cluster.streams.protocol import log_name
from tests.cluster.streams.engines.server import PATIENCE, Engine, Guard
from tests.hub.servers import free_port, missing

CACHE = Path(__file__).resolve().parents[4] / "target" / "streams"


class Kafka(Engine):
    program = "java"
    is_slow = True
    unfit: ClassVar = [
        (
            {"message.timestamp.type": "CreateTime"},
            "CreateTime; a log needs LogAppendTime, .* --alter",
        ),
        ({"cleanup.policy": "compact"}, "cleanup.policy=compact; a log needs delete"),
        ({"retention.ms": "1000000"}, "retention.ms=1000000; a log needs -1"),
        ({"retention.bytes": "1000000"}, "retention.bytes=1000000; a log needs -1"),
        ({"unclean.leader.election.enable": "true"}, "election.enable=true; a log needs false"),
        ({"partitions": 2}, "2 partitions; allowed: 1"),
    ]
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

    def make_log(self, name: str, settings: dict[str, Any]) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        partitions = settings.get("partitions", 1)
        kept = {key: wanted for key, (wanted, _) in LOG.items()}
        kept |= {key: value for key, value in settings.items() if key != "partitions"}
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.port}"})
        new = NewTopic(f"il-log-{name}", partitions, config=kept)
        admin.create_topics([new])[f"il-log-{name}"].result(PATIENCE)

    def delete_log(self, table: str, dc: str) -> None:
        from confluent_kafka.admin import AdminClient

        topic = f"il-log-{log_name(table, dc)}"
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.port}"})
        admin.delete_topics([topic])[topic].result(PATIENCE)

    def spoil_log(self, name: str) -> str:
        self.alter(f"il-log-{name}", "cleanup.policy", "compact")
        return "the topic has cleanup.policy=compact; a log needs delete"

    def alter(self, topic: str, name: str, value: str) -> None:
        """Change a setting of a topic, as an operator does."""
        from confluent_kafka.admin import (  # type: ignore[attr-defined]
            AdminClient,
            AlterConfigOpType,
            ConfigEntry,
            ConfigResource,
        )

        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        changed = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.port}"})
        for done in admin.incremental_alter_configs([changed]).values():
            done.result(PATIENCE)


def kafka_jars() -> Path:
    """Kafka itself, by Maven, kept under target/ for the next time."""
    given = os.environ.get("INTERLOCK_KAFKA_JARS")
    folder = Path(given) if given else CACHE / "kafka"
    with open_lock(CACHE):
        if not list(folder.glob("kafka_2*.jar")):
            if shutil.which("mvn") is None:
                missing("no Kafka: install maven")
            pom = Path(__file__).parents[1] / "kafka" / "pom.xml"
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


ENGINES = {"kafka": Kafka}
GUARD = KafkaGuard, GuardedKafka
