"""Words of the page of `interlock table` beside the declarations, for scripts/reference.py."""

TABLE = """\
<!-- Made by scripts/reference.py from the parser and the flags' declarations: change those. -->

# interlock table

Reads and changes [tables](table.md) in the shared memory of this machine. Data goes to standard
output, everything else to standard error.

## All subcommands

"""

TABLE_HEAD = """
A `NAME` is the name of a table in shared memory or, with a slash, the path of a table in a file.
Keys and bytes are written as text, other bytes as `base64:` and their base64. A `COLUMN` of
`create` is `NAME:TYPE` or `NAME:str:SIZE`. Subcommands that may lose data ask for confirmation on a
terminal; without a terminal they require `--yes`.

| code | meaning |
|---|---|
| 0 | done |
| 1 | the table or row does not exist, is not permitted, is full or is damaged: a line says which |
| 2 | wrong usage, or a value that its column cannot hold |
| 130 | Ctrl-C |

"""

TABLE_TAIL = """## Output of --json and export

One object per line. A row has its key as `key` (`_key` if the table has a column `key`), a field
for each column, and `_expires`, a time in ISO 8601, if it expires. Bytes are a string if they are
UTF-8, else an object with `base64`; `nan`, `inf` and `-inf` are strings.

CSV has the same names in its first line, and all columns in each row; bytes that are not UTF-8 are
`base64:` and their base64. An Arrow file, which needs pyarrow, has the types of
[export()](table.md#arrow-and-numpy), with `_expires` as a timestamp.

| subcommand | fields |
|---|---|
| `create`, `list`, `info` | `table`, `path`, `columns` (`name`, `type`, `size`), `capacity`, `key_size`, `ttl`, `on_full` |
| `create` also | `created`: true if the table did not exist |
| `info` also | `bytes`, `slot_bytes`, `rows`, `levels` (`slots`, `rows`), and the counts of [TableStats](table.md#tablestats) |
| `watch` | `table`, `time` (seconds since 1970), `rows`, and the counts |
| `get` of a column | only the value |
| `incr` | the key and the column |
| `reset` | `table`, `deleted` |
| `resize` | `table`, `capacity`, and `moved`, `expired`, `dropped` of [Resized](table.md#resize) |
| `remove` | `table`, `removed` |
| `import` | `table`, `set`, `present` (existing rows, unchanged), `expired` (expired rows, left out) |
"""  # noqa: E501

TABLE_COMMAND = """
## interlock table

Reads and changes tables in shared memory: [its own page](table-cli.md).
"""
