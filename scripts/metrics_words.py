"""The words of docs/reference/metrics.md around its tables; of `interlock exporter` in cli.md."""

METRICS = """\
<!-- Made by scripts/reference.py from the metrics' declarations: change those, run it again. -->

# Metrics

What a worker, an exporter and a hub tell Prometheus: [how to use them](../howto/metrics.md). All
times are seconds. A counter only rises, from 0; a gauge rises and falls; a histogram has
`_bucket`, `_sum` and `_count`.

`GET /metrics` answers the text format of version 0.0.4, `/health` and `/ready` 200 or 503.

"""

WORKER = """\
## Of a worker

`interlock worker --metrics [HOST:]PORT`, which needs `pip install '.[metrics]'`. With
`--processes` one port tells the sum of all. What a process that ended had counted when it was
last asked, which is each 5 seconds or oftener, is kept in the sum.

| metric | kind | labels | meaning |
|---|---|---|---|
"""

OUTCOMES_HEAD = """
`outcome` is one of

| outcome | means |
|---|---|
"""

WORKER_TAIL = """
The buckets of both histograms end at {bounds} and +Inf seconds. `task="unreadable"` is a message
that is no call; `task="other"` sums what is beyond the first {tasks} tasks.

Quick handlers are run in batches, and of a batch up to {looks} waits are looked at, each for
those behind it too: they were leased together. Where a batch has messages that were handled
before, each is looked at.

`/ready` is 200 from the engine's first answer to the end, as the ready file is there; with
`--processes` while all are ready. `/health` is 200 with `{{"status": "ok"}}`, and with
`--processes` `processes`, those that run, and `wanted`; it is 503 while a worker hangs or is
broken.

### WorkerCollector

```
interlock.metrics.WorkerCollector(worker)
```

Tells prometheus-client the same of a [worker](app.md) that runs in this program:
`registry.register` takes it. The worker counts from then on. Raises ImportError where
prometheus-client is not installed.

"""

QUEUES = """\
## Of queues

`interlock exporter` of any engine, and a hub's own [`/metrics`](hub-info.md). Counters begin when
the queue is made. `queue="other"` sums the queues beyond the first {queues}; one that has lines
of its own keeps them while it is there.

| metric | kind | labels | meaning |
|---|---|---|---|
"""

STATES = """
`state` is {states}: [what they mean](message-states.md).

"""

EXPORTER = """\
## Of an exporter

Beside those of queues:

| metric | kind | labels | meaning |
|---|---|---|---|
"""

EXPORTER_TAIL = """
`state` of a worker is `running`, `draining` or `unknown`, as it announced itself; of a key's
name, what is not UTF-8 is escaped. An engine that is down is `interlock_up 0`, and nothing else,
with status 200; why is in the log, once, and on `/ready`, which is 503 then. The age of a message
is by the clock of the exporter's machine.

The hub's own figures are on [a page of theirs](hub-info.md).
"""

EXPORTER_CLI = """
## interlock exporter

Serves the [metrics](metrics.md) of all queues of an engine: [how to use it](../howto/metrics.md).

```text
interlock exporter [FLAGS]
interlock exporter --print-dashboard
interlock exporter --print-rules
```

"""

EXPORTER_CLI_TAIL = """
Once it serves it prints `interlock exporter: ENGINE on URL`. It exits with 0 after TERM or INT,
with 1 where the address is taken, and with 2 for wrong usage. An engine that is not there is no
reason to end.
"""
