"""What is said to both servers: well, wrongly, and not in the protocol at all."""

from __future__ import annotations

from tests.hub.wire import Exchange, Step, raw, say

NAMES = (
    *("PING", "ECHO", "HELLO", "AUTH", "SELECT", "QUIT", "RESET", "CLIENT", "COMMAND", "INFO"),
    *("SUBSCRIBE", "PSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SSUBSCRIBE", "SUNSUBSCRIBE"),
    *("PUBLISH", "SPUBLISH", "PUBSUB", "READONLY", "MONITOR", "SHUTDOWN"),
)
SERVER = (
    *("config|get", "config|set", "config|help", "acl|whoami", "acl|help", "slowlog|get"),
    *("slowlog|len", "slowlog|reset", "slowlog|help", "client|unblock", "client|help"),
    *("command|help", "command|list", "pubsub|help"),
)
# SETINFO and NO-TOUCH are younger than the Redis compared with.
CLIENT = ("ID", "INFO", "LIST", "SETNAME", "GETNAME", "NO-EVICT", "REPLY", "KILL")
PUBSUB = ("CHANNELS", "NUMSUB", "NUMPAT", "SHARDCHANNELS", "SHARDNUMSUB")
HELLO_3 = say("HELLO", 3)
HELLO = ("version", "id")


def one(name: str, *steps: Step, masks: tuple[str, ...] = ()) -> Exchange:
    return Exchange(name, steps, masks)


