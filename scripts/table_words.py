"""Words of the page of `interlock table` beside the declarations, for scripts/reference.py."""

TABLE = """\
<!-- Made by scripts/reference.py from the parser and the flags' declarations: change those. -->

# interlock table

Looks at [tables](table.md) in the shared memory of this machine, and changes them. Data goes to
standard output, all else to standard error.

## For all of them

"""

TABLE_HEAD = """
A `NAME` is a table's in shared memory; with a slash it is the path of a table in a file. Keys and
bytes are written as text; `base64:` before it stands for what is no text. A `COLUMN` of `create` is
`NAME:TYPE` or `NAME:str:SIZE`. What may lose something asks on a terminal; without one it is
refused unless `--yes` is there.

| code | means |
|---|---|
| 0 | done |
| 1 | no such table or row, no right to it, no room, or it is damaged: the line says which |
| 2 | wrong usage, or a value that its column cannot hold |
| 130 | Ctrl-C |

"""

TABLE_TAIL = """## What --json and export write

An object a line. A row has its key as `key` (`_key` where the table has a column `key`), a name for
each column, and `_expires`, a time in ISO 8601, if it expires. Bytes are a string where they are
UTF-8, else an object with `base64`; `nan`, `inf` and `-inf` are strings.

CSV has the same names in its first line, and all columns in each; bytes that are no UTF-8 are
`base64:` and their base64. An Arrow file, which needs pyarrow, has the types of
[export()](table.md#arrow-and-numpy), `_expires` as a timestamp.

| of | names |
|---|---|
| `create`, `list`, `info` | `table`, `path`, `columns` (`name`, `type`, `size`), `capacity`, `key_size`, `ttl`, `on_full` |
| `create` as well | `created`: it was not there |
| `info` as well | `bytes`, `slot_bytes`, `rows`, `levels` (`slots`, `rows`), and the counts of [TableStats](table.md#tablestats) |
| `watch` | `table`, `time` (seconds since 1970), `rows`, and the counts |
| `get` of a column | the value alone |
| `incr` | the key, and the column |
| `reset` | `table`, `deleted` |
| `resize` | `table`, `capacity`, and `moved`, `expired`, `dropped` of [Resized](table.md#resize) |
| `remove` | `table`, `removed` |
| `import` | `table`, `set`, `present` (left as they were), `expired` (left out) |
"""  # noqa: E501

TABLE_COMMAND = """
## interlock table

Looks at tables in shared memory, and changes them: [its own page](table-cli.md).
"""
