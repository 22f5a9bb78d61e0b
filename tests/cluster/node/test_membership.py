"""The announcements of a node: how often it writes what."""

from __future__ import annotations

import uuid
from typing import Any

import redis

import interlock
from interlock.client.rows.announcements import Announcement, announcements
from interlock.cluster.membership import Membership


def test_a_node_adds_itself_to_the_ids_of_the_cluster_again_only_when_it_is_missing(
    redis_url: str,
) -> None:
    name = f"c{uuid.uuid4().hex[:12]}"
    server: Any = redis.Redis(port=int(redis_url.rpartition(":")[2]))
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
        assert written() == [sets + 6, adds + 2]
        assert announcements(client, name) == [own]
        assert server.ttl(f"il:nodes:{{{name}}}") > 3_600
