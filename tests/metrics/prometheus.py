"""A Prometheus for the tests, its promtool and its configuration."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from tests.hub.servers import free_port, missing

PATIENCE = 40.0
"""Seconds after which a test is given up as hung."""


def needed(name: str) -> str:
    """The path of a program of Prometheus."""
    found = shutil.which(name)
    if found is None:
        missing(f"no {name}: install prometheus")
    assert found is not None
    return found


def checked(kind: str, *arguments: str, given: str = "") -> None:
    """Return what promtool says of something; an error fails the test."""
    done = subprocess.run(
        [needed("promtool"), *kind.split(), *arguments],
        input=given, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert "error" not in done.stderr.lower(), done.stderr


def page(address: str, path: str = "/metrics") -> str:
    with urlopen(f"http://{address}{path}", timeout=PATIENCE) as answer:
        body: bytes = answer.read()
    return body.decode()


def samples(text: str) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """By name and labels, as a client reads them; nothing is reported twice."""
    found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = frozenset(sample.labels.items())
            told = found.setdefault(sample.name, {})
            assert labels not in told, f"{sample.name} {sample.labels} twice"
            told[labels] = sample.value
    return found


def families_of(text: str) -> dict[str, str]:
    """The kinds of the families of a page, by name."""
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))


def wait_for(what: Callable[[], object], why: str) -> None:
    until = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < until, why
        time.sleep(0.05)


class Prometheus:
    """One that scrapes, asked over its API."""

    def __init__(self, port: int) -> None:
        self._port = port

    def ask(self, path: str, **query: str) -> Any:
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}"
        with urlopen(f"{url}?{urlencode(query)}" if query else url, timeout=PATIENCE) as answer:
            told = json.load(answer)
        assert told["status"] == "success", told
        return told["data"]

    def query(self, expression: str) -> list[Any]:
        """The series that an expression is at this moment; an invalid one fails the test."""
        found: list[Any] = self.ask("query", query=expression)["result"]
        return found

    def is_up(self) -> bool:
        try:
            return all(one["health"] == "up" for one in self.ask("targets")["activeTargets"])
        except OSError:
            return False


@contextmanager
def prometheus(
    folder: Path, targets: Mapping[str, str], rules: Sequence[Path] = ()
) -> Iterator[Prometheus]:
    """One that scrapes these addresses, by the names of their jobs, each second."""
    port = free_port()
    jobs = [
        {"job_name": name, "static_configs": [{"targets": [address]}]}
        for name, address in targets.items()
    ]
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(one) for one in rules],
        "scrape_configs": jobs,
    }
    # YAML is a superset of JSON.
    (folder / "prometheus.yml").write_text(json.dumps(settings))
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(
            [
                needed("prometheus"),
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        made = Prometheus(port)
        wait_for(made.is_up, f"not up: {(folder / 'log').read_text()}")
        yield made
    finally:
        process.terminate()
        process.wait()
