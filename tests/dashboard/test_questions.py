"""Answers of a dashboard about an engine, its queues and their messages."""

from __future__ import annotations

import json
import uuid
from typing import Any

import msgspec
import pytest

from interlock import App, Empty, Rate, Retry
from interlock.client.faces.client import Client
from interlock.client.faces.queue import RemoteQueue
from tests.dashboard.conftest import Page, Serve


def call(task: str, *args: Any, **kwargs: Any) -> bytes:
    """A call of a task, as any language may write it."""
    return msgspec.msgpack.encode({"v": 1, "task": task, "args": args, "kwargs": kwargs})


def die(queue: RemoteQueue[bytes], payload: bytes, reason: str, keys: str = "k") -> int:
    """Put a message, and make a dead letter of it."""
    id = queue.put(payload, keys=keys)
    lease = queue.get(timeout=30)
    assert lease.id == id
    lease.reject(reason)
    return id


def test_the_server_page_describes_the_engine_without_its_password(page: Page, url: str) -> None:
    found = page.get("server")
    assert found["kind"] == ("hub" if url.startswith("interlock") else "redis")
    assert found["version"]
    assert found["write"] is True and found["rights"] == ["read", "operate"]
    assert found["login"] == "none" and found["user"] is None
    assert found["csrf"]


def test_all_queues_are_listed_with_their_counts(page: Page, queue: RemoteQueue[bytes]) -> None:
    queue.put(b"x", keys="a")
    queue.pause()
    found = wait_for_queue(page, queue.name)
    assert found["stats"]["unsettled"] == 1
    assert found["paused"] is True and found["sealed"] is False


def test_a_stalled_queue_names_what_blocks_it(page: Page, queue: RemoteQueue[bytes]) -> None:
    held = queue.put(b"x", keys="a", retry=Retry(attempts=1, then="hold"))
    queue.get(timeout=30).nack()
    assert wait_for_queue(page, queue.name)["stall"] is None, "nothing waits for it"
    queue.put(b"x", keys=["a", "b"])
    queue.put(b"x", keys="b")
    root = {"kind": "held", "id": held, "key": "a", "blocked": 2, "exact": True}
    stall = {
        "summary": "2 messages blocked by 1 held message",
        "blocked": 2,
        "exact": True,
        "roots": [root],
    }
    assert wait_for_queue(page, queue.name)["stall"] == stall
    assert page.get(f"queues/{queue.name}")["stall"] == stall


def test_a_message_in_backoff_is_not_a_stall_unless_many_wait_for_it(
    page: Page, queue: RemoteQueue[bytes]
) -> None:
    queue.put(b"x", keys="a")
    queue.get(timeout=30).nack(60)
    queue.put(b"x", keys="a")
    for number in range(12):
        queue.put(b"x", keys=f"k{number}")
    assert wait_for_queue(page, queue.name)["stall"] is None
    queue.put(b"x", keys="a")
    # Blockers are queried once a second.
    while (stall := wait_for_queue(page, queue.name)["stall"]) is None:
        pass
    assert stall["blocked"] == 2


def wait_for_queue(page: Page, name: str) -> Any:
    # Names are looked at once a second.
    while True:
        for one in page.get("queues"):
            if one["name"] == name:
                return one


def test_a_queue_is_reported_with_options_pauses_and_hot_keys(
    page: Page, queue: RemoteQueue[bytes]
) -> None:
    for _ in range(3):
        queue.put(b"x", keys="deep")
    queue.put(b"x", keys="shallow")
    queue.pause("shallow")
    found = page.get(f"queues/{queue.name}")
    assert found["stats"]["unsettled"] == 4
    assert found["options"]["attempts"] == "2"
    assert found["paused"] == ["shallow"] and found["queue_paused"] is False
    assert found["hot"] == [{"key": "deep", "waiting": 3}, {"key": "shallow", "waiting": 1}]
    assert found["waits"]["by"] == [
        {"key": "1", "upto": 1, "count": 1},
        {"key": "2", "upto": 3, "count": 1},
    ]


def test_a_queue_is_reported_with_what_is_used_of_its_limits(
    page: Page, queue: RemoteQueue[bytes]
) -> None:
    for _ in range(3):
        queue.put(b"x", limit="bank")
    queue.configure(limits={"bank": 1, "api": Rate(2, burst=5)})
    lease = queue.get(timeout=30)
    with pytest.raises(Empty):
        queue.get_nowait()
    found = page.get(f"queues/{queue.name}")["limits"]
    lease.ack()
    assert found["awaited"] == 1
    bank, api = found["items"]
    assert (bank["name"], bank["most"], bank["leased"], bank["waiting"]) == ("bank", 1, 1, 2)
    assert (api["name"], api["interval"], api["burst"], api["next_in"]) == ("api", 0.5, 5, 0)


