"""A log in a topic of Kafka with one partition, by confluent-kafka.

A position is the entry's offset with a mark of its bytes. The producer is idempotent and leaves no
gap: one that failed is given up, with what it had not delivered.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from interlock import _core
from interlock.client.url import without_password
from interlock.cluster.streams.kafka_settings import LOG, READING, client_settings
from interlock.cluster.streams.protocol import (
    ABSENT,
    LEAST,
    LOGIN,
    Entry,
    Found,
    PositionLost,
    Role,
    StreamDenied,
    StreamMissing,
    StreamUnavailable,
    StreamUnfit,
    log_name,
    seen,
)
from interlock.runtime.installation import needs

try:
    from confluent_kafka import (
        TIMESTAMP_LOG_APPEND_TIME,
        Consumer,
        KafkaError,
        KafkaException,
        Producer,
        TopicPartition,
    )
    from confluent_kafka.admin import (  # type: ignore[attr-defined]
        AdminClient,
        ConfigResource,
        NewTopic,
    )
except ImportError as error:
    raise ImportError(
        f"a stream of Kafka needs confluent-kafka: {needs('kafka')} ({error})"
    ) from None

T = TypeVar("T")
_SLICE = 0.05
"""Seconds after which a wait looks whether the stream was closed."""
_READ = 8 << 20
_FIRST = 128
_LOOK = 1.0
"""Seconds after which a reader looks whether the topic is the same still."""
_SETTINGS = 5.0
"""Seconds after which a reader asks for the topic's settings again."""
_LARGEST = 8_000_000
"""Bytes of an entry with what is around it."""
_AROUND = 1000
_DENIED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)
_SILENT = (
    KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT,
    KafkaError._MSG_TIMED_OUT, KafkaError.REQUEST_TIMED_OUT,
)  # fmt: skip
_SHORTEST = 3.0
"""Seconds that a Kafka has at least."""


def log_here(
    url: str, table: str, dc: str, role: Role, timeout: float, source: str | None
) -> KafkaStream:
    """See ``open_log``."""
    name, settings = log_name(table, dc, source), client_settings("open_log()", url)
    kind = "log" if source is None else "link"
    return KafkaStream(without_password(url), settings, name, timeout, kind)


