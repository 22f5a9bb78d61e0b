"""An engine that refuses the user of a node, or has no room: the report of it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interlock.cluster.streams import (
    ChangeStream,
    StreamDenied,
    StreamUnavailable,
    StreamUnfit,
    open_log,
)
from interlock.cluster.streams.protocol import log_name
from tests.cluster.streams.conftest import skip_if_slow
from tests.cluster.streams.engines import GUARDS
from tests.cluster.streams.engines.nats import Nats, with_nats
from tests.cluster.streams.engines.server import DC, Guard, eventually
from tests.cluster.streams.test_logs import position, read_all


@pytest.fixture(params=GUARDS)
def guard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Guard]:
    made, engine_type = GUARDS[request.param]
    skip_if_slow(engine_type)
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