def test_parked_messages_are_listed_with_the_held_one_behind_which_they_are(
    page: Page, queue: RemoteQueue[bytes]
) -> None:
    stuck = queue.put(b"x", keys="a", retry=Retry(attempts=1, then="hold"))
    queue.get(timeout=30).nack()
    id = queue.put(b"y", keys=["a", "b"], behind="park")
    (one,) = page.get(f"queues/{queue.name}/messages", state="parked")["items"]
    assert one["id"] == str(id) and one["behind"] == "park"
    parked = one["parked"]
    assert (parked["key"], parked["behind"], parked["paused"]) == ("a", [str(stuck)], False)
    top, held = page.get(f"queues/{queue.name}/messages/{id}")["explanation"]["chain"]
    assert top["parked"]["key"] == "a" and held["state"] == "held"
    assert [(why["key"], why["holders"]) for why in top["because"]] == [("a", [str(stuck)])]


def test_a_message_at_a_full_limit_names_it_and_who_has_its_slots(
    page: Page, queue: RemoteQueue[bytes]
) -> None:
    first, second = (queue.put(b"x", limit="bank") for _ in range(2))
    queue.configure(limits={"bank": 1})
    lease = queue.get(timeout=30)
    with pytest.raises(Empty):
        queue.get_nowait()
    found = page.get(f"queues/{queue.name}/messages/{second}")
    lease.ack()
    assert found["message"]["limit"] == ["bank"]
    top, *_ = found["explanation"]["chain"]
    (why,) = top["because"]
    assert top["limits"] == ["bank"]
    assert (why["limit"], why["text"], why["holders"]) == ("bank", "1 of 1 on bank", [str(first)])


def test_a_missing_queue_is_reported(page: Page) -> None:
    assert "no queue" in page.get("queues/never-was", 404)["error"]
    assert page.get("queues/never-was/messages")["items"] == []
    assert "not in queue" in page.get("queues/never-was/messages/17", 404)["error"]


def test_an_invalid_id_is_refused(page: Page) -> None:
    for id in ("x", "-1", "0", "1e3", "9" * 17, "%00", "١"):
        assert "id" in page.get(f"queues/q/messages/{id}", 400)["error"]


def test_pages_of_messages_list_each_message_once(page: Page, queue: RemoteQueue[bytes]) -> None:
    ids = {str(queue.put(b"x%d" % n, keys=f"k{n}")) for n in range(700)}
    found: set[str] = set()
    cursor: str | None = ""
    pages = 0
    while cursor is not None:
        answer = page.get(f"queues/{queue.name}/messages", cursor=cursor, limit=100)
        found |= {one["id"] for one in answer["items"]}
        cursor = answer["cursor"]
        pages += 1
    assert found == ids
    assert pages >= 3


def test_messages_are_filtered_by_state_key_task_and_error(
    page: Page, queue: RemoteQueue[bytes]
) -> None:
    failed = queue.put(call("shop.pay", 1), keys="a")
    lease = queue.get(timeout=30)
    lease.nack(3600, "Timeout: no answer")
    other = queue.put(call("shop.ship", 2), keys=["b", "c"])

    def ids(**query: Any) -> set[int]:
        answer = page.get(f"queues/{queue.name}/messages", 200, **query)
        assert answer["cursor"] is None
        return {int(one["id"]) for one in answer["items"]}

    assert ids() == {failed, other}
    assert ids(state="backing_off") == {failed}
    assert ids(state="ready") == {other}
    assert ids(key="c") == {other}
    assert ids(key="nobody") == set()
    assert ids(task="ship") == {other}
    assert ids(error="timeout") == {failed}
    assert ids(state="ready", task="pay") == set()
    page.get(f"queues/{queue.name}/messages", 400, state="gone")
    page.get(f"queues/{queue.name}/messages", 400, cursor="x")
    page.get(f"queues/{queue.name}/messages", 400, limit="0")


def test_a_message_page_agrees_with_the_list(page: Page, queue: RemoteQueue[bytes]) -> None:
    id = queue.put(call("shop.pay", 1), keys="a", shared=["b"], priority=7)
    (found,) = page.get(f"queues/{queue.name}/messages")["items"]
    assert found["id"] == str(id)
    assert (found["keys"], found["shared"], found["priority"]) == (["a"], ["b"], 7)
    assert found["task"] == "shop.pay" and found["state"] == "ready" and found["attempt"] == 1
    assert abs(found["put"] - id / 1e6) < 1 and found["due"] is None


