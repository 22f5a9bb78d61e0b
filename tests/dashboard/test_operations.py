"""Changes by a dashboard: each action, on each engine, and what is refused."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from interlock import App, JobFailed, Reject, audit
from interlock.client.admin.operator import Operator
from interlock.client.admin.server import Server
from interlock.client.faces.client import Client, connect
from interlock.client.faces.queue import RemoteQueue
from interlock.client.wire.records import Names
from interlock.dashboard.api import payload
from interlock.worker.reports import announcing
from tests.dashboard.conftest import AT_ONCE, Page, Serve
from tests.dashboard.test_questions import call, die


def path(queue: RemoteQueue[Any], id: int, action: str) -> str:
    return f"queues/{queue.name}/messages/{id}/{action}"


def test_a_message_that_backs_off_is_retried_skipped_or_buried(
    page: Page, queue: RemoteQueue[bytes], operator: Operator
) -> None:
    ids = [queue.put(b"x", keys=f"k{n}") for n in range(3)]
    for _ in ids:
        queue.get(timeout=30).nack(3600, "no")
    for id, action in zip(ids, ("retry", "skip", "bury"), strict=True):
        assert page.post(path(queue, id, action)) == {"changed": True}
        assert page.post(path(queue, id, action)) == {"changed": False}
    states = [operator.peek(queue.name, id) for id in ids]
    assert [one and one.state for one in states] == ["ready", None, "dead"]


def test_a_message_is_cancelled(page: Page, queue: RemoteQueue[bytes], operator: Operator) -> None:
    id = queue.put(b"x")
    assert page.post(path(queue, id, "cancel")) == {"changed": True}
    assert page.post(path(queue, id, "cancel")) == {"changed": False}
    assert operator.peek(queue.name, id) is None


@pytest.mark.parametrize("then", ["retry", "hold", "dead", "skip"])
def test_a_lease_is_revoked(
    page: Page, queue: RemoteQueue[bytes], operator: Operator, then: str
) -> None:
    id = queue.put(b"x")
    lease = queue.get(timeout=30)
    assert page.post(path(queue, id, "revoke"), {"then": then}) == {"changed": True}
    assert page.post(path(queue, id, "revoke"), {"then": then}) == {"changed": False}
    found = operator.peek(queue.name, id)
    states = {"retry": ("backing_off", "ready"), "hold": ("held",), "dead": ("dead",)}
    assert (found.state in states[then]) if found else then == "skip"
    with contextlib.suppress(Exception):
        lease.ack()


def test_a_wrong_then_is_refused(page: Page, queue: RemoteQueue[bytes]) -> None:
    answer = page.post(path(queue, 17, "revoke"), {"then": "no"}, 400)
    assert "retry" in answer["error"]


def test_a_dead_letter_is_requeued(
    page: Page, queue: RemoteQueue[bytes], operator: Operator
) -> None:
    id = die(queue, b"x", "no")
    answer = page.post(path(queue, id, "requeue"))
    assert answer["changed"] is True and int(answer["id"]) > id
    found = operator.peek(queue.name, int(answer["id"]))
    assert found is not None and found.payload == b"x" and found.keys == (b"k",)
    assert page.post(path(queue, id, "requeue")) == {"changed": False, "id": None}


def test_a_dead_letter_is_dropped(
    page: Page, queue: RemoteQueue[bytes], operator: Operator
) -> None:
    id = die(queue, b"x", "no")
    assert page.post(path(queue, id, "discard")) == {"changed": True}
    assert operator.peek(queue.name, id) is None


def test_a_call_is_edited_and_requeued(
    page: Page, queue: RemoteQueue[bytes], operator: Operator
) -> None:
    big, data = 1.0, b"\x00\xff"
    body = {
        "v": 1, "task": "shop.pay", "args": [big, data, 3], "kwargs": {"who": "me"},
        "timeout": 5.0, "headers": {"trace": "1"},
    }  # fmt: skip
    id = queue.put(msgspec.msgpack.encode(body), keys="a", shared=["b"], priority=9)
    queue.get(timeout=30).reject("bad")
    shown = page.get(f"queues/{queue.name}/messages/{id}")["payload"]
    # A browser makes 1 of 1.0.
    edited = {"args": [1, shown["args"][1], 4], "kwargs": {"who": "you", "now": True}}
    # No worker is there to compute the keys of what is edited.
    asked = page.post(path(queue, id, "keys"), edited)
    none: dict[str, Any] = {"limit": [], "group": None, "run": None}
    assert (asked["old"], asked["new"]) == ({"keys": ["a"], "shared": ["b"], **none}, None)
    assert "no worker" in page.post(path(queue, id, "requeue"), edited, 409)["error"]
    stated = {"keys": ["c", {"base64": "/w=="}], "shared": ["d"], "limit": ["x"], "run": "2:"}
    answer = page.post(path(queue, id, "requeue"), {**edited, **stated})
    found = operator.peek(queue.name, int(answer["id"]))
    assert found is not None and found.keys == (b"c", b"\xff") and found.shared == (b"d",)
    assert (found.priority, found.names) == (9, Names(("x",), None, "2:"))
    put = msgspec.msgpack.decode(found.payload)
    assert put == {**body, "args": [1.0, data, 4], "kwargs": {"who": "you", "now": True}}
    assert isinstance(put["args"][0], float)
    assert operator.peek(queue.name, id) is None


def test_an_edited_text_needs_its_keys_stated(
    page: Page, queue: RemoteQueue[bytes], operator: Operator
) -> None:
    id = die(queue, b"x", "no")
    asked = page.post(path(queue, id, "keys"), {"text": "y"})
    assert (asked["new"], "not a call" in asked["why"]) == (None, True)
    assert "not a call" in page.post(path(queue, id, "requeue"), {"text": "y"}, 409)["error"]
    new = page.post(path(queue, id, "requeue"), {"text": "y", "keys": ["k"]})["id"]
    found = operator.peek(queue.name, int(new))
    assert found is not None and (found.payload, found.keys) == (b"y", (b"k",))


def test_an_edited_call_has_the_keys_of_the_tasks_rule(
    page: Page, client: Client, operator: Operator, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcing, "PERIOD", 0.05)
    app, name = App(url), f"pay{uuid.uuid4().hex}"

    @app.task(
        queue=name, keys="account:{account}", shared=lambda account: "bank", result_ttl=60,
        limit="tenant:{account}", group="{account}",
    )  # fmt: skip
    def pay(account: str) -> None:
        raise Reject("no")

    with app.worker(threads=1, queues=[name]) as worker:
        job = pay.send("a")
        with pytest.raises(JobFailed):
            job.result(20)
        queue = client.queue(name, bytes)
        until = time.monotonic() + 20
        # A worker that has not announced itself yet is not asked.
        while (asked := page.post(path(queue, job.id, "keys"), {"args": ["b"]}))["new"] is None:
            assert time.monotonic() < until, asked["why"]
        for which, account in (("old", "a"), ("new", "b")):
            assert asked[which] == {
                "keys": [f"account:{account}"], "shared": ["bank"],
                "limit": [f"tenant:{account}"], "group": account, "run": None,
            }  # fmt: skip
        wrong = page.post(path(queue, job.id, "keys"), {"args": [1, 2]})
        assert "argument 'account' of pay()" in wrong["why"]
        worker.quiesce()
        page.post(f"queues/{name}/pause")
        new = page.post(path(queue, job.id, "requeue"), {"args": ["b"]})["id"]
        found = operator.peek(name, int(new))
        assert found is not None and (found.keys, found.shared) == ((b"account:b",), (b"bank",))
        assert found.names == Names(("tenant:b",), "b")
        operator.change("cancel", name, int(new))
    app.close()


def test_an_edit_of_a_message_that_changed_meanwhile_creates_no_duplicate(
    page: Page, queue: RemoteQueue[bytes], operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = die(queue, b"x", "no")
    look = Operator.peek

    def peek(self: Operator, name: str, asked: int) -> Any:
        found = look(self, name, asked)
        if asked == id:
            monkeypatch.setattr(Operator, "peek", look)
            operator.requeue(queue.name, id)
        return found

    monkeypatch.setattr(Operator, "peek", peek)
    answer = page.post(path(queue, id, "requeue"), {"text": "y", "keys": []})
    assert answer == {"changed": False, "id": None}
    assert operator.stats(queue.name)["unsettled"] == 1
    with queue.get(timeout=30) as again:
        assert again == b"x"


def test_values_that_json_cannot_represent_survive_an_edit() -> None:
    when = datetime(2026, 11, 23, tzinfo=UTC)
    order = {"at": when, "lines": [b"\x00", 1, 2.0], 7: b"\x01", "gone": 1}
    data = call("t", order, note=None)
    shown = payload.read(data)
    (edited,) = json.loads(json.dumps(shown.args))
    edited["lines"][1:] = [5, 2, "new"]
    del edited["gone"]
    made = msgspec.msgpack.decode(payload.edited(data, {"args": [edited]}))
    assert made["args"] == [{"at": when, "lines": [b"\x00", 5, 2.0, "new"], 7: b"\x01"}]
    assert made["kwargs"] == {"note": None}


@pytest.mark.parametrize(
    ("stored", "given", "said"),
    [
        (b'{"a": 1}', {"text": "{"}, "not JSON"),
        (b"plain", {"text": "y", "keys": "k"}, "keys must be a list"),
        (b"plain", {"text": "y", "shared": [""]}, "a key is text"),
        (call("t", 1), {"text": "y"}, "a call of t"),
        (b"plain", {"text": 5}, "text is missing"),
        (call("t", 1), {"args": {}}, "args"),
        (call("t", 1), {"arg": [2]}, "'arg' is unknown"),
        (call("t", 1), {"args": [], "kwargs": []}, "kwargs"),
        (call("t", 1), {"args": ["x" * 1_048_577]}, "bytes"),
    ],
)
def test_invalid_edits_are_refused(
    page: Page,
    queue: RemoteQueue[bytes],
    operator: Operator,
    stored: bytes,
    given: dict[str, Any],
    said: str,
) -> None:
    id = die(queue, stored, "no")
    assert said in page.post(path(queue, id, "requeue"), given, 400)["error"]
    assert operator.peek(queue.name, id) is not None


def test_bytes_are_not_edited(page: Page, queue: RemoteQueue[bytes]) -> None:
    id = die(queue, b"\xff\x00", "no")
    page.post(path(queue, id, "requeue"), {"text": "y"}, 409)


def test_requeueing_into_a_full_or_sealed_queue_is_refused(page: Page, client: Client) -> None:
    queue = client.queue(f"full{id(page)}", bytes, retry=AT_ONCE, maxsize=1)
    dead = die(queue, b"x", "no")
    queue.put(b"y")
    assert "full" in page.post(path(queue, dead, "requeue"), status=409)["error"]
    assert (
        "full" in page.post(path(queue, dead, "requeue"), {"text": "y", "keys": []}, 409)["error"]
    )
    assert page.post(f"queues/{queue.name}/seal") == {"changed": True}
    assert "sealed" in page.post(path(queue, dead, "requeue"), status=409)["error"]
    assert page.post(f"queues/{queue.name}/reopen") == {"changed": True}


def test_a_queue_and_keys_are_paused(
    page: Page, queue: RemoteQueue[bytes], operator: Operator
) -> None:
    queue.put(b"x", keys="a")
    for keys, paused in ((["a", "ü"], {b"a", "ü".encode()}), (None, {b""})):
        body = {"keys": keys}
        assert page.post(f"queues/{queue.name}/pause", body) == {"changed": True}
        assert operator.paused(queue.name) == paused
        assert page.post(f"queues/{queue.name}/pause", body) == {"changed": False}
        assert page.post(f"queues/{queue.name}/resume", body) == {"changed": True}
        assert operator.paused(queue.name) == set()


def test_invalid_keys_do_not_pause_the_whole_queue(
    page: Page, queue: RemoteQueue[bytes], operator: Operator
) -> None:
    keys: Any
    for keys in ([], [""], "a", [5], ["x" * 1025], {"a": 1}, ["k"] * 1001):
        page.post(f"queues/{queue.name}/pause", {"keys": keys}, 400)
        assert operator.paused(queue.name) == set()
    # Passed over, it would pause the whole queue.
    page.post(f"queues/{queue.name}/pause", {"key": ["a"]}, 400)
    assert operator.paused(queue.name) == set()


@pytest.mark.parametrize("action", ["requeue", "discard"])
def test_an_action_applies_to_all_matching_dead_letters(
    page: Page, queue: RemoteQueue[bytes], operator: Operator, action: str
) -> None:
    for n in range(30):
        die(queue, call("shop.pay" if n % 2 else "shop.ship", n), f"reason {n % 3}")
    given: dict[str, Any] = {"task": "pay", "error": "reason 0"}
    assert page.post(f"queues/{queue.name}/dead/{action}", given) == {"changed": 5, "left": False}
    stats = operator.stats(queue.name)
    assert stats["dead"] == 25 and stats["unsettled"] == (5 if action == "requeue" else 0)


@pytest.mark.parametrize("given", [{"task": 0}, {"error": False}, {"key": []}, {"taks": "pay"}])
def test_an_invalid_filter_does_not_select_all(
    redis_url: str, serve: Serve, given: dict[str, Any]
) -> None:
    with connect(redis_url) as client:
        queue = client.queue(f"q{uuid.uuid4().hex}", bytes, retry=AT_ONCE)
        die(queue, b"x", "no")
        page = serve(redis_url, write=True)
        page.post(f"queues/{queue.name}/dead/discard", given, 400)
        assert Operator(Server(client)).stats(queue.name)["dead"] == 1


def test_many_dead_letters_are_processed_in_steps(
    page: Page,
    queue: RemoteQueue[bytes],
    operator: Operator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from interlock.dashboard.api import operations

    monkeypatch.setattr(operations, "BATCH", 7)
    for n in range(20):
        die(queue, call("shop.pay" if n % 4 else "shop.ship", n), "no")
    place: dict[str, Any] = {}
    changed = []
    while True:
        answer = page.post(f"queues/{queue.name}/dead/requeue", {"task": "pay", **place})
        changed.append(answer["changed"])
        if not answer["left"]:
            break
        place = {"after": answer["after"], "until": answer["until"]}
        # Messages that die again meanwhile are not requeued a second time.
        while operator.stats(queue.name)["ready"]:
            queue.get(timeout=30).reject("again")
    assert changed == [7, 7, 1]


# -- Refusals -----------------------------------------------------------------------------------


WRITES = [
    *(f"queues/q/messages/17/{action}" for action in
      ("retry", "skip", "bury", "cancel", "revoke", "requeue", "discard")),
    *(f"queues/q/{action}" for action in ("pause", "resume", "seal", "reopen")),
    *(f"queues/q/dead/{action}" for action in ("requeue", "discard")),
    "workers/q/w/drain",
]  # fmt: skip


def test_a_dashboard_that_only_reads_changes_nothing_and_records_who_tried(
    redis_url: str, serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "interlock.audit")
    monkeypatch.setattr(audit, "_refused", {})
    monkeypatch.setattr(audit, "REFUSED_EVERY", 3600.0)
    page = serve(redis_url)
    only_reads = "this dashboard is read-only; start it with --write"
    for write in WRITES * 2:
        answer = page.post(write, {}, 403)
        assert answer["error"] == only_reads, write
    lines = [vars(one) for one in caplog.records if one.name == "interlock.audit"]
    # Once per action in that time.
    assert [one["action"] for one in lines] == list(
        dict.fromkeys(write.rpartition("/")[2] for write in WRITES)
    )
    assert {(one["queue"], one["from"], one["result"]) for one in lines} == {
        ("q", "127.0.0.1", f"refused: {only_reads}")
    }
    assert (lines[0]["what"], lines[-1]["what"]) == ("message 17", "worker w")


def test_a_change_without_the_csrf_mark_is_refused(redis_url: str, serve: Serve) -> None:
    page = serve(redis_url, write=True)
    page.get("server")
    other = serve(redis_url, write=True).get("server")["csrf"]
    for write in (*WRITES, "workers/q/w/stacks"):
        # Nor with one that belongs to another cookie.
        for mark in ("", "x", "0" * 64, "ü", other):
            headers = {b"X-Interlock-CSRF": mark.encode()}
            answer = page.http.post(f"/api/{write}", headers=headers)
            assert answer.status_code == 403 and "token" in answer.json()["error"], write


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_cross_site_change_is_refused(
    redis_url: str, serve: Serve, headers: dict[str, str]
) -> None:
    page = serve(redis_url, write=True)
    assert "site" in page.post("queues/q/pause", {}, 403, **headers)["error"]
    own = page.service.url.rstrip("/")
    assert page.post("queues/q/resume", {}, 200, Origin=own)


def test_a_body_that_is_not_json_is_refused(redis_url: str, serve: Serve) -> None:
    page = serve(redis_url, write=True)
    mark = page.get("server")["csrf"]
    for body in (b"{", b"[]", b"5", b'"x"', b"\xff", b"[" * 100_000):
        answer = page.http.post(
            "/api/queues/q/pause", content=body, headers={"X-Interlock-CSRF": mark}
        )
        assert answer.status_code == 400, body[:10]
    answer = page.http.post(
        "/api/queues/q/pause", content=b"x" * 5_000_000, headers={"X-Interlock-CSRF": mark}
    )
    assert answer.status_code == 413


# -- The audit log --------------------------------------------------------------------------------


def test_each_change_is_audited_with_user_address_and_outcome(
    page: Page, queue: RemoteQueue[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "interlock.audit")
    id = die(queue, b"x", "no")
    page.get(f"queues/{queue.name}")
    page.post(f"queues/{queue.name}/pause", {"keys": ["k"]})
    page.post(f"queues/{queue.name}/seal")
    page.post(path(queue, id, "skip"))
    page.post(path(queue, id, "requeue"), status=409)
    page.post(f"queues/{queue.name}/reopen")
    page.post(path(queue, id, "requeue"), {"text": "y", "keys": []})
    lines = [json.loads(audit.JsonLines().format(one)) for one in caplog.records]
    # A hub in this process records the same calls, from the port of the connection.
    lines = [one for one in lines if one["queue"] == queue.name and ":" not in one["from"]]
    message = f"message {id}"
    assert [(line["action"], line["what"]) for line in lines] == [
        ("pause", "keys k"), ("seal", ""), ("skip", message), ("requeue", message),
        ("reopen", ""), ("edit", message),
    ]  # fmt: skip
    assert [line["result"] for line in lines[:3]] == ["changed", "changed", "unchanged"]
    assert "refused: " in lines[3]["result"] and "sealed" in lines[3]["result"]
    assert lines[5]["result"].startswith("requeued as ")
    assert {(line["who"], line["from"]) for line in lines} == {("default", "127.0.0.1")}
    assert tuple(lines[0]) == audit.FIELDS
    shown = [one for one in page.get("changes")["items"] if one["queue"] == queue.name]
    assert shown == lines[::-1]
