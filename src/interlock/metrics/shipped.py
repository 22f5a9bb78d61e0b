"""The dashboard and the rules that ship with the package.

The dashboard's file has the panels; the lines of queue metrics in them come from the declarations.
"""

from __future__ import annotations

import json
import string
from importlib.resources import files

from interlock.runtime.queue_figures import QUEUE_FAMILIES, QueueFamily

__all__ = ["dashboard", "rules"]


def dashboard() -> str:
    """Return the dashboard for Grafana, as JSON."""
    told = json.loads(_text("grafana", "interlock.json"))
    panels = {panel["title"]: panel for panel in told["panels"] if panel["type"] == "timeseries"}
    for family in QUEUE_FAMILIES:
        if family.line:
            targets = panels[family.panel]["targets"]
            targets.append(
                {
                    "refId": string.ascii_uppercase[len(targets)],
                    "datasource": {"type": "prometheus", "uid": "${datasource}"},
                    "expr": _sum_of(family),
                    "legendFormat": family.line,
                }
            )
    return json.dumps(told, indent=1, ensure_ascii=False) + "\n"


def _sum_of(family: QueueFamily) -> str:
    """Return the expression of a line: all queues together, a counter as its rate."""
    series = f'{family.name}{{instance=~"$engine", queue=~"$queue"}}'
    return (
        f"sum(rate({series}[$__rate_interval]))" if family.kind == "counter" else f"sum({series})"
    )


def rules() -> str:
    """Return the alert rules for Prometheus, as YAML."""
    return _text("rules", "interlock.yml")


def _text(folder: str, name: str) -> str:
    return files("interlock.metrics").joinpath(folder, name).read_text("utf-8")
