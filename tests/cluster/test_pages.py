"""Pages of a node over HTTP: who is the primary, who may be read, and what is wrong with it."""

from __future__ import annotations

import http.client
import json
from dataclasses import replace
from typing import Any

import pytest

from interlock.cluster.pages import NodePages, Standing
from interlock.hub.httpd import Page
from interlock.hub.pages import HubPages
from interlock.hub.state import State
from tests.cluster.nodes import NodeCluster, eventually

REPLICA = Standing(
    id="a1", dc="east", role="replica", address="h:1", primary="a2", token=7, lag_ms=80.0
)
PRIMARY = replace(REPLICA, role="primary", primary="a1", lag_ms=0.0)


def page(standing: Standing, path: str, query: str = "") -> tuple[int, str]:
    pages = HubPages(lambda: State.SERVING, dict, more=NodePages(lambda: standing))
    found = pages(path, query)
    assert found is not None
    return found.status, found.body


@pytest.mark.parametrize(
    ("standing", "primary", "replica"),
    [
        (PRIMARY, 200, 503),
        (REPLICA, 503, 200),
        (replace(REPLICA, role="joining"), 503, 503),
        (replace(PRIMARY, draining=True), 503, 503),
        (replace(REPLICA, draining=True), 503, 503),
        (replace(REPLICA, fresh=False), 503, 503),
        (replace(REPLICA, fault="no rows"), 503, 503),
        (replace(PRIMARY, fault="no rows"), 503, 503),
    ],
)
def test_a_node_is_one_or_the_other(standing: Standing, primary: int, replica: int) -> None:
    for path, status in (("/primary", primary), ("/replica", replica)):
        found, body = page(standing, path)
        told = json.loads(body)
        assert found == status
        assert (told["id"], told["address"], told["role"]) == ("a1", "h:1", standing.role)
        assert ("reason" in told) == (status == 503)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 200),
        ("max_lag=80", 200),
        ("max_lag=1e3", 200),
        ("max_lag=79.9", 503),
        ("max_lag=0", 503),
        ("max_lag=inf", 200),
        ("max_lag=", 400),
        ("max_lag=-1", 400),
        ("max_lag=nan", 400),
        ("max_lag=soon", 400),
        ("lag=5", 400),
    ],
)
def test_a_replica_is_near_enough_or_not(query: str, status: int) -> None:
    found, body = page(REPLICA, "/replica", query)
    assert found == status
    if status == 400:
        assert "allowed: max_lag=MS" in body


def test_health_and_ready_are_the_hub_s_with_the_node_s() -> None:
    status, body = page(REPLICA, "/health")
    assert status == 200
    assert json.loads(body)["status"] == "serving"
    assert json.loads(body)["node"]["primary"] == "a2"
    assert page(replace(REPLICA, fault="no rows"), "/health")[0] == 503
    assert page(REPLICA, "/ready") == (200, "serving\n")
    assert page(replace(REPLICA, role="joining"), "/ready") == (503, "joining\n")
    assert page(replace(PRIMARY, draining=True), "/ready") == (503, "draining\n")
    assert page(replace(PRIMARY, fault="no rows"), "/ready") == (503, "no rows\n")
    assert page(PRIMARY, "/")[1].split() == [
        *("/metrics", "/health", "/ready", "/primary", "/replica"),
    ]
    pages = HubPages(lambda: State.DRAINING, dict, more=NodePages(lambda: REPLICA))
    found = pages("/ready", "")
    assert isinstance(found, Page)
    assert found.status == 503
    assert pages("/none", "") is None
    # A hub that is no node has none of them.
    assert HubPages(lambda: State.SERVING, dict)("/primary", "") is None


def get(nodes: NodeCluster, name: str, path: str) -> tuple[int, Any]:
    host, _, port = nodes.nodes[name].http.rpartition(":")
    client = http.client.HTTPConnection(host, int(port), timeout=20)
    try:
        client.request("GET", path)
        answer = client.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        client.close()


def test_nodes_say_so_themselves(nodes: NodeCluster) -> None:
    primary = nodes.primary()
    replica = nodes.replicas()[0]
    status, told = get(nodes, primary, "/primary")
    assert (status, told["id"], told["address"]) == (200, primary, nodes.nodes[primary].address)
    assert get(nodes, replica, "/primary")[0] == 503
    assert get(nodes, primary, "/replica")[0] == 503
    eventually(lambda: get(nodes, replica, "/replica?max_lag=1000")[0] == 200)
    status, told = get(nodes, replica, "/health")
    assert (status, told["node"]["primary"], told["node"]["role"]) == (200, primary, "replica")
    nodes.nodes[primary].kill()
    eventually(lambda: nodes.primary() != primary)
    after = nodes.primary()
    eventually(lambda: get(nodes, after, "/primary")[0] == 200)
    assert get(nodes, after, "/replica")[0] == 503
