"""Operators' changes through a hub: each is a record of the logger interlock.audit."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

import interlock
from interlock.hub import passwords
from interlock.hub.client import Client
from interlock.hub.resp import ReplyError
from tests.hub.servers import hub_process, needs_hub

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


def test_what_rights_refuse_is_recorded_once_a_second_of_a_user_and_a_function(
    caplog: pytest.LogCaptureFixture,
) -> None:
    needs_hub()
    caplog.set_level(logging.INFO, "interlock.audit")
    users = [
        {"name": name, "passwords": [HASH], "commands": ["@read", "@produce"], "queues": ["q*"]}
        for name in ("eve", "mallory")
    ]
    with interlock.Hub(port=0, user=users) as hub:
        for user in users:
            with Client(f"redis://{user['name']}:secret@{hub.addresses[0]}") as client:

                def refused(name: str, *arguments: str | int, client: Client = client) -> None:
                    with pytest.raises(ReplyError, match="NOPERM"):
                        client.call("FCALL", f"il1_{name}", 1, "il:{q}", *arguments)

                for _ in range(50):
                    refused("drop", "FORCE")
                refused("pause", "k")
                # Consuming changes no queue, and the dashboard asks for rights by the last one.
                refused("lease", "worker", 1000, 1, "all")
                refused("forget", 1)
    records = [vars(one) for one in caplog.records if one.name == "interlock.audit"]
    found = [(one["who"], one["action"], one["what"]) for one in records]
    for name in ("eve", "mallory"):
        own = [(action, what) for who, action, what in found if who == name]
        assert set(own) == {("drop", "FORCE"), ("pause", "k")}
        # More than one only if 50 calls took longer than a second.
        assert own.count(("pause", "k")) == 1 and own.count(("drop", "FORCE")) < 25
    assert all(one["result"].startswith("refused: NOPERM") for one in records)


def test_the_command_appends_the_records_to_the_file_of_the_audit_log(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    environment = {"INTERLOCK_AUDIT_LOG": str(file)}
    with hub_process("--port", "0", environment=environment) as hub:
        with Client(hub.addresses[0]) as client:
            client.call("FCALL", "il1_pause", 1, "il:{q}", "k")
            # A file that was moved is followed by a new one.
            while not file.exists() or not file.read_text():
                assert hub.process.poll() is None
            file.rename(tmp_path / "moved")
            client.call("FCALL", "il1_resume", 1, "il:{q}", "k")
        assert hub.end()[0] == 0
    (first,) = map(json.loads, (tmp_path / "moved").read_text().splitlines())
    (second,) = map(json.loads, file.read_text().splitlines())
    assert (first["action"], first["queue"], first["result"]) == ("pause", "q", "changed")
    assert (second["action"], second["who"]) == ("resume", "default")


def test_a_file_of_the_audit_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    environment = {"INTERLOCK_AUDIT_LOG": str(tmp_path / "no" / "file")}
    with (
        pytest.raises(AssertionError, match="which cannot be written: No such file"),
        hub_process("--port", "0", environment=environment),
    ):
        pass
