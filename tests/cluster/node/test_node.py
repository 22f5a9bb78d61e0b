"""Nodes as processes over real engines, as clients and readers see them."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis import Redis, ResponseError
from redis.backoff import NoBackoff
from redis.retry import Retry

from interlock import SharedTable
from interlock.cli import main
from tests.cluster.nodes import NodeProcess, Presence, eventually
from tests.hub.operating.manager import manager
from tests.hub.servers import INTERLOCK, needs_hub, redis_server


class Nodes:
    """Nodes with an engine of their own, whose place stays the same."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.stack = stack
        self.folder = folder
        self._engine = ExitStack()
        stack.callback(self._engine.close)
        _, self.port = self._engine.enter_context(redis_server(folder))

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self, name: str, *flags: str) -> NodeProcess:
        node = NodeProcess(name, self.url, self.folder, *flags)
        self.stack.callback(node.close)
        node.wait()
        return node

    def start_both(self, *flags: str) -> tuple[NodeProcess, NodeProcess]:
        """Start nodes a and b at the same time."""
        a, b = (NodeProcess(name, self.url, self.folder, *flags) for name in "ab")
        for node in (a, b):
            self.stack.callback(node.close)
        for node in (a, b):
            node.wait()
        return a, b

    def lose_all(self) -> None:
        """The engine ends, and begins with nothing."""
        self._engine.close()
        self._engine.enter_context(redis_server(self.folder, wanted=self.port))

    def table(self, name: str) -> SharedTable[Presence]:
        return SharedTable.open(self.folder / name, Presence, capacity=10_000)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    needs_hub()
    with ExitStack() as stack:
        yield Nodes(stack, tmp_path)


def client(node: NodeProcess, timeout: float = 60) -> Any:
    host, port = node.address.rsplit(":", 1)
    # By itself it sends a write again whose answer is late, and an increment counts twice.
    once = Retry(NoBackoff(), 0)
    return Redis(host, int(port), socket_timeout=timeout, retry=once, decode_responses=True)


def increased(node: NodeProcess, key: str, by: int = 1) -> int:
    """Raise a row's counter, again if the node says that it was not done."""
    found: list[int] = []

    def is_done() -> bool:
        try:
            with client(node) as asked:
                found.append(asked.hincrby(f"presence:{key}", "unread", by))
        except ResponseError as error:
            if "it was not done" not in str(error):
                raise
        return bool(found)

    eventually(is_done, lambda: node.log)
    return found[0]


def has(node: NodeProcess, key: str, value: int) -> bool:
    return increased(node, key, 0) == value


@contextmanager
def watched(table: SharedTable[Presence], key: str) -> Iterator[list[int]]:
    """List the values of a counter that a reader of the machine's shared memory sees."""
    seen: list[int] = []
    ends = threading.Event()

    def watch() -> None:
        while not ends.wait(0.0002):
            row = table.get(key)
            if row is not None and (not seen or seen[-1] != row.unread):
                seen.append(row.unread)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        ends.set()
        thread.join()


def test_a_read_behind_a_barrier_sees_writes_answered_by_another_node(nodes: Nodes) -> None:
    a, b = nodes.start_both()
    increased(a, "ann", 0)
    increased(b, "ann", 0)
    with client(a) as one, client(b) as other:
        for number in range(1, 201):
            assert one.hincrby("presence:ann", "unread") == number
            assert other.execute_command("TABLE", "BARRIER", "presence") == "OK"
            assert other.hget("presence:ann", "unread") == str(number)


def test_every_node_accepts_writes_and_has_the_writes_of_all(nodes: Nodes) -> None:
    a, b = nodes.start_both()
    with client(a) as one, client(b) as other:
        assert one.hset("presence:ann", mapping={"app_id": 7, "token": "x"}) == 2
        assert other.hincrby("presence:ann", "unread", 2) == 2
        assert one.hincrby("presence:ann", "unread", 3) == 5
        assert one.hgetall("presence:ann") == {"app_id": "7", "unread": "5", "token": "x"}
        with pytest.raises(ResponseError, match="WRONGTYPE column token: 9 bytes; its size is 8"):
            one.hset("presence:ann", "token", "y" * 9)
        other.hset("presence:bob", "app_id", 1)
        assert other.delete("presence:bob") == 1
        assert other.execute_command("TABLE", "SET", "presence:k1", "ANY", "NEVER", "app_id", 1)
    for name in ("a", "b"):
        with nodes.table(name) as table:
            eventually(partial(table.get, "k1"))
            assert table["ann"] == Presence(app_id=7, unread=5, token="x")
            assert "bob" not in table and len(table) == 2


