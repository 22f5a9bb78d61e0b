"""`interlock worker --metrics`: one process, several, and one that is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import prometheus_client
import pytest

import interlock
from interlock.app import App
from interlock.metrics import WorkerCollector
from interlock.metrics.families import OUTCOMES, WORKER_FAMILIES
from tests.metrics import kitchen
from tests.metrics.conftest import Started
from tests.metrics.prometheus import checked, families_of, page, samples, wait_for

APP = "tests.metrics.kitchen:app"


@pytest.fixture(autouse=True)
def sender(hub_url: str) -> Iterator[None]:
    kitchen.app.close()
    kitchen.app.url = hub_url
    for name in ("default", "stove"):
        kitchen.app._queue(name).drop(force=True)
    yield
    kitchen.app.close()


def handled(address: str) -> dict[str, float]:
    """By task and outcome."""
    told = samples(page(address)).get("interlock_worker_handled_total", {})
    return {f"{dict(one)['task']} {dict(one)['outcome']}": count for one, count in told.items()}


def send(count: int) -> None:
    for number in range(count):
        kitchen.serve.send(number % 20)
    for number in range(8):
        kitchen.fry.send(number)


EXPECTED = {"fry acked": 4, "fry deferred": 2, "fry rejected": 2, "fry retried": 2, "fry dead": 2}


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_the_metrics_page_has_all_families_and_the_health_page_works(
    start: Started, hub_url: str, pool: str
) -> None:
    worker = start(
        "worker", APP, "--url", hub_url, "--metrics", "0", "--pool", pool, "--concurrency", "1"
    )
    wait_for(lambda: "interlock_worker_ready 1.0" in page(worker.address), "not ready")
    assert page(worker.address, "/ready") == "ready\n"
    assert json.loads(page(worker.address, "/health")) == {"status": "ok"}
    send(300)
    kitchen.cook.send(0.1)
    expected = {"serve acked": 300, "cook acked": 1, **EXPECTED}
    wait_for(lambda: handled(worker.address) == expected, "not handled so")
    text = page(worker.address)
    checked("check metrics", given=text)
    assert families_of(text) == {family.name: family.kind for family in WORKER_FAMILIES.values()}
    told = samples(text)
    cooking = frozenset({("queue", "stove"), ("task", "cook")})
    assert told["interlock_worker_handling_seconds_count"][cooking] == 1
    assert told["interlock_worker_handling_seconds_sum"][cooking] >= 0.1
    buckets = {
        dict(labels)["le"]: value
        for labels, value in told["interlock_worker_handling_seconds_bucket"].items()
        if cooking <= labels
    }
    assert buckets["0.05"] == 0 and buckets["+Inf"] == 1
    assert told["interlock_worker_info"] == {
        frozenset({("version", interlock.__version__), ("pool", pool)}): 1
    }
    outcomes = {dict(labels)["outcome"] for labels in told["interlock_worker_handled_total"]}
    assert outcomes <= OUTCOMES.keys()
    assert worker.end() == 0


SETTLED = {name: count for name, count in EXPECTED.items() if "deferred" not in name}


def settled(address: str) -> dict[str, float]:
    """The number of times that a message is deferred depends on the process that has it."""
    return {name: count for name, count in handled(address).items() if "deferred" not in name}


def test_metrics_of_several_processes_are_summed_and_never_fall(
    start: Started, hub_url: str
) -> None:
    worker = start("worker", APP, "--url", hub_url, "--metrics", "0", "--processes", "2")
    with pytest.raises(HTTPError):
        # Nobody is ready as soon as the port is there.
        page(worker.address, "/ready")
    wait_for(lambda: "interlock_worker_ready 2.0" in page(worker.address), "not ready")
    assert page(worker.address, "/ready") == "ready\n"
    send(300)
    expected = {"serve acked": 300, **SETTLED}
    wait_for(lambda: settled(worker.address) == expected, "not handled so")
    told = samples(page(worker.address))
    assert told["interlock_worker_concurrency"] == {frozenset(): 32}
    assert told["interlock_worker_processes"] == {frozenset(): 2}
    assert told["interlock_worker_connected"][frozenset({("queue", "stove")})] == 2
    children = Path(f"/proc/{worker.process.pid}/task/{worker.process.pid}/children")
    first, *_ = map(int, children.read_text().split())
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: restarts(worker.address) == 1, "not started again")
    wait_for(lambda: "interlock_worker_ready 2.0" in page(worker.address), "not ready again")
    assert settled(worker.address) == expected
    send(20)
    expected = {"serve acked": 320, **{name: 2 * count for name, count in SETTLED.items()}}
    wait_for(lambda: settled(worker.address) == expected, "not handled so")
    checked("check metrics", given=page(worker.address))
    # A hanging one is reported with its last figures, and delays no one for long.
    hung = int(children.read_text().split()[0])
    os.kill(hung, signal.SIGSTOP)
    try:
        for _ in range(2):
            assert settled(worker.address) == expected
        began = time.monotonic()
        assert settled(worker.address) == expected
        assert time.monotonic() - began < 30
    finally:
        os.kill(hung, signal.SIGCONT)
    assert json.loads(page(worker.address, "/health")) == {
        "status": "ok", "processes": 2, "wanted": 2,
    }  # fmt: skip
    assert worker.end() == 0


def restarts(address: str) -> float:
    return samples(page(address))["interlock_worker_restarts_total"][frozenset()]


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_port_in_use_ends_the_worker_before_it_leases(
    start: Started, hub_url: str, processes: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        words = ("--url", hub_url, "--processes", processes, "--metrics", address)
        worker = start("worker", APP, *words)
        assert worker.process.wait() == 2
    assert f"interlock: cannot listen on http {address}" in worker.said


@pytest.mark.parametrize("processes", ["1", "2"])
def test_without_prometheus_client_the_error_names_the_package(
    start: Started, hub_url: str, tmp_path: Path, processes: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules['prometheus_client'] = None\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    worker = start(
        "worker", APP, "--url", hub_url, "--metrics", "0", "--processes", processes,
        PYTHONPATH=path,
    )  # fmt: skip
    assert worker.process.wait() == 2
    assert "pip install '.[metrics]' in the clone" in worker.said


def test_an_embedded_worker_can_be_collected_by_the_program_s_registry() -> None:
    app = App("memory://")

    @app.task
    def add(number: int) -> None: ...

    registry = prometheus_client.CollectorRegistry()
    worker = app.worker(threads=1)
    registry.register(WorkerCollector(worker))
    add.send(1)
    with worker:
        wait_for(
            lambda: registry.get_sample_value(
                "interlock_worker_handled_total",
                {"queue": "default", "task": "add", "outcome": "acked"},
            ),
            "not counted",
        )
    text = prometheus_client.generate_latest(registry).decode()
    assert re.search(r'^interlock_worker_wait_seconds_count\{.*task="add"\} 1.0$', text, re.M)
