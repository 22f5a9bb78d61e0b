"""`interlock exporter`: export the queues of an engine as metrics for Prometheus."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from interlock.cli.flags import Flag, listening, positive
from interlock.cli.queue.subcommand import BAD_INPUT, URL, address, failed

if TYPE_CHECKING:
    from interlock.outbox.exporter import OutboxExporter

ADDRESS = Flag(
    "--port",
    "address of /metrics, /health and /ready, on loopback unless a host is given; port 0: a "
    "free one (127.0.0.1:9469)",
    "[HOST:]PORT",
    listening,
    ("127.0.0.1", 9469),
)
FLAGS = (
    URL,
    ADDRESS,
    Flag("--queues", "report only queues whose names match this pattern (*)", "GLOB", default="*"),
    Flag("--keys", "number of keys with the most messages to report for each of the 100 fullest "
         "queues; each key is a label, so each new one is a new series (none)", "N", positive, 0),
    Flag("--most-queues", "maximum number of queues with their own lines; the others are summed as "
         'queue="other" (1000)', "N", positive, 1000),
    Flag("--database", "URL of the database of an outbox, to report its rows and its relay too "
         "(the variable INTERLOCK_POSTGRES_URL)", "URL"),
    Flag("--schema", "schema of the outbox (interlock)", "NAME", default="interlock"),
    Flag("--log-format", "format of log lines (text)", choices=("text", "json"),
         default="text"),
    Flag("--print-dashboard", "print a Grafana dashboard and exit"),
    Flag("--print-rules", "print alert rules for Prometheus and exit"),
)  # fmt: skip


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "exporter",
        description="Serve the metrics of all queues of a hub or a Redis, which is queried at each "
        "scrape. If the engine is down, interlock_up is 0.",
        epilog="TERM and INT stop it. Exit codes: 0 stopped; 1 the address is taken; 2 wrong "
        "usage.",
    )
    for flag in FLAGS:
        flag.add_to(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Serve until TERM or INT; or print the dashboard or rules that ship with it."""
    from interlock.metrics import shipped

    if given.print_dashboard or given.print_rules:
        print(shipped.dashboard() if given.print_dashboard else shipped.rules(), end="")
        return 0
    url = address(given)
    if not url:
        return refuse("no engine is named; set --url or INTERLOCK_URL")
    if url.startswith("memory:"):
        return refuse(
            "memory:// has only the queues of its own process; give --url a hub or a Redis"
        )  # fmt: skip
    return serve(url, given)


def serve(url: str, given: argparse.Namespace) -> int:
    """Serve the engine's metrics there until a signal."""
    from interlock.cli.metrics_server import serving
    from interlock.client.admin.operator import Operator
    from interlock.client.admin.server import Server
    from interlock.client.faces.client import connect
    from interlock.explanation import JsonFormatter, PrintableFormatter
    from interlock.metrics.exporter import Exporter
    from interlock.metrics.pages import Pages

    handler = logging.StreamHandler()
    is_json = given.log_format == "json"
    handler.setFormatter(JsonFormatter() if is_json else PrintableFormatter(FORMAT))
    logging.basicConfig(handlers=[handler])
    try:
        client = connect(url)
    except (ValueError, ImportError) as error:
        return refuse(str(error))
    # Blocked before the first thread starts, so that all threads leave signals to this one.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    with contextlib.ExitStack() as opened:
        opened.enter_context(client)
        exporter = Exporter(Operator(Server(client)), given.queues, given.keys, given.most_queues)

        outbox = _outbox(given)
        if outbox is not None:
            opened.callback(outbox.close)

        def text() -> str:
            return exporter.text() + (outbox.text() if outbox is not None else "")

        def ready() -> str:
            exporter.text()
            return exporter.trouble

        def health() -> Mapping[str, object]:
            return {"status": "ok", "engine": client.url, "trouble": exporter.trouble or None}

        try:
            with serving(given.port, Pages(text, ready, health)) as where:
                print(f"interlock exporter: {client.url} on http://{where}/metrics", flush=True)
                signal.sigwait(ENDING)
        except OSError as error:
            return failed(str(error))
    return 0


def _outbox(given: argparse.Namespace) -> OutboxExporter | None:
    """Return the metrics of the outbox, if its database is named."""
    from interlock.outbox.exporter import OutboxExporter
    from interlock.outbox.postgres.driver import URL as VARIABLE

    url = given.database or os.environ.get(VARIABLE)
    return OutboxExporter(url, given.schema) if url else None


def refuse(message: str) -> int:
    """Print wrong usage, and return the exit code for it."""
    print(f"interlock: {message}", file=sys.stderr, flush=True)
    return BAD_INPUT


FORMAT = "%(asctime)s %(levelname)s %(message)s"
ENDING = (signal.SIGINT, signal.SIGTERM)
