"""The rows that the program in benchmarks/rust takes: the core without Python around it."""

from __future__ import annotations

from benchmarks.row import Row

ROWS = (
    Row(
        name="core/pending-one-key",
        title="1M pending against 1k, one hot key, Rust",
        peer="itself at 1k",
        bar=1.5,
        prototype=1.26,
        runner="rust",
    ),
    Row(
        name="core/pending-1000-lanes",
        title="1M pending against 1k, 1,000 lanes, Rust",
        peer="itself at 1k",
        bar=2,
        prototype=1.6,
        runner="rust",
    ),
    *(
        Row(
            name=f"core/{keys}-key" + ("" if keys == 1 else "s"),
            title=f"{keys} key" + ("" if keys == 1 else "s") + ", Rust with the mutex",
            peer="key-message-channel 0.1.0",
            bar=bar,
            prototype=prototype,
            runner="rust",
        )
        for keys, bar, prototype in ((1, 0.45, 0.34), (2, 0.5, 0.38), (4, 0.55, 0.43))
    ),
    Row(
        name="core/memory-message",
        title="memory: a 1-key message",
        peer="",
        bar=64,
        unit="B",
        prototype=48,
        runner="rust",
    ),
    Row(
        name="core/memory-key",
        title="memory: a live key",
        peer="",
        bar=100,
        unit="B",
        prototype=71,
        runner="rust",
    ),
    Row(
        name="core/explain",
        title="explain at 1 million pending",
        peer="",
        bar=1,
        unit="ms",
        runner="rust",
    ),
    Row(
        name="core/memory-drained",
        title="memory after a peak of 1 million is drained",
        peer="before the peak",
        bar=1.2,
        unit="MB",
        runner="rust",
    ),
)