CONNECTION = (
    one("ping", say("PING"), say("ping", "x"), say("PING", ""), say("PING", "a", "b")),
    one("echo", say("ECHO", "hello"), say("ECHO"), say("ECHO", "a", "b"),
        say("ECHO", b"\0\r\n\xff")),
    one("select", say("SELECT", 0), say("SELECT", 16), say("SELECT", "x"), say("SELECT", -1)),
    one("select arguments", say("SELECT"), say("SELECT", "0", "1"), say("SELECT", "99999999999")),
    one("quit", say("QUIT", ends=True)),
    one("quit with arguments", say("QUIT", "now", ends=True)),
    one("quit ends a pipeline", raw(b"PING\r\nQUIT\r\nPING\r\n", ends=True)),
    one("auth", say("AUTH", "x"), say("AUTH", "default", "x"), say("AUTH", "nobody", "x")),
    one("auth arguments", say("AUTH"), say("AUTH", "a", "b", "c")),
    one("hello", say("HELLO"), masks=HELLO),
    one("hello 2", say("HELLO", 2), masks=HELLO),
    one("hello 3", HELLO_3, say("HELLO"), masks=HELLO),
    one("hello wrong", say("HELLO", 1), say("HELLO", 4), say("HELLO", "x"), say("HELLO", "")),
    one("hello options", say("HELLO", 2, "WHAT"), say("HELLO", 3, "AUTH", "a"),
        say("HELLO", 3, "SETNAME"), say("HELLO", 3, "SETNAME", "a b")),
    one("hello auth", say("HELLO", 3, "AUTH", "nobody", "x"), say("PING")),
    one("hello setname", say("HELLO", 3, "SETNAME", "me"), say("CLIENT", "GETNAME"),
        say("HELLO", 2, "SETNAME", "you"), say("CLIENT", "GETNAME"),
        masks=HELLO),
    one("reset", say("CLIENT", "SETNAME", "x"), say("SUBSCRIBE", "a"), say("RESET"),
        say("CLIENT", "GETNAME"), say("PING")),
    one("reset to resp2", HELLO_3, say("RESET"), say("CLIENT", "GETNAME"), say("RESET", "x"),
        masks=HELLO),
    one("client names", say("CLIENT", "GETNAME"), say("CLIENT", "SETNAME", "a"),
        say("CLIENT", "GETNAME"), say("CLIENT", "SETNAME", ""), say("CLIENT", "GETNAME"),
        say("CLIENT", "SETNAME", "a b"), say("CLIENT", "SETNAME", "a\nb"),
        say("CLIENT", "SETNAME")),
    one("client getname in resp3", HELLO_3, say("CLIENT", "GETNAME"),
        masks=HELLO),
    one("client id", say("CLIENT", "ID"), say("CLIENT", "ID", "x"), masks=("int",)),
    one("client unknown", say("CLIENT"), say("CLIENT", "NONSENSE"), say("CLIENT", "NONSENSE", "x")),
    one("client no-evict", say("CLIENT", "NO-EVICT", "ON"), say("CLIENT", "NO-EVICT", "off"),
        say("CLIENT", "NO-EVICT", "x"), say("CLIENT", "NO-EVICT")),
    one("client kill wrong", say("CLIENT", "KILL"), say("CLIENT", "KILL", "127.0.0.1:1"),
        say("CLIENT", "KILL", "ID", "x"), say("CLIENT", "KILL", "ID", "99999999"),
        say("CLIENT", "KILL", "WHAT", "x"), say("CLIENT", "KILL", "TYPE", "x"),
        say("CLIENT", "KILL", "ID"), say("CLIENT", "KILL", "SKIPME", "x"),
        say("CLIENT", "KILL", "USER", "nobody"), say("CLIENT", "KILL", "ID", "0")),
    one("client list wrong", say("CLIENT", "LIST", "TYPE", "x"), say("CLIENT", "LIST", "x"),
        say("CLIENT", "LIST", "ID", "x"), say("CLIENT", "LIST", "ID", "99999999"),
        say("CLIENT", "LIST", "TYPE", "replica")),
    one("client reply off", say("CLIENT", "REPLY", "OFF", mute=True), say("PING", mute=True),
        say("CLIENT", "REPLY", "ON")),
    one("client reply skip", say("CLIENT", "REPLY", "SKIP", mute=True), say("PING"), say("PING")),
    one("client reply wrong", say("CLIENT", "REPLY", "X"), say("CLIENT", "REPLY"),
        say("CLIENT", "REPLY", "ON")),
    one("readonly", say("READONLY"), say("READONLY", "x")),
    one("client unblock", say("CLIENT", "UNBLOCK", "99999999"), say("CLIENT", "UNBLOCK", "x"),
        say("CLIENT", "UNBLOCK", "99999999", "TIMEOUT"), say("CLIENT", "UNBLOCK", "9999999", "x"),
        say("CLIENT", "UNBLOCK", "99999999", "ERROR"), say("CLIENT", "UNBLOCK")),
    one("acl", say("ACL"), say("ACL", "WHOAMI"), say("ACL", "WHOAMI", "x"),
        say("ACL", "NONSENSE"), say("ACL", "HELP", "x")),
    one("config wrong", say("CONFIG"), say("CONFIG", "GET"), say("CONFIG", "SET"),
        say("CONFIG", "SET", "maxclients"), say("CONFIG", "SET", "nonsense", "1"),
        say("CONFIG", "SET", "maxclients", "1", "timeout"), say("CONFIG", "NONSENSE"),
        say("CONFIG", "GET", "nonsense")),
    one("config", say("CONFIG", "SET", "timeout", "77"), say("CONFIG", "GET", "timeout"),
        say("CONFIG", "GET", "TIMEOUT"), say("CONFIG", "GET", "timeo?t"),
        say("CONFIG", "SET", "timeout", "0", "slowlog-max-len", "128"),
        say("CONFIG", "GET", "slowlog-max-le[n]")),
    one("config in resp3", HELLO_3, say("CONFIG", "GET", "timeout"), say("CONFIG", "GET", "x"),
        masks=HELLO),
    one("slowlog", say("SLOWLOG"), say("SLOWLOG", "RESET"), say("SLOWLOG", "GET"),
        say("SLOWLOG", "GET", "5"), say("SLOWLOG", "GET", "-1"), say("SLOWLOG", "GET", "-2"),
        say("SLOWLOG", "GET", "x"), say("SLOWLOG", "LEN"), say("SLOWLOG", "NONSENSE"),
        say("SLOWLOG", "LEN", "x"), say("SLOWLOG", "RESET", "x"), say("SLOWLOG", "GET", "1", "2")),
    one("shutdown wrong", say("SHUTDOWN", "PLEASE"), say("SHUTDOWN", "ABORT"),
        say("SHUTDOWN", "NOSAVE", "PLEASE")),
    one("monitor with more", say("MONITOR", "x")),
    one("command list wrong", say("COMMAND", "LIST", "x"), say("COMMAND", "LIST", "FILTERBY"),
        say("COMMAND", "LIST", "FILTERBY", "X", "y"),
        say("COMMAND", "LIST", "FILTERBY", "PATTERN", "nonsense"),
        say("COMMAND", "LIST", "FILTERBY", "PATTERN", "publis?"),
        say("COMMAND", "LIST", "FILTERBY", "MODULE", "x")),
    one("command wrong", say("COMMAND", "NONSENSE"), say("COMMAND", "COUNT", "x"),
        say("COMMAND", "INFO", "nonsense"), say("COMMAND", "DOCS", "nonsense")),
)  # fmt: skip

