"""A change stream in a topic of Kafka with one partition, by confluent-kafka.

A position is the entry's offset with a mark of its first bytes. The producer is idempotent and
leaves no gap: one that failed is given up, with what it had not delivered. Kafka trims by age and
by bytes; so that it trims by number, who appends deletes what is more than is to be kept.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from interlock import _core
from interlock.cluster.streams.kafka_settings import LOG, READING, client_settings
from interlock.cluster.streams.looped import mark_of
from interlock.cluster.streams.protocol import (
    ABSENT,
    LEAST,
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
from interlock.engine.url import without_password
from interlock.installation import needs

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
        OffsetSpec,
    )
except ImportError as error:
    raise ImportError(
        f"a stream of Kafka needs confluent-kafka: {needs('kafka')} ({error})"
    ) from None

T = TypeVar("T")
_SLICE = 0.05
"""Seconds after which a wait looks whether it was interrupted."""
_READ = 8 << 20
_FIRST = 128
_LOOK = 5.0
_LOOK_LOG = 1.0
_LARGEST = 8_000_000
"""Bytes of an entry with what is around it."""
_AROUND = 1000
_DENIED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)
_SILENT = (
    KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT,
    KafkaError._MSG_TIMED_OUT, KafkaError.REQUEST_TIMED_OUT,
)  # fmt: skip
_TRIM = 1.0
_SHORTEST = 3.0
"""Seconds that a Kafka has at least."""
_WEEK = 7 * 86_400.0


def open_here(
    url: str, name: str, keep: int, keep_age: float | None, role: Role, timeout: float
) -> KafkaStream:
    """See ``open_stream``."""
    return KafkaStream(
        without_password(url), client_settings("open_stream()", url), name, keep, keep_age, timeout
    )


def log_here(
    url: str, table: str, dc: str, role: Role, timeout: float, source: str | None
) -> KafkaStream:
    """See ``open_log``."""
    name, settings = log_name(table, dc, source), client_settings("open_log()", url)
    kind = "log" if source is None else "link"
    return KafkaStream(without_password(url), settings, name, None, None, timeout, kind)


class KafkaStream:
    """See ``ChangeStream``. The topic is ``il-stream-NAME``, of a log ``il-log-NAME``."""

    untrimmed = ""

    def __init__(
        self,
        shown: str,
        settings: dict[str, Any],
        name: str,
        keep: int | None,
        keep_age: float | None,
        timeout: float,
        kind: str = "stream",
    ) -> None:
        self._shown = f"stream {name!r} at {shown}"
        # What librdkafka would write to the standard error comes by what is asked.
        self._settings: dict[str, Any] = {"log_level": 0, "socket.timeout.ms": 10_000, **settings}
        self._is_log = keep is None
        self._mark: Callable[[bytes], str] = _core.LogBridge.mark if self._is_log else mark_of
        self._topic = f"il-{kind}-{name}"
        self._keep = keep or 0
        self._ages = keep_age is not None
        self._age = _WEEK if keep_age is None else keep_age
        # A new producer asks more than once before it may send.
        self._timeout = max(timeout, _SHORTEST)
        self._producer: Any = None
        self._consumer: Any = None
        self._admin: Any = None
        self._said = ""
        """The last error of the client that explains why nothing is answered."""
        self._made = False
        self._at: str | None = None
        self._looked = 0.0
        self._count = _FIRST
        self._untrimmed = 0
        self._trimmed = 0.0
        self._last_offset = -1
        self._known = set[str]()
        self._most = _LARGEST
        self._using = threading.Lock()
        self._ended = self._closed = False

    # -- Appending ----------------------------------------------------------------------------

    def append(self, entries: Sequence[bytes]) -> list[str] | None:
        """See ``ChangeStream``."""
        return self._run(lambda: self._append(entries)) if entries else []

    def begin(self, entry: bytes) -> list[str] | None:
        """See ``ChangeStream``."""
        return self._run(lambda: self._append([entry], begins=True))

    def _append(self, entries: Sequence[bytes], begins: bool = False) -> list[str]:
        if not self._is_log:
            self._make_topic()
        elif not self._is_there():
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
        self._last_offset = offsets[-1]
        self._untrimmed += len(entries)
        is_due = self._ages and time.monotonic() - self._trimmed > _TRIM
        if not self._is_log and (self._untrimmed > max(self._keep // 10, 1) or is_due):
            self._trim()
        # One partition and one producer: they are told in the order in which they were sent.
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

    def _trim(self) -> None:
        """Delete what need not be kept; Kafka itself only deletes whole segments, by age."""
        self._untrimmed, self._trimmed = 0, time.monotonic()
        admin, part = self._admin_of(), TopicPartition(self._topic, 0)
        first = self._last_offset + 1 - self._keep
        # The entries are there, whatever becomes of this.
        with contextlib.suppress(KafkaException, TimeoutError):
            if self._ages:
                spec = OffsetSpec.for_timestamp(round((time.time() - self._age) * 1000))
                asked = admin.list_offsets({part: spec}, request_timeout=self._timeout)
                first = max(first, *(one.result(self._timeout).offset for one in asked.values()))
            if first > 0:
                part = TopicPartition(self._topic, 0, first)
                asked = admin.delete_records([part], request_timeout=self._timeout)
                for one in asked.values():
                    one.result(self._timeout)

    # -- Reading ------------------------------------------------------------------------------

    def read(self, after: str, most: int, wait: float) -> list[tuple[str, bytes]]:
        """See ``ChangeStream``."""
        return self._run(lambda: self._read(after, most, wait))

    def entries(self, after: str, most: int, wait: float) -> Found:
        """See ``ChangeStream``."""
        return self._run(lambda: self._found(after, most, wait))

    def _read(self, after: str, most: int, wait: float) -> list[tuple[str, bytes]]:
        return [(self._position(one), one.data) for one in self._found(after, most, wait).entries]

    def _found(self, after: str, most: int, wait: float) -> Found:
        now = time.monotonic()
        until = now + wait
        if self._is_log and not self._is_there():
            if after:
                raise PositionLost(after, "", "")
            time.sleep(min(max(wait, 0), ABSENT))
            return Found([], True)
        offset, mark = _offset(after), after.partition(".")[2]
        look = _LOOK_LOG if self._is_log else _LOOK
        if self._consumer is None or after != self._at or now - self._looked > look:
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
                # In a log there may be holes: a position that is trimmed away is told otherwise.
                if at != offset + 1 and (mark or found) and not self._is_log:
                    raise self._lost(after)
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
        if self._is_log and kind != TIMESTAMP_LOG_APPEND_TIME:
            raise self._unfit("message.timestamp.type", "CreateTime")
        return Entry(str(message.offset()), max(ms, 0), message.value() or b"")

    def _position(self, entry: Entry | None) -> str:
        return f"{entry.id}.{self._mark(entry.data)}" if entry else ""

    def _some(self, count: int) -> list[Any]:
        """Return what is there, or comes in a moment: the first, and what came with it."""
        first = self._consumer.poll(_SLICE)
        if first is None:
            return []
        found = [first]
        if count > 1:
            found += self._consumer.consume(count - 1, 0.0 if self._is_log else 0.002)
        for message in found:
            error = message.error()
            if error is not None:
                if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION):
                    raise self._lost(self._at or "")
                raise StreamUnavailable(self._text(error.str()))
        return found

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
        if after == self._at and not (self._is_log and mark and offset >= first):
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
        raise StreamUnavailable(self._text(f"no answer in {self._timeout:.3g} s"))

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

    def first(self) -> str:
        """See ``ChangeStream``."""
        return self._position(self._run(lambda: self._end(first=True)))

    def ends(self) -> tuple[Entry, Entry] | None:
        """See ``ChangeStream``."""
        return self._run(self._both)

    def _both(self) -> tuple[Entry, Entry] | None:
        first, last = self._end(first=True), self._end(first=False)
        return None if first is None or last is None else (first, last)

    def _end(self, first: bool) -> Entry | None:
        if self._is_log and not self._is_there():
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
        # Of all topics: a question for one may make it.
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
                    f"the topic has {replicas} replicas and min.insync.replicas=1, so that an "
                    f"entry that one broker has counts as kept: set it to 2"
                )
            )
        self._made = True
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

    def _make_topic(self) -> None:
        if self._made:
            return
        admin = self._admin_of()
        there = admin.list_topics(self._topic, timeout=self._timeout).topics.get(self._topic)
        if there is None or there.error is not None:
            age = round(self._age * 1000)
            settings = {
                "cleanup.policy": "delete",
                "retention.ms": str(age),
                "segment.ms": str(max(min(age // 4, 86_400_000), 1000)),
            }
            self._create(NewTopic(self._topic, 1, config=settings))
        elif len(there.partitions) != 1:
            raise StreamUnavailable(
                self._text(f"the topic has {len(there.partitions)} partitions; allowed: 1")
            )
        self._made = True

    def _admin_of(self) -> Any:
        if self._admin is None:
            self._admin = AdminClient(self._settings | {"error_cb": self._heard})
        return self._admin

    def _open_consumer(self) -> None:
        if not self._is_log:
            self._make_topic()
        if self._consumer is None:
            self._consumer = Consumer(
                {**self._settings, **READING, "group.id": self._topic, "error_cb": self._heard}
            )

    def _run(self, call: Callable[[], T]) -> T:
        with self._using:
            try:
                self._check()
                return call()
            except PositionLost:
                raise
            except BaseException as error:
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
            return StreamUnavailable(self._text(str(error)))
        if error.code() in _DENIED:
            return StreamDenied(self._text(f"its user may not: {error.str()}"))
        # What the client has logged says more of a silence, as of a login that fails.
        said = self._said if error.code() in _SILENT else ""
        return StreamUnavailable(self._text(said or error.str()))

    def _heard(self, error: Any) -> None:
        """Keep what is behind a silence."""
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE):
            self._said = error.str()

    def _until(self, done: Callable[[], bool]) -> None:
        until = time.monotonic() + self._timeout + 1.0
        while not done():
            self._check()
            if time.monotonic() > until:
                raise StreamUnavailable(self._text(f"no answer in {self._timeout:.3g} s"))

    def _check(self) -> None:
        if self._closed or self._ended:
            self._ended = False
            raise StreamUnavailable(self._text("closed" if self._closed else "interrupted"))

    def _text(self, why: str) -> str:
        return f"{self._shown}: {why}"

    def interrupt(self) -> None:
        """See ``ChangeStream``."""
        self._ended = True

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
        self._said = ""
        if producer is not None:
            # What it has not delivered would come behind what is appended next.
            with contextlib.suppress(KafkaException):
                producer.purge()
                producer.flush(0)
        if consumer is not None:
            with contextlib.suppress(KafkaException, RuntimeError):
                consumer.close()


def _offset(position: str) -> int:
    return int(position.partition(".")[0]) if position else -1
