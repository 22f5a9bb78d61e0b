"""Refusals of a real Redis while something is wrong with it.

A call is repeated for as long as it has time, continues when the server is repaired, and otherwise
says what to do. TRYAGAIN, which is for calls of several keys, and UNKILLABLE, which is for SCRIPT
KILL, are never an answer to our client."""

from __future__ import annotations

import contextlib
import random
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from interlock import EngineUnavailable, InterlockError, connect
from interlock.cli import main
from interlock.client.connection.refusal import TENANT
from interlock.client.connection.refusals import RIGHTS
from interlock.client.lua.library import Library
from tests.client.connection.stub import may_be_unknown
from tests.hub.servers import free_port, redis_server
from tests.worker.workers import ROOT

FORBIDDEN = "(The user executing the script can't|ACL failure in script)"
"""The words of Redis 7.0, and later ones and Valkey, where a user may call a function, and not what
that does."""

SHORT = 1.0
"""Seconds that a call has which is to fail."""


class Ill:
    """A server, and what can go wrong with it; each way gives what mends it."""

    def __init__(self, port: int, folder: Path) -> None:
        self.port = port
        self.folder = folder
        self.admin: Any = redis.Redis(port=port, retry=Retry(NoBackoff(), 0))

    def url(self, timeout: float, who: str = "") -> str:
        return f"redis://{who}127.0.0.1:{self.port}?timeout={timeout}"

    def says(self, code: str) -> bool:
        """A write is refused so."""
        try:
            self.admin.set("probe", "x")
        except redis.RedisError as error:
            return code in str(error) or code in type(error).__name__.upper()
        return False

    def until_it_says(self, code: str) -> None:
        """Asks again and again; the watchdog is the limit."""
        while not self.says(code):
            pass

    def cannot_save(self) -> Callable[[], object]:
        shutil.rmtree(self.folder)
        with contextlib.suppress(redis.RedisError):
            self.admin.bgsave()
        self.until_it_says("MISCONF")
        return lambda: self.admin.config_set("stop-writes-on-bgsave-error", "no")

    def too_few_replicas(self) -> Callable[[], object]:
        self.admin.config_set("min-replicas-to-write", 1)
        return lambda: self.admin.config_set("min-replicas-to-write", 0)

    def is_replica(self) -> Callable[[], object]:
        self.admin.replicaof("127.0.0.1", free_port())
        return lambda: self.admin.replicaof("NO", "ONE")

    def replica_that_lost_its_primary(self) -> Callable[[], object]:
        self.admin.config_set("replica-serve-stale-data", "no")
        return self.is_replica()

    def script_without_end(self) -> Callable[[], object]:
        self.admin.config_set("busy-reply-threshold", 10)

        def run() -> None:
            with contextlib.suppress(redis.RedisError), redis.Redis(port=self.port) as one:
                one.eval("while true do end", 0)

        runs = threading.Thread(target=run)
        runs.start()
        self.until_it_says("BUSY")

        def mend() -> None:
            self.admin.script_kill()
            runs.join()

        return mend


WAYS = [
    (Ill.cannot_save, "MISCONF", "check the space on its disk"),
    (Ill.too_few_replicas, "NOREPLICAS", "it has fewer connected replicas than"),
    (Ill.is_replica, "READONLY", "the URL must name the primary"),
    (Ill.replica_that_lost_its_primary, "MASTERDOWN", "the URL must name the primary"),
    (Ill.script_without_end, "BUSY", "SCRIPT KILL or FUNCTION KILL ends it"),
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Ill]:
    folder = tmp_path / "data"
    folder.mkdir()
    flags = ("--save", "3600 1000000", "--enable-debug-command", "yes")
    with redis_server(folder, *flags) as (_, port):
        yield Ill(port, folder)


@pytest.mark.parametrize(("way", "code", "advice"), WAYS)
def test_a_temporary_error_is_waited_for_and_named_if_it_persists(
    server: Ill, way: Callable[[Ill], Callable[[], object]], code: str, advice: str
) -> None:
    with connect(server.url(20)) as client, connect(server.url(SHORT)) as hasty:
        queue = client.queue("q", int)
        first = queue.put(1)
        mend = way(server)
        sender = threading.Thread(target=lambda: waits.append(queue.put(3)))
        waits: list[int] = []
        try:
            other = hasty.queue("q", int)
            # Reading is refused for a primary that is lost, and for nothing else of these but BUSY.
            writes: list[Callable[[], object]] = [other.get_nowait, lambda: other.put(2)]
            calls = [other.stats] if code == "MASTERDOWN" else writes
            for call in calls:
                with pytest.raises(EngineUnavailable, match=code) as caught:
                    call()
                assert advice in str(caught.value)
                assert not caught.value.unknown or may_be_unknown(caught.value)
            sender.start()
        finally:
            mend()
        sender.join()
        with queue.get(timeout=20) as payload:
            assert payload == 1
        lease = queue.get(timeout=20)
        assert (lease.payload, [lease.id]) == (3, waits)
        assert lease.id > first
        lease.ack()
        assert queue.stats().puts == 2


