"""The client of a cluster: the node that it uses, and what it does when that fails.

Two hubs serve one table of shared memory, as two nodes of a cluster would; gates before them lose
answers, refuse and vanish. Clusters of real nodes are in test_failover.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis

import interlock
from interlock import SharedTable
from interlock.client.faces.table import RemoteTable
from interlock.client.rows import members
from interlock.client.rows.announcements import Announcement, announce, withdraw
from interlock.errors import EngineUnavailable, SchemaMismatch
from interlock.hub import passwords
from interlock.table.kinds import U8
from tests.cluster.gates import Gate, gate, says, unanswered, unheard
from tests.hub.protocol.certificates import Authority
from tests.hub.servers import needs_hub
from tests.hub.tables.tables import Presence, entry

ONE, TWO = Presence(app_id=1), Presence(app_id=2)
HOUR = 3_600_000


class Pair:
    """Two nodes of a cluster, and who announces them."""

    def __init__(self, engine_url: str, name: str, gates: list[Gate]) -> None:
        self.engine = interlock.connect(engine_url)
        self.url = engine_url.replace("redis:", "interlock+cluster:")
        self.name = name
        self.gates = gates
        self.tell(0)
        self.tell(1)

    def tell(self, n: int, **more: Any) -> None:
        """Announce a node."""
        known: dict[str, Any] = {"id": "ab"[n], "dc": ("east", "west")[n], "role": "serving"}
        known |= {"address": self.gates[n].address, "table": self.name}
        announce(self.engine, self.name, Announcement(**(known | more)), HOUR)

    def withdraw(self, n: int) -> None:
        withdraw(self.engine, self.name, "ab"[n])

    @contextlib.contextmanager
    def table(self, options: str = "dc=east") -> Iterator[RemoteTable[Presence]]:
        """A client's table; by default its home is the first node."""
        with interlock.connect(f"{self.url}?{options}") as client:
            yield client.table(self.name, Presence)


@pytest.fixture
def pair(redis_url: str, name: str) -> Iterator[Pair]:
    needs_hub()
    with ExitStack() as stack:
        hubs = [
            stack.enter_context(interlock.Hub(port=0, workers=1, table=[entry(name)]))
            for _ in range(2)
        ]
        gates = [stack.enter_context(gate(hub.port)) for hub in hubs]
        made = Pair(redis_url, name, gates)
        with made.engine:
            yield made
    SharedTable.remove(name)


def eventually(what: Any) -> None:
    until = time.monotonic() + 30
    while not what():
        assert time.monotonic() < until
        time.sleep(0.01)


# -- Which node ----------------------------------------------------------------------------------


def test_a_client_uses_one_node_of_its_own_data_centre(pair: Pair) -> None:
    for dc, home in (("east", 0), ("west", 1)):
        before = len(pair.gates[1 - home].stub.commands)
        with pair.table(f"dc={dc}") as table:
            table[dc] = ONE
            assert table[dc] == ONE
            assert table.incr(dc, "unread") == 1
        assert pair.gates[home].count(b"INCR") == 1
        assert len(pair.gates[1 - home].stub.commands) == before