def test_a_reader_sees_no_older_rows_after_its_node_is_killed_and_restarted(
    nodes: Nodes,
) -> None:
    a, b = nodes.start_both()
    increased(a, "n")
    with nodes.table("a") as table, watched(table, "n") as seen:
        for _ in range(2):
            for _ in range(300):
                increased(a, "n")
            a.kill()
            # Changes of the others are visible once the node has read them.
            for _ in range(20):
                last = increased(b, "n")
            a = nodes.start("a")
            assert increased(a, "n") == last + 1
        eventually(lambda: seen[-1] == last + 1)
    assert seen == sorted(seen) and len(seen) > 100
    assert last == 1 + 2 * 320 + 1


def test_writes_lost_by_the_engine_are_restored_unnoticed_by_readers(nodes: Nodes) -> None:
    a, b = nodes.start_both()
    for _ in range(50):
        increased(a, "n")
        increased(b, "n")
    with nodes.table("a") as table, watched(table, "n") as seen:
        nodes.lose_all()
        assert increased(b, "n") <= 101
        for node in (a, b):
            eventually(partial(has, node, "n", 101), lambda: a.log + b.log)
        eventually(lambda: seen[-1] == 101)
    assert seen == sorted(seen) and min(seen) >= 100
    eventually(lambda: "goes back to position 0: the log has lost what follows it" in a.log)


def test_a_killed_node_restores_its_writes_to_an_emptied_engine_from_its_files(
    nodes: Nodes,
) -> None:
    a = nodes.start("a")
    for _ in range(30):
        increased(a, "n")
    a.kill()
    nodes.lose_all()
    a = nodes.start("a")
    eventually(lambda: increased(a, "n", 0) == 30, lambda: a.log)


def test_without_an_engine_a_node_answers_not_applied_or_unknown(
    nodes: Nodes,
) -> None:
    a = nodes.start("a", "--timeout", "2")
    increased(a, "n")
    nodes._engine.close()
    with (
        client(a) as one,
        pytest.raises(ResponseError, match=r"it was not done|it may have been done"),
    ):
        one.hincrby("presence:n", "unread", 1)
    with client(a) as one:
        assert one.hget("presence:n", "unread") == "1"
    nodes.lose_all()
    eventually(lambda: increased(a, "n", 0) in (1, 2))


def test_writes_queued_behind_a_frozen_engine_time_out_in_time(nodes: Nodes) -> None:
    # The connection to the engine would be given up after five seconds.
    a = nodes.start("a", "--timeout", "1")
    increased(a, "n")

    def write(_: int) -> None:
        with client(a, timeout=4) as one, pytest.raises(ResponseError, match=r"not done|been done"):
            one.hincrby("presence:n", "unread", 1)

    pid = Redis(port=nodes.port).info("server")["process_id"]
    os.kill(pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(write, range(8)))
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_node_with_other_settings_ends_and_says_which(nodes: Nodes) -> None:
    a = nodes.start("a")
    increased(a, "n")
    b = nodes.start("b", "--capacity", "20000")
    assert b.process.wait(20) == 1
    assert (
        "the log belongs to a table with other settings: the capacity: 10000 there, 20000 here"
        in b.log
    )
    b.says("delete il:log:{presence.main} on redis://127.0.0.1:")
    assert len(nodes.table("b")) == 0


def test_a_log_gets_other_settings_when_it_is_deleted_while_all_nodes_are_stopped(
    nodes: Nodes,
) -> None:
    a, b = nodes.start_both()
    for number in range(20):
        increased(a, "n")
        increased(b, f"k{number}")
    with client(a) as one:
        one.delete("presence:k3")
    a.process.terminate()
    a.process.wait(30)
    # The entries it has read are in its folder, however it ends.
    b.kill()
    with Redis.from_url(nodes.url) as engine:
        assert engine.delete("il:log:{presence.main}") == 1
    more = ("--link", "west=redis://127.0.0.1:1", "--capacity", "20000")
    for node in nodes.start_both(*more):
        eventually(partial(has, node, "n", 20), lambda: node.log)  # noqa: B023
        assert increased(node, "k19", 0) == 1
        with client(node) as one:
            assert one.exists("presence:k3") == 0
    assert increased(nodes.start("c", *more), "n") == 21