def test_a_server_that_loads_its_data_is_waited_for(server: Ill) -> None:
    with connect(server.url(20)) as client, connect(server.url(SHORT)) as hasty:
        queue = client.queue("q", int)
        queue.put(1)
        server.admin.config_set("loading-process-events-interval-bytes", 1024)
        server.admin.mset({f"filler{n}": random.randbytes(512) for n in range(200)})
        server.admin.config_set("key-load-delay", 10_000)

        def reload() -> None:
            with redis.Redis(port=server.port) as one:
                one.execute_command("DEBUG", "RELOAD")

        reader = threading.Thread(target=reload)
        reader.start()
        try:
            server.until_it_says("LOADING")
            with pytest.raises(EngineUnavailable, match=r"LOADING.*waits longer for that"):
                hasty.queue("q", int).put(2)
            assert queue.put(3) > 0
        finally:
            reader.join()
        assert queue.stats().puts == 2


def test_a_missing_right_is_named_at_once(server: Ill, capsys: pytest.CaptureFixture[str]) -> None:
    with connect(server.url(20)) as client:
        client.queue("q", int).put(1)
    server.admin.execute_command("ACL", "SETUSER", "caller", "on", ">p", "+fcall", "~il:*")
    server.admin.acl_setuser("poor", enabled=True, passwords=["+p"], keys=["*"], commands=["+ping"])
    server.admin.config_set("requirepass", "secret")
    for who, code, advice in [
        ("", "NOAUTH|Authentication required", "name a user"),
        ("poor:wrong@", "WRONGPASS", "name a user"),
        ("poor:p@", "NOPERM", f"its user may not do that; on a Redis it needs {TENANT}"),
        # It may call the functions, but nothing that they do.
        ("caller:p@", FORBIDDEN, f"it needs {TENANT}"),
    ]:
        with (
            connect(server.url(30, who)) as client,
            pytest.raises(EngineUnavailable, match=code) as caught,
        ):
            client.queue("q", int).put(1)
        assert advice in str(caught.value)
        # The command says it too, and does not ask whether a server runs that has answered.
        assert main(["queue", "list", "--url", server.url(30, who)]) == 1
        said = capsys.readouterr().err
        assert advice in said and "is it running there?" not in said


def test_the_documented_rights_are_enough_and_cover_every_function(server: Ill) -> None:
    page = (ROOT / "docs" / "howto" / "connect.md").read_text()
    assert f"ACL SETUSER operator on >PASSWORD {RIGHTS}\n" in page
    library = Library().text
    called = set(re.findall(r"""call\(\s*['"](\w+)""", library)) | {"BLPOP"}
    assert len(called) > 20
    for name in called:
        (about,) = server.admin.execute_command("COMMAND", "INFO", name).values()
        for rights in (RIGHTS.split(), TENANT.split()):
            by_category = any(f"+{category}" in rights for category in about["acl_categories"])
            assert by_category or f"+{name.lower()}" in rights, name
    server.admin.execute_command("ACL", "SETUSER", "operator", "on", ">p", *RIGHTS.split())
    uses(server.url(20, "operator:p@"), "q")
    words = (["list"], ["hot", "q"], ["peek", "q"], ["purge", "q", "--yes"], ["seal", "q"])
    for some in (*words, ["install"]):
        assert main(["queue", *some, "--url", server.url(20, "operator:p@")]) == 0


def uses(url: str, name: str) -> None:
    """All that a client, a worker and their queue do."""
    with connect(url) as client:
        queue = client.queue(name, int, maxsize=50)
        first = queue.put(1, keys=["a", "b"], dedup="x", priority=3)
        queue.put(2, keys="a", shared="c", delay=0.01)
        queue.put(3, barrier=True)
        queue.explain(first)
        queue.pause("a")
        queue.resume("a")
        lease = queue.get(timeout=20)
        lease.extend(60)
        lease.reject("no")
        queue.requeue(queue.dead_letters()[0].id)
        for _ in range(3):
            with queue.get(timeout=20):
                pass
        assert queue.stats().acks == 3
        queue.join(20)


