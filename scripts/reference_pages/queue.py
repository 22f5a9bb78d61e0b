"""Words of the page of `interlock queue` beside the declarations, for scripts/reference.py."""

from __future__ import annotations

QUEUE = """\
<!-- Made by scripts/reference.py from the parser and the flags' declarations: change those. -->

# interlock queue

Inspects and operates the queues of a hub or a Redis: [how to operate a
queue](../howto/operate-a-queue.md). Data goes to standard output, everything else to standard
error.

## All subcommands

"""

QUEUE_HEAD = """
A `QUEUE` is a name of 1 to 512 bytes without braces, an `ID` is the number that a put returned.
Keys are text. Subcommands that may lose messages ask for confirmation on a terminal; without a
terminal they require `--yes`.

| code | meaning |
|---|---|
| 0 | done |
| 1 | the engine refused or does not answer; or a queue or message is unknown (others are done) |
| 2 | wrong usage, or an invalid file |
| 130 | Ctrl-C |

"""

QUEUE_JSON = """
## Output of --json

One object per line. Bytes are a string if they are UTF-8, else an object with `base64`. Times are
in seconds; a missing age or wait is `null`. Names do not change within a version of the wire; names
may be added.

| subcommand | an object per | fields |
|---|---|---|
"""

# Of which, for each what, names.
QUEUE_NAMES = (
    ("`list`, `stats`", "queue",
     ("queue", "and those of [`il1_stats`](engine-wire.md#reading) except time; in seconds",
      "oldest_ready", "oldest_waiting")),
    ("`hot`", "key", ("key", "depth")),
    ("`limits`", "limit name",
     ("name", "most", "interval", "burst", "leased", "waiting", "keeper", "next_in", "closed_for")),
    ("`peek`", "message",
     ("id", "sequence", "state", "attempt", "priority", "age", "consumer", "held_for", "lease_left",
      "due_in", "keys", "shared", "barrier", "limit", "group", "coalesce", "replaced", "behind",
      "error", "failures", "payload", "format", "value")),
    ("`explain`", "message given, or the key",
     ("queue", "truncated", "nodes", "and in each node id", "task", "state", "attempt", "age",
      "consumer", "held_for", "lease_left", "due_in", "paused", "freeing", "blocked",
      "in which key", "ahead", "exact", "holders", "limits", "in which name", "most", "leased",
      "keeper", "next_in", "holders", "turn", "in which group", "ready", "ahead", "parked",
      "in which key", "since", "times", "ahead", "paused", "behind", "blocks", "in which messages",
      "exact")),
    ("`roots`", "queue",
     ("queue", "blocked", "exact", "roots", "and in each root kind", "id", "key", "blocked",
      "exact", "depth", "leased_for", "due_in", "consumer", "freeing")),
    ("`watch`", "refresh",
     ("queue", "time", "counts", "rates", "hot", "oldest_waiting", "leases")),
    ("`watch` without a queue", "queue and refresh", ("queue", "time", "counts", "rates")),
    ("`revoke`, `retry`, `skip`, `bury`, `cancel`, `discard`", "message", ("id", "changed")),
    ("`pause`, `resume`", "key, or the queue", ("queue", "key", "changed")),
    ("`seal`, `reopen`", "queue", ("queue", "changed")),
    ("`check`", "setting of a server, or a server",
     ("server", "setting", "value", "problem", "advice", "error")),
    ("`configure`", "queue", ("queue", "options", "changed")),
    ("`dead-letters`", "dead letter",
     ("id", "attempts", "time", "error", "priority", "keys", "shared", "payload", "format",
      "value")),
    ("`requeue`", "dead letter", ("id", "new")),
    ("`purge`", "queue", ("queue", "purged", "leased")),
    ("`drop`", "queue", ("queue", "dropped", "messages", "leased", "dead", "results")),
    ("`barrier`", "barrier", ("queue", "id", "outcome")),
    ("`import`", "queue", ("queue", "messages", "known", "dead")),
)  # fmt: skip

QUEUE_TAIL = """
`format` is the detected format of a payload: `json`, `text`, `msgpack` or `bytes`; `value` is the
decoded value of `json` and `msgpack`. `outcome` is `settled`, `failed` (the command), `late`
(`--wait` passed), `lost` (the lease was revoked) or `gone` (someone else settled it). `export`
always writes JSON.

For an edited dead letter, `requeue` also has its new `keys` and `shared`.
For a dead letter, `peek` also has `died` (seconds since 1970) and `freeing` (the command that
requeues it); `explain` has one node for it, with `id`, `state` (`dead`), `attempt`, `error`,
`died` and `freeing`. With `--roots`, the nodes are the message given and the roots.
`blocks` is the number of messages that wait for a node with a `freeing` command, a minimum if
`exact` is false; it is null for all other nodes, and after the first 20.
`task` is null if a message is not a call of a task.

## Format of an export

The first line is the header: `interlock` (`queue`), `format` (2), `queue`, `options` (those of
`il1_configure`), `counts` (those of `il1_stats`), `paused` (keys) and `left_out` (number of leased
messages). Then comes a line per dead letter, in the order of their deaths: `dead` (its id),
`attempts`, `time`, `error`, `keys`, `shared`, `options` (those of the put, as in
[the wire](engine-wire.md#il1_put), in lower case), `payload`. Then comes a line per message, in the
order of their places, delayed ones last: `id`, `sequence`, `state`, `attempt`, `due`, `error`,
`keys`, `shared`, `options`, `payload`. `import` also reads format 1, which has no `paused`, and
whose dead letters have `priority` instead of `options`. The last line has `end`, and in `messages`
and `dead` the numbers of messages and dead letters.
`time` and `due` are µs since 1970.
"""
