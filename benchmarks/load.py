"""The program in benchmarks/load, and what its runs are as samples."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from functools import partial

from benchmarks.interpreters import load_program
from benchmarks.row import Sample
from benchmarks.servers import LOAD_CORE, Server, prepare

LONGEST = 60.0
"""Seconds after which a run is given up; the longest sample takes some 20 on a busy machine."""

Figures = dict[str, float]


def run(
    mode: str,
    server: Server,
    options: Mapping[str, float],
    core: int | None = LOAD_CORE,
    longest: float = LONGEST,
) -> Figures:
    """Run the program, which says what its options are, and return what it printed."""
    named: dict[str, float] = {"port": server.port, "pid": server.pid}
    if core is not None:
        named["core"] = core
    words = [f"{name}={value:.15g}" for name, value in (named | dict(options)).items()]
    command = [str(load_program()), mode, *words]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(prepare, core),
    ) as program:
        try:
            out, complaint = program.communicate(timeout=longest)
        except subprocess.TimeoutExpired:
            program.kill()
            raise
    if program.returncode:
        raise RuntimeError(complaint.strip() or f"{mode} ended with {program.returncode}")
    figures: Figures = json.loads(out)
    return figures


def throughput(figures: Figures) -> Sample:
    """Return a run in mode closed or queue: ns of one message, or of one delivery with subscribers.

    `cpu_ns` is what the server's process used for it. Where `server_busy` is well below 1 the
    server waited: for the load, for the network between them, or for a core that others used.
    """
    seconds = figures["seconds"]
    done = figures["delivered"] or figures.get("published", 0)
    if not done:
        raise RuntimeError(f"nothing was done in {seconds:.3g} s")
    details = {"cpu_ns": figures["server_cpu_seconds"] / done * 1e9} | busy(figures)
    return _checked(figures, seconds / done * 1e9, done, details)


def latency(figures: Figures) -> Sample:
    """Return a run in mode rate or handled.

    It is the median, in µs, from when a message was due until it was there.
    """
    names = ("p99_us", "p999_us", "longest_us")
    details = {name: figures[name] for name in names} | busy(figures)
    return _checked(figures, figures["p50_us"], figures["delivered"], details)


def idle(figures: Figures) -> Sample:
    """Return a run in mode idle: bytes of a connection.

    Those of one with a topic are `subscribed`.
    """
    details = {"subscribed": figures["subscribed_bytes_each"], "before": figures["before_bytes"]}
    return Sample(figures["silent_bytes_each"], round(figures["connections"]), details=details)


def level(pending: int, figures: Figures) -> Sample:
    """Return a run in mode levels: ns of one message with that many others pending."""
    details = {"cpu_ns": figures[f"cycle_cpu_ns_{pending}"]} | figures
    return _checked(figures, figures[f"cycle_ns_{pending}"], figures["delivered"], details)


def paused(figures: Figures) -> Sample:
    """Return a run in mode paused: MB by which the server grew.

    `resident` is all of it at the end.
    """
    details = {"resident": figures["resident_bytes"] / 1e6, "owed": figures["owed_bytes"] / 1e6}
    return _checked(figures, figures["more_bytes"] / 1e6, figures["delivered"], details)


def busy(figures: Figures) -> Figures:
    """Return the cores' worth of time that the server and the load used."""
    seconds = figures["seconds"]
    return {
        "server_busy": figures["server_cpu_seconds"] / seconds,
        "load_busy": figures["client_cpu_seconds"] / seconds,
    }


def _checked(figures: Figures, value: float, done: float, details: Figures) -> Sample:
    # A queue's load counts apart what was refused and what came twice.
    lost = round(figures["lost"] + figures.get("refused", 0))
    misordered = round(figures["misordered"] + figures.get("repeated", 0))
    return Sample(value, round(done), lost, misordered, details)
