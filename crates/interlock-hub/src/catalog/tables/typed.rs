//! Declarations of the subcommands of TABLE: rows with typed columns.

use super::*;

pub(super) const SUBCOMMANDS: &[Command] = &[
    Command {
        name: "table|list",
        arity: 2,
        summary: "The names of the tables that the user may read",
        access: Access::None,
        action: Action::TableList,
        ..READING
    },
    Command {
        name: "table|info",
        arity: 3,
        summary:
            "A table's columns, capacity, key size, time to live, rule when full, slots, bytes, and whether it was removed",
        arguments: &[NAME],
        access: Access::TableName,
        action: Action::TableInfo,
        ..READING
    },
    Command {
        name: "table|count",
        arity: 4,
        summary: "Counts rows, of some slots at a time; the next cursor, and how many there were",
        arguments: &[NAME, CURSOR],
        access: Access::TableName,
        action: Action::TableCount,
        ..READING
    },
    Command {
        name: "table|scan",
        arity: -4,
        summary: "Keys with the values of all columns, some rows at a time",
        arguments: &[NAME, CURSOR, COUNT],
        access: Access::TableName,
        action: Action::TableScan,
        ..READING
    },
    Command {
        name: "table|mget",
        arity: -4,
        summary: "The values of all columns of several rows, each read on its own; null without \
                  a row",
        complexity: "O(N) in the keys",
        arguments: &[NAME, Argument { name: "key", kind: "string", flags: MULTIPLE, ..ARGUMENT }],
        access: Access::TableName,
        action: Action::TableMget,
        ..READING
    },
    Command {
        name: "table|barrier",
        arity: -3,
        summary:
            "Waits until this hub shows all writes to a table answered before by any node, and \
             until the number of other machines in ACKS have them",
        arguments: &[
            NAME,
            Argument {
                name: "machines",
                kind: "integer",
                token: "ACKS",
                flags: &["optional"],
                ..ARGUMENT
            },
        ],
        access: Access::TableName,
        action: Action::TableBarrier,
        ..READING
    },
    Command {
        name: "table|time",
        arity: 3,
        summary:
            "The time of a table's log in ms, for deadlines of TABLE CLIENT; waits like TABLE \
             BARRIER",
        arguments: &[NAME],
        access: Access::TableName,
        action: Action::TableTime,
        ..READING
    },
    Command {
        name: "table|client",
        arity: -7,
        summary:
            "Executes a command that writes rows of a table on a log, once per client and \
             number, not after a higher number of the client, and not after a deadline by TABLE \
             TIME",
        complexity: "of the command",
        arguments: &[
            Argument { name: "client", kind: "string", ..ARGUMENT },
            Argument { name: "number", kind: "integer", ..ARGUMENT },
            Argument { name: "deadline", kind: "unix-time", ..ARGUMENT },
            Argument { name: "command", kind: "string", ..ARGUMENT },
            Argument { name: "argument", kind: "string", flags: MULTIPLE, ..ARGUMENT },
        ],
        access: Access::None,
        action: Action::TableClient,
        ..WRITING
    },
    Command {
        name: "table|idle",
        arity: 3,
        summary: "Milliseconds since a row was accessed; null without a row",
        arguments: &[KEY],
        action: Action::TableIdle,
        ..READING
    },
    Command {
        name: "table|set",
        arity: -5,
        summary:
            "Sets a whole row: 1 if it was created, 0 if it was replaced, null if ONLY forbade it",
        complexity: "O(N) in the columns",
        arguments: &[
            KEY,
            Argument {
                name: "only",
                kind: "oneof",
                arguments: &[
                    Argument { name: "any", kind: "pure-token", token: "ANY", ..ARGUMENT },
                    Argument { name: "nx", kind: "pure-token", token: "NX", ..ARGUMENT },
                    Argument { name: "xx", kind: "pure-token", token: "XX", ..ARGUMENT },
                ],
                ..ARGUMENT
            },
            Argument {
                name: "ttl",
                kind: "oneof",
                arguments: &[
                    Argument { name: "default", kind: "pure-token", token: "DEFAULT", ..ARGUMENT },
                    Argument { name: "never", kind: "pure-token", token: "NEVER", ..ARGUMENT },
                    Argument { name: "milliseconds", kind: "integer", ..ARGUMENT },
                ],
                ..ARGUMENT
            },
            PAIRS,
        ],
        action: Action::TableSet,
        ..WRITING
    },
    Command {
        name: "table|mset",
        arity: -6,
        summary:
            "Sets whole rows, each on its own: number of columns, their names, then for each row \
             its key and values",
        complexity: "O(N) in the rows",
        arguments: &[
            NAME,
            Argument { name: "numcolumns", kind: "integer", ..ARGUMENT },
            Argument { name: "column", kind: "string", flags: MULTIPLE, ..ARGUMENT },
            Argument {
                name: "row",
                kind: "block",
                flags: MULTIPLE,
                arguments: &[
                    Argument { name: "key", kind: "string", ..ARGUMENT },
                    Argument { name: "value", kind: "string", flags: MULTIPLE, ..ARGUMENT },
                ],
                ..ARGUMENT
            },
        ],
        access: Access::TableName,
        action: Action::TableMset,
        ..WRITING
    },
    Command {
        name: "table|patch",
        arity: -5,
        summary: "Sets columns of an existing row together: 1, or 0 without a row",
        complexity: "O(N) in the columns",
        arguments: &[KEY, PAIRS],
        action: Action::TablePatch,
        ..WRITING
    },
    Command {
        name: "table|incr",
        arity: -5,
        summary: "Increments a column and returns its new value; null without a row",
        arguments: &[
            KEY,
            FIELD,
            Argument { name: "increment", kind: "string", ..ARGUMENT },
            Argument {
                name: "overflow",
                kind: "oneof",
                flags: &["optional"],
                arguments: &[
                    Argument { name: "wrap", kind: "pure-token", token: "WRAP", ..ARGUMENT },
                    Argument {
                        name: "saturate",
                        kind: "pure-token",
                        token: "SATURATE",
                        ..ARGUMENT
                    },
                ],
                ..ARGUMENT
            },
        ],
        action: Action::TableIncr,
        ..WRITING
    },
    Command {
        name: "table|cas",
        arity: 6,
        summary: "Sets a column if it has the expected value: 1, else 0; null without a row",
        arguments: &[KEY, FIELD, Argument { name: "expected", kind: "string", ..ARGUMENT }, VALUE],
        action: Action::TableCas,
        ..WRITING
    },
    Command {
        name: "table|pop",
        arity: 3,
        summary: "Deletes a row and returns the values of its columns; null without a row",
        arguments: &[KEY],
        action: Action::TablePop,
        ..WRITING
    },
    Command { name: "table|help", since: "1.0.0", group: "table", ..HELP },
];
