"""Metrics for Prometheus: of a worker, and of an engine's queues."""

from __future__ import annotations

from interlock.metrics.collector import WorkerCollector

__all__ = ["WorkerCollector"]
