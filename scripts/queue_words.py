"""Words of the page of `interlock queue` beside the declarations, for scripts/reference.py."""

from __future__ import annotations

QUEUE = """\
<!-- Made by scripts/reference.py from the parser and the flags' declarations: change those. -->

# interlock queue

Looks at the queues of a hub or a Redis, and operates them: [how to operate a
queue](../howto/operate-a-queue.md). Data goes to standard output, all else to standard error.

## For all of them

"""

QUEUE_HEAD = """
A `QUEUE` is named by 1 to 512 bytes without braces, an `ID` is the number that a put answered. Keys
are text. What may lose something asks on a terminal; without one it is refused unless `--yes` is
there.

| code | means |
|---|---|
| 0 | done |
| 1 | the engine refused or does not answer; or no such queue or message (others are done) |
| 2 | wrong usage, or a file that is none |
| 130 | Ctrl-C |

"""

QUEUE_JSON = """
## What --json prints

An object a line. Bytes are a string where they are UTF-8, else an object with `base64`. Times are
seconds, an age or a wait that there is not is `null`. Names are not changed within a version of the
wire; new ones may come.

| of | an object for each | its names |
|---|---|---|
"""

# Of which, for each what, names.
QUEUE_NAMES = (
    ("`list`, `stats`", "queue",
     ("queue", "and those of [`il1_stats`](engine-wire.md#reading) but time; as seconds",
      "oldest_ready", "oldest_waiting")),
    ("`hot`", "key", ("key", "depth")),
    ("`peek`", "message",
     ("id", "sequence", "state", "attempt", "priority", "age", "consumer", "held_for", "lease_left",
      "due_in", "keys", "shared", "barrier", "error", "failures", "payload", "format", "value")),
    ("`explain`", "message that was asked for, or the key",
     ("queue", "truncated", "nodes", "and in each node id", "task", "state", "attempt", "age",
      "consumer", "held_for", "lease_left", "due_in", "paused", "freeing", "blocked",
      "in which key", "ahead", "exact", "holders", "blocks", "in which messages", "exact")),
    ("`roots`", "queue",
     ("queue", "blocked", "exact", "roots", "and in each root kind", "id", "key", "blocked",
      "exact", "depth", "leased_for", "due_in", "consumer", "freeing")),
    ("`watch`", "look",
     ("queue", "time", "counts", "rates", "hot", "oldest_waiting", "leases")),
    ("`watch` without a queue", "queue and look", ("queue", "time", "counts", "rates")),
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
`format` is `json`, `text`, `msgpack` or `bytes`: what a payload was taken for; `value` is what it
says, of the first and the third. `outcome` is `settled`, `failed` (the command), `late` (`--wait`
was over), `lost` (the lease was revoked) or `gone` (somebody else settled it). `export` always
writes JSON.

Of an edited dead letter `requeue` has its new `keys` and `shared` as well.
Of a dead letter `peek` has `died` (seconds since 1970) and `freeing` (the command that puts it
again) as well; `explain` has one node for it, with `id`, `state` (`dead`), `attempt`, `error`,
`died` and `freeing`. With `--roots` the nodes are the message that was asked for and the roots.
`blocks` tells how many messages wait for a node that `freeing` would free, at least so many where
`exact` is false; it is null for all other nodes, and behind the first 20.
`task` is null where a message is no call of a task.

## What export writes

The first line is the head: `interlock` (`queue`), `format` (2), `queue`, `options` (those of
`il1_configure`), `counts` (those of `il1_stats`), `paused` (keys) and `left_out` (how many were
leased). A line for each dead letter follows, in the order in which they died: `dead` (its id),
`attempts`, `time`, `error`, `keys`, `shared`, `options` (those of the put, as
[the wire](engine-wire.md#il1_put) has them, in small letters), `payload`. Then a line for each
message, in the order of their places, delayed ones last: `id`, `sequence`, `state`, `attempt`,
`due`, `error`, `keys`, `shared`, `options`, `payload`. `import` reads format 1 too, which had no
`paused`, and of dead letters `priority` instead of `options`. The last line has `end`, `messages`
and `dead`, how many there should be.
`time` and `due` are µs since 1970.
"""
