"""The configurations of HAProxy and nginx in examples/cluster, before real nodes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.errors import EngineUnavailable, RowBusy
from interlock.hub.client import Client
from interlock.hub.resp import ReplyError
from tests.cluster.nodes import NodeCluster, Presence, eventually
from tests.hub.servers import free_port, missing

EXAMPLES = Path(__file__).resolve().parents[3] / "examples/cluster"
MODULE = "ngx_stream_module.so"
MODULES = Path(os.environ.get("INTERLOCK_NGINX_MODULES") or "/usr/lib/nginx/modules")


def program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        missing(f"no {name}")
    assert found is not None
    return found


def configured(name: str, nodes: NodeCluster, **places: int) -> str:
    """An example with the addresses of nodes, and ports, of this test."""
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    for n, node in enumerate(nodes.nodes.values(), 1):
        _, _, port = node.http.rpartition(":")
        text = text.replace(f"10.0.0.{n}:6399 check port 8080", f"{node.address} check port {port}")
        text = text.replace(f"10.0.0.{n}:6399", node.address)
        text = text.replace(f"10.0.0.{n}:8080", node.http)
    for before, place in places.items():
        text = text.replace(f"127.0.0.1:{before[1:]}", f"127.0.0.1:{place}")
    assert "10.0.0." not in text
    return text


@contextmanager
def running(*command: str) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=30)
        print(said)


@contextmanager
def balanced(folder: Path, text: str) -> Iterator[None]:
    found = program("haproxy")
    file = folder / "haproxy.cfg"
    file.write_text(text, encoding="utf-8")
    # It warns of nothing.
    subprocess.run([found, "-c", "-f", file], check=True, capture_output=True)
    with running(found, "-db", "-f", str(file)):
        yield


@contextmanager
def nginx(folder: Path, text: str) -> Iterator[None]:
    """An nginx whose files are all in a folder."""
    found = program("nginx")
    file = folder / "nginx.conf"
    own = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    paths = "".join(f"{one}_temp_path {folder}/{one};\n" for one in own)
    text = text.replace("http {\n", f"http {{\n{paths}")
    file.write_text(f"pid {folder}/pid;\nerror_log {folder}/log;\n{text}", encoding="utf-8")
    with running(found, "-p", str(folder), "-c", str(file), "-e", f"{folder}/log",
                 "-g", "daemon off;"):  # fmt: skip
        yield


def who(port: int) -> dict[str, Any]:
    """The node that is reached at a port; nobody: an empty status."""
    try:
        with Client(f"127.0.0.1:{port}", timeout=5) as client:
            told = client.call("NODE", "STATUS")
    except (OSError, ReplyError):
        return {}
    assert isinstance(told, bytes)
    status: dict[str, Any] = json.loads(told)
    return status


def written(table: Any, n: int) -> bool:
    try:
        table["k"] = Presence(app_id=n)
    except EngineUnavailable:
        return False
    except RowBusy as error:
        # The connection may still be one to a node that drains, until the balancer ends it.
        if "the node drains: ask another" not in str(error):
            raise
        return False
    return True


def test_haproxy_sends_connections_to_every_serving_node(
    tmp_path: Path, nodes: NodeCluster
) -> None:
    port = free_port()
    with balanced(tmp_path, configured("haproxy.cfg", nodes, _7000=port)):
        eventually(lambda: {who(port).get("id") for _ in range(6)} == {"a1", "a2", "a3"})
        with interlock.connect(f"interlock://127.0.0.1:{port}") as client:
            table = client.table("presence", Presence)
            eventually(lambda: written(table, 1))
            with Client(nodes.nodes["a1"].address) as asked:
                asked.call("NODE", "DRAIN")
            nodes.nodes["a2"].kill()
            eventually(lambda: {who(port).get("id") for _ in range(4)} == {"a3"})
            eventually(lambda: written(table, 2))
            assert table["k"].app_id == 2
    nodes.nodes["a1"].kill()


def test_haproxy_leaves_a_node_that_hangs(tmp_path: Path, nodes: NodeCluster) -> None:
    port = free_port()
    with balanced(tmp_path, configured("haproxy.cfg", nodes, _7000=port)):
        eventually(lambda: {who(port).get("id") for _ in range(6)} == {"a1", "a2", "a3"})
        nodes.nodes["a1"].process.send_signal(signal.SIGSTOP)
        try:
            eventually(lambda: {who(port).get("id") for _ in range(6)} == {"a2", "a3"})
        finally:
            nodes.nodes["a1"].process.send_signal(signal.SIGCONT)


def test_nginx_balances_connections_over_nodes(tmp_path: Path, nodes: NodeCluster) -> None:
    if not (MODULES / MODULE).exists():
        pytest.skip(f"no {MODULE} in {MODULES}: install libnginx-mod-stream")
    port = free_port()
    text = configured("nginx.conf", nodes, _7000=port)
    with nginx(tmp_path, text.replace(f"modules/{MODULE}", str(MODULES / MODULE))):
        eventually(lambda: {who(port).get("id") for _ in range(6)} == set(nodes.nodes))
        with interlock.connect(f"interlock://127.0.0.1:{port}") as client:
            table = client.table("presence", Presence)
            table["k"] = Presence(app_id=1)
            assert table["k"] == Presence(app_id=1)
            lost = next(iter(nodes.nodes))
            nodes.nodes[lost].kill()
            eventually(lambda: written(table, 2))
            # The one with fewer connections than the other, which this client has.
            eventually(lambda: {who(port).get("id") for _ in range(6)} <= set(nodes.alive()))
