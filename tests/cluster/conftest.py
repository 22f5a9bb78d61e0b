"""One Redis for all tests of clusters, each with a cluster's name of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import interlock
from tests.cluster.nodes import NodeCluster, node_cluster
from tests.hub.servers import needs_hub, redis_server
from tests.hub.tables.tables import new_name


@pytest.fixture(scope="module", autouse=True)
def state_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nodes that are given no folder leave none on this machine, nor do commands their cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STATE_DIRECTORY", str(tmp_path_factory.mktemp("state")))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def engine_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with redis_server(tmp_path_factory.mktemp("engine")) as (_, port):
        yield port


@pytest.fixture
def redis_url(engine_port: int) -> str:
    return f"redis://127.0.0.1:{engine_port}"


@pytest.fixture
def hub_url(tmp_path: Path) -> Iterator[str]:
    """A hub with a table in which nodes announce themselves."""
    needs_hub()
    entry = {"name": "nodes", "columns": "told: str[2048]", "capacity": 100, "key_size": 128}
    with interlock.Hub(
        port=0, workers=1, table=[{**entry, "path": str(tmp_path / "nodes")}]
    ) as hub:
        yield f"interlock://{hub.addresses[0]}"


@pytest.fixture(params=["redis", "hub"])
def engine_url(request: pytest.FixtureRequest) -> str:
    """The engine on which nodes announce themselves: Redis, then a hub."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def name() -> str:
    return new_name()


@pytest.fixture(scope="session")
def three_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    with node_cluster(tmp_path_factory.mktemp("nodes"), "a1", "a2", "a3") as made:
        yield made


@pytest.fixture
def nodes(three_nodes: NodeCluster) -> NodeCluster:
    """Three nodes that are well; tests may kill them."""
    three_nodes.heal()
    return three_nodes
