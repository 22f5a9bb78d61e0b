"""The dashboard and the rules that ship: valid, of metrics that there are, and with data behind
them in a Prometheus that scrapes a worker, an exporter and a hub."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.cli import main
from interlock.cluster import metrics as of_nodes
from interlock.hub.serve import metrics
from interlock.hub.serve.figures import FIGURES, PREFIX, STORE_FIGURES, TABLE_FIGURES
from interlock.metrics import shipped
from interlock.metrics.exporter import EXPORTER_FAMILIES
from interlock.metrics.families import WORKER_FAMILIES
from interlock.outbox.exporter import OUTBOX_FAMILIES
from interlock.runtime.queue_figures import QUEUE_FAMILIES
from tests.cluster.nodes import NodeProcess
from tests.metrics import kitchen
from tests.metrics.conftest import programs
from tests.metrics.prometheus import Prometheus, checked, page, prometheus, wait_for

HERE = Path(__file__).parent
NAME = re.compile(r"\b(interlock_\w+|process_\w+)\b")


def known() -> set[str]:
    """The names of all samples that a worker, an exporter, a hub and a node may tell."""
    told = (
        *of_nodes.GAUGES,
        *of_nodes.COUNTERS,
        *of_nodes.LINKS,
        *of_nodes.DATABASE,
    )
    found = {f"{of_nodes.PREFIX}{name}" for name, _ in told}
    found.add(f"{of_nodes.PREFIX}trouble")
    found |= {figure.metric for figure in FIGURES if figure.metric} | {f"{PREFIX}info"}
    for family in (
        *WORKER_FAMILIES.values(),
        *EXPORTER_FAMILIES,
        *OUTBOX_FAMILIES,
        *QUEUE_FAMILIES,
    ):
        if family.kind == "histogram":
            found |= {f"{family.name}_{part}" for part in ("bucket", "sum", "count")}
        else:
            found.add(family.name)
    return found


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(shipped.dashboard())["panels"]
    return found


def filled(expression: str) -> str:
    """An expression of the dashboard as Grafana sends it with all chosen."""
    return re.sub(r"\$(engine|queue|worker)\b", ".*", expression).replace("$__rate_interval", "1m")


EXPRESSIONS = [
    pytest.param(target["expr"], id=f"{panel['title']}-{target['refId']}")
    for panel in panels()
    for target in panel.get("targets", ())
]
RULES = re.findall(r"- alert: (\w+)\n\s+expr: (?:\|\n((?:\s{10,}.*\n)+)|(.*)\n)", shipped.rules())


def test_the_rules_are_valid_and_each_alert_is_tested(tmp_path: Path) -> None:
    (tmp_path / "interlock.yml").write_text(shipped.rules())
    shutil.copy(HERE / "alerts.yml", tmp_path)
    checked("check rules", str(tmp_path / "interlock.yml"))
    checked("test rules", str(tmp_path / "alerts.yml"))
    names = {name for name, *_ in RULES}
    assert len(names) == shipped.rules().count("- alert:")
    text = (HERE / "alerts.yml").read_text()
    fired = set(re.findall(r"alertname: (\w+)\n\s+exp_alerts:\n\s+- exp_labels", text))
    assert fired == names


def test_each_kind_of_node_trouble_raises_an_alert(tmp_path: Path) -> None:
    (tmp_path / "interlock.yml").write_text(shipped.rules())
    alerts = [
        {
            "exp_labels": {"severity": "warning", "instance": "a", "kind": kind},
            "exp_annotations": {
                "summary": f"The node a has reported trouble of the kind {kind} for 5 minutes",
                "description": "`interlock cluster status` has the text.",
            },
        }
        # Other rows at the same position have an alert of their own.
        for kind in of_nodes.TROUBLES
        if kind != "checksum"
    ]
    series = [
        {"series": f'interlock_node_trouble{{instance="a", kind="{kind}"}}', "values": "0 1x20"}
        for kind in of_nodes.TROUBLES
    ]
    tried = {"eval_time": "7m", "alertname": "InterlockNodeTrouble", "exp_alerts": alerts}
    tests = {
        "rule_files": ["interlock.yml"],
        "tests": [{"interval": "1m", "input_series": series, "alert_rule_test": [tried]}],
    }
    # JSON is YAML.
    (tmp_path / "kinds.yml").write_text(json.dumps(tests))
    checked("test rules", str(tmp_path / "kinds.yml"))


def test_dashboard_and_rules_query_existing_metrics() -> None:
    for text in (shipped.dashboard(), *(block or line for _, block, line in RULES)):
        unknown = set(NAME.findall(text)) - known()
        assert not unknown


def test_the_dashboard_shows_each_queue_metric_in_the_panel_that_it_names() -> None:
    shown = set(NAME.findall(shipped.dashboard()))
    unshown = {family.name for family in QUEUE_FAMILIES if not family.panel}
    assert {family.name for family in QUEUE_FAMILIES} - shown == unshown
    for family in QUEUE_FAMILIES:
        if family.panel:
            there = [one.get("targets") for one in panels() if one["title"] == family.panel]
            assert family.name in NAME.findall(json.dumps(there)), family.name


def test_every_panel_has_a_description_and_its_own_place() -> None:
    told = panels()
    assert len({panel["id"] for panel in told}) == len(told)
    taken: set[tuple[int, int]] = set()
    for panel in told:
        assert panel["type"] == "row" or panel["description"]
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
    variables = json.loads(shipped.dashboard())["templating"]["list"]
    used = set(re.findall(r"\$\{?(\w+)", shipped.dashboard())) - {"__rate_interval", "__all"}
    assert used == {one["name"] for one in variables}


def test_the_command_prints_dashboard_and_rules(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exporter", "--print-dashboard"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Interlock"
    assert main(["exporter", "--print-rules"]) == 0
    assert capsys.readouterr().out == shipped.rules()


# -- A Prometheus that scrapes ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def scraped(
    hub: interlock.Hub,
    hub_url: str,
    redis_url: str,
    outbox_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Prometheus]:
    """A Prometheus that has scraped for a while what a worker did, and a node."""
    folder = tmp_path_factory.mktemp("prometheus")
    rules = folder / "interlock.yml"
    rules.write_text(shipped.rules())
    kitchen.app.close()
    kitchen.app.url = hub_url
    behind = ("--link", f"west={redis_url}", "--database", f"sqlite://{folder}/rows.db")
    with programs() as start, closing(NodeProcess("a", redis_url, folder, *behind)) as node:
        flags = ("--keys", "3", "--database", outbox_url)
        exporter = start("exporter", "--url", hub_url, "--port", "0", *flags)
        worker = start("worker", "tests.metrics.kitchen:app", "--url", hub_url, "--metrics", "0")
        wait_for(lambda: "interlock_worker_ready 1.0" in page(worker.address), "not ready")
        node.wait()
        send()
        targets = {
            "hub": hub.http_address, "exporter": exporter.address, "worker": worker.address,
            "node": node.http,
        }  # fmt: skip
        with prometheus(folder, targets, [rules]) as made:
            wait_for(lambda: rising(made), "nothing rises")
            yield made
        for address in (exporter.address, worker.address, hub.http_address, node.http):
            checked("check metrics", given=page(address))
    kitchen.app.close()


def send() -> None:
    for number in range(40):
        kitchen.serve.send(number % 5)
        kitchen.fry.send(number)
    for _ in range(20):
        kitchen.cook.send(0.05)


def rising(made: Prometheus) -> bool:
    """Return whether the calls that are sent meanwhile are seen as rates."""
    kitchen.serve.send(1)
    kitchen.fry.send(2)
    rates = (
        'rate(interlock_worker_handled_total{task="serve"}[1m]) > 0',
        'rate(interlock_queue_acks_total{job="hub"}[1m]) > 0',
        'rate(interlock_queue_acks_total{job="exporter"}[1m]) > 0',
        # It is 0 for a node, which has no calls.
        "rate(interlock_node_appended_entries_total[1m])",
    )
    return all(made.query(one) for one in rates)


def test_promtool_accepts_every_metric_of_a_hub() -> None:
    # With a table and a store, which few hubs have both.
    all_of = [{figure.name: 1 for figure in some} for some in (TABLE_FIGURES, STORE_FIGURES)]
    text = metrics.text({one.name: 1 for one in FIGURES}, {"t": all_of[0]}, {"s": all_of[1]})
    assert 'interlock_hub_store_oldest_age_seconds{store="s"} 0.001\n' in text
    checked("check metrics", given=text)


MAY_BE_EMPTY = ("interlock_queue_key_waiting", "retried|dead|held")
"""Series that need not exist at the moment."""


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_panel_has_data(scraped: Prometheus, expression: str) -> None:
    found = scraped.query(filled(expression))
    assert found or any(one in expression for one in MAY_BE_EMPTY)


def test_the_rules_are_evaluated_without_a_fault(scraped: Prometheus) -> None:
    def evaluated() -> list[dict[str, Any]]:
        groups = scraped.ask("rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    wait_for(lambda: all(one["health"] == "ok" for one in evaluated()), f"{evaluated()}")
    assert {one["name"] for one in evaluated()} == {name for name, *_ in RULES}
    for name, block, line in RULES:
        # Without its bound, an alert is about something that is there.
        expression = (block or line).strip()
        metrics = NAME.findall(expression)
        assert all(scraped.query(f"count({metric})") for metric in metrics), name


def test_hub_and_exporter_report_the_same_queue_metrics(scraped: Prometheus) -> None:
    def names(job: str) -> set[str]:
        query = f'count by (__name__) ({{job="{job}", __name__=~"interlock_queue.*"}})'
        return {one["metric"]["__name__"] for one in scraped.query(query)}

    extra = {"interlock_queue_key_waiting"}
    assert names("hub") - extra == names("exporter") - extra
    assert {family.name for family in QUEUE_FAMILIES} == names("hub")