def test_without_a_data_centre_any_near_node_is_chosen(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However late this machine lets a node answer, both are near.
    monkeypatch.setattr(members, "QUICK", 30.0)
    monkeypatch.setattr(members, "NOISE", 30.0)
    for _ in range(100):
        with pair.table("timeout=5") as table:
            assert table.get("none") is None
        if all(gate.count(b"MGET") for gate in pair.gates):
            return
    raise AssertionError("one of both is never chosen")


def test_draining_joining_and_lagging_nodes_are_chosen_last(pair: Pair) -> None:
    for more in ({"draining": True}, {"role": "joining"}, {"lag_ms": 60_000.0}):
        pair.tell(0, **more)
        before = pair.gates[0].count(b"MGET")
        with pair.table("timeout=5") as table:
            assert table.get("none") is None
        assert pair.gates[0].count(b"MGET") == before
    # In its own data centre it is still used if it only lags.
    with pair.table() as table:
        assert table.get("none") is None
    assert pair.gates[0].count(b"MGET") == before + 1


def test_a_client_leaves_a_draining_node(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "EACH", 0.0)
    with pair.table() as table:
        table["k"] = ONE
        pair.tell(0, draining=True)
        before = len(pair.gates[0].stub.commands)
        assert table["k"] == ONE
        assert len(pair.gates[0].stub.commands) == before
        assert pair.gates[1].count(b"MGET") == 1


def test_queues_of_a_cluster_url_are_on_the_engine(pair: Pair) -> None:
    with interlock.connect(pair.url) as client, interlock.connect(pair.engine.url) as other:
        client.queue(pair.name).put("job", keys=["k"])
        with other.queue(pair.name).get(timeout=30) as job:
            assert job == "job"


def test_the_cluster_name_may_differ_from_the_table_name(pair: Pair) -> None:
    other = f"{pair.name}-cluster"
    node = Announcement(id="a", dc="x", role="serving", address=pair.gates[0].address)
    announce(pair.engine, other, node, HOUR)
    with interlock.connect(f"{pair.url}/{other}") as client:
        client.table(pair.name, Presence)["k"] = ONE
    assert pair.gates[0].count(b"SET") == 1


# -- Faults --------------------------------------------------------------------------------------


def test_an_idempotent_call_whose_reply_was_lost_is_repeated(pair: Pair) -> None:
    with pair.table() as table:
        for fault in (unheard, unanswered):
            pair.gates[0].spoil(b"SET", fault)
            table["k"] = ONE
            eventually(lambda: is_home(table, pair, 0))
            pair.gates[0].spoil(b"MGET", fault)
            assert table["k"] == ONE
            eventually(lambda: is_home(table, pair, 0))
            pair.gates[0].spoil(b"PEXPIRE", fault)
            assert table.expire("k", 1000)
            eventually(lambda: is_home(table, pair, 0))
            pair.gates[0].spoil(b"DEL", fault)
            del table["k"]
            assert "k" not in table
            eventually(lambda: is_home(table, pair, 0))


def is_home(table: RemoteTable[Any], pair: Pair, n: int) -> bool:
    """Return whether a node is asked, which a while after a failure it is again."""
    rows: Any = table._rows
    rows._members._choose_at = rows._members._look_at = 0.0
    table.get("none")
    return bool(rows._members._home == pair.gates[n].address)


@pytest.mark.parametrize(
    ("word", "call"),
    [
        (b"INCR", lambda table: table.incr("k", "unread")),
        (b"CAS", lambda table: table.compare_and_set("k", "unread", 0, 1)),
        (b"POP", lambda table: table.pop("k")),
        (b"SET", lambda table: table.set("k2", ONE, only="absent")),
        (b"PERSIST", lambda table: table.persist("k")),
    ],
)
@pytest.mark.parametrize("fault", [unheard, unanswered, says("UNANSWERED may have been done")])
def test_a_write_that_may_have_been_applied_is_not_repeated(
    pair: Pair, word: bytes, call: Any, fault: Any
) -> None:
    with pair.table() as table:
        table["k"] = ONE
        pair.gates[0].spoil(word, fault)
        with pytest.raises(EngineUnavailable, match="whether that was done is not known") as lost:
            call(table)
        assert lost.value.unknown
    assert pair.gates[0].count(word) + pair.gates[1].count(word) - (word == b"SET") == 1


@pytest.mark.parametrize("text", ["TRYAGAIN it drains", "NODE ended", "STALE x"])
def test_a_write_that_was_not_applied_is_repeated_once(pair: Pair, text: str) -> None:
    with pair.table() as table:
        table["k"] = ONE
        for gate in pair.gates:
            gate.spoil(b"INCR", says(text), says(text))
        assert table.incr("k", "unread") == 1
        assert table["k"].unread == 1


def test_a_connection_that_the_server_closed_is_not_written_to(pair: Pair) -> None:
    with pair.table() as table:
        table["k"] = ONE
        table.get("k")
        pair.gates[0].cut()
        assert table.incr("k", "unread") == 1

    async def main() -> None:
        async with interlock.connect(f"{pair.url}?dc=east") as client:
            found = client.table(pair.name, Presence)
            assert await found.incr("k", "unread") == 2
            pair.gates[0].cut()
            await asyncio.sleep(0)  # the loop hears of it
            await asyncio.sleep(0)
            assert await found.incr("k", "unread") == 3

    asyncio.run(main())


def test_a_stale_node_is_skipped_for_a_while(pair: Pair) -> None:
    with pair.table() as table:
        table["k"] = ONE
        pair.gates[0].spoil(b"MGET", says("STALE not heard"))
        assert table["k"] == ONE
        asked = pair.gates[0].count(b"MGET")
        assert table["k"] == ONE
        assert (pair.gates[0].count(b"MGET"), pair.gates[1].count(b"MGET")) == (asked, 2)
        eventually(lambda: is_home(table, pair, 0))


def test_a_client_leaves_a_node_that_disappeared(pair: Pair) -> None:
    with pair.table() as table:
        table["k"] = ONE
        pair.gates[0].close()
        assert table["k"] == ONE
        assert table.incr("k", "unread") == 1


def test_a_new_node_is_read_from_once_it_has_caught_up_with_the_old_one(pair: Pair) -> None:
    with pair.table() as table:
        table["k"] = ONE
        pair.gates[0].spoil(b"MGET", unheard)
        # The node drains just then, which the first read through it is to see.
        pair.gates[1].spoil(b"CAS", says("TRYAGAIN it drains"), says("TRYAGAIN it drains"))
        assert table["k"] == ONE
        assert table["k"] == ONE
    words = [command[1] for command in pair.gates[1].stub.commands if command[0] == b"TABLE"]
    # Whether it is on a log it is asked once.
    assert words == [b"TIME", b"CAS", b"CAS", b"CAS", b"MGET", b"MGET"]


def test_a_client_that_wrote_nothing_reads_without_a_write(pair: Pair) -> None:
    with pair.table() as table:
        assert table.get("k") is None
        pair.gates[0].spoil(b"MGET", unheard)
        pair.gates[1].spoil(b"CAS", *[says("TRYAGAIN it drains")] * 100)
        assert table.get("k") is None
        assert pair.gates[1].count(b"CAS") == 1


def test_the_write_that_synchronises_nodes_changes_no_row(pair: Pair) -> None:
    with pair.table() as table:
        table[b"\0"] = ONE
        table.incr(b"\0", "unread", 7)
        before = dict(table)
        pair.gates[0].spoil(b"MGET", unheard)
        assert table[b"\0"].unread == 7
        assert pair.gates[1].count(b"CAS") == 1
        assert dict(table) == before


def test_a_scan_continues_at_another_node_and_returns_each_row_once(
    redis_url: str, name: str, tmp_path: Path
) -> None:
    # Two tables of different sizes, so that a cursor of one is nothing at the other.
    rows = {str(n): Presence(app_id=n) for n in range(500)}
    with ExitStack() as stack:
        gates = []
        for n, capacity in enumerate((1000, 20_000)):
            table = entry(name, capacity=capacity, path=str(tmp_path / str(n)))
            hub = stack.enter_context(interlock.Hub(port=0, workers=1, table=[table]))
            with interlock.connect(f"interlock://127.0.0.1:{hub.port}") as client:
                client.table(name, Presence).update(rows)
            gates.append(stack.enter_context(gate(hub.port)))
        pair = Pair(redis_url, name, gates)
        with pair.engine, pair.table() as found:
            gates[0].spoil(b"COUNT", unheard)
            assert len(found) == 500
            assert gates[1].count(b"COUNT") > 0
            eventually(lambda: is_home(found, pair, 0))
            scan = found.scan(batch=10)
            met = [next(scan) for _ in range(15)]
            gates[0].close()
            met += scan
            assert len(met) == 500
            assert dict(met) == rows


def test_a_read_after_failover_sees_writes_in_flight_at_the_old_node(pair: Pair) -> None:
    goes_on = threading.Event()

    def held(command: list[bytes], do: Callable[[], bytes]) -> bytes:
        assert goes_on.wait(30)
        return do()

    with pair.table() as table:
        table["k"] = ONE
        pair.gates[0].spoil(b"INCR", held)
        slow = threading.Thread(target=table.incr, args=("k", "unread"))
        slow.start()
        eventually(lambda: pair.gates[0].count(b"INCR"))
        pair.gates[0].spoil(b"MGET", unheard)
        assert table["k"].unread == 0
        assert pair.gates[1].count(b"CAS") == 1
        # It is answered by the home that was; the new one may not have it yet.
        goes_on.set()
        slow.join()
        assert table["k"].unread == 1
        assert pair.gates[1].count(b"CAS") == 2


def test_a_client_that_knows_the_nodes_works_without_the_engine(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "EACH", 0.0)
    port = int(pair.engine.url.rpartition(":")[2])
    with gate(port) as engine:
        url = f"interlock+cluster://{engine.address}?dc=east"
        with interlock.connect(url) as client:
            table = client.table(pair.name, Presence)
            table["k"] = ONE
            engine.close()
            assert table["k"] == ONE
            pair.gates[0].close()
            assert table["k"] == ONE
            assert table.incr("k", "unread") == 1


def test_an_emptied_engine_does_not_make_clients_drop_nodes(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "EACH", 0.0)
    with pair.table() as table:
        table["k"] = ONE
        pair.withdraw(0)
        pair.withdraw(1)
        assert table["k"] == ONE
        pair.gates[0].close()
        assert table["k"] == ONE


def test_a_client_waits_for_nodes_that_start_late(redis_url: str, pair: Pair) -> None:
    name = f"{pair.name}-late"
    with interlock.connect(f"{pair.url}/{name}") as client, interlock.connect(redis_url) as engine:
        node = Announcement(id="a", dc="x", role="serving", address=pair.gates[0].address)
        late = threading.Timer(0.2, announce, (engine, name, node, HOUR))
        late.start()
        assert client.table(pair.name, Presence).get("k") is None
        late.join()


def test_a_client_without_a_suitable_node_is_given_the_reason(pair: Pair) -> None:
    for cluster, other, why in (
        ("nobody", pair.name, "no node of cluster 'nobody' has announced itself"),
        (pair.name, "other", f"serves table 'other'; they serve {pair.name}"),
    ):
        client = interlock.connect(f"{pair.url}/{cluster}?timeout=1")
        with client, pytest.raises(EngineUnavailable, match=why):
            client.table(other, Presence).get("k")
    for one in pair.gates:
        one.close()
    with pair.table("timeout=1") as table, pytest.raises(EngineUnavailable, match="attempts"):
        table.get("k")
    client = interlock.connect("interlock+cluster://127.0.0.1:1/c?timeout=0.3")
    with client, pytest.raises(EngineUnavailable, match="did not answer"):
        client.table("t", Presence).get("k")


def test_a_refusal_that_lasts_until_the_timeout_is_raised_as_not_applied(pair: Pair) -> None:
    with pair.table("dc=east&timeout=2") as table:
        table["k"] = ONE
        for one in pair.gates:
            one.spoil(b"INCR", *[says("TRYAGAIN it drains just now")] * 100)
        with pytest.raises(EngineUnavailable, match="it drains just now") as told:
            table.incr("k", "unread")
        assert not told.value.unknown


def test_a_permanent_refusal_of_a_node_is_raised_at_once(pair: Pair) -> None:
    class Other(interlock.Row):
        n: U8

    with interlock.connect(pair.url) as client, pytest.raises(SchemaMismatch):
        client.table(pair.name, Other).get("k")
    with pair.table() as table:
        table["k"] = ONE
        with pytest.raises(OverflowError):
            table.incr("k", "small", 1000)


def test_an_asyncio_client_follows_to_another_node(pair: Pair) -> None:
    async def main() -> None:
        async with interlock.connect(f"{pair.url}?dc=east") as client:
            table = client.table(pair.name, Presence)
            await table.set("k", ONE)
            pair.gates[0].close()
            assert await table.get("k") == ONE
            assert await asyncio.gather(*(table.incr("k", "unread") for _ in range(20)))
            assert (await table.get("k")).unread == 20  # type: ignore[union-attr]

    asyncio.run(main())


def test_many_threads_move_to_the_same_node(pair: Pair) -> None:
    with pair.table() as table:
        table["k"] = ONE
        failures: list[BaseException] = []

        def work() -> None:
            try:
                for _ in range(100):
                    table.patch("k", background=True)
                    assert table["k"].background
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        pair.gates[0].close()
        for thread in threads:
            thread.join()
        assert not failures
        assert pair.gates[1].count(b"MGET") > 0


def test_an_applied_write_without_acknowledgement_is_reported_and_not_repeated(pair: Pair) -> None:
    with pair.table() as table:
        table["k"] = ONE
        pair.gates[0].spoil(b"PATCH", says("NOACK it is done, but not all machines have it"))
        with pytest.raises(EngineUnavailable, match="NOACK it is done") as told:
            table.patch("k", unread=1)
        assert told.value.unknown
    assert pair.gates[0].count(b"PATCH") + pair.gates[1].count(b"PATCH") == 1


def test_nodes_can_require_another_user_than_the_engine(redis_url: str, name: str) -> None:
    user = {"name": "app", "passwords": [passwords.hashed("a b")], "tables": ["*"]}
    with (
        interlock.Hub(port=0, workers=1, table=[entry(name)], user=[user]) as hub,
        interlock.connect(redis_url) as engine,
    ):
        node = Announcement(id="a", dc="x", role="serving", address=hub.addresses[0])
        announce(engine, name, node, HOUR)
        url = redis_url.replace("redis:", "interlock+cluster:")
        with interlock.connect(f"{url}?user=app&password=a%20b") as client:
            client.table(name, Presence)["k"] = ONE
        client = interlock.connect(f"{url}?timeout=2")
        with client, pytest.raises(EngineUnavailable, match=r"NOAUTH.*[?]user=USER&password="):
            client.table(name, Presence).get("k")
    SharedTable.remove(name)


def test_nodes_can_require_tls(redis_url: str, name: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.sign("localhost")
    tls = {"cert": str(pair.cert), "key": str(pair.key)}
    with (
        interlock.Hub(port=0, workers=1, table=[entry(name)], tls=tls) as hub,
        interlock.connect(redis_url) as engine,
    ):
        address = hub.addresses[0].removeprefix("tls:")
        node = Announcement(id="a", dc="x", role="serving", address=address)
        announce(engine, name, node, HOUR)
        url = redis_url.replace("redis:", "interlock+cluster:")
        with interlock.connect(f"{url}?tls=nodes&ca={authority.cert}") as client:
            client.table(name, Presence)["k"] = ONE
            assert client.table(name, Presence)["k"] == ONE
    SharedTable.remove(name)


def test_the_keys_of_announcements_are_as_documented(pair: Pair, redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as server:
        assert server.smembers(f"il:nodes:{{{pair.name}}}") == {b"a", b"b"}
        assert server.exists(f"il:node:{{{pair.name}}}:a")
