//! Declarations of the commands on rows of state tables: those that Redis has for hashes and keys, and
//! TABLE, for what a typed row can beyond a hash.

mod typed;

use self::typed::SUBCOMMANDS;
use super::{Access, Action, Argument, Command, ARGUMENT, COMMAND, HELP};

pub const DECLARED: &[Command] = &[
    Command {
        name: "hget",
        arity: 3,
        flags: READ_FAST,
        categories: &["@read", "@hash", "@fast", "@table"],
        summary: "The value of a column; null without a row",
        arguments: &[KEY, FIELD],
        action: Action::Hget,
        ..OF_HASH
    },
    Command {
        name: "hset",
        arity: -4,
        flags: GROW_FAST,
        categories: WRITE_HASH,
        summary:
            "Sets columns of a row together; a missing row is created, with the other columns 0 \
             or empty",
        complexity: "O(N) in the columns",
        arguments: &[KEY, PAIRS],
        action: Action::Hset,
        ..OF_HASH
    },
    Command {
        name: "hmget",
        arity: -3,
        flags: READ_FAST,
        categories: &["@read", "@hash", "@fast", "@table"],
        summary: "The values of columns at one moment; nulls without a row",
        complexity: "O(N) in the columns",
        arguments: &[KEY, FIELDS],
        action: Action::Hmget,
        ..OF_HASH
    },
    Command {
        name: "hgetall",
        arity: 2,
        flags: &["readonly"],
        categories: READ_HASH,
        tips: &["nondeterministic_output_order"],
        summary: "All columns of a row with their values at one moment",
        complexity: "O(N) in the columns",
        arguments: &[KEY],
        action: Action::Hgetall,
        ..OF_HASH
    },
    Command {
        name: "hincrby",
        arity: 4,
        flags: GROW_FAST,
        categories: WRITE_HASH,
        summary: "Increments a column of whole numbers; a missing row is created, with the other \
             columns 0 or empty",
        arguments: &[KEY, FIELD, Argument { name: "increment", kind: "integer", ..ARGUMENT }],
        action: Action::Hincrby,
        ..OF_HASH
    },
    Command {
        name: "hincrbyfloat",
        arity: 4,
        flags: GROW_FAST,
        categories: WRITE_HASH,
        summary:
            "Increments a column of floats; a missing row is created, with the other columns 0 \
             or empty",
        since: "2.6.0",
        arguments: &[KEY, FIELD, Argument { name: "increment", kind: "double", ..ARGUMENT }],
        action: Action::Hincrbyfloat,
        ..OF_HASH
    },
    Command {
        name: "hmset",
        arity: -4,
        flags: GROW_FAST,
        categories: WRITE_HASH,
        summary: "Like HSET, but returns OK",
        complexity: "O(N) in the columns",
        arguments: &[KEY, PAIRS],
        action: Action::Hmset,
        ..OF_HASH
    },
    Command {
        name: "hsetnx",
        arity: 4,
        flags: GROW_FAST,
        categories: WRITE_HASH,
        summary: "Creates a row with this column if there is none; a row has all its columns",
        arguments: &[KEY, FIELD, VALUE],
        action: Action::Hsetnx,
        ..OF_HASH
    },
    Command {
        name: "hdel",
        arity: -3,
        flags: WRITE_FAST,
        categories: WRITE_HASH,
        summary:
            "Returns an error for an existing row and column, because a row has all its columns; \
             else 0",
        arguments: &[KEY, FIELDS],
        action: Action::Hdel,
        ..OF_HASH
    },
    Command {
        name: "hexists",
        arity: 3,
        flags: READ_FAST,
        categories: &["@read", "@hash", "@fast", "@table"],
        summary: "1 if there are such a row and column",
        arguments: &[KEY, FIELD],
        action: Action::Hexists,
        ..OF_HASH
    },
    Command {
        name: "hlen",
        arity: 2,
        flags: READ_FAST,
        categories: &["@read", "@hash", "@fast", "@table"],
        summary: "The number of columns; 0 without a row",
        arguments: &[KEY],
        action: Action::Hlen,
        ..OF_HASH
    },
    Command {
        name: "hstrlen",
        arity: 3,
        flags: READ_FAST,
        categories: &["@read", "@hash", "@fast", "@table"],
        summary: "The number of bytes that HGET would return",
        since: "3.2.0",
        arguments: &[KEY, FIELD],
        action: Action::Hstrlen,
        ..OF_HASH
    },
    Command {
        name: "hkeys",
        arity: 2,
        flags: &["readonly"],
        categories: READ_HASH,
        tips: &["nondeterministic_output_order"],
        summary: "The names of the columns; none without a row",
        complexity: "O(N) in the columns",
        arguments: &[KEY],
        action: Action::Hkeys,
        ..OF_HASH
    },
    Command {
        name: "hvals",
        arity: 2,
        flags: &["readonly"],
        categories: READ_HASH,
        tips: &["nondeterministic_output_order"],
        summary: "The values of the columns at one moment; none without a row",
        complexity: "O(N) in the columns",
        arguments: &[KEY],
        action: Action::Hvals,
        ..OF_HASH
    },
    Command {
        name: "hscan",
        arity: -3,
        flags: &["readonly"],
        categories: READ_HASH,
        tips: &["nondeterministic_output"],
        summary: "HGETALL in one step, for clients that iterate over columns",
        since: "2.8.0",
        complexity: "O(N) in the columns",
        arguments: &[KEY, CURSOR, MATCH, COUNT],
        action: Action::Hscan,
        ..OF_HASH
    },
    Command {
        name: "del",
        arity: -2,
        flags: &["write"],
        categories: &["@keyspace", "@write", "@slow", "@table"],
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        summary: "Deletes rows; returns the number deleted",
        complexity: "O(N) in the keys",
        ..DELETING
    },
    Command {
        name: "unlink",
        arity: -2,
        flags: WRITE_FAST,
        categories: WRITE_KEY,
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        summary: "The same as DEL",
        since: "4.0.0",
        complexity: "O(N) in the keys",
        ..DELETING
    },
    Command {
        name: "exists",
        arity: -2,
        flags: READ_FAST,
        categories: READ_KEY,
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        summary: "The number of keys that have a row",
        complexity: "O(N) in the keys",
        action: Action::Exists,
        ..DELETING
    },
    Command {
        name: "touch",
        arity: -2,
        flags: READ_FAST,
        categories: READ_KEY,
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        summary: "Marks rows as accessed; returns the number that exist",
        since: "3.2.1",
        complexity: "O(N) in the keys",
        action: Action::Touch,
        ..DELETING
    },
    Command {
        name: "expire",
        arity: -3,
        summary: "Sets the time to live of a row in seconds",
        arguments: &[KEY, SECONDS, WHEN],
        action: Action::Expire,
        ..EXPIRING
    },
    Command {
        name: "pexpire",
        arity: -3,
        summary: "Sets the time to live of a row in ms",
        since: "2.6.0",
        arguments: &[KEY, MILLISECONDS, WHEN],
        action: Action::Pexpire,
        ..EXPIRING
    },
    Command {
        name: "expireat",
        arity: -3,
        summary: "Sets the expiry of a row, in seconds since 1970",
        since: "1.2.0",
        arguments: &[KEY, SECONDS, WHEN],
        action: Action::Expireat,
        ..EXPIRING
    },
    Command {
        name: "pexpireat",
        arity: -3,
        summary: "Sets the expiry of a row, in ms since 1970",
        since: "2.6.0",
        arguments: &[KEY, MILLISECONDS, WHEN],
        action: Action::Pexpireat,
        ..EXPIRING
    },
    Command {
        name: "persist",
        arity: 2,
        summary: "Removes the expiry of a row",
        since: "2.2.0",
        arguments: &[KEY],
        action: Action::Persist,
        ..EXPIRING
    },
    Command {
        name: "ttl",
        arity: 2,
        flags: READ_FAST,
        categories: READ_KEY,
        tips: &["nondeterministic_output"],
        summary: "Remaining seconds of a row; -1 without an expiry, -2 without a row",
        arguments: &[KEY],
        action: Action::Ttl,
        ..EXPIRING
    },
    Command {
        name: "expiretime",
        arity: 2,
        flags: READ_FAST,
        categories: READ_KEY,
        summary: "Expiry of a row, in seconds since 1970; -1 for none, -2 without a row",
        since: "7.0.0",
        arguments: &[KEY],
        action: Action::Expiretime,
        ..EXPIRING
    },
    Command {
        name: "pexpiretime",
        arity: 2,
        flags: READ_FAST,
        categories: READ_KEY,
        summary: "Expiry of a row, in ms since 1970; -1 for none, -2 without a row",
        since: "7.0.0",
        arguments: &[KEY],
        action: Action::Pexpiretime,
        ..EXPIRING
    },
    Command {
        name: "pttl",
        arity: 2,
        flags: READ_FAST,
        categories: READ_KEY,
        tips: &["nondeterministic_output"],
        summary: "Remaining ms of a row; -1 without an expiry, -2 without a row",
        since: "2.6.0",
        arguments: &[KEY],
        action: Action::Pttl,
        ..EXPIRING
    },
    Command {
        name: "type",
        arity: 2,
        flags: READ_FAST,
        categories: READ_KEY,
        summary: "hash, or none without a row",
        arguments: &[KEY],
        action: Action::Type,
        ..EXPIRING
    },
    Command {
        name: "scan",
        arity: -2,
        flags: &["readonly"],
        categories: &["@keyspace", "@read", "@slow", "@table"],
        tips: &["nondeterministic_output", "request_policy:special"],
        summary: "Keys of rows of all tables that the user may read, some at a time",
        since: "2.8.0",
        complexity: "O(1) each",
        arguments: &[
            CURSOR,
            MATCH,
            COUNT,
            Argument {
                name: "type",
                kind: "string",
                token: "TYPE",
                since: "6.0.0",
                flags: &["optional"],
                ..ARGUMENT
            },
        ],
        topics: None,
        access: Access::None,
        action: Action::Scan,
        ..EXPIRING
    },
    Command {
        name: "table",
        arity: -2,
        categories: &["@slow"],
        summary: "Commands about state tables and their rows, beyond those on hashes",
        since: "1.0.0",
        group: "table",
        complexity: "of the subcommand",
        subcommands: SUBCOMMANDS,
        action: Action::Container,
        ..COMMAND
    },
];

