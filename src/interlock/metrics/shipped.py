"""The dashboard and the rules that ship with the package."""

from __future__ import annotations

from importlib.resources import files

__all__ = ["dashboard", "rules"]


def dashboard() -> str:
    """Return the dashboard for Grafana, as JSON."""
    return _text("grafana", "interlock.json")


def rules() -> str:
    """Return the alert rules for Prometheus, as YAML."""
    return _text("rules", "interlock.yml")


def _text(folder: str, name: str) -> str:
    return files("interlock.metrics").joinpath(folder, name).read_text("utf-8")
