"""The figures of Interlock, each beside its peer in the same run; `python -m benchmarks`."""
