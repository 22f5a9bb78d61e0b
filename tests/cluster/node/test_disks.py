"""Nodes whose folder is full, gone, or another's: they say so, serve reads, and lose nothing."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from redis import Redis, ResponseError

from interlock.cli import main
from interlock.cluster.pacing import PACE
from tests.cluster.node.test_node import Nodes, client, has, increased, nodes
from tests.cluster.node.test_operating import page
from tests.cluster.node.test_snapshots import status
from tests.cluster.nodes import NodeProcess, eventually

__all__ = ["nodes"]


@contextmanager
def full(node: NodeProcess) -> Iterator[None]:
    """No file of a node may grow meanwhile."""
    pid = node.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (100, before[1]))
    yield
    resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def left_unanswered(node: NodeProcess, asked: Redis, disk: ExitStack) -> None:
    """Fill a node's disk while a write to `presence:n` is under way.

    If a record of the node's own is the first that cannot be written, the node refuses the write at
    once: the disk gets room, and the write is tried again.
    """
    for _ in range(20):
        with ExitStack() as tried:
            tried.enter_context(full(node))
            with pytest.raises(ResponseError) as refused:
                asked.hincrby("presence:n", "unread", 1)
            if "it may have been done" in str(refused.value):
                disk.enter_context(tried.pop_all())
                return
            assert "it was not done" in str(refused.value)
        eventually(lambda: status(node)["state"] == "serving", lambda: str(status(node)))
    raise AssertionError("each write was refused before it was under way")


def trouble(node: NodeProcess, kind: str) -> str:
    return "; ".join(one["text"] for one in status(node)["trouble"] if one["kind"] == kind)


def test_a_node_on_a_full_disk_refuses_writes_and_loses_nothing(
    nodes: Nodes, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = nodes.start("a", "--timeout", "1"), nodes.start("b")
    increased(a, "n")
    increased(b, "n")
    with client(a) as asked, ExitStack() as disk:
        # It is in the log, and not in the node's file.
        left_unanswered(a, asked, disk)
        eventually(lambda: "File too large" in trouble(a, "disk"), lambda: str(status(a)))
        with pytest.raises(ResponseError, match="it was not done"):
            asked.hincrby("presence:n", "unread", 1)
        assert asked.hget("presence:n", "unread") == "3"
        assert status(a)["state"] == "read-only"
        code, why = page(a, "/ready")
        assert code == 503 and why.startswith("read-only: writing "), why
        metrics = page(a, "/metrics")[1]
        assert "\ninterlock_node_serves 0\n" in metrics
        assert '\ninterlock_node_trouble{kind="disk"} 1\n' in metrics
        url = f"interlock+cluster://127.0.0.1:{nodes.port}/presence"
        assert main(["cluster", "status", "--url", url]) == 1
        told = capsys.readouterr().out
        assert "a: writing " in told and "1 of 2 nodes take reads and writes" in told
        for number in range(4, 30):
            assert increased(b, "n") == number
        eventually(lambda: asked.hget("presence:n", "unread") == "29")
    a.says("writes are not answered until it can")
    a.says("its files can be written again")
    assert increased(a, "n") == 30
    # All of it is in its file.
    b.kill()
    a.kill()
    nodes.lose_all()
    a = nodes.start("a")
    eventually(lambda: has(a, "n", 30), lambda: a.log)


def test_a_removed_folder_is_created_again_with_its_content(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PACE, "1000,0")
    a = nodes.start("a")
    for _ in range(20):
        increased(a, "n")
    shutil.rmtree(a.data)
    a.says("its folder was removed, and is made again")
    eventually(lambda: not status(a)["trouble"], lambda: str(status(a)))
    eventually(lambda: any(name.startswith("checkpoint-") for name in os.listdir(a.data)))
    increased(a, "n")
    # Nobody else may have it.
    other = NodeProcess("a", nodes.url, nodes.folder, "--path", str(nodes.folder / "other"))
    nodes.stack.callback(other.close)
    assert other.process.wait(30) == 1
    other.says("another node has this folder")
    a.kill()
    nodes.lose_all()
    a = nodes.start("a")
    eventually(lambda: has(a, "n", 21), lambda: a.log)


def test_a_folder_that_replaced_the_node_s_own_is_not_written_to(nodes: Nodes) -> None:
    a = nodes.start("a", "--timeout", "1")
    increased(a, "n")
    data = Path(a.data)
    data.rename(nodes.folder / "away")
    data.mkdir()
    (data / "lock").touch()
    eventually(lambda: "removed or replaced" in trouble(a, "disk"), lambda: str(status(a)))
    with client(a) as asked:
        with pytest.raises(ResponseError, match="it was not done"):
            asked.hincrby("presence:n", "unread", 1)
        assert asked.hget("presence:n", "unread") == "1"
    assert os.listdir(data) == ["lock"]
    shutil.rmtree(data)
    (nodes.folder / "away").rename(data)
    eventually(lambda: status(a)["state"] == "serving", lambda: str(status(a)))
    assert increased(a, "n") == 2


@pytest.fixture
def few_files(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk with room for few files."""
    folder = tmp_path / "a.data"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=10m,nr_inodes=4", "none", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no right to mount a small disk: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_checkpoint_that_cannot_be_written_is_logged_and_retried(
    few_files: Path, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PACE, "10,0")
    a = nodes.start("a")
    (few_files / "filler").touch()
    for number in range(1, 31):
        assert increased(a, "n") == number
    eventually(lambda: "free some space on that disk" in trouble(a, "checkpoint"), lambda: a.log)
    # It continues without it.
    assert (status(a)["state"], page(a, "/ready")[0]) == ("serving", 200)
    assert '\ninterlock_node_trouble{kind="checkpoint"} 1\n' in page(a, "/metrics")[1]
    a.says("checkpoint-")
    assert "writes are not answered" not in a.log
    (few_files / "filler").unlink()
    # Without another entry.
    a.says("its files can be written again")
    eventually(lambda: status(a)["checkpoint"] >= 30, lambda: str(status(a)))
    assert not status(a)["trouble"]