def test_two_nodes_cannot_share_a_folder(nodes: Nodes) -> None:
    a = nodes.start("a")
    b = NodeProcess("b", nodes.url, nodes.folder, "--data", a.data)
    nodes.stack.callback(b.close)
    assert b.process.wait(20) == 1
    b.says("another node has this folder: give each node a folder of its own")


def test_rows_beyond_the_capacity_are_refused(nodes: Nodes) -> None:
    a, b = nodes.start_both("--capacity", "20")
    with client(a) as one, client(b) as other:
        # Unread entries of the other count as well.
        for number in range(20):
            (one, other)[number % 2].hset(f"presence:k{number}", "app_id", 1)
        for asked in (one, other):
            with pytest.raises(ResponseError, match="TABLEFULL"):
                asked.hset("presence:more", "app_id", 1)
            assert not asked.exists("presence:more")
        # Anything in the existing ones is changed.
        assert one.hincrby("presence:k0", "unread", 1) == 1


def test_a_node_of_other_columns_ends_and_says_which(nodes: Nodes, tmp_path: Path) -> None:
    increased(nodes.start("a"), "n")
    row = _row(tmp_path)
    b = NodeProcess("b", nodes.url, nodes.folder, "--table", f"presence={row}:Presence")
    nodes.stack.callback(b.close)
    assert b.process.wait(20) == 1
    b.says("the log belongs to a table with other settings")
    b.says("app_id: U32, ")


def test_a_node_creates_its_folder_or_names_the_missing_right(nodes: Nodes, tmp_path: Path) -> None:
    state, file = tmp_path / "state", tmp_path / "file"
    file.write_text("")
    flags = ["--cluster", nodes.url, "--name", "a", "--port", "0", "--path", str(tmp_path / "a")]
    flags += ["--table", f"presence={_row(tmp_path)}:Presence"]

    def started(*more: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [INTERLOCK, "node", *flags, *more], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, env={**os.environ, **variables},
        )  # fmt: skip

    with started(STATE_DIRECTORY=str(state)) as node:
        assert node.stdout is not None
        assert "ready on" in node.stdout.readline()
        assert (state / "presence.main.a").is_dir()
        node.terminate()
        assert node.wait(30) == 0
        assert list((state / "presence.main.a").iterdir()), "it keeps what it has"
    for more, variables in (
        (("--data", str(file / "in")), {}), ((), {"STATE_DIRECTORY": str(file)}),
        (("--data", "/proc/none"), {}),
    ):  # fmt: skip
        with started(*more, **variables) as node:
            said, _ = node.communicate(timeout=60)
            assert node.returncode == 1
            assert "a node cannot work without a folder for its files: " in said
            assert "name another with --data FOLDER" in said and said.count("\n") == 1


def _row(folder: Path) -> Path:
    path = folder / "row.py"
    path.write_text("from interlock import Row, U32\nclass Presence(Row):\n    app_id: U32\n")
    return path


