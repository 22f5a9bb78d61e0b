"""The same on a Valkey and on a cluster of Redis: its queues are on several servers."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import redis

from interlock.client.faces.client import connect
from tests.client.connection.nodes import meet
from tests.dashboard.conftest import Serve
from tests.dashboard.test_live import counts_of, listening, wait_until
from tests.hub.servers import free_port, missing, redis_server


@pytest.fixture(scope="module")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = shutil.which("valkey-server")
    if program is None:
        missing("no valkey-server")
    assert program is not None
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("INTERLOCK_REDIS_SERVER", program)
            folder = tmp_path_factory.mktemp("valkey")
            host, port = stack.enter_context(redis_server(folder))
        yield f"redis://{host}:{port}"


@pytest.fixture(scope="module")
def cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two primaries, each with half of the slots."""
    with ExitStack() as stack:
        nodes: list[Any] = []
        for half in ((0, 8191), (8192, 16383)):
            flags = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
            folder = tmp_path_factory.mktemp("node")
            _, port = stack.enter_context(redis_server(folder, *flags))
            nodes.append(stack.enter_context(redis.Redis(port=port)))
            nodes[-1].execute_command("CLUSTER", "ADDSLOTSRANGE", *half)
        meet(nodes[0], nodes[1])

        def works(node: Any) -> bool:
            found = node.execute_command("CLUSTER", "INFO")
            return "cluster_state:ok" in str(found) and len(node.cluster("slots")) == 2

        wait_until(lambda: all(map(works, nodes)))
        ports = [node.get_connection_kwargs()["port"] for node in nodes]
        yield f"redis+cluster://127.0.0.1:{ports[0]}"


@pytest.mark.parametrize("kind", ["valkey", "cluster"])
def test_all_answers_and_actions_work_on_valkey_and_redis_cluster(
    request: pytest.FixtureRequest, serve: Serve, kind: str
) -> None:
    url = request.getfixturevalue(f"{kind}_url")
    page = serve(url, write=True)
    assert page.get("server")["kind"] == ("redis" if kind == "cluster" else kind)
    with connect(url) as client:
        # Of twelve names some are on each server.
        names = [f"q{number}-{uuid.uuid4().hex}" for number in range(12)]
        queues = [client.queue(name, bytes) for name in names]
        for queue in queues:
            queue.put(b"x", keys="a")
        wait_until(lambda: set(names) <= {one["name"] for one in page.get("queues")})
        with listening(page, queue=names[0], workers="1") as stream:
            for name in names:
                assert page.get(f"queues/{name}/messages")["items"][0]["keys"] == ["a"]
                assert page.post(f"queues/{name}/pause") == {"changed": True}
                queues[names.index(name)]._announce("w", 60, json.dumps({"of": name}))
            stream.until(
                lambda event, data: (
                    event == "workers" and {one.get("of") for one in data} >= set(names)
                )
            )
            told: list[Any] = []

            def put(event: str, data: Any) -> bool:
                queues[0].put(b"y")
                told.extend(data["events"] if event == "events" else ())
                return bool(told)

            stream.until(put)
            queues[-1].put(b"z")
            stream.until(counts_of(names[-1], unsettled=2))