PAYLOADS: list[tuple[bytes, Any, Any, Any]] = [
    (b'{"a": 1}', "json", '{"a": 1}', True),
    ("für alle\n".encode(), "text", "für alle\n", True),
    (b"\xff\x00\x01", "binary", "ff0001", False),
    (msgspec.msgpack.encode({"a": b"\x00"}), "json", '{\n  "a": "AA=="\n}', False),
    (b"{not json", "text", "{not json", True),
    (b"\x00", "binary", "00", False),
    (b"[" * 5000, "text", "[" * 5000, True),
    (b"\x91" * 5000 + b"\x01", "binary", ("91" * 5000) + "01", False),
    (b"", "text", "", True),
    # A call of a later version.
    (
        msgspec.msgpack.encode({"v": 2, "task": "t"}),
        "json",
        '{\n  "v": 2,\n  "task": "t"\n}',
        False,
    ),
]


def test_payloads_are_decoded(page: Page, queue: RemoteQueue[bytes]) -> None:
    for payload, *wanted in PAYLOADS:
        id = queue.put(payload)
        found = page.get(f"queues/{queue.name}/messages/{id}")["payload"]
        assert [found["kind"], found["text"], found["edit"]] == wanted
        assert found["size"] == len(payload)


def test_a_call_is_shown_without_its_types(page: Page, queue: RemoteQueue[bytes]) -> None:
    id = queue.put(call("shop.pay", 1, b"\x01\x02", who={"id": 2.5}))
    found = page.get(f"queues/{queue.name}/messages/{id}")["payload"]
    assert found["kind"] == "task" and found["task"] == "shop.pay" and found["edit"] is True
    assert found["args"] == [1, "AQI="] and found["kwargs"] == {"who": {"id": 2.5}}


def test_payloads_with_numbers_a_browser_would_round_cannot_be_edited(
    page: Page, queue: RemoteQueue[bytes]
) -> None:
    id = queue.put(call("shop.pay", 2**53 + 1))
    found = page.get(f"queues/{queue.name}/messages/{id}")["payload"]
    assert found["edit"] is False and str(2**53 + 1) in found["text"]


def test_a_large_payload_is_truncated(page: Page, queue: RemoteQueue[bytes]) -> None:
    id = queue.put(b"x" * 1_000_000)
    found = page.get(f"queues/{queue.name}/messages/{id}")["payload"]
    assert found["cut"] is True and len(found["text"]) == 262_144 and found["edit"] is False


def test_a_message_is_reported_with_the_chain_it_waits_for(
    page: Page, queue: RemoteQueue[bytes]
) -> None:
    first = queue.put(call("shop.pay", 1), keys="a")
    second = queue.put(b"x", keys=["a", "b"])
    third = queue.put(b"y", keys="b")
    lease = queue.get(timeout=30)
    found = page.get(f"queues/{queue.name}/messages/{third}")["explanation"]
    assert [one["id"] for one in found["chain"]] == [str(third), str(second), str(first)]
    assert found["chain"][0]["because"][0]["key"] == "b"
    assert found["chain"][0]["because"][0]["holders"] == [str(second)]
    assert found["chain"][1]["keys"] == ["a", "b"]
    assert found["chain"][2]["state"] == "leased" and found["chain"][2]["consumer"]
    assert found["chain"][2]["task"] == "shop.pay"
    assert f"message {first}" in found["text"]
    lease.ack()


def test_a_ready_message_of_an_unserved_queue_is_reported_as_such(
    page: Page, queue: RemoteQueue[bytes]
) -> None:
    id = queue.put(b"x")
    assert page.get(f"queues/{queue.name}/messages/{id}")["served"] is False
    queue._announce("host:1", 60, json.dumps({"queues": ["first", queue.name]}))
    assert page.get(f"queues/{queue.name}/messages/{id}")["served"] is True


def test_failures_are_reported_with_their_tracebacks(page: Page, queue: RemoteQueue[bytes]) -> None:
    id = queue.put(b"x")
    queue.get(timeout=30).nack(0, "ValueError: one\n  File a.py, line 1")
    queue.get(timeout=30).nack(0, "ValueError: two")
    found = page.get(f"queues/{queue.name}/messages/{id}")
    assert found["message"]["state"] == "dead" and found["explanation"] is None
    assert found["message"]["error"] == "ValueError: two"
    newest, oldest = found["failures"]
    assert (newest["attempt"], newest["text"], newest["traceback"]) == (2, "ValueError: two", None)
    assert oldest["attempt"] == 1 and oldest["text"] == "ValueError: one"
    assert oldest["traceback"] == "  File a.py, line 1"
    assert abs(newest["time"] - id / 1e6) < 600