const READ_FAST: &[&str] = &["readonly", "fast"];
const WRITE_FAST: &[&str] = &["write", "fast"];
const GROW_FAST: &[&str] = &["write", "denyoom", "fast"];
const READ_HASH: &[&str] = &["@read", "@hash", "@slow", "@table"];
const WRITE_HASH: &[&str] = &["@write", "@hash", "@fast", "@table"];
const READ_KEY: &[&str] = &["@keyspace", "@read", "@fast", "@table"];
const WRITE_KEY: &[&str] = &["@keyspace", "@write", "@fast", "@table"];
const MULTIPLE: &[&str] = &["multiple"];
const OPTIONAL: &[&str] = &["optional"];

const OF_HASH: Command = Command {
    since: "2.0.0",
    group: "hash",
    complexity: "O(1)",
    topics: Some((1, 1, 1)),
    access: Access::Row,
    ..COMMAND
};

const EXPIRING: Command = Command {
    flags: WRITE_FAST,
    categories: WRITE_KEY,
    since: "1.0.0",
    group: "generic",
    complexity: "O(1)",
    topics: Some((1, 1, 1)),
    access: Access::Row,
    ..COMMAND
};

const DELETING: Command = Command {
    arguments: &[KEYS],
    topics: Some((1, -1, 1)),
    access: Access::Rows,
    action: Action::Del,
    ..EXPIRING
};