DESCRIBED = (
    *(one(f"command info {name}", say("COMMAND", "INFO", name)) for name in NAMES if name not in
      {"CLIENT", "COMMAND", "PUBSUB"}),
    *(one(f"command info {name}", say("COMMAND", "INFO", name)) for name in SERVER),
    # Not COMMAND DOCS: its words are the hub's own. test_describing.py looks at them.
    one("command info in resp3", HELLO_3, say("COMMAND", "INFO", "publish", "nonsense", "PING"),
        masks=HELLO),
    *(one(f"arity of {name}", say(name), say(name, *"abcdefgh")) for name in
      ("PUBLISH", "SPUBLISH", "SUBSCRIBE", "PSUBSCRIBE", "PUBSUB", "ECHO", "INFO", "SSUBSCRIBE")
      if name in {"PUBLISH", "SPUBLISH", "ECHO"}),
    *(one(f"arity of {name}", say(name)) for name in ("SUBSCRIBE", "PSUBSCRIBE", "PUBSUB",
                                                      "SSUBSCRIBE")),
    *(one(f"arity of client {name}", say("CLIENT", name)) for name in CLIENT
      if name not in {"ID", "INFO", "LIST"}),
    *(one(f"arity of client {name} with more", say("CLIENT", name, *"abcdef")) for name in CLIENT
      if name != "KILL"),
    *(one(f"arity of pubsub {name}", say("PUBSUB", name, *"ab")) for name in PUBSUB),
)  # fmt: skip

# Nothing here depends on the order of Redis' tables, which changes with every start of it: all that
# is unsubscribed at once is one topic, and a message matches one pattern.
TOPICS = (
    one("subscribe", say("SUBSCRIBE", "a", "b", "a"), say("PUBLISH", "a", "x", on="b"),
        say("PUBLISH", "c", "x", on="b"), say("UNSUBSCRIBE", "a", "z"),
        say("PUBLISH", "a", "x", on="b"), say("UNSUBSCRIBE"), say("UNSUBSCRIBE")),
    one("subscribe in resp3", HELLO_3, say("SUBSCRIBE", "a"), say("ECHO", "x"),
        say("PUBLISH", "a", "x", on="b"), say("PUBLISH", "a", "own"), say("UNSUBSCRIBE"),
        say("UNSUBSCRIBE"), say("PUNSUBSCRIBE"), say("SUNSUBSCRIBE"),
        masks=HELLO),
    one("patterns", say("PSUBSCRIBE", "a*", "a*", "?b"), say("PUBLISH", "ac", "x", on="b"),
        say("PUBLISH", "b", "x", on="b"), say("PUNSUBSCRIBE", "a*"),
        say("PUBLISH", "ab", "x", on="b"), say("PUNSUBSCRIBE"), say("PUNSUBSCRIBE")),
    one("a topic and a pattern", say("SUBSCRIBE", "ab"), say("PSUBSCRIBE", "a?", "[cd]b"),
        say("PUBLISH", "ab", "x", on="b"), say("UNSUBSCRIBE"), say("PUNSUBSCRIBE")),
    *(one(f"glob {pattern}", say("PSUBSCRIBE", pattern),
          *(say("PUBLISH", topic, "x", on="b") for topic in
            ("", "a", "b", "ab", "abc", "a*c", "a-c", "^", "]", "\\", "-", "a\\c", "z", "[")))
      for pattern in ("", "*", "**", "?", "a?", "a*c", "a\\*c", "[a-c]", "[^a]", "[c-a]", "[abc",
                      "[]", "[]]", "\\", "a\\", "[\\]]", "a[-]c", "[a-]", "[^]", "a**c", "[[]")),
    one("shards", say("SSUBSCRIBE", "a", "b"), say("SPUBLISH", "a", "x", on="b"),
        say("PUBLISH", "a", "x", on="b"), say("PUBSUB", "SHARDNUMSUB", "a", "c", on="b"),
        say("SUNSUBSCRIBE", "a"), say("SUNSUBSCRIBE"), say("SUNSUBSCRIBE")),
    one("shards in resp3", HELLO_3, say("SSUBSCRIBE", "a"), say("SPUBLISH", "a", "x", on="b"),
        say("SUNSUBSCRIBE", "a"), masks=HELLO),
    one("a subscriber in resp2 may not ask", say("SUBSCRIBE", "a"), say("ECHO", "x"),
        say("PUBLISH", "a", "x"), say("CLIENT", "ID"), say("SELECT", "0"), say("NONSENSE"),
        say("PING"), say("PING", "x"), say("HELLO", 3), say("PUBSUB", "NUMPAT")),
    one("a subscriber in resp2 may leave", say("SUBSCRIBE", "a"), say("QUIT", ends=True)),
    one("one connection both ways in resp3", HELLO_3, say("SUBSCRIBE", "a"), say("PSUBSCRIBE", "*"),
        say("PUBLISH", "a", "1"), raw(b"PUBLISH a 2\r\nPING\r\nPUBLISH a 3\r\n"),
        masks=HELLO),
    one("pubsub", say("SUBSCRIBE", "a"), say("PSUBSCRIBE", "a*"), say("PSUBSCRIBE", "a*", on="b"),
        say("PUBSUB", "CHANNELS", on="c"), say("PUBSUB", "CHANNELS", "b*", on="c"),
        say("PUBSUB", "NUMSUB", on="c"), say("PUBSUB", "NUMSUB", "a", "b", "a", on="c"),
        say("PUBSUB", "NUMPAT", on="c"), say("PUBSUB", "SHARDCHANNELS", on="c"),
        say("PUBSUB", "NONSENSE", on="c"), say("PUBSUB", "CHANNELS", "a", "b", on="c")),
    one("pubsub in resp3", HELLO_3, say("SUBSCRIBE", "a"), say("PUBSUB", "CHANNELS"),
        say("PUBSUB", "NUMSUB", "a", "b"), say("PUBSUB", "SHARDNUMSUB", "a"),
        masks=HELLO),
    one("order within a pipeline", say("SUBSCRIBE", "a", "b"),
        raw(b"".join(b"PUBLISH %s %d\r\n" % (b"ab"[n % 2 : n % 2 + 1], n) for n in range(100)),
            on="b")),
    one("bytes", say("SUBSCRIBE", b"\0\r\n\xff"), say("PUBLISH", b"\0\r\n\xff", b"\r\n$5", on="b"),
        say("PUBLISH", b"\0\r\n\xff", b"", on="b")),
    one("a large message", say("SUBSCRIBE", "a"), say("PUBLISH", "a", b"x" * 300_000, on="b")),
    one("a killed subscriber", say("SUBSCRIBE", "a"),
        say("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes", on="b", kills="a"),
        say("PUBLISH", "a", "x", on="b")),
)  # fmt: skip

