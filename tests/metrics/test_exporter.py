"""`interlock exporter`: the queues of each engine, and an engine that is not there."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import psycopg
import pytest

import interlock
from interlock import Retry
from interlock.cli import main
from interlock.client.admin.operator import Operator
from interlock.client.admin.server import Server
from interlock.client.faces.client import Client, connect
from interlock.client.request import Argument
from interlock.metrics.exporter import Exporter
from interlock.runtime.queue_figures import QUEUE_FAMILIES
from tests.hub.servers import free_port, redis_server
from tests.metrics.conftest import Started
from tests.metrics.prometheus import checked, families_of, page, samples, wait_for


@pytest.fixture(params=["redis", "hub", "memory"])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    kind = request.param
    url = f"memory://{uuid.uuid4().hex}" if kind == "memory" else (
        request.getfixturevalue(f"{kind}_url"))  # fmt: skip
    with connect(url) as made:
        yield made


def operator_of(client: Client) -> Operator:
    return Operator(Server(client))


def of_queue(text: str, queue: str) -> dict[str, float]:
    """The figures of one queue, by name; those with another label too by its value."""
    found = {}
    for name, told in samples(text).items():
        for labels, value in told.items():
            given = dict(labels)
            if given.pop("queue", None) == queue:
                found[" ".join([name.removeprefix("interlock_queue_"), *given.values()])] = value
    return found


def names_of_figures() -> set[str]:
    """The names as `of_queue` has them, of all metrics that have a line for each queue."""
    return {
        " ".join([family.name.removeprefix("interlock_queue_"), value]).rstrip()
        for family in QUEUE_FAMILIES
        if family.labels
        for value in family.values or [""]
    }


def test_the_exporter_reports_the_counts_of_the_engine(client: Client) -> None:
    name = f"q{uuid.uuid4().hex}"
    queue = client.queue(name, str)
    for number in range(5):
        queue.put("x", keys="same" if number < 3 else f"key {number}")
    (lease,) = queue.get_many(1)
    lease.ack()
    (lease,) = queue.get_many(1)
    lease.reject("no")
    with queue.get():
        text = Exporter(operator_of(client), name).text()
    told = of_queue(text, name)
    assert told.pop("oldest_ready_seconds") > 0
    none = dict.fromkeys(names_of_figures() - {"oldest_ready_seconds"}, 0)
    assert told == none | {
        "messages ready": 2, "messages leased": 1, "dead": 1, "bytes": told["bytes"], "keys": 3,
        "puts_total": 5, "leases_total": 3, "acks_total": 1, "dead_lettered_total": 1,
    }  # fmt: skip
    assert samples(text)["interlock_up"] == {frozenset(): 1}
    assert samples(text)["interlock_queues"] == {frozenset(): 1}
    checked("check metrics", given=text)


def test_ages_use_the_engine_s_clock(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"q{uuid.uuid4().hex}"
    queue = client.queue(name, str)
    queue.put("x", keys="k")
    queue.put("y", keys="k")
    real = time.time
    for ahead in (-86_400, 86_400):
        monkeypatch.setattr(time, "time", lambda ahead=ahead: real() + ahead)
        told = of_queue(Exporter(operator_of(client), name).text(), name)
        assert 0 < told["oldest_ready_seconds"] < 3600
        assert 0 < told["oldest_waiting_seconds"] < 3600
        stats = queue.stats()
        assert 0 < stats.oldest_ready < 3600 and 0 < stats.oldest_waiting < 3600


def test_a_glob_selects_the_reported_queues(client: Client) -> None:
    mark = uuid.uuid4().hex
    for name in ("a", "b", "c"):
        client.queue(f"{mark}-{name}", str).put("x")
    text = Exporter(operator_of(client), f"{mark}-[ab]").text()
    puts = samples(text)["interlock_queue_puts_total"]
    assert {dict(labels)["queue"] for labels in puts} == {f"{mark}-a", f"{mark}-b"}


def test_keys_are_reported_on_request_whatever_bytes_they_have(client: Client) -> None:
    name = f"q{uuid.uuid4().hex}"
    queue = client.queue(name, str)
    odd = 'a "quoted" \\ line\nbreak é'.encode()
    for key, depth in ((odd, 3), (b"\xff\xfe", 2), (b"plain", 1)):
        for _ in range(depth):
            queue.put("x", keys=key)
    assert "key_waiting" not in Exporter(operator_of(client), name).text()
    text = Exporter(operator_of(client), name, keys=2).text()
    found = {
        dict(labels)["key"]: value
        for labels, value in samples(text)["interlock_queue_key_waiting"].items()
    }
    assert found == {odd.decode().replace("\n", "\\n"): 3, "\\xff\\xfe": 2}
    checked("check metrics", given=text)


def test_workers_are_counted_by_what_they_do(client: Client) -> None:
    name = f"q{uuid.uuid4().hex}"
    queue = client.queue(name, str)
    queue.put("x")
    for number, text in enumerate(
        [
            '{"state": "running"}',
            '{"state": "running"}',
            '{"state": "draining"}',
            "[]",
            "{",
            '{"state": 7}',
        ]
    ):
        queue._announce(f"w{number}", 30, text)
    told = samples(Exporter(operator_of(client), name).text())["interlock_workers"]
    assert {dict(labels)["state"]: value for labels, value in told.items()} == {
        "running": 2, "draining": 1, "unknown": 3,
    }  # fmt: skip


def test_queues_beyond_the_limit_are_summed(client: Client) -> None:
    mark = uuid.uuid4().hex
    for number in range(4):
        client.queue(f"{mark}-{number}", str).put("x")
    text = Exporter(operator_of(client), f"{mark}-*", most=3).text()
    assert of_queue(text, "other")["puts_total"] == 1
    assert samples(text)["interlock_queues_cut"] == {frozenset(): 1}


def test_concurrent_scrapes_share_one_engine_query(client: Client) -> None:
    class Counting(Operator):
        asked = 0
        begun, going = threading.Event(), threading.Event()

        def queues(self) -> list[str]:
            Counting.asked += 1
            self.begun.set()
            self.going.wait(30)
            return []

    exporter = Exporter(Counting(Server(client)), patience=30)
    told: list[str] = []
    threads = [threading.Thread(target=lambda: told.append(exporter.text())) for _ in range(5)]
    for thread in threads:
        thread.start()
    assert Counting.begun.wait(30)
    wait_for(lambda: not any(thread.ident is None for thread in threads), "not started")
    Counting.going.set()
    for thread in threads:
        thread.join()
    assert len(told) == 5 and all("interlock_up 1\n" in text for text in told)
    assert 1 <= Counting.asked <= 2


def test_an_engine_that_hangs_or_fails_is_reported_down_and_logged_once(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    going = threading.Event()

    class Hanging(Operator):
        fault: BaseException | None = None

        def queues(self) -> list[str]:
            going.wait(30)
            if self.fault:
                raise self.fault
            return []

    operator = Hanging(Server(client))
    exporter = Exporter(operator, patience=0.01)
    with caplog.at_level(logging.WARNING, "interlock.exporter"):
        for _ in range(3):
            assert "interlock_up 0\n" in exporter.text()
        assert [record.getMessage() for record in caplog.records] == [
            "the engine does not answer: no answer in 0.01 s"
        ]
        assert exporter.trouble
        going.set()
        exporter._patience = 30
        wait_for(lambda: "interlock_up 1\n" in exporter.text(), "not up again")
        assert caplog.records[-1].getMessage() == "the engine answers again"
        assert not exporter.trouble
        exporter._counts._listed = 0
        operator.fault = ZeroDivisionError("ours")
        assert "interlock_up 0\n" in exporter.text()
        assert caplog.records[-1].exc_info


def test_the_command_serves_until_a_signal(start: Started, tmp_path: Path) -> None:
    port = free_port()
    exporter = start("exporter", "--url", f"redis://127.0.0.1:{port}?timeout=1", "--port", "0")
    # Nobody is there yet: that is no reason to end.
    text = page(exporter.address)
    checked("check metrics", given=text)
    assert samples(text) == {"interlock_up": {frozenset(): 0}}
    with pytest.raises(HTTPError) as refused:
        page(exporter.address, "/ready")
    assert refused.value.code == 503 and b"127.0.0.1" in refused.value.read()
    assert json.loads(page(exporter.address, "/health"))["trouble"]
    with redis_server(tmp_path, wanted=port):
        wait_for(lambda: "interlock_up 1" in page(exporter.address), "not up")
        assert page(exporter.address, "/ready") == "ready\n"
        with connect(f"redis://127.0.0.1:{port}") as client:
            client.queue("orders", str).put("x")
        wait_for(lambda: 'queue="orders"' in page(exporter.address), "not told")
        kinds = families_of(page(exporter.address))
        assert {one.name: one.kind for one in QUEUE_FAMILIES}.items() <= kinds.items()
    wait_for(lambda: "interlock_up 0" in page(exporter.address), "not down")
    assert exporter.end() == 0
    assert exporter.said.count("the engine does not answer") == 2, exporter.said


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "no engine is named"),
        (["--url", "memory://x"], 2, "memory:// has only the queues of its own process"),
        (["--url", "redis://x:1", "--port", "x"], 2, "allowed: [HOST:]PORT"),
        (["--url", "redis://x:1", "--port", "70000"], 2, "allowed: [HOST:]PORT"),
        (["--url", "ftp://x"], 2, "ftp"),
    ],
)
def test_wrong_usage_is_named(
    words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("INTERLOCK_URL", raising=False)
    try:
        found = main(["exporter", *words])
    except SystemExit as end:
        found = int(str(end.code))
    assert (found, said in capsys.readouterr().err) == (code, True)


def test_a_port_in_use_exits_with_1(start: Started, hub_url: str) -> None:
    first = start("exporter", "--url", hub_url, "--port", "0")
    second = start("exporter", "--url", hub_url, "--port", first.address)
    assert second.end() == 1
    assert f"cannot listen on http {first.address}" in second.said


def stall(client: Client, name: str) -> None:
    """Hold two messages; nine wait for the first, two of them for the second too."""
    queue = client.queue(name, str)
    for key in ("k0", "k8"):
        queue.put("x", keys=key, retry=Retry(attempts=1, then="hold"))
        queue.get().nack()
    for number in range(9):
        queue.put("x", keys=[f"k{number}", f"k{number + 1}"])


BLOCKED = {
    "blocked": 9,
    "blocked_by_one": 9,
    "slow_leases": 0,
    "roots held": 2,
    "roots leased": 0,
    "roots backing_off": 0,
    "roots paused": 0,
}


def test_the_exporter_reports_blocked_messages(client: Client) -> None:
    name = f"q{uuid.uuid4().hex}"
    client.queue(name, str).put("x", keys="k")
    text = Exporter(operator_of(client), name).text()
    assert of_queue(text, name)["blocked"] == 0
    client.queue(name, str).get().ack()
    stall(client, name)
    text = Exporter(operator_of(client), name).text()
    told = of_queue(text, name)
    assert {figure: told[figure] for figure in BLOCKED} == BLOCKED
    assert 0 < told["oldest_waiting_seconds"] < 60 and told["oldest_ready_seconds"] == 0
    checked("check metrics", given=text)


def test_only_queues_that_can_have_roots_are_asked_for_them_each_once(client: Client) -> None:
    mark = uuid.uuid4().hex
    asked: list[str] = []

    class Counting(Operator):
        def each(self, function: str, queues: Sequence[str], *arguments: Argument) -> Any:
            asked.extend(queues if function == "roots" else ())
            return super().each(function, queues, *arguments)

    stall(client, f"{mark}-held")
    for state in ("ready", "leased", "paused"):
        for _ in range(2):
            client.queue(f"{mark}-{state}", str).put("x", keys="k")
    client.queue(f"{mark}-paused", str).pause("k")
    with client.queue(f"{mark}-leased", str).get():
        text = Exporter(Counting(Server(client)), f"{mark}-*").text()
    assert sorted(asked) == [f"{mark}-{state}" for state in ("held", "leased", "paused")]
    assert of_queue(text, f"{mark}-paused")["blocked"] == 2
    assert of_queue(text, f"{mark}-ready")["blocked"] == 0


def test_a_hub_reports_blocked_messages(hub: interlock.Hub) -> None:
    with connect(hub.url) as client:
        stall(client, "stalled")
        with urlopen(f"http://{hub.http_address}/metrics") as answer:
            text = answer.read().decode()
    told = of_queue(text, "stalled")
    assert {figure: told[figure] for figure in BLOCKED} == BLOCKED


# -- An outbox ------------------------------------------------------------------------------------


def test_an_outbox_is_reported_beside_the_queues(
    start: Started, hub_url: str, outbox_url: str
) -> None:
    with psycopg.connect(outbox_url, autocommit=True) as db:
        db.execute("truncate interlock.outbox restart identity")
        put = (
            "insert into interlock.outbox (queue, task, payload, keys, shared, options, state) "
            "values ('q', 't', '', '{}', '{}', '{}', %s)"
        )
        for state in (None, None, "dead"):
            db.execute(put, (state,))
        exporter = start(
            "exporter", "--url", hub_url, "--port", "0", INTERLOCK_POSTGRES_URL=outbox_url
        )
        found = page(exporter.address)
        db.execute("truncate interlock.outbox")
    for line in (
        "interlock_up 1",
        "interlock_outbox_up 1",
        'interlock_outbox_rows{state="waiting"} 2',
        'interlock_outbox_rows{state="relayed"} 0',
        'interlock_outbox_rows{state="dead"} 1',
        'interlock_outbox_relay{relay=""} 0',
        "interlock_outbox_gaps 0",
    ):
        assert f"{line}\n" in found, found
    assert re.search(r"^interlock_outbox_oldest_seconds [\d.e-]+$", found, re.M)


def test_an_outbox_whose_database_is_down_is_reported_so_and_logged_once(
    start: Started, hub_url: str
) -> None:
    nowhere = f"postgresql://nobody@127.0.0.1:{free_port()}/none"
    exporter = start("exporter", "--url", hub_url, "--port", "0", "--database", nowhere)
    for _ in range(2):
        found = page(exporter.address)
        assert "interlock_outbox_up 0\n" in found and "interlock_up 1\n" in found
        assert "interlock_outbox_rows" not in found
    assert page(exporter.address, "/ready")
    exporter.end()
    assert exporter.said.count("the database of the outbox does not answer") == 1
