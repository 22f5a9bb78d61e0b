"""Random talks of one connection, of whole requests and of broken ones.

Each keeps to topics of its own, so that talks which run at the same time do not meet. What Redis
gives in the order of a table that changes with each start of it is not asked for: a connection has
one subscription of a kind at a time, and ends it by name; it does not list what others subscribe
to. And a line with a zero byte in it is never complete for Redis, which waits; the hub
refuses it. So there is none that could appear within a line.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from interlock.hub.resp import command

KINDS = ("SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE")
VALUES = ["", "a", "0", "-1", "2", "3", "on", "off", "x" * 40, "a\r\nb", "\u00e4", "*"]
NOISE = [b"\r", b"\n", b"$", b"*", b"-", b"9", b'"']
LONGEST = 15_000  # what Redis reads at once: behind an end in the middle nothing is left unread


@dataclass(frozen=True)
class Talk:
    data: bytes
    requests: int
    mutated: bool


def talk(chance: random.Random, name: str, requests: int) -> Talk:
    """Approximate number of requests; `name` begins the names of its topics."""
    parts: list[bytes] = []
    held: dict[str, str] = {}
    for _ in range(requests):
        parts += one(chance, name, held)
    data = b"".join(parts)
    mutated = chance.random() < 0.5
    if mutated:
        data = mutate(chance, data)
    return Talk(data[:LONGEST], len(parts), mutated)


def one(chance: random.Random, name: str, held: dict[str, str]) -> list[bytes]:
    topic = f"{name}.{chance.choice('ab')}"
    match chance.randrange(16):
        case 0:
            return subscription(chance, name, held)
        case 1 | 2 | 3 | 4:
            return [command("PUBLISH", topic, chance.choice(VALUES))]
        case 5:
            return [command("SPUBLISH", topic, chance.choice(VALUES))]
        case 6:
            return [b"PUBLISH %s %d\r\n" % (topic.encode(), chance.randrange(100))]
        case 7:
            return [command("PUBSUB", "NUMSUB", *chance.choices([topic, name], k=2))]
        case 8:
            return [
                command("CLIENT", chance.choice(["SETNAME", "NO-EVICT", "REPLY"]), word(chance))
            ]
        case 9:
            return [command("CLIENT", "GETNAME")]
        case 10:
            return [command("SELECT", word(chance)), command("AUTH", word(chance))]
        case 11:
            return [command("HELLO", chance.choice([2, 2, 3, 3, 4]))]
        case 12 if chance.random() < 0.3:
            held.clear()
            return [command("RESET")]
        case 13:
            return [command(*(word(chance) for _ in range(chance.randrange(1, 5))))]
        case 14 if chance.random() < 0.05:
            return [command("QUIT")]
        case _:
            verb = chance.choice(["PING", "ECHO"])
            return [command(verb, *(word(chance) for _ in range(chance.randrange(3))))]


def subscription(chance: random.Random, name: str, held: dict[str, str]) -> list[bytes]:
    kind = chance.choice(KINDS)
    parts = []
    if kind in held:
        parts.append(command(kind.replace("SUB", "UNSUB"), held.pop(kind)))
    if chance.random() < 0.7:
        # One of them is too long for what a parser keeps for the next request.
        held[kind] = f"{name}.{chance.choice(['a', 'b', 'c' * 50])}"
        if kind == "PSUBSCRIBE":
            held[kind] = f"{name}.{chance.choice(['*', 'a*', '[ab]', '?'])}"
        plain = f"{kind} {held[kind]}\r\n".encode()
        parts.append(plain if chance.random() < 0.3 else command(kind, held[kind]))
    return parts


def word(chance: random.Random) -> str:
    return chance.choice(VALUES)


def mutate(chance: random.Random, data: bytes) -> bytes:
    """A few bytes changed, put in, left out; or the end cut off."""
    broken = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 4])):
        at = chance.randrange(len(broken))
        match chance.randrange(5):
            case 0:
                broken[at] = chance.randrange(1, 256)
            case 1:
                broken[at] = (broken[at] ^ 1 << chance.randrange(8)) or 1
            case 2 if len(broken) > 1:
                del broken[at]
            case 3:
                broken[at:at] = chance.choice(NOISE)
            case _:
                del broken[max(at, 1) :]
    return bytes(broken)
