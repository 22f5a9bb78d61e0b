"""Figures for Prometheus: of a worker, and of an engine's queues."""
