"""Text of docs/reference/metrics.md around its tables; of `interlock exporter` in cli.md."""

METRICS = """\
<!-- Made by scripts/reference.py from the metrics' declarations: change those, run it again. -->

# Metrics

The Prometheus metrics of a worker, an exporter and a hub: [how to use them](../howto/metrics.md).
Times are in seconds. A counter starts at 0 and only rises; a gauge rises and falls; a histogram has
`_bucket`, `_sum` and `_count`.

`GET /metrics` returns text format version 0.0.4; `/health` and `/ready` return 200 or 503.

"""

WORKER = """\
## Worker metrics

`interlock worker --metrics [HOST:]PORT`, which needs `pip install '.[metrics]'`. With
`--processes`, one port serves the sum of all processes. The counts of a process are collected at
least every 5 seconds, and stay in the sum after it ends.

| metric | kind | labels | meaning |
|---|---|---|---|
"""

OUTCOMES_HEAD = """
`outcome` is one of

| outcome | meaning |
|---|---|
"""

WORKER_TAIL = """
The buckets of both histograms end at {bounds} and +Inf seconds. `task="unreadable"` counts messages
that are not calls; `task="other"` sums all tasks after the first {tasks}.

Quick handlers run in batches. The wait is measured for up to {looks} messages of a batch, and each
measurement also counts for the messages after it, because they were leased together. In a batch
with redelivered messages, every wait is measured.

`/ready` returns 200 from the engine's first answer until the worker ends, like the ready file; with
`--processes`, while all processes are ready. `/health` returns 200 with `{{"status": "ok"}}`, and
with `--processes` also `processes`, the number that run, and `wanted`; it returns 503 while a
worker hangs or is broken.

### WorkerCollector

```
interlock.metrics.WorkerCollector(worker)
```

A prometheus-client collector with the same metrics for a [worker](app.md) in this program: pass it
to `registry.register`. The worker starts counting when you create it. Raises ImportError if
prometheus-client is not installed.

"""

QUEUES = """\
## Queue metrics

Served by `interlock exporter` for any engine, and by a hub's own [`/metrics`](hub-info.md).
Counters start when the queue is created. `queue="other"` sums all queues after the first {queues};
a queue with its own lines keeps them while it exists.

| metric | kind | labels | meaning |
|---|---|---|---|
"""

STATES = """
`state` is {states}: see [message states](message-states.md).

"""

EXPORTER = """\
## Exporter metrics

In addition to those of queues:

| metric | kind | labels | meaning |
|---|---|---|---|
"""

EXPORTER_TAIL = """
The `state` of a worker is `running`, `draining` or `unknown`, from its announcement. Bytes of a key
that are not UTF-8 are escaped. While the engine is down, the only metric is `interlock_up 0`, with
status 200; the reason is logged once, and shown by `/ready`, which then returns 503. Ages of
messages use the clock of the exporter's machine.

The figures of a hub itself are on [another page](hub-info.md).

"""

OUTBOX = """\
## Outbox metrics

Reported in addition by an exporter with `--database URL`, for the [outbox](outbox.md) there. The
role needs the rights of a [monitor](outbox.md#roles).

| metric | kind | labels | meaning |
|---|---|---|---|
"""

OUTBOX_TAIL = """
`state` is `waiting`, `relayed`, `held` or `dead`; held rows are among the relayed ones too. Beyond
100,000, waiting and relayed rows are a lower bound. While the database is down,
`interlock_outbox_up` is 0 and the others are missing; the reason is logged once.
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
When it is ready it prints `interlock exporter: ENGINE on URL`. It exits with 0 after TERM or INT,
with 1 if the address is in use, and with 2 for wrong usage. It keeps running while the engine is
unreachable.
"""