TRIED = [
    *(["FUNCTION", *rest] for rest in (["LOAD", "REPLACE", "x"], ["DELETE", "il1"], ["FLUSH"])),
    *(["FUNCTION", *rest] for rest in (["DUMP"], ["LIST"], ["RESTORE", "x"])),
    *(["EVAL", text, "0"] for text in ("return redis.call('GET', 'il:{theirs.q}:c')", "return 1")),
    *([name, "il:{theirs.q}:c"] for name in ("HGETALL", "DEL", "TYPE", "DUMP", "OBJECT ENCODING")),
    ["FCALL", "il1_stats", "1", "il:{theirs.q}"],
    ["FCALL", "il1_drop", "1", "il:{theirs.q}", "FORCE"],
    ["FCALL_RO", "il1_scan", "1", "il:{theirs.q}", "0", "9"],
    ["BLMOVE", "il:{theirs.q}:fk", "il:{ours.q}:fk", "LEFT", "LEFT", "1"],
    ["RENAME", "il:{theirs.q}:c", "il:{ours.q}:c"],
    ["SORT", "il:{ours.q}:fk", "BY", "nosort", "GET", "il:{theirs.q}:c->c"],
    ["SORT", "il:{ours.q}:fk", "STORE", "il:{theirs.q}:fk"],
    *([name] for name in ("FLUSHALL", "FLUSHDB", "SHUTDOWN", "KEYS *", "SCAN 0", "ACL LIST")),
    *(["CONFIG", "SET", "maxmemory", "1"], ["DEBUG", "SLEEP", "0"], ["MONITOR"], ["SAVE"]),
    *(["CLIENT", "KILL", "TYPE", "normal"], ["REPLICAOF", "127.0.0.1", "1"]),
]


def test_a_tenant_can_use_its_own_queues_and_no_others(server: Ill) -> None:
    page = (ROOT / "docs" / "howto" / "connect.md").read_text()
    assert f"ACL SETUSER shop on >PASSWORD {TENANT} ~il:{{shop.*\n" in page
    for name in ("ours", "theirs"):
        rights = [*TENANT.split(), f"~il:{{{name}.*"]
        server.admin.execute_command("ACL", "SETUSER", name, "on", ">p", *rights)
    # A client that comes before the operator learns what is missing.
    with (
        connect(server.url(20, "ours:p@")) as client,
        pytest.raises(EngineUnavailable, match="interlock queue install"),
    ):
        client.queue("ours.q", int).put(1)
    assert main(["queue", "install", "--url", server.url(20)]) == 0
    for name in ("ours", "theirs"):
        uses(server.url(20, f"{name}:p@"), f"{name}.q")
    # The last of it is the server's time.
    before = server.admin.fcall("il1_stats", 1, "il:{theirs.q}")[:-2]
    text = Library().hash
    with redis.Redis(port=server.port, username="ours", password="p") as one:
        for words in TRIED:
            command = [part for word in words[:1] for part in word.split()] + words[1:]
            with pytest.raises(redis.RedisError, match=r"(?i)permission|denied|can't") as caught:
                one.execute_command(*command)
            assert isinstance(
                caught.value, redis.ResponseError | redis.exceptions.NoPermissionError
            )
    with (
        connect(server.url(20, "ours:p@")) as client,
        pytest.raises(EngineUnavailable, match=r"NOPERM|No permissions"),
    ):
        client.queue("theirs.q", int).put(1)
    assert server.admin.fcall("il1_stats", 1, "il:{theirs.q}")[:-2] == before
    assert Library().installed(server.admin) == text


@pytest.mark.parametrize("kind", ["redis", "redis+cluster"])
def test_a_cluster_that_is_down_is_waited_for(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bus = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    with redis_server(tmp_path, *bus) as (_, port), redis.Redis(port=port) as node:
        url = f"{kind}://127.0.0.1:{port}"
        timeout, told = SHORT, ""
        # A busy machine may take longer to connect; then no node has answered.
        while "CLUSTERDOWN" not in told:
            with (
                connect(f"{url}?timeout={timeout}") as hasty,
                pytest.raises(EngineUnavailable) as caught,
            ):
                hasty.queue("q", int).put(1)
            timeout, told = timeout * 2, str(caught.value)
        assert "redis-cli --cluster check" in told
        with connect(f"{url}?timeout=20") as client:
            queue = client.queue("q", int)
            sender = threading.Thread(target=queue.put, args=(1,))
            sender.start()
            node.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            sender.join()
            with queue.get(timeout=20) as payload:
                assert payload == 1
        assert main(["queue", "list", "--url", url]) == 0
        assert "q " in capsys.readouterr().out


def test_a_missing_database_number_is_named(server: Ill) -> None:
    with (
        connect(f"redis://127.0.0.1:{server.port}/7") as client,
        pytest.raises(InterlockError, match="DB index is out of range"),
    ):
        client.queue("q", int).put(1)
