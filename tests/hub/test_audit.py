"""Operators' changes through a hub: each is a record of the logger interlock.audit."""

from __future__ import annotations

import logging

import pytest

import interlock
from interlock.hub import passwords
from interlock.hub.client import Client
from interlock.hub.resp import ReplyError
from tests.hub.servers import needs_hub

HASH = passwords.hashed("secret")
OPERATOR = {"name": "ann", "passwords": [HASH], "commands": ["@all"], "queues": ["*"]}


def test_each_change_is_recorded_with_who_from_where_on_what_and_its_result(
    caplog: pytest.LogCaptureFixture,
) -> None:
    needs_hub()
    caplog.set_level(logging.INFO, "interlock.audit")
    with (
        interlock.Hub(port=0, user=[OPERATOR]) as hub,
        Client(f"redis://ann:secret@{hub.addresses[0]}") as client,
    ):

        def call(name: str, *arguments: str | int) -> object:
            return client.call("FCALL", f"il1_{name}", 1, "il:{q}", *arguments)

        put = call("put", "", 0, 0, "a secret", 0, 0, 0)
        assert isinstance(put, list)
        id = put[0].decode()
        call("pause", "key\x1b")
        call("pause", "key\x1b")
        call("skip", id)
        call("stats")
        call("forget", 1)
        call("configure", "CHANGE", "MAXSIZE", 5)
        call("ask", "worker", "drain")
        call("purge", "pending")
        with pytest.raises(ReplyError):
            call("drop", "x")
        call("restore", 5, "m", "waiting", 1, 0, "", "a secret", 0, 0, 0)
        call("drop", "FORCE")
        id = client.call("CLIENT", "INFO")
        assert isinstance(id, bytes)
        address = id.split(b"addr=")[1].split()[0].decode()
    records = [vars(one) for one in caplog.records if one.name == "interlock.audit"]
    assert {(one["who"], one["from"], one["queue"]) for one in records} == {("ann", address, "q")}
    assert [(one["action"], one["what"], one["result"]) for one in records][:-3] == [
        ("pause", "key\\u{1b}", "changed"),
        ("pause", "key\\u{1b}", "unchanged"),
        ("skip", put[0].decode(), "unchanged"),
        ("configure", "CHANGE MAXSIZE 5", "changed"),
        ("ask", "worker drain", "unchanged"),
        ("purge", "pending", "1"),
    ]
    assert records[-3]["result"].startswith("refused: BADARG il1_drop")
    assert (records[-2]["action"], records[-2]["what"]) == ("restore", "")
    assert (records[-1]["action"], records[-1]["result"]) == ("drop", "changed")
    assert "a secret" not in caplog.text
