"""A NATS that does not let the user of a node do something, or has no room: what is said of it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from interlock.cluster.streams import (
    ChangeStream,
    StreamDenied,
    StreamUnavailable,
    StreamUnfit,
    open_log,
)
from tests.cluster.streams.engines import Nats, eventually
from tests.cluster.streams.test_logs import position, read_all, with_nats


class Guarded(Nats):
    """One with users: `admin`, and `node`, who may not do one thing."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.denied = "none"

    @property
    def url(self) -> str:
        return f"nats://admin:admin@127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        self._write()
        return [self.program, "-c", str(self.folder / "settings")]

    def _write(self) -> None:
        # Flags of JetStream would not live through a reload.
        (self.folder / "settings").write_text(
            f'host: 127.0.0.1, port: {self.port}, jetstream: {{store_dir: "{self.folder}/data"}}\n'
            "authorization { users: [ {user: admin, password: admin}, {user: node, password: node, "
            f'permissions: {{publish: {{deny: ["{self.denied}"]}}}}}} ] }}'
        )

    def deny(self, subject: str) -> None:
        self.denied = subject
        self._write()
        before = self.said().count("Reloaded server configuration")
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)
        eventually(lambda: self.said().count("Reloaded server configuration") > before)

    @contextmanager
    def opened(self, user: str) -> Iterator[ChangeStream]:
        stream = open_log(self.url.replace("admin:admin", user), "t", "dc", role="append")
        yield stream
        stream.close()


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[Guarded]:
    made = Guarded(tmp_path)
    made.start()
    yield made
    made.close()


def test_what_the_user_may_not_do_is_named_at_once(nats: Guarded) -> None:
    with nats.opened("admin:admin") as admin:
        admin.begin(b"0")
        admin.append([b"1", b"2"])
        first, second, _ = (position(one) for one in read_all(admin, "", 3))
    calls: dict[str, Callable[[ChangeStream], object]] = {
        "il.log.>": lambda stream: stream.append([b"3"]),
        "$JS.API.STREAM.INFO.>": lambda stream: stream.append([b"3"]),
        "$JS.API.CONSUMER.>": lambda stream: stream.entries("", 10, 0.1),
        "$JS.API.STREAM.MSG.GET.>": lambda stream: stream.look([first]),
        "$JS.API.STREAM.PURGE.>": lambda stream: stream.trim([second]),
    }
    for subject, call in calls.items():
        nats.deny(subject)
        with nats.opened("node:node") as stream:
            with pytest.raises(StreamDenied, match=r"its user may not: .*ermissions violation"):
                call(stream)
            # It is done when it is allowed.
            nats.deny("none")
            call(stream)
    refused = pytest.raises(StreamUnavailable, match="Authorization Violation")
    with nats.opened("node:wrong") as stream, refused:
        stream.largest()


def test_a_log_that_is_full_takes_nothing_says_so_and_keeps_what_it_has(nats: Guarded) -> None:
    stream = {"name": "il-log-t__dc", "subjects": ["il.log.t__dc"], "max_bytes": 10_000}
    with_nats(nats, lambda js: js.add_stream(**stream))
    refused = pytest.raises(StreamUnfit, match="its max_bytes is 10000")
    with nats.opened("node:node") as log, refused:
        log.begin(b"0")
    with_nats(nats, lambda js: js.update_stream(**stream, discard="new"))
    with nats.opened("node:node") as log:
        log.begin(b"0")
        with pytest.raises(StreamUnavailable, match="nothing can be appended before its limit"):
            log.append([b"x" * 1000] * 20)
        found = read_all(log, "", len(log.entries("", 100, 0.1).entries))
        assert found[0].data == b"0" and len(found) > 8
        assert log.trim([position(found[5])]) == 5
        log.append([b"y" * 1000])