def test_dead_letters_are_listed_page_by_page(page: Page, queue: RemoteQueue[bytes]) -> None:
    ids = [die(queue, call("shop.pay", n), f"reason {n % 2}") for n in range(7)]
    found: list[int] = []
    after: str | None = ""
    while after is not None:
        answer = page.get(f"queues/{queue.name}/dead", after=after, limit=3)
        assert len(answer["items"]) <= 3
        found += [int(one["id"]) for one in answer["items"]]
        after = answer["after"]
    assert found == ids[::-1]
    even = page.get(f"queues/{queue.name}/dead", error="REASON 0")["items"]
    assert [int(one["id"]) for one in even] == ids[::-2]
    assert page.get(f"queues/{queue.name}/dead", task="ship")["items"] == []
    assert len(page.get(f"queues/{queue.name}/messages", state="dead")["items"]) == 7


def test_paging_through_dead_letters_continues_if_the_last_one_was_removed(
    page: Page, queue: RemoteQueue[bytes]
) -> None:
    ids = [die(queue, b"x", "no") for _ in range(6)]
    after = page.get(f"queues/{queue.name}/dead", limit=3)["after"]
    page.post(f"queues/{queue.name}/messages/{ids[3]}/discard")
    rest = page.get(f"queues/{queue.name}/dead", after=after)["items"]
    assert [int(one["id"]) for one in rest] == ids[2::-1]


def test_dead_letters_are_counted_by_their_errors(
    page: Page, queue: RemoteQueue[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = ["no customer 17", "no customer 4", "db-7 at 0x7f1c is gone", "no customer 5", ""]
    ids = [die(queue, call("pay", n), error) for n, error in enumerate(errors)]
    where = f"queues/{queue.name}/dead"
    told = page.get(f"{where}/errors")
    groups = {one["group"]: (one["count"], one["error"]) for one in told["groups"]}
    assert next(iter(groups)) == "no customer N"
    assert groups["no customer N"] == (3, "no customer 5")
    assert groups["db-N at N is gone"] == (1, errors[2])
    assert (told["matched"], told["complete"]) == (5, True)
    some = page.get(where, group="no customer N")["items"]
    assert [int(one["id"]) for one in some] == [ids[3], ids[1], ids[0]]
    assert page.get(f"{where}/errors", error="17")["matched"] == 1
    assert page.post(f"{where}/discard", {"group": "no customer N"})["changed"] == 3
    assert page.get(f"{where}/errors")["matched"] == 2
    monkeypatch.setattr("interlock.dashboard.api.messages.SCANNED", 0)
    assert page.get(f"{where}/errors")["complete"] is False


def test_an_answer_reads_a_bounded_number_of_messages(
    page: Page, queue: RemoteQueue[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    from interlock.dashboard.api import messages

    for n in range(600):
        queue.put(b"x", keys=f"k{n}")
    monkeypatch.setattr(messages, "SCANNED", 300)
    answer = page.get(f"queues/{queue.name}/messages", task="none")
    assert answer["items"] == [] and 300 <= answer["scanned"] < 600
    assert answer["cursor"] is not None


def test_a_filter_by_key_reads_only_that_key_s_messages(
    page: Page, queue: RemoteQueue[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    from interlock.dashboard.api import messages

    for n in range(600):
        queue.put(b"x", keys=f"k{n}")
    monkeypatch.setattr(messages, "SCANNED", 0)
    (found,) = page.get(f"queues/{queue.name}/messages", key="k17")["items"]
    assert found["keys"] == ["k17"]


def test_the_timetables_of_all_apps_are_listed(page: Page, url: str, client: Client) -> None:
    name = uuid.uuid4().hex
    app = App(url)

    @app.cron("0 3 * * *", tz="Europe/Berlin", name=name)
    @app.task(queue=f"q{name}")
    def nightly() -> None: ...

    from interlock.app.timetable.keeper import Keeper

    Keeper(f"q{name}", dict(app.timetable), app._open).plan()
    app.close()
    while True:
        found = [one for one in page.get("schedules")["items"] if one["name"] == name]
        if found:
            break
    assert found[0]["queue"] == f"q{name}" and "0 3 * * *" in found[0]["schedule"]
    assert found[0]["next"] % 3600 == 0 and found[0]["last"] is None


def test_pages_only_a_hub_has_are_reported_as_missing_elsewhere(page: Page, url: str) -> None:
    is_hub = url.startswith("interlock")
    for name in ("tables", "stores"):
        found = page.get(name)
        assert found["items"] == []
        assert ("note" in found) is not is_hub
    assert page.get("topics")["items"] == []
    assert "note" in page.get("sources")


def test_an_unknown_path_of_the_api_is_not_found(page: Page) -> None:
    for path in ("", "nothing", "queues/a/b/c/d", "queues/q/pause", "live/x"):
        page.get(path, 404)


def test_a_read_only_dashboard_says_so(url: str, serve: Serve) -> None:
    found = serve(url).get("server")
    assert found["write"] is False and found["rights"] == ["read"]