BAD = (
    one("unknown", say("NONSENSE"), say("nonSense", "a", "b"), say("NONSENSE", "x" * 200, "y"),
        say("x" * 200), say("NON\r\nSENSE", "a\nb"), say("")),
    one("unknown with many words", say("NONSENSE", *(f"word{n}" for n in range(60)))),
    one("inline", raw(b"PING\r\n"), raw(b"PING\n"), raw(b"\r\n"), raw(b"  PING   x  \r\n"),
        raw(b'ECHO "a b"\r\n'), raw(b"ECHO 'a b'\r\n"), raw(b'ECHO "\\x41\\n\\t\\"\\\\"\r\n'),
        raw(b"ECHO 'it\\'s'\r\n"), raw(b'ECHO ""\r\n'), raw(b"ECHO a\tb\r\n")),
    one("inline with a quote left open", raw(b'ECHO "a\r\n', ends=True)),
    one("inline with letters behind a quote", raw(b'ECHO "a"b\r\n', ends=True)),
    one("inline without an end", raw(b"x" * 70_000, ends=True)),
    one("an empty command", raw(b"*0\r\nPING\r\n"), raw(b"*-1\r\nPING\r\n"),
        raw(b"*-5\r\nPING\r\n")),
    one("no count", raw(b"*x\r\n", ends=True)),
    one("no count at all", raw(b"*\r\n", ends=True)),
    one("too many words", raw(b"*2147483648\r\n", ends=True)),
    one("a count beyond numbers", raw(b"*99999999999999999999\r\n", ends=True)),
    one("a count without an end", raw(b"*" + b"1" * 70_000, ends=True)),
    one("no string", raw(b"*1\r\n+PING\r\n", ends=True)),
    one("no string but a line", raw(b"*1\r\n\r\n", ends=True)),
    one("no length", raw(b"*1\r\n$x\r\n", ends=True)),
    one("a length below zero", raw(b"*1\r\n$-1\r\n", ends=True)),
    one("too long", raw(b"*1\r\n$629145600\r\n", ends=True)),
    one("a length beyond numbers", raw(b"*1\r\n$99999999999999999999\r\n", ends=True)),
    one("a length without an end", raw(b"*2\r\n$4\r\nECHO\r\n$" + b"1" * 70_000, ends=True)),
    one("what came before the fault is answered", raw(b"PING\r\nPING\r\n*1\r\n$x\r\n", ends=True)),
    one("noise", raw(bytes(range(128, 256)) + b"\r\n")),
    one("a length that is too short", raw(b"*1\r\n$2\r\nPING\r\n")),
    one("half a command, then the rest", raw(b"*1\r\n$4\r\nPI", mute=True), raw(b"NG\r\n")),
)  # fmt: skip

EXCHANGES = (*CONNECTION, *DESCRIBED, *TOPICS, *BAD)
