"""The announcements of a node: how often it writes what."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import redis

import interlock
from interlock.client.rows.announcements import Announcement, announce, announcements
from interlock.cluster.membership import Membership


@pytest.fixture
def server(redis_url: str) -> Iterator[Any]:
    with redis.Redis(port=int(redis_url.rpartition(":")[2])) as server:
        yield server


def test_a_node_adds_itself_to_the_ids_of_the_cluster_again_only_when_it_is_missing(
    redis_url: str, server: Any
) -> None:
    name = f"c{uuid.uuid4().hex[:12]}"
    own = Announcement(id="n1", dc="d", role="serving", address="127.0.0.1:1", since=1.0)

    def written() -> list[int]:
        found = server.info("commandstats")
        return [found.get(f"cmdstat_{one}", {"calls": 0})["calls"] for one in ("set", "sadd")]

    with interlock.connect(redis_url) as client:
        member = Membership(client, name, "d", lambda: own)
        sets, adds = written()
        for _ in range(5):
            member._announce()
        assert written() == [sets + 5, adds + 1]
        server.delete(f"il:nodes:{{{name}}}")
        member._announce()
        # The renewal that does not find the id, then the whole announcement.
        assert written() == [sets + 7, adds + 2]
        assert announcements(client, name) == [own]
        assert server.ttl(f"il:nodes:{{{name}}}") > 3_600


def test_a_listed_node_is_renewed_and_reads_all_others_in_one_round_trip(
    redis_url: str, server: Any
) -> None:
    name = f"c{uuid.uuid4().hex[:12]}"
    own, other, third = (
        Announcement(id=f"n{number}", dc="d", role="serving", address="127.0.0.1:1", since=1.0)
        for number in (1, 2, 3)
    )
    with interlock.connect(redis_url) as client:
        member = Membership(client, name, "d", lambda: own)
        member._announce()
        announce(client, name, other, 60_000)
        member._announce()
        assert member.others == [other]
        before = server.info("stats")["total_reads_processed"]
        for _ in range(5):
            member._announce()
        # The last is that of the question itself.
        assert server.info("stats")["total_reads_processed"] - before == 5 + 1
        # Nodes that come and go are seen at once.
        announce(client, name, third, 60_000)
        member._announce()
        assert member.others == [other, third]
        server.delete(f"il:node:{{{name}}}:n2")
        member._announce()
        assert member.others == [third]
        twin = msgspec.structs.replace(own, since=2.0)
        announce(client, name, twin, 60_000, is_listed=True)
        member._announce()
        assert member.twin == twin
        assert announcements(client, name) == [own, third]


def test_a_node_whose_engine_refuses_a_renewal_reports_why(redis_url: str, server: Any) -> None:
    name = f"c{uuid.uuid4().hex[:12]}"
    own = Announcement(id="n1", dc="d", role="serving", address="127.0.0.1:1", since=1.0)
    server.acl_setuser(name, enabled=True, nopass=True, categories=["+@all"], keys=["*"])
    url = redis_url.replace("redis://", f"redis://{name}:secret@")
    try:
        with interlock.connect(url) as client:
            member = Membership(client, name, "d", lambda: own)
            member._announce()
            member._announce()
            server.acl_setuser(name, enabled=True, nopass=True, commands=["-set"])
            member._announced_at -= 60.0
            member._announce()
            assert "the right +set with ACL SETUSER" in member.trouble
            server.acl_setuser(name, enabled=True, nopass=True, commands=["+set"])
            member._announce()
            assert member.trouble == ""
    finally:
        server.acl_deluser(name)
