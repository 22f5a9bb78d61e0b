"""Calls and replies as bytes of RESP2, and where two forms of one reply mean the same.

`LISTED` is what differs between the servers, with the reason. All else is equal byte for byte.
"""

from __future__ import annotations

from tests.engine.schedules.director import Call
from tests.engine.schedules.steps import WAIT
from tests.engine.timed import WIRE

LISTED = """
il1_configure   the value of DURABILITY: the server's on Redis, none without a journal
il1_scan        order: each tells all messages, in an order of its own
                with `rising` by id, on the hub only: the scheduler's tests compare it
                with `front` Redis may answer that only a scan finds them: test_costs.py has cases
                in which it must not
il1_explain     a long one may have EXACT 0 on Redis, which counts 2,000 steps;
                the hub counts 20,000
il1_hot         order, as in il1_scan; on the hub the deepest 1,000 first
il1_paused      order, as in il1_scan
an error        the model tells its code only; the text is compared between the servers
over 1,000      what one call leaves to the next is not modelled: test_two_servers.py compares it
WAIT            0 on the hub, which would park; Redis answers at once and notes who waits
a clock set back  the hub is not asked: its time never falls (clause 20)
il1_version     never called: hash and features are each server's own
il1_queues      never called: of the server, not of a queue
"""

UNORDERED = ("scan", "hot", "paused")
ORDERED = (["dead"], ["newest"], ["key"], ["ids"], ["front"])
UNKNOWN = "*1\r\n$0\r\n\r\n"
"""The reply to `front` of a Redis that would have to scan all messages."""
LONG = 500
"""Strings of an explanation in which the steps of a Redis may not be enough."""
DONE = b"+PONG\r\n"
"""The reply to what follows the calls, which no other reply can end with."""


def spoken(parts: list[str]) -> str:
    """Bulk strings; a character is a byte here."""
    return "".join([f"${len(part)}\r\n{part}\r\n" for part in parts])


def command(*words: str) -> str:
    return f"*{len(words)}\r\n{spoken(list(words))}"


def on_redis(call: Call, key: str) -> str:
    return command("FCALL", f"il{WIRE}_{call.name}", "1", key, *call.arguments)


def on_hub(call: Call, key: str) -> str:
    arguments = call.arguments
    if call.name in ("put", "lease", "next") and arguments[2] == WAIT:
        arguments = [*arguments[:2], "0", *arguments[3:]]
    return command("FCALL", f"il1_{call.name}", "1", key, *arguments)


def same(call: Call, hub: Replies | None, redis: Replies) -> bool:
    """Return whether the next reply of both, or of Redis alone, is what the model says."""
    expected = call.expected
    if isinstance(expected, str):
        told = redis.line()
        same_error = hub is None or hub.line() == told.replace(b"il%d_" % WIRE, b"il1_")
        return same_error and told.startswith(b"-%s " % expected.encode())
    if call.name in UNORDERED and call.arguments[2:3] not in ORDERED:
        told_by = [pieces(call, one.array()) for one in (hub, redis) if one]
        return all(told == expected for told in told_by)
    says = f"*{len(expected)}\r\n{spoken(expected)}"
    of_hub = says.replace("$6\r\nserver", "$4\r\nnone") if call.name == "configure" else says
    if hub is not None and not hub.next_is(of_hub):
        return False
    if redis.next_is(says) or (call.arguments[2:3] == ["front"] and redis.next_is(UNKNOWN)):
        return True
    return call.name == "explain" and len(expected) > LONG and counts_less(redis, expected)


def counts_less(redis: Replies, expected: list[str]) -> bool:
    """Return whether the next reply is this explanation, where some counts of those ahead are
    lower and say so."""
    start, told = redis.at, redis.array()
    if told is None or len(told) != len(expected):
        redis.at = start
        return False
    # AHEAD and EXACT stand side by side.
    rest = list(told)
    for at in range(1, len(rest)):
        counted, ahead = rest[at - 1], expected[at - 1]
        counts = counted.isdigit() and ahead.isdigit() and int(counted) <= int(ahead)
        if counts and (rest[at], expected[at]) == ("0", "1"):
            rest[at - 1 : at + 1] = expected[at - 1 : at + 1]
    if rest != expected:
        redis.at = start
    return rest == expected


def pieces(call: Call, reply: list[str] | None) -> list[str] | None:
    """Sort the entries of a reply that goes through all, as the model's are."""
    if reply is None:
        return None
    cursor, *rest = reply
    if call.arguments[2:3] == ["larger"]:
        last, *ids = rest
        return [cursor, last, *sorted(ids)]
    found = []
    while rest:
        size = 1 if call.name == "paused" else 2
        if call.name == "scan":
            exclusive, shared, options = map(int, rest[4:7])
            size = 10 + exclusive + shared + 2 * options
        found.append(rest[:size])
        rest = rest[size:]
    return [cursor, *[part for one in sorted(found) for part in one]]


class Replies:
    """The replies that one server sent for a schedule, read from their begin."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def next_is(self, text: str) -> bool:
        said = text.encode("latin-1")
        if not self.data.startswith(said, self.at):
            return False
        self.at += len(said)
        return True

    def line(self) -> bytes:
        end = self.data.index(b"\r\n", self.at)
        line = self.data[self.at : end]
        self.at = end + 2
        return line

    def array(self) -> list[str] | None:
        """None: it is none of strings."""
        head = self.line()
        if head[:1] != b"*":
            return None
        found = []
        for _ in range(int(head[1:])):
            size = int(self.line()[1:])
            found.append(self.data[self.at : self.at + size].decode("latin-1"))
            self.at += size + 2
        return found

    def next(self) -> str:
        """Whatever it is, to be shown."""
        start = self.at
        found = self.array()
        return (
            self.data[start : self.at].decode("latin-1").strip() if found is None else repr(found)
        )
