"""Nodes whose user on a Redis lacks a right, and nodes whose Redis takes nothing more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from tests.cluster.node.test_operating import client, status
from tests.cluster.nodes import NodeProcess, eventually
from tests.hub.servers import needs_hub, redis_server

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "cluster-run.md"
OF_LOG = ("xadd", "xread", "xrange", "info")
"""`eval` and `xtrim` too, when a node trims its log: every ten seconds or so."""
OF_ANNOUNCEMENTS = ("set",)
"""`sadd`, `pexpire`, `smembers` and `mget` are reported in the same way, after three seconds."""


def rights() -> list[str]:
    """Return the rights that the page says a node needs on Redis."""
    row = re.search(r"^\| Redis, Valkey \| `(~il:\* [^`]+)`", PAGE.read_text(), re.MULTILINE)
    assert row is not None
    return row[1].split()


class One:
    """A Redis with a user of nodes, and a node."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        _, port = stack.enter_context(redis_server(folder))
        self.engine = stack.enter_context(redis.Redis(port=port, decode_responses=True))
        self.grant(*rights())
        self.node = NodeProcess("a", f"redis://node:pw@127.0.0.1:{port}", folder, "--timeout", "2")
        stack.callback(self.node.close)
        self.node.wait()
        self.asked = stack.enter_context(client(self.node))
        self.sum = 0
        self.unknown = 0

    def grant(self, *more: str) -> None:
        """Give the user rights, or take them."""
        self.engine.execute_command("ACL", "SETUSER", "node", "on", ">pw", *more)

    def write(self) -> bool:
        """Return whether a write was done."""
        try:
            self.asked.hincrby("presence:n", "unread", 1)
        except redis.exceptions.TryAgainError:
            return False
        except redis.ResponseError as error:
            if not str(error).startswith("UNANSWERED"):
                raise
            self.unknown += 1
            return False
        self.sum += 1
        return True

    def is_told(self, *words: str) -> bool:
        self.write()
        texts = " ".join(one["text"] for one in status(self.node)["trouble"])
        return all(word in texts for word in words)

    def goes_on(self) -> None:
        eventually(self.write, lambda: self.node.log)
        eventually(lambda: not status(self.node)["trouble"], lambda: str(status(self.node)))
        found = int(self.asked.hget("presence:n", "unread"))
        assert self.sum <= found <= self.sum + self.unknown, (self.sum, found, self.unknown)

    def why(self) -> str:
        return f"{status(self.node)['trouble']} {self.node.log}"


@pytest.fixture
def one(tmp_path: Path) -> Iterator[One]:
    needs_hub()
    with ExitStack() as stack:
        yield One(stack, tmp_path)


@pytest.mark.share(2)
def test_a_missing_right_is_named_and_the_node_continues_once_granted(one: One) -> None:
    one.goes_on()
    for right in (*OF_LOG, *OF_ANNOUNCEMENTS):
        one.grant(f"-{right}")
        if right == "info":
            # It is asked with a new connection.
            one.engine.client_kill_filter(_type="normal", skipme=True)
        rule = f"rule +{right}" if right in OF_LOG else f"the right +{right} with"
        eventually(lambda: one.is_told("NOPERM", rule), one.why)  # noqa: B023
        one.node.says(f"'{right}' command")
        one.grant(f"+{right}")
        one.goes_on()


def test_a_node_that_cannot_withdraw_its_announcement_names_the_missing_right(one: One) -> None:
    one.grant("-del")
    one.node.process.terminate()
    one.node.says("cannot withdraw its announcement, which expires in 3 s")
    one.node.says("give its user the right +del with ACL SETUSER")


def test_a_full_engine_is_named_and_the_node_continues_afterwards(one: One) -> None:
    one.goes_on()
    for setting, value, words in (
        ("maxmemory", "1", "its memory is full: raise maxmemory"),
        ("maxmemory-policy", "allkeys-lru", "maxmemory-policy"),
        ("maxclients", "1", "it has as many clients as it takes: raise maxclients"),
    ):
        before = one.engine.config_get(setting)[setting]
        one.engine.config_set(setting, value)
        if setting == "maxclients":
            one.engine.client_kill_filter(_type="normal", skipme=True)
        eventually(lambda: one.is_told(words), one.why)  # noqa: B023
        one.node.says(words)
        one.engine.config_set(setting, before)
        one.goes_on()
