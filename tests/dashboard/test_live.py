"""The live stream: counts, events and workers as they come, and pages that come and go."""

from __future__ import annotations

import contextlib
import gc
import json
import socket
import threading
import time
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import interlock
from interlock.client.faces.client import Client
from interlock.client.faces.queue import RemoteQueue
from interlock.dashboard.api import live
from interlock.dashboard.polling import track
from interlock.dashboard.polling.watcher import Watcher
from tests.dashboard.conftest import Page, Serve
from tests.hub.servers import free_port, redis_server

Said = tuple[str, Any]


class Stream:
    """A page that listens."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines

    def next(self) -> Said:
        """The next event, with its data."""
        event = ""
        for line in self._lines:
            if line.startswith("event: "):
                event = line.removeprefix("event: ")
            elif line.startswith("data: "):
                return event, json.loads(line.removeprefix("data: "))
        raise AssertionError("the stream has ended")

    def until(self, test: Callable[[str, Any], bool]) -> Any:
        """The data of the first event that passes; the watchdog ends a wait for ever."""
        while True:
            event, data = self.next()
            if test(event, data):
                return data


@contextlib.contextmanager
def listening(page: Page, **query: str) -> Iterator[Stream]:
    with page.http.stream("GET", "/api/live", params=query, timeout=30) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        yield Stream(answer.iter_lines())


def counts_of(name: str, **wanted: int) -> Callable[[str, Any], bool]:
    """A test for counts of a queue."""

    def test(event: str, data: Any) -> bool:
        if event != "stats":
            return False
        found = dict(data["queues"]).get(name, {})
        return bool(found) and all(found[count] == value for count, value in wanted.items())

    return test


def test_counts_are_pushed_when_they_change(page: Page, queue: RemoteQueue[bytes]) -> None:
    queue.put(b"x")
    with listening(page) as stream:
        event, first = stream.next()
        assert event == "stats" and abs(first["time"] - time.time()) < 60
        if queue.name not in dict(first["queues"]):
            stream.until(counts_of(queue.name, unsettled=1))
        # Then only what has changed.
        _, quiet = stream.next()
        assert queue.name not in dict(quiet["queues"])
        queue.put(b"y")
        changed = stream.until(counts_of(queue.name, unsettled=2))
        assert [name for name, _ in changed["queues"]] == [queue.name]


def test_a_deleted_queue_is_reported(page: Page, queue: RemoteQueue[bytes]) -> None:
    queue.put(b"x")
    with listening(page) as stream:
        stream.until(counts_of(queue.name, unsettled=1))
        queue.drop(force=True)
        stream.until(lambda event, data: queue.name in data.get("gone", ()))


def test_events_of_a_queue_are_pushed(page: Page, queue: RemoteQueue[bytes]) -> None:
    with listening(page, queue=queue.name) as stream:
        stream.until(lambda event, data: event == "stats")
        told: list[Any] = []

        def enough(event: str, data: Any) -> bool:
            if event == "events":
                assert data["missed"] == 0
                told.extend(data["events"])
            return len(told) >= 6

        # Until the first event is sent, the engine does not know that someone watches.
        seen = threading.Event()
        putting = threading.Thread(target=put_until, args=(queue, seen))
        putting.start()
        stream.until(lambda event, data: event == "events")
        seen.set()
        putting.join()
        id = queue.put(b"x", keys="ü", shared=["b"])
        while (lease := queue.get(timeout=30)).id != id:
            lease.ack()
        lease.reject("bad")
        mine: list[Any] = []

        def all_three(event: str, data: Any) -> bool:
            if event == "events":
                mine.extend(one for one in data["events"] if one[3] == str(id))
            return len(mine) >= 3

        stream.until(all_three)
        number, at, kind, _, attempt, token, consumer, error, keys, shared = mine[1]
        assert [one[2] for one in mine] == ["put", "lease", "dead"]
        assert abs(at / 1e6 - time.time()) < 60 and kind == "lease"
        assert attempt == 1 and token and consumer and not error
        assert (keys, shared) == (["ü"], ["b"])
        assert mine[2][7] == "bad" and mine[0][0] < number < mine[2][0]


def put_until(queue: RemoteQueue[bytes], seen: threading.Event) -> None:
    while not seen.wait(0.05):
        queue.put(b"first")


def test_workers_are_pushed_on_request(page: Page, queue: RemoteQueue[bytes]) -> None:
    queue.put(b"x")
    said = {"id": "host/1/ab", "host": "host", "running": [], "answers": {"1": {"stacks": []}}}
    queue._announce("host/1/ab", 60, json.dumps(said))
    with listening(page, workers="1") as stream:
        found = stream.until(
            lambda event, data: (
                event == "workers" and any(one["queue"] == queue.name for one in data)
            )
        )
    (mine,) = (one for one in found if one["queue"] == queue.name)
    assert mine["host"] == "host" and 0 <= mine["age"] < 60 and 0 < mine["left"] <= 60


def test_a_question_to_a_worker_is_answered(page: Page, queue: RemoteQueue[bytes]) -> None:
    queue.put(b"x")
    worker = "host/1/ab"
    queue._announce(worker, 60, "{}")
    place = f"workers/{queue.name}/host%2F1%2Fab"
    number = page.post(f"{place}/stacks")["number"]
    assert page.get(f"{place}/answers/{number}") == {"answer": None}
    ((asked, text),) = queue._announce(worker, 60, "{}")
    assert str(asked) == number and json.loads(text) == {"ask": "stacks"}
    answer = {"stacks": ["File a.py"]}
    queue._announce(worker, 60, json.dumps({"answers": {number: answer}}))
    assert page.get(f"{place}/answers/{number}") == {"answer": answer}
    page.post(f"{place}/drain")
    assert json.loads(queue._announce(worker, 0, "{}")[0][1]) == {"ask": "drain"}
    page.post(f"{place}/drain", status=404)
    page.get(f"{place}/answers/1", 404)


def test_malformed_announcements_of_other_programs_are_handled(
    page: Page, queue: RemoteQueue[bytes]
) -> None:
    queue.put(b"x")
    for number, text in enumerate(("[]", "5", "{", '{"id": "other", "queue": 5}', "ü")):
        queue._announce(f"w{number}", 60, text)
    while not (found := [one for one in page.get("workers") if one["queue"] == queue.name]):
        pass
    assert [one["id"] for one in found] == [f"w{number}" for number in range(5)]


def test_the_engine_is_not_polled_when_no_page_is_open(
    page: Page, queue: RemoteQueue[bytes]
) -> None:
    watcher = page.watcher
    with listening(page, queue=queue.name, workers="1") as stream:
        stream.next()
        assert watcher._task is not None and watcher._tracks and watcher._roster is not None
    wait_until(lambda: watcher._task is None)
    assert not watcher._tracks and watcher._roster is None and not watcher._pages
    assert not page.service.dashboard._streams


def wait_until(test: Callable[[], bool]) -> None:
    """The watchdog ends a wait for ever."""
    while not test():
        time.sleep(0.01)


def test_all_pages_share_one_poller(page: Page, queue: RemoteQueue[bytes], serve: Serve) -> None:
    other = serve(page.service.dashboard._settings.url, write=True)
    watcher = page.watcher
    with listening(page, queue=queue.name) as one, listening(other, queue=queue.name) as two:
        one.next(), two.next()
        assert len(watcher._tracks) == 1 and watcher._tracks[queue.name].pages == 2
        task = watcher._task
        queue.put(b"x")
        for stream in (one, two):
            stream.until(counts_of(queue.name, unsettled=1))
        assert watcher._task is task


def test_a_page_opened_during_an_engine_outage_shows_it(serve: Serve) -> None:
    page = serve(f"redis://127.0.0.1:{free_port()}?timeout=0.5")
    with listening(page) as one:
        one.until(lambda event, data: event == "lost")
        with listening(serve(page.service.dashboard._settings.url)) as two:
            two.until(lambda event, data: event == "lost")


def test_pages_beyond_the_limit_are_refused(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.dashboard.application.MOST", 1)
    with listening(page) as stream:
        stream.next()
        assert "open" in page.get("live", 503)["error"]


def test_the_page_continues_when_the_engine_is_back(
    tmp_path: Path, serve: Serve, redis_url: str
) -> None:
    port = free_port()
    page = serve(f"redis://127.0.0.1:{port}?timeout=1.5", write=True)
    assert "error" in page.get("server")
    assert page.get("queues", 503)["error"]
    assert page.post("queues/q/pause", {}, 503)["error"]
    with listening(page) as stream:
        lost = stream.until(lambda event, data: event == "lost")
        assert str(port) in lost["error"]
        with redis_server(tmp_path, wanted=port):
            stream.until(lambda event, data: event == "back")
            with interlock.connect(f"redis://127.0.0.1:{port}") as client:
                client.queue("back").put(1)
                stream.until(counts_of("back", unsettled=1))
            assert page.get("queues/back")["stats"]["unsettled"] == 1
        stream.until(lambda event, data: event == "lost")


def test_a_page_that_reads_nothing_is_closed_and_costs_no_memory(
    page: Page, client: Client, queue: RemoteQueue[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "PATIENCE", 1.0)
    monkeypatch.setattr(track, "KEPT", 20_000)
    dashboard = page.service.dashboard
    port = int(page.service.url.rsplit(":", 1)[1].strip("/"))
    watcher = page.watcher
    connections = page.service._server.server_state.connections
    wait_until(lambda: not dashboard._streams)
    open_before = set(connections)
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", port))
        request = f"GET /api/live?queue={queue.name} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n"
        slow.sendall(request.encode())
        wait_until(lambda: bool(dashboard._streams))
        payload = [b"x"] * 200
        while dashboard._streams:
            queue.put_many(payload, keys=lambda one: [b"k" * 500])
            for kept in watcher._tracks.values():
                assert kept._size < 20_000 + 2 * 300_000
                assert len(kept._batches) < 100
        # Not only given up, but closed, though there is something left to send.
        wait_until(lambda: not connections - open_before)
    wait_until(lambda: not watcher._tracks)


def test_a_slow_page_learns_how_many_events_it_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(track, "KEPT", 100)
    kept = object.__new__(track.Track)
    rung: list[int] = []
    kept.__dict__.update(
        queue="q", _batches=deque(), _size=0, _number=0, _dropped=0, _counted=0,
        _ring=lambda: rung.append(1),
    )  # fmt: skip
    begun = kept.begin()
    for number in range(10):
        kept._add({"last": number, "missed": 0, "events": [[number] * 20]}, 1)
    place, messages = kept.since(begun)
    first = json.loads(messages[0].split(b"data: ")[1])
    told = [json.loads(one.split(b"data: ")[1]) for one in messages[1:]]
    assert first == {"last": None, "missed": 10 - len(told), "events": []}
    assert [one["last"] for one in told] == list(range(10 - len(told), 10))
    assert kept.since(place) == (place, [])
    assert len(rung) == 10


def test_an_invalid_queue_name_is_refused(page: Page) -> None:
    for queue in ("", "no{brace", "x" * 513):
        page.get("live", 400, queue=queue)


def test_many_updates_use_no_growing_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(track, "KEPT", 50_000)
    watcher = Watcher(cast(Any, SimpleNamespace(counts=SimpleNamespace(now=float))))
    kept = object.__new__(track.Track)
    kept.__dict__.update(
        queue="q", _batches=deque(), _size=0, _number=0, _dropped=0, _counted=0,
        _ring=watcher.ring,
    )  # fmt: skip
    place = kept.begin()
    tick = 0

    def update(number: int) -> None:
        nonlocal place, tick
        # Queues come, change and go.
        watcher._take({f"queue {(number + n) % 5000}": {"puts": number} for n in range(20)})
        watcher.stats_since(tick)
        # Another page is slow.
        watcher.stats_since(max(tick - 7, 0))
        tick = watcher.tick
        kept._add({"last": number, "missed": 0, "events": [[number] * 20]}, 1)
        place, _ = kept.since(place)

    for number in range(500):
        update(number)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(500, 2_500):
            update(number)
        gc.collect()
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Held ones are renewed, but not more of them: 1,000 names that went, and the last events.
    assert size < 600_000
    assert len(watcher._told) <= 2 and len(watcher._gone) == 1_000
