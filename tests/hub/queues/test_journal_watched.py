"""Reports of a hub whose journal takes nothing: /ready, /health, /metrics, INFO."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from interlock.cli import main
from interlock.hub.serve.heartbeat import status
from interlock.hub.serve.pages import HubPages
from interlock.hub.serve.state import State
from tests.hub.operating.test_http import get
from tests.hub.queues.test_journal_disk import LARGE, LARGEST, Place, client_of, filled, refusal
from tests.hub.servers import HubProcess, hub_process, needs_hub


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    needs_hub()
    yield Place(tmp_path)
    for path in (tmp_path / "journal").glob("*"):
        path.unlink()


def http_of(hub: HubProcess) -> str:
    assert hub.process.stdout is not None
    return hub.process.stdout.readline().split()[-1]


def samples(address: str) -> dict[str, float]:
    families = text_string_to_metric_families(get(address, "/metrics")[2])
    return {sample.name: sample.value for family in families for sample in family.samples}


def told(capsys: pytest.CaptureFixture[str], hub: HubProcess) -> dict[str, object]:
    assert main(["hub", "info", "--json", "--url", f"127.0.0.1:{hub.port}"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_a_failed_journal_is_not_ready_and_not_healthy_and_says_since_when(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    began = int(time.time())
    flags = place.flags("[http]", "port = 0")
    with hub_process(*flags) as hub, client_of(hub) as client:
        address = http_of(hub)
        queue = client.queue("q", bytes)
        queue.put(b"first", keys="a")
        assert get(address, "/ready")[::2] == (200, "serving\n")
        assert json.loads(get(address, "/health")[2])["journal"] == {"state": "ok"}
        assert samples(address)["interlock_hub_journal_ok"] == 1
        before = resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE, (100, before[1]))
        assert refusal(queue, b"second") is not None
        resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE, before)

        code, _, text = get(address, "/ready")
        assert code == 503
        assert text.startswith("journal failed since 20") and "writing" in text
        assert str(place.journal) in text
        code, _, body = get(address, "/health")
        assert code == 503, "nothing helps but another start"
        health = json.loads(body)
        assert health["status"] == "journal failed"
        assert health["journal"]["state"] == "failed"
        assert "writing" in health["journal"]["error"]
        found = samples(address)
        assert found["interlock_hub_journal_ok"] == 0
        since = found["interlock_hub_journal_trouble_since_timestamp_seconds"]
        assert began <= since <= time.time()
        info = told(capsys, hub)
        assert (info["journal_state"], info["journal_ok"]) == ("failed", 0)
        assert info["journal_trouble_since"] == since
        assert "the journal failed: writing" in str(info["journal_error"])
        assert info["aof_last_write_status"] == "err"


def test_a_full_disk_is_not_ready_but_healthy_until_there_is_room(place: Place) -> None:
    flags = place.flags("[http]", "port = 0")
    with hub_process(*flags) as hub, client_of(hub) as client:
        address = http_of(hub)
        queue = client.queue("q", bytes)
        pid = hub.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (LARGEST, before[1]))
        for _ in range(34):
            queue.put(LARGE, keys="a")
        filled(queue, b"small")
        code, _, text = get(address, "/ready")
        assert (code, text.startswith("journal short since ")) == (503, True)
        assert "the journal's disk is nearly full" in text
        code, _, body = get(address, "/health")
        assert (code, json.loads(body)["status"]) == (200, "journal short")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        while refusal(queue, b"again", dedup="again"):
            pass
        while get(address, "/ready")[0] != 200:
            pass
        found = samples(address)
        assert found["interlock_hub_journal_ok"] == 1
        assert found["interlock_hub_journal_trouble_since_timestamp_seconds"] == 0


@pytest.mark.parametrize(
    ("state", "ready", "healthy"),
    [
        ("none", 200, 200),
        ("ok", 200, 200),
        ("short", 503, 200),
        ("full", 503, 200),
        ("failed", 503, 503),
        ("closed", 200, 200),
    ],
)
def test_each_state_of_the_journal_has_its_answer(state: str, ready: int, healthy: int) -> None:
    info = {"journal_state": state, "journal_error": "why", "journal_trouble_since": 1_700_000_000}
    pages = HubPages(lambda: State.SERVING, lambda: info)
    codes = []
    for path in ("/ready", "/health"):
        page = pages(path)
        assert page is not None
        codes.append(page.status)
        if ready != 200:
            assert f"journal {state}" in page.body
    assert codes == [ready, healthy]
    line = f"journal {state} since 2023-11-14T22:13:20Z: why; "
    assert status(info).startswith(line if ready != 200 else "0 connections")
    # While it stops that is what counts.
    page = HubPages(lambda: State.DRAINING, lambda: info)("/ready")
    assert page is not None
    assert (page.status, page.body) == (503, "draining\n")