const READING: Command = Command {
    flags: &["readonly"],
    categories: &["@read", "@slow", "@table"],
    since: "1.0.0",
    group: "table",
    complexity: "O(1)",
    access: Access::TableRow,
    ..COMMAND
};

const WRITING: Command =
    Command { flags: &["write"], categories: &["@write", "@slow", "@table"], ..READING };

const KEY: Argument = Argument { name: "key", kind: "key", ..ARGUMENT };
const KEYS: Argument = Argument { flags: MULTIPLE, ..KEY };
const NAME: Argument = Argument { name: "table", kind: "string", ..ARGUMENT };
const FIELD: Argument = Argument { name: "field", kind: "string", ..ARGUMENT };
const FIELDS: Argument = Argument { flags: MULTIPLE, ..FIELD };
const VALUE: Argument = Argument { name: "value", kind: "string", ..ARGUMENT };
const PAIRS: Argument = Argument {
    name: "field_value",
    kind: "block",
    flags: MULTIPLE,
    arguments: &[FIELD, VALUE],
    ..ARGUMENT
};
const CURSOR: Argument = Argument { name: "cursor", kind: "integer", ..ARGUMENT };
const MATCH: Argument =
    Argument { name: "pattern", kind: "pattern", token: "MATCH", flags: OPTIONAL, ..ARGUMENT };
const COUNT: Argument =
    Argument { name: "count", kind: "integer", token: "COUNT", flags: OPTIONAL, ..ARGUMENT };
const SECONDS: Argument = Argument { name: "seconds", kind: "integer", ..ARGUMENT };
const MILLISECONDS: Argument = Argument { name: "milliseconds", kind: "integer", ..ARGUMENT };
const WHEN: Argument = Argument {
    name: "condition",
    kind: "oneof",
    since: "7.0.0",
    flags: OPTIONAL,
    arguments: &[
        Argument { name: "nx", kind: "pure-token", token: "NX", ..ARGUMENT },
        Argument { name: "xx", kind: "pure-token", token: "XX", ..ARGUMENT },
        Argument { name: "gt", kind: "pure-token", token: "GT", ..ARGUMENT },
        Argument { name: "lt", kind: "pure-token", token: "LT", ..ARGUMENT },
    ],
    ..ARGUMENT
};
