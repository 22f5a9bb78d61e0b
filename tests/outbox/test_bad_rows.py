"""Rows that no engine takes are set aside as dead, and those after them are put."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.app import App
from interlock.outbox import Outbox
from tests.outbox.conftest import Side
from tests.worker.workers import wait_for


class Place:
    """An app with an outbox, and the calls that were handled."""

    def __init__(self, side: Side, **queue: Any) -> None:
        self.ask, self.db = side.ask, side.db
        self.app = App("memory://", queues={"default": queue} if queue else None)  # type: ignore[dict-item]
        self.outbox = Outbox(self.app, side.url)
        self.handled: list[int] = []

        @self.app.task(keys=lambda n: f"key:{n}")
        def note(n: int) -> None:
            self.handled.append(n)

        @self.app.task(keys=lambda n, keys: [f"{n}:{key}" for key in range(keys)])
        def wide(n: int, keys: int) -> None:
            self.handled.append(n)

        self.note, self.wide = note, wide

    def wait_for_rows(self, count: int) -> None:
        query = "select id from @ where state is null"
        wait_for(lambda: len(self.ask(query)) == count, f"not {count} rows")


@pytest.fixture
def place(side: Side) -> Place:
    return Place(side)


# Both databases take each, except the first of keys.
FAULTS = {
    "payload": "payload = {bytes}",
    "keys": "keys = {keys}",
    "a long key": "keys = {long}",
    "options": "options = '['",
    "an unknown option": """options = '{{"retry": [1, 0, 1, 1, 0, "dead"], "colour": 1}}'""",
    "a priority": """options = '{{"retry": [1, 0, 1, 1, 0, "dead"], "priority": 1000}}'""",
    "a queue": "queue = ''",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_row_that_cannot_be_put_is_dead_with_its_error_and_the_others_are_handled(
    side: Side, place: Place, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    packed = side.is_file
    words = {
        "bytes": "x'ff00'" if packed else r"'\xff00'",
        "keys": "x'ff00'" if packed else "array[null]::bytea[]",
        # A list of one binary of 2,000 bytes, as MessagePack.
        "long": f"x'91c507d0{'61' * 2000}'" if packed
        else "array[convert_to(repeat('a', 2000), 'utf8')]",
    }  # fmt: skip
    sent = [place.outbox.send(place.db, place.note, n) for n in range(5)]
    where = f" where id = {sent[2].id}"
    place.ask(f"update @ set {FAULTS[fault].format(**words)}{where}")
    with place.app.worker(threads=1):
        place.wait_for_rows(0)
    assert place.handled == [0, 1, 3, 4]
    ((id, state, error),) = place.ask("select id, state, error from @")
    assert (id, state) == (sent[2].id, "dead")
    assert error.startswith("it cannot be put into the engine: ")
    assert f"row {id} of the outbox is dead: {error}" in caplog.text


def test_a_row_that_the_engine_refuses_is_dead_also_as_the_first_one(place: Place) -> None:
    place.outbox.send(place.db, place.note, 1)
    place.ask("""update @ set options = '{"retry": [1, 0, 1, 1, 0, "dead"], "priority": 1000}'""")
    with place.app.worker(threads=1):
        place.wait_for_rows(0)
        place.outbox.send(place.db, place.note, 2)
        place.wait_for_rows(0)
    assert place.handled == [2]


def test_rows_with_many_keys_are_put_in_several_calls(place: Place) -> None:
    with place.app.worker(threads=1):
        place.outbox.send_many(place.db, place.wide, [(n, 500) for n in range(40)])
        place.wait_for_rows(0)
    assert place.handled == list(range(40))


def test_a_handled_row_that_the_engine_forgot_is_not_logged_as_a_loss(
    side: Side, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(side, dedup_window=0)
    with place.app.worker(threads=1):
        for n in range(5):
            place.outbox.send(place.db, place.note, n)
            place.wait_for_rows(0)
    assert place.handled == [0, 1, 2, 3, 4]
    assert "lost its engine" not in caplog.text
