"""Pages of a node over HTTP: whether it is to be used, and what is wrong with it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from interlock.cluster.pages import NodePages, Standing
from interlock.hub.serve.http_server import Page
from interlock.hub.serve.pages import HubPages
from interlock.hub.serve.state import State

SERVING = Standing(id="a1", dc="east", role="serving", address="h:1", position=7, lag_ms=80.0)


def page(standing: Standing, path: str, query: str = "") -> tuple[int, str]:
    pages = HubPages(lambda: State.SERVING, dict, more=NodePages(lambda: standing, lambda: ()))
    found = pages(path, query)
    assert found is not None
    return found.status, found.body


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
def test_a_node_is_ready_only_near_the_end_of_its_log(query: str, status: int) -> None:
    found, body = page(SERVING, "/ready", query)
    assert found == status
    if status == 400:
        assert "allowed: max_lag=MS" in body


def test_the_health_and_ready_pages_combine_hub_and_node() -> None:
    status, body = page(SERVING, "/health")
    assert status == 200
    assert json.loads(body)["status"] == "serving"
    assert json.loads(body)["node"]["position"] == 7
    assert page(replace(SERVING, fault="no rows"), "/health")[0] == 503
    assert page(SERVING, "/ready") == (200, "serving\n")
    stuck = replace(SERVING, role="stuck", trouble=("the log is gone", "and more"))
    for standing, why in (
        (replace(SERVING, role="joining"), "joining"),
        (stuck, "stuck: the log is gone"),
        (replace(SERVING, draining=True), "draining"),
        (replace(SERVING, fault="no rows"), "no rows"),
        (replace(SERVING, fresh=False),
         "it has not read its log to the end for longer than --max-staleness"),
    ):  # fmt: skip
        assert page(standing, "/ready") == (503, f"{why}\n")
    assert page(SERVING, "/")[1].split() == ["/metrics", "/health", "/ready"]
    pages = HubPages(
        lambda: State.DRAINING, dict, more=NodePages(lambda: SERVING, lambda: ("a_figure 1",))
    )
    found = pages("/ready", "")
    assert isinstance(found, Page)
    assert found.status == 503
    assert pages("/none", "") is None
    figures = pages("/metrics", "")
    assert figures is not None and figures.body.endswith("a_figure 1\n")
    # A hub that is not a node has none of them.
    assert HubPages(lambda: State.SERVING, dict)("/primary", "") is None


@pytest.mark.parametrize("path", ["/primary", "/replica"])
def test_the_page_that_asks_for_a_primary_is_refused(path: str) -> None:
    assert page(SERVING, path, "max_lag=5") == (
        410, "every node takes reads and writes; use /ready?max_lag=MS\n"
    )  # fmt: skip
