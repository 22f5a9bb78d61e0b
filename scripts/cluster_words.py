"""Words of the page of `interlock cluster` beside the declarations, for scripts/reference.py."""

CLUSTER = """\
<!-- Made by scripts/reference.py from the parser and the flags' declarations: change those. -->

# interlock cluster

Looks at a cluster of nodes that serve a [table](table.md) together, and operates it. The nodes are
found by what they announce in their engine, and asked by themselves. Data goes to standard output,
all else to standard error.

## For all of them

"""

CLUSTER_HEAD = """
`--url` is that of [connect](client.md#connect), with the name of the cluster, which is that of its
table: `interlock+cluster://10.0.0.9:6379/presence`. Where the nodes have users, it has one with the
right of administration for them: `?user=NAME&password=PASSWORD`.

| code | means |
|---|---|
| 0 | done; of `status`: all nodes answer, and none is stuck or has other rows than another at the same position; of `diff`: equal |
| 1 | refused, no such node, no connection, or not done within `--wait`; of `diff`: they differ |
| 2 | wrong usage |
| 130 | Ctrl-C |

"""  # noqa: E501

CLUSTER_TAIL = """## What status shows

```text
cluster presence at interlock+cluster://10.0.0.9:6379/presence
main: 2 of 2 nodes serve; each takes reads and writes

node  dc    state    address        position  behind  lag   rows    checksum  up
a1    main  serving  10.0.0.1:6399    81,207       0  0 ms  20,113  5f0c9a31  4 h
a2    main  serving  10.0.0.2:6399    81,207       0  0 ms  20,113  5f0c9a31  3 h
```

| column | means |
|---|---|
| `state` | `serving`; `joining`: it reads its log and takes no writes yet; `stuck`: the log's beginning is gone and it has no checkpoint that the log still has; `read-only`: the log is of a table with other settings |
| `position` | entries of the log that the node has applied |
| `behind`, `lag` | entries that the node furthest on has and it has not; time for which it is behind its log |
| `checksum` | the first digits of that of all rows: equal at the same position, or one of the nodes is wrong. That is an alarm, below the table and in the exit code |

A second table has the links between data centres: the node that sends, its state (`ok`, `copying`, `cut`; `idle`: none sends),
how far it is behind, when the other engine last answered, and rows sent. A third has the databases: how far each is behind, rows that
wait to be written, and rows written. Below them is what nodes say is wrong.

## What --json writes

`status` and `nodes` write a line a node: `status` what the node says of itself by `NODE STATUS`, or
its announcement with `error`; `nodes` the announcement.

| of | names |
|---|---|
| `nodes` | `id`, `dc`, `role`, `address`, `http`, `position`, `rows_checksum`, `lag_entries`, `machine`, `lag_ms`, `since`, `version`, `table`, `draining` |
| `status` | `id`, `dc`, `table`, `state`, `serves`, `draining`, `address`, `machine`, `started`, `position`, `log_id` (of its last entry in the engine), `log_checksum`, `rows_checksum`, `log_time`, `lag_entries`, `lag_s`, `rows`, `tombstones`, `tombstones_dropped`, `checkpoint` (position), `ring` (entries that it could put back), `went_back`, `put_back`, `merged_rows`, `clients`, `clients_limit`, `waiting`, `appended_entries`, `appended_bytes`, `ack`, `rules`, `clock_difference_s`, `fault`, `trouble` (`kind`, `text`, `since`), `nodes`, `links`, `database` |
| `drain` | `node`, `others` (nodes that take reads and writes), `seconds` |
| `resync` | `node`, `rows`, `seconds` |
| `diff` | `position` and `checksums`, if they differ |

## What diff compares

Both nodes are asked until they were at the same position of their log: there their checksums are equal,
or one of them is wrong. So it can be asked of a cluster in use. Nodes of two data centres have two logs
and cannot be compared.
"""  # noqa: E501

CLUSTER_COMMAND = """
## interlock cluster

Looks at a cluster of nodes that serve a table, and operates it: [its own page](cluster-cli.md).
"""

NODE = """
## interlock node

Serves a [table](table.md) that is the same on several machines: a [hub](#interlock-hub) that takes
part in a cluster. [Clients find it](../howto/cluster-clients.md) by what it announces in the engine
of `--cluster`, and load balancers [by its pages](../howto/cluster-balancers.md).

```text
interlock node --table NAME=FILE.py:CLASS --cluster URL [FLAGS]
```

"""

NODE_TAIL = """
Once it listens it prints `interlock node: NAME ready on ADDRESS, ...`. TERM and INT stop it once
it has answered what clients have asked. A second signal ends it at once. It exits
with 0 when a signal stopped it, with 1 where it cannot listen or go on, with 2 for wrong usage.
"""
