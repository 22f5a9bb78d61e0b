"""TLS between nodes and to their engine: it works, or the node says what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import interlock
from interlock.cli import main
from interlock.cluster.pacing import PACE
from tests.cluster.node.test_node import Nodes, client, nodes
from tests.cluster.node.test_operating import page
from tests.cluster.node.test_snapshots import first, status
from tests.cluster.nodes import NodeProcess, Presence, eventually
from tests.cluster.streams.engines.nats import Nats
from tests.hub.protocol.certificates import Authority, Pair
from tests.hub.servers import free_port, needs_hub, redis_server

__all__ = ["nodes"]


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("right"), "right")


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("wrong"), "wrong")


@pytest.fixture
def nats_of(tmp_path: Path) -> Iterator[Callable[[Pair], int]]:
    """A NATS with TLS, by its certificate: its port."""
    with ExitStack() as stack:

        def start(pair: Pair) -> int:
            engine = Nats(tmp_path / f"nats{free_port()}")
            engine.folder.mkdir()
            engine.more = ("--tls", "--tlscert", str(pair.cert), "--tlskey", str(pair.key))
            engine.start()
            stack.callback(engine.close)
            return engine.port

        yield start


def test_a_node_reaches_nats_over_tls_or_reports_the_error(
    right: Authority, wrong: Authority, nodes: Nodes, nats_of: Callable[[Pair], int]
) -> None:
    port = nats_of(right.sign("nats"))
    for name, url, words in (
        (
            "b",
            f"tls://127.0.0.1:{port}?ca={wrong.cert}",
            "name the file of its authority with ?ca=FILE",
        ),
        ("c", f"nats://127.0.0.1:{port}", "name the file of its authority with ?ca=FILE"),
    ):
        node = nodes.start(name, "--stream", url)
        node.says(words)
        assert any(words in one["text"] for one in status(node)["trouble"])
        node.kill()
    a = nodes.start("a", "--stream", f"tls://127.0.0.1:{port}?ca={right.cert}")
    with client(a) as asked:
        eventually(lambda: asked.hincrby("presence:n", "unread", 1) == 1, lambda: a.log)


class Engines:
    """Redis with TLS: the port in the clear, and that with TLS, by certificate."""

    def __init__(self, stack: ExitStack, folder: Path, right: Authority) -> None:
        self._stack = stack
        self._folder = folder
        self._right = right

    def start(self, pair: Pair) -> tuple[int, int]:
        tls = free_port()
        flags = ("--tls-port", str(tls), "--tls-cert-file", str(pair.cert), "--tls-key-file",
                 str(pair.key), "--tls-ca-cert-file", str(self._right.cert),
                 "--tls-auth-clients", "no")  # fmt: skip
        _, port = self._stack.enter_context(redis_server(self._folder, *flags))
        return port, tls

    def node(self, name: str, url: str) -> NodeProcess:
        node = NodeProcess(name, url, self._folder)
        self._stack.callback(node.close)
        return node


@pytest.fixture
def engines(tmp_path: Path, right: Authority) -> Iterator[Engines]:
    needs_hub()
    with ExitStack() as stack:
        yield Engines(stack, tmp_path, right)


@pytest.mark.share(2)
def test_a_node_reaches_its_engine_over_tls_or_reports_the_error(
    engines: Engines, right: Authority, wrong: Authority
) -> None:
    port, tls = engines.start(right.sign("good"))
    _, old = engines.start(right.sign("old", days_ago=9))
    _, elsewhere = engines.start(right.sign("elsewhere", names="DNS:elsewhere.example"))
    known = f"ca={right.cert}&timeout=1"
    wrongs = {
        f"rediss://127.0.0.1:{tls}?ca={wrong.cert}&timeout=1": "no authority that is trusted here",
        f"rediss://127.0.0.1:{tls}?timeout=1": "name the file of the authority",
        f"rediss://127.0.0.1:{old}?{known}": "its certificate has expired: renew it",
        f"rediss://127.0.0.1:{elsewhere}?{known}": "reach it by a name that its certificate has",
        f"redis://127.0.0.1:{tls}?timeout=1": "if it wants TLS, its URL begins with rediss://",
        f"rediss://127.0.0.1:{port}?{known}": "if it has no TLS at this port, its URL begins with",
    }
    good = engines.node("good", f"rediss://127.0.0.1:{tls}?{known}")
    bad = {engines.node(f"n{at}", url): words for at, (url, words) in enumerate(wrongs.items())}
    for node, words in bad.items():
        node.says(words)
        node.wait()
        told = [one for one in status(node)["trouble"] if words in one["text"]]
        assert [one["kind"] for one in told] == ["engine"], status(node)["trouble"]
        # Once a minute, though it is tried each second.
        assert node.log.count(words) == 1, node.log
    good.wait()
    eventually(lambda: status(good)["state"] == "serving", lambda: good.log)
    with client(good) as asked:
        assert asked.hincrby("presence:n", "unread", 1) == 1
    ca = f"tls=engine&ca={right.cert}"
    url = f"interlock+cluster://127.0.0.1:{tls}/presence?{ca}"
    with interlock.connect(url) as connected:
        assert connected.table("presence", Presence).incr("n", "unread") == 2
    assert main(["cluster", "nodes", "--url", url]) == 0


@pytest.mark.share(2)
def test_nodes_reach_each_other_over_tls_or_report_the_error(
    nodes: Nodes, right: Authority, wrong: Authority, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv(PACE, "10,0")
    pair = right.sign("node")
    config = nodes.folder / "node.toml"
    config.write_text(f'[tls]\ncert = "{pair.cert}"\nkey = "{pair.key}"\n')
    secure = ("--config", str(config), "--peer-ca", str(right.cert))
    a = nodes.start("a", *secure)
    url = f"interlock+cluster://127.0.0.1:{nodes.port}/presence?tls=nodes&ca="
    with interlock.connect(f"{url}{right.cert}") as connected:
        table = connected.table("presence", Presence)

        def is_cut() -> bool:
            table.incr("n", "unread")
            return first(nodes) != began

        table["n"] = Presence(app_id=1)
        began = first(nodes)
        eventually(is_cut, lambda: a.log)
        # Nodes that cannot get a snapshot report why, and do not serve.
        for name, flags, words in (
            ("b", ("--config", str(config), "--peer-ca", str(wrong.cert)), "file of its authority"),
            ("c", (), "if it wants TLS, name its authority"),
        ):
            node = nodes.start(name, *flags)
            node.says("cannot get a snapshot of a: ")
            node.says(words)
            code, why = page(node, "/ready")
            assert code == 503 and words in why, why
            assert '\ninterlock_node_trouble{kind="stuck"} 1\n' in page(node, "/metrics")[1]
            node.kill()
        b = nodes.start("b", *secure)
        b.says("node b copies a snapshot from node a")
        eventually(lambda: '"role": "serving"' in page(b, "/health")[1], lambda: b.log)
        assert main(["cluster", "diff", "a", "b", "--url", f"{url}{right.cert}"]) == 0
        # A node that already has its rows learns it before it needs a snapshot.
        b.kill()
        b = nodes.start("b", "--config", str(config), "--peer-ca", str(wrong.cert))
        b.says("node b: node a gives it no snapshot: its certificate is refused")
        assert '\ninterlock_node_trouble{kind="peer"} 1\n' in page(b, "/metrics")[1]
        assert page(b, "/ready")[0] == 200
        capsys.readouterr()
        assert main(["cluster", "status", "--url", f"{url}{right.cert}"]) == 1
        assert "b: node a gives it no snapshot" in capsys.readouterr().out
        assert main(["cluster", "status", "--url", f"{url}{wrong.cert}"]) == 1
        assert "its certificate is refused" in capsys.readouterr().out
