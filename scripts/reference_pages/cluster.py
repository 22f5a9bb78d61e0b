"""Words of the page of `interlock cluster` beside the declarations, for scripts/reference.py."""

CLUSTER = """\
<!-- Made by scripts/reference.py from the parser and the flags' declarations: change those. -->

# interlock cluster

Inspects and operates a cluster of nodes that serve a [table](table.md). The command finds the nodes by their announcements in the
engine, and queries each of them. Data goes to standard output, everything else to standard error.

## Flags of every command

"""  # noqa: E501

CLUSTER_HEAD = """
`--url` has the form used by [connect](client.md#connect), with the name of the cluster, which is the name of its
table: `interlock+cluster://10.0.0.9:6379/presence`. If the nodes have users, it names one that may
administer them: `?user=NAME&password=PASSWORD`.

| exit code | means |
|---|---|
| 0 | done; `status`: the engine and all nodes answer, no node is stuck or has other rows than another at the same position, no link is cut for more than 60 s, and all databases are written; `diff`: equal |
| 1 | refused, unknown node, no connection, or not done within `--wait`; `status`: something is wrong; `diff`: different |
| 2 | wrong usage |
| 130 | Ctrl-C |

"""  # noqa: E501

CLUSTER_TAIL = """## What status shows

```text
cluster presence at interlock+cluster://10.0.0.9:6379/presence
east: 2 of 2 nodes take reads and writes

node  dc    state    address        position  behind  lag   rows    checksum  up
a1    east  serving  10.0.0.1:6399    81,207       0  0 ms  20,113  5f0c9a31  4 h
a2    east  serving  10.0.0.2:6399    81,207       0  0 ms  20,113  5f0c9a31  3 h

link          node  state  lag    heard       changes  position
east -> west  a1    ok     41 ms  190 ms ago   12,800  81,198

node  database                                   delay  waiting  written
a1    postgresql://app@10.0.0.20:5432/presence   12 ms        3   20,110
```

| column | means |
|---|---|
| `state` | `serving`; `joining`: it reads its log and takes no writes yet; `stuck`: its log begins after its checkpoint, and no node has supplied a snapshot; `read-only`: its ring or its table cannot be written, lost entries are not back yet, or the log belongs to a table with other settings |
| `position` | entries of the log that the node has applied |
| `behind`, `lag` | entries that the most advanced node has applied and this one has not; time that the node is behind its log |
| `checksum` | first digits of the checksum of all rows: nodes at the same position have the same, or one is wrong. A difference is an alarm, shown below the table and in the exit code |
| `heard` | time since the link last reached the other data centre |
| `changes` | rows that the link has sent since the node started |
| `delay`, `waiting`, `written` | delay of the database, number of waiting rows, number of rows written since the node started |

A line below the tables names whatever hinders a node, as long as it does.

While the engine is away, `status` asks the nodes that it has shown before on this machine, and those of `--node`; each of them
names the others that it knows. It prints the engine's error to standard error, and exits with 1. The nodes it has shown are in
`interlock/nodes` under `$XDG_CACHE_HOME` (`~/.cache`), without passwords; the files may be deleted.

## What --json writes

`status` and `nodes` write one line for each node: for `nodes` its announcement, for `status` its reply to `NODE STATUS`, or its
announcement with `error`.

| command | names |
|---|---|
| `nodes` | `id`, `dc`, `role`, `address`, `http`, `position`, `rows_checksum`, `log_checksum`, `lag_entries`, `machine`, `lag_ms`, `since`, `version`, `table`, `draining` |
| `status` | `id`, `dc`, `table`, `state`, `serves`, `draining`, `address`, `machine`, `started`, `position`, `log_id` (id of its last entry in the engine), `log_checksum`, `rows_checksum`, `log_time`, `lag_entries`, `lag_s`, `rows`, `tombstones`, `tombstones_dropped`, `checkpoint` (its position), `ring` (entries that it could put back), `went_back`, `resyncs`, `put_back`, `merged_rows`, `clients`, `clients_limit`, `largest_entry` (bytes that the engine accepts), `largest_entry_setting` (the setting that limits it), `untrimmed` (why nodes do not trim the log on this engine; empty if they do), `waiting`, `waiting_for_acks`, `noack_replies`, `other_machines`, `cut` (the position before which the log may be trimmed), `keepers` (`id`, `machine`, `checkpoint`: nodes that report checkpoints), `awaited` (keepers without which nothing is trimmed), `appended_entries`, `appended_bytes`, `ack`, `rules`, `clock_difference_s`, `fault`, `trouble` (`kind`, `text`, `since`), `nodes`, `links`, `database` |
| `drain` | `node`, `others` (that take reads and writes), `seconds` |
| `resync` | `node`, `rows`, `seconds` |
| `diff` | for each row that differs: `key`, `differs` (by column the values of both; null if the row is absent), up to `--limit` |
| `forget` | `forgotten` |

## What diff compares

Nodes of one data centre are queried until both have been at the same position. If their checksums there differ, one of them is
wrong. So the comparison works while clients write. Only if the checksums differ, and for nodes of two data centres, all rows of both are read, and those that
differ are listed with the values that clients see. A change in transit is not a difference: it counts only if a node still lacks it
after `--settle`.
"""  # noqa: E501

CLUSTER_COMMAND = """
## interlock cluster

Inspects and operates a cluster of nodes that serve a table: [its own page](cluster-cli.md).
"""

NODE = """
## interlock node

Serves a [table](table.md) that is the same on several machines: a [hub](#interlock-hub) that is
part of a cluster. [Clients find it](../howto/cluster-clients.md) by its announcement in the engine
of `--cluster`, and load balancers [by its pages](../howto/cluster-balancers.md).

```text
interlock node --table NAME=FILE.py:CLASS --cluster URL [FLAGS]
```

"""

NODE_TAIL = """
It prints `interlock node: NAME ready on ADDRESS, ...` once it listens. It may still be `joining`
then: `/ready` answers 200 once it has read its log. TERM and INT stop it after it has answered
pending writes. A second signal ends it at once. Exit codes: 0 stopped by a signal, 1 it cannot
listen or continue, 2 wrong usage.
"""
