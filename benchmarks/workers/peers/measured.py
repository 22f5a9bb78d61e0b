"""Ours, with the figures that `--metrics` tells."""

from benchmarks.workers.peers import ours

app, enqueue = ours.app, ours.enqueue

WORKER = (*ours.WORKER, "--metrics", "0")