def test_invalid_flags_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = f"presence={_row(tmp_path)}:Presence"
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_that_name")
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    # Not in shared memory, where an interrupted run may have left a table of this name.
    table = ("--table", row, "--path", str(tmp_path / "table"))
    given = (*table, "--cluster", "redis://h")
    for flags, said in (
        ((*given, "--link", "west"), "DC=URL"),
        ((*given, "--ack", "some"), "allowed: a whole number"),
        ((*given, "--keep", "-1"), "allowed: a whole number"),
        ((*given, "--advertise", "h"), "allowed: HOST:PORT"),
        ((*table, "--cluster", "http://h"), "allowed: redis://HOST"),
        ((*table, "--cluster", "kafka://h"), "--stream puts the log on NATS, Kafka"),
        (("--table", "presence", "--cluster", "redis://h"), "NAME=FILE.py:CLASS"),
        (("--table", f"p={broken}:P", "--cluster", "redis://h"), "cannot be imported"),
        (("--table", "p=nowhere.py:P", "--cluster", "redis://h"), "there is no file"),
        ((*given, "--dc", "west", "--link", "west=redis://h"),
         "own data centre"),
        ((*given, "--max-staleness", "0.1"), "2 s or more"),
        # A flag that would do nothing.
        ((*given, "--partitions", "hash:4"), "--partitions is set, and there is no database: set"),
        ((*given, "--from-database"), "--from-database is set, and there is no database: set"),
        ((*given, "--partitions", "hash:4", "--database", f"sqlite:///{tmp_path}/db"),
         "--partitions is 'hash:4', and url names SQLite, which has none; allowed: postgresql://"),
        ((*given, "--mode", "000"), "--mode is '000'; allowed: permissions that let the node read"),
        ((*given, "--partitions", "some", "--database", "postgresql:///db"),
         "--partitions is 'some'; allowed: hash:N, time:day, time:month"),
        ((*given, "--database", "db"), "--database is 'db'; allowed: sqlite:///PATH, postgresql"),
        ((*given, "--link-stream", "west=nats://h"), "and there is no --link west=URL"),
        ((*given, "--link", "west=redis://h", "--link", "west=redis://i"),
         "--link names 'west' twice"),
        ((*given, "--link", "west=ftp://h"), "--link west begins with 'ftp'; allowed: redis://"),
        ((*given, "--name", ""), "--name is ''; allowed: up to 60 bytes"),
        ((*given, "--peer-user", "node"), "set the variable INTERLOCK_PEER_PASSWORD"),
        ((*given, "--peer-ca", f"{tmp_path}/none"), f"{tmp_path}/none: No such file"),
        ((*given, "--key-size", "2000"), "--key-size is 2000; allowed: a whole number of bytes"),
        ((*table, "--cluster", "redis://h:x"),
         "--cluster or --stream is 'redis://h:x': its port is 'x'; allowed: 1 to 65535; allowed: "
         "redis://HOST"),
    ):  # fmt: skip
        try:
            code = main(["node", *flags])
        except SystemExit as ended:
            code = ended.code  # type: ignore[assignment]
        told = capsys.readouterr().err
        assert code == 2, (flags, told)
        assert said in told, (flags, told)
    assert not (tmp_path / "state").exists()


def test_a_node_that_never_reached_its_engine_ends_without_an_error(tmp_path: Path) -> None:
    # Nothing listens at port 1.
    node = NodeProcess("a", "redis://127.0.0.1:1?timeout=0.1", tmp_path)
    try:
        node.wait()
        node.process.send_signal(signal.SIGTERM)
        assert node.process.wait(30) == 0, node.log
    finally:
        node.close()


def test_a_node_notifies_systemd_when_it_is_ready_alive_and_stopping(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = str(tmp_path / "notify")
    with manager(address) as systemd:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        monkeypatch.setenv("WATCHDOG_USEC", "200000")
        node = nodes.start("a")
        said = systemd.said()
        assert (said["READY"], said["MAINPID"]) == ("1", str(node.process.pid))
        assert said["STATUS"] == f"ready on {node.address}"
        for _ in range(2):
            systemd.until("WATCHDOG")
        node.process.terminate()
        systemd.until("STOPPING")
        assert node.process.wait(30) == 0


def test_a_node_takes_memory_for_the_rows_that_it_has_and_not_for_its_capacity(
    nodes: Nodes,
) -> None:
    a = nodes.start("a", "--capacity", "1000000")
    increased(a, "k0")
    with nodes.table("a") as table:
        small = table.stats().bytes
        assert small < 4_000_000
        assert "keeps the settings of its creator" not in a.log
        # Beyond what it was made for.
        count = 20_000
        with client(a) as engine, engine.pipeline(transaction=False) as pipeline:
            for start in range(0, count, 500):
                for number in range(start, start + 500):
                    pipeline.hincrby(f"presence:k{number}", "unread", 1)
                pipeline.execute()
        assert has(a, f"k{count - 1}", 1)
        assert len(table) == count
        assert small < table.stats().bytes < 20_000_000