class KafkaStream:
    """See ``ChangeStream``. The topic is ``il-log-NAME``, of notes ``il-link-NAME``."""

    untrimmed = ""

    def __init__(
        self, shown: str, settings: dict[str, Any], name: str, timeout: float, kind: str
    ) -> None:
        self._shown = f"stream {name!r} at {shown}"
        # Errors that librdkafka would print on standard error are raised by the calls.
        self._settings: dict[str, Any] = {"log_level": 0, "socket.timeout.ms": 10_000, **settings}
        self._topic = f"il-{kind}-{name}"
        # A new producer asks more than once before it may send.
        self._timeout = max(timeout, _SHORTEST)
        self._producer: Any = None
        self._consumer: Any = None
        self._admin: Any = None
        self._said: KafkaError | None = None
        """The last error of the client that explains why nothing is answered."""
        self._made = False
        self._made_at = 0.0
        """The moment at which its settings were last asked for."""
        self._at: str | None = None
        self._looked = 0.0
        self._count = _FIRST
        self._known = set[str]()
        self._most = _LARGEST
        self._using = threading.Lock()
        self._closed = False

    # -- Appending ----------------------------------------------------------------------------

    def append(self, entries: Sequence[bytes]) -> list[str] | None:
        """See ``ChangeStream``."""
        return self._run(lambda: self._append(entries)) if entries else []

    def begin(self, entry: bytes) -> list[str] | None:
        """See ``ChangeStream``."""
        return self._run(lambda: self._append([entry], begins=True))

    def _append(self, entries: Sequence[bytes], begins: bool = False) -> list[str]:
        if not self._is_there():
            if not begins:
                raise StreamMissing(self._text("there is no such topic"))
            self._make_log()
        if self._producer is None:
            self._producer = Producer(
                {
                    **self._settings,
                    "acks": "all",
                    "enable.idempotence": True,
                    "enable.gapless.guarantee": True,
                    # A broker would make a topic that was deleted, with its own settings.
                    "allow.auto.create.topics": False,
                    "linger.ms": 0,
                    "message.max.bytes": _LARGEST,
                    "message.timeout.ms": round(self._timeout * 1000),
                    "error_cb": self._heard,
                }
            )
        left, failed, offsets = [len(entries)], list[Any](), list[int]()

        def delivered(error: Any, message: Any) -> None:
            left[0] -= 1
            if error is not None:
                failed.append(error)
            else:
                offsets.append(message.offset())

        for entry in entries:
            self._until(lambda entry=entry: self._produced(entry, delivered))  # type: ignore[misc]
        self._until(lambda: self._polled(left))
        if failed:
            raise self._failed(failed[0])
        # One partition and one producer: reports come in the order of sending.
        return [str(offset) for offset in offsets]

    def _polled(self, left: list[int]) -> bool:
        self._producer.poll(_SLICE)
        return not left[0]

    def _produced(self, entry: bytes, delivered: Callable[[Any, Any], None]) -> bool:
        try:
            self._producer.produce(self._topic, entry, partition=0, on_delivery=delivered)
        except BufferError:
            self._producer.poll(_SLICE)
            return False
        return True

    # -- Reading ------------------------------------------------------------------------------

    def entries(self, after: str, most: int, wait: float) -> Found:
        """See ``ChangeStream``."""
        return self._run(lambda: self._found(after, most, wait))

    def _found(self, after: str, most: int, wait: float) -> Found:
        now = time.monotonic()
        until = now + wait
        if not self._is_there():
            if after:
                raise PositionLost(after, "", "")
            time.sleep(min(max(wait, 0), ABSENT))
            return Found([], True)
        offset = _offset(after)
        if self._consumer is None or after != self._at or now - self._looked > _LOOK:
            if now - self._made_at > _SETTINGS:
                # They may have been changed.
                self._made = False
                if not self._is_there():
                    raise PositionLost(after, "", "")
            if not self._look(after):
                return Found([], True)
            self._looked = time.monotonic()
        count = max(1, min(most, self._count))
        found: list[Entry] = []
        if wait <= 0:
            _, end = self._ends_now()
            count = min(count, end - offset - 1)
            if count <= 0:
                return Found([], True)
            until = time.monotonic() + self._timeout
        while not found:
            self._check()
            for message in self._some(count):
                at = message.offset()
                if at <= offset:
                    continue
                offset = at
                found.append(self._entry_of(message))
            if not found and time.monotonic() >= until:
                return Found([], True)
        self._at = self._position(found[-1])
        self._looked = time.monotonic()
        mean = sum(len(one.data) for one in found) // len(found) + 1
        self._count = max(1, min(_READ // mean, 10_000))
        # As the broker has told it with what was fetched last.
        part = TopicPartition(self._topic, 0)
        _, end = self._consumer.get_watermark_offsets(part, cached=True)
        return Found(found, offset + 1 >= end)

    def _entry_of(self, message: Any) -> Entry:
        kind, ms = message.timestamp()
        if kind != TIMESTAMP_LOG_APPEND_TIME:
            raise self._unfit("message.timestamp.type", "CreateTime")
        return Entry(str(message.offset()), max(ms, 0), message.value() or b"")

    def _position(self, entry: Entry | None) -> str:
        return f"{entry.id}.{_core.LogBridge.mark(entry.data)}" if entry else ""

    def _some(self, count: int) -> list[Any]:
        """Return what is there, or comes in a moment: the first, and what came with it."""
        first = self._consumer.poll(_SLICE)
        if first is None:
            return []
        found = [first]
        if count > 1:
            found += self._consumer.consume(count - 1, 0.0)
        entries = []
        for message in found:
            error = message.error()
            if error is None:
                entries.append(message)
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION):
                raise self._lost(self._at or "")
            elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                # The client asks for a group whether it is in one or not.
                raise self._failed(error)
        return entries

    def _look(self, after: str) -> bool:
        """Check that the topic has a position, and begin to consume behind it.

        False: it ends before a position that is not to be checked.
        """
        self._open_consumer()
        first, end = self._ends_now()
        offset, mark = _offset(after), after.partition(".")[2]
        if mark and (offset >= end or offset + 1 < first):
            raise self._lost(after)
        if offset >= end:
            return False
        if after == self._at and not (mark and offset >= first):
            return True
        start = offset if offset >= first and mark else max(offset + 1, first)
        self._consumer.assign([TopicPartition(self._topic, 0, start)])
        if mark and start == offset and self._position(self._entry(offset)) != after:
            raise self._lost(after)
        self._at = after
        return True

    def _entry(self, offset: int) -> Entry:
        """Return the entry at an offset, to which the consumer is assigned, or the next one."""
        until = time.monotonic() + self._timeout
        while time.monotonic() < until:
            self._check()
            for message in self._some(1):
                return self._entry_of(message)
        raise self._silent()

    def _ends_now(self) -> tuple[int, int]:
        """Return the first offset that is kept, and the one that comes next."""
        part = TopicPartition(self._topic, 0)
        first, end = self._consumer.get_watermark_offsets(part, timeout=self._timeout)
        return int(first), int(end)

    def _lost(self, after: str) -> PositionLost:
        self._at = None
        first, last = self._end(first=True), self._end(first=False)
        return PositionLost(after, self._position(first), self._position(last))

    def last(self) -> str:
        """See ``ChangeStream``."""
        return self._position(self._run(lambda: self._end(first=False)))

    def ends(self) -> tuple[Entry, Entry] | None:
        """See ``ChangeStream``."""
        return self._run(self._both)

    def _both(self) -> tuple[Entry, Entry] | None:
        first, last = self._end(first=True), self._end(first=False)
        return None if first is None or last is None else (first, last)

    def _end(self, first: bool) -> Entry | None:
        if not self._is_there():
            return None
        self._open_consumer()
        low, end = self._ends_now()
        if low >= end:
            return None
        offset = low if first else end - 1
        self._at = None
        self._consumer.assign([TopicPartition(self._topic, 0, offset)])
        return self._entry(offset)

    def largest(self) -> tuple[int, str]:
        """See ``ChangeStream``."""
        return self._run(self._largest)

    def _largest(self) -> tuple[int, str]:
        # Where there is none yet, it is made so that it takes as much.
        self._is_there()
        if self._most < LEAST + _AROUND:
            text = f"the topic has max.message.bytes={self._most}; a log needs {LEAST + _AROUND}"
            raise StreamUnfit(self._text(text))
        return min(self._most, _LARGEST) - _AROUND, "max.message.bytes"

    def look(self, positions: Sequence[str]) -> list[bool]:
        """See ``ChangeStream``."""
        return self._run(lambda: self._seen(positions))

    def _seen(self, positions: Sequence[str]) -> list[bool]:
        if not self._is_there():
            return [False for _ in positions]
        self._open_consumer()
        first, end = self._ends_now()

        def is_there(position: str) -> bool:
            offset = _offset(position)
            if offset >= end:
                return False
            self._at = None
            self._consumer.assign([TopicPartition(self._topic, 0, offset)])
            found = self._entry(offset)
            if position.endswith("."):
                return found.id == str(offset)
            return self._position(found) == position

        asks = seen(positions, self._known, first)
        try:
            position = next(asks)
            while True:
                position = asks.send(is_there(position))
        except StopIteration as done:
            return list(done.value)

    def trim(self, positions: Sequence[str]) -> int:
        """See ``ChangeStream``."""
        return self._run(lambda: self._cut(positions))

    def _cut(self, positions: Sequence[str]) -> int:
        if not all(self._seen(positions)):
            return 0
        before = _offset(positions[-1])
        first, _ = self._ends_now()
        if before <= first:
            return 0
        part = TopicPartition(self._topic, 0, before)
        asked = self._admin_of().delete_records([part], request_timeout=self._timeout)
        (done,) = (one.result(self._timeout) for one in asked.values())
        return max(int(done.low_watermark) - first, 0)

    # -- The connection -----------------------------------------------------------------------

    def _is_there(self) -> bool:
        """Return whether there is such a log. StreamUnfit: it is not kept as a log must be."""
        if self._made:
            return True
        admin = self._admin_of()
        # For all topics: asking for one may create it.
        topic = admin.list_topics(timeout=self._timeout).topics.get(self._topic)
        if topic is None or topic.error is not None:
            return False
        if len(topic.partitions) != 1:
            text = f"the topic has {len(topic.partitions)} partitions; allowed: 1"
            raise StreamUnfit(self._text(text))
        asked = [ConfigResource(ConfigResource.Type.TOPIC, self._topic)]
        (found,) = admin.describe_configs(asked, request_timeout=self._timeout).values()
        settings = {name: one.value for name, one in found.result(self._timeout).items()}
        for name, (wanted, _) in LOG.items():
            if settings.get(name, wanted) != wanted:
                raise self._unfit(name, str(settings[name]))
        self._most = int(settings.get("max.message.bytes", _LARGEST))
        replicas = len(topic.partitions[0].replicas)
        if replicas > 1 and int(settings.get("min.insync.replicas", "2")) < 2:
            raise StreamUnfit(
                self._text(
                    f"the topic has {replicas} replicas and min.insync.replicas=1, so an entry "
                    "that only one broker has counts as stored: set it to 2"
                )
            )
        self._made, self._made_at = True, time.monotonic()
        return True

    def _unfit(self, name: str, found: str) -> StreamUnfit:
        wanted, why = LOG[name]
        return StreamUnfit(
            self._text(
                f"the topic has {name}={found}; a log needs {wanted}, for {why}: kafka-configs.sh "
                f"--alter --topic {self._topic} --add-config {name}={wanted}"
            )
        )

    def _make_log(self) -> None:
        admin = self._admin_of()
        replicas = min(len(admin.list_topics(timeout=self._timeout).brokers), 3)
        settings = {name: wanted for name, (wanted, _) in LOG.items()}
        settings |= {
            "max.message.bytes": str(_LARGEST),
            "min.insync.replicas": str(min(replicas, 2)),
        }
        self._create(NewTopic(self._topic, 1, replicas, config=settings))

    def _create(self, new: NewTopic) -> None:
        made = self._admin_of().create_topics([new], request_timeout=self._timeout)
        try:
            made[self._topic].result(self._timeout)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _admin_of(self) -> Any:
        if self._admin is None:
            self._admin = AdminClient(self._settings | {"error_cb": self._heard})
        return self._admin

    def _open_consumer(self) -> None:
        if self._consumer is None:
            self._consumer = Consumer(
                {**self._settings, **READING, "group.id": self._topic, "error_cb": self._heard}
            )

    def _run(self, call: Callable[[], T]) -> T:
        with self._using:
            try:
                self._check()
                done = call()
                self._said = None
                return done
            except PositionLost:
                raise
            except BaseException as error:
                # Calls that do not poll have heard nothing.
                for client in filter(None, (self._admin, self._producer, self._consumer)):
                    client.poll(0)
                self._drop()
                if isinstance(error, StreamUnavailable):
                    raise
                if isinstance(error, (KafkaException, TimeoutError)):
                    raise self._failed(error.args[0] if error.args else error) from error
                raise
            finally:
                if self._closed:
                    self._drop()

    def _failed(self, error: Any) -> StreamUnavailable:
        """Return what an error of Kafka means."""
        if not isinstance(error, KafkaError):
            return self._silent(str(error))
        if error.code() in _DENIED:
            needed = "Read, Write, Create, Delete and DescribeConfigs"
            text = f"its user lacks a right: {error.str()}: a node needs {needed} on its topic"
            return StreamDenied(self._text(text))
        if error.code() == KafkaError._AUTHENTICATION:
            return StreamDenied(self._text(f"{LOGIN}: {error.str()}"))
        if error.code() == KafkaError._SSL and "certificate" in error.str():
            text = f"{error.str()}; name the file of its authority with ?ca=FILE"
            return StreamUnavailable(self._text(text))
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            text = f"{error.str()}: raise max.message.bytes of the topic to {self._most}"
            return StreamUnavailable(self._text(text))
        if error.code() in _SILENT:
            return self._silent(error.str())
        return StreamUnavailable(self._text(error.str()))

    def _silent(self, text: str = "") -> StreamUnavailable:
        """Return why no answer came, as far as the client knows."""
        said, self._said = self._said, None
        if said is not None:
            return self._failed(said)
        return StreamUnavailable(self._text(text or f"no answer in {self._timeout:.3g} s"))

    def _heard(self, error: Any) -> None:
        """Keep what is behind a silence."""
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE):
            self._said = error

    def _until(self, done: Callable[[], bool]) -> None:
        until = time.monotonic() + self._timeout + 1.0
        while not done():
            self._check()
            if time.monotonic() > until:
                raise self._silent()

    def _check(self) -> None:
        if self._closed:
            raise StreamUnavailable(self._text("closed"))

    def _text(self, why: str) -> str:
        return f"{self._shown}: {why}"

    def close(self) -> None:
        """See ``ChangeStream``."""
        self._closed = True
        if self._using.acquire(blocking=False):
            # Otherwise the call under way does it.
            self._drop()
            self._using.release()

    def _drop(self) -> None:
        producer, self._producer = self._producer, None
        consumer, self._consumer = self._consumer, None
        self._admin, self._at, self._made = None, None, False
        self._known.clear()
        if producer is not None:
            # Undelivered entries would come after the next ones.
            with contextlib.suppress(KafkaException):
                producer.purge()
                producer.flush(0)
        if consumer is not None:
            with contextlib.suppress(KafkaException, RuntimeError):
                consumer.close()


def _offset(position: str) -> int:
    return int(position.partition(".")[0]) if position else -1
