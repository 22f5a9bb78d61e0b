"""Stores that name each other: allowed tables, and the meaning of an agent's flags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from interlock.cli import main
from interlock.hub.config import store_lanes
from interlock.hub.config.configuration import ConfigError, from_arguments, read
from tests.hub.servers import needs_hub

UP: dict[str, Any] = {"name": "up", "kind": "network", "upstream": "h:1"}
DISK: dict[str, Any] = {"name": "disk", "path": "x.log"}
BOTH: dict[str, Any] = {"name": "both", "kind": "multiple", "stores": ["disk", "up"]}
FIRST: dict[str, Any] = {"name": "first", "kind": "priority", "stores": ["up", "disk"]}
KEPT: dict[str, Any] = {"name": "kept", "kind": "buffer", "stores": ["disk"]}

WRONG: tuple[tuple[list[dict[str, Any]], str], ...] = (
    ([{"name": "a", "kind": "network"}], r"upstream is 'missing'.*allowed: HOST:PORT"),
    ([{**UP, "upstream": "redis://u:secret@:x"}], r"upstream is 'redis://\*\*\*@:x'"),
    ([{**UP, "path": "x"}], r"path is 'x'.*no path: a network store has none"),
    ([{**UP, "full": "spool"}], r"full is 'spool'.*wait, drop: a network store always has a spool"),
    ([{**UP, "protocol": "http"}], r"protocol is 'http'.*relay, publish, xadd"),
    ([{**UP, "timeout": 0}], r"timeout is 0.*seconds above 0"),
    ([{**UP, "spool_bytes": "1KB"}], r"spool_bytes is '1KB'.*at least 1MB"),
    ([{**UP, "ca": "ca.pem"}], r"ca is 'ca\.pem'.*without rediss://"),
    ([{**UP, "upstream": "rediss://h:1", "cert": "c"}], r"key is ''.*together with cert"),
    ([{**UP, "upstream": "redis://:p@h", "password_file": "f"}], r"password_file is 'f'.*has"),
    ([{**UP, "stores": ["disk"]}, DISK], r"stores is \['disk'\].*no stores: a network store"),
    ([{**DISK, "upstream": "redis://:secret@h"}], r"upstream is 'redis://\*\*\*@h'.*a file store"),
    ([{**BOTH, "stores": []}], r"stores is \[\].*a list of names of other stores"),
    ([{**BOTH, "stores": ["disk", "disk"]}, DISK], r"store\[0\]\.stores.*each store once"),
    ([BOTH, DISK], r"store\[0\]\.stores is 'up'.*names of other stores: disk"),
    ([{**BOTH, "ack": "disk"}, DISK, UP], r"ack is 'disk'.*no ack: a multiple store has none"),
    ([{**BOTH, "stores": ["both"]}], r"stores is \['both'\].*both -> both"),
    (
        [{**FIRST, "stores": ["both"]}, {**BOTH, "stores": ["first"]}],
        r"store\[0\]\.stores is \['both'\].*\(first -> both -> first\)",
    ),
    (
        [BOTH, DISK, {**UP, "topics": ["a"]}],
        r"store\[2\]\.topics is \['a'\].*gets the messages of both",
    ),
    (
        [{**BOTH, "stores": ["kept", "disk"]}, KEPT, DISK],
        r"store\[0\]\.stores.*below both it is reached 2 times",
    ),
    ([KEPT, DISK, {**BOTH, "stores": ["disk"]}], r"store\[1\]\.name is 'disk'.*below kept, and"),
    ([{**KEPT, "stores": ["disk", "up"]}, DISK, UP], r"the name of one other store"),
    ([KEPT, {**DISK, "ack": "disk"}], r"store\[1\]\.ack is 'disk'.*below kept it has no queue"),
    ([FIRST, {**UP, "spool": "s"}, DISK], r"store\[1\]\.spool is 's'.*below first it has no queue"),
    ([{**KEPT, "ack": "upstream"}, DISK], r"ack is 'upstream'.*no network store below"),
    (
        [
            {**FIRST, "ack": "upstream", "stores": ["up", "kept"]}, UP, KEPT, DISK,
        ],
        r"ack is 'upstream'.*kept accepts messages before they arrive there",
    ),
    (
        [{**FIRST, "ack": "disk", "stores": ["no", "disk"]}, {"name": "no", "kind": "null"}, DISK],
        r"ack is 'disk'.*a null store writes nothing",
    ),
    ([{**DISK, "spool": "s"}], r"spool is 's'.*it has no spool"),
    (
        [
            *({"name": f"s{n}", "kind": "multiple", "stores": [f"s{n + 1}"]} for n in range(17)),
            {**DISK, "name": "s17"},
        ],
        r"store\[0\]\.stores is \['s1'\].*at most 16 below each other",
    ),
    ([{**UP, "spool": "s"}, {**UP, "name": "b", "spool": "./s"}], r"store\[1\]\.spool.*up uses it"),
    ([{**UP, "ack": "disk", "sync": "no"}], r"sync is 'no'.*always, where ack"),
)  # fmt: skip


@pytest.mark.parametrize(("stores", "told"), WRONG)
def test_an_error_in_a_tree_of_stores_names_its_place(
    stores: list[dict[str, Any]], told: str
) -> None:
    needs_hub()
    with pytest.raises(ConfigError, match=told) as refused:
        read(given=from_arguments({"store": stores}))
    assert "secret" not in str(refused.value)


def lanes(*stores: dict[str, Any]) -> dict[str, store_lanes.Lane]:
    found = read(given=from_arguments({"store": list(stores)}))["store"]
    return {lane.store.name: lane for lane in store_lanes.lanes(found)}


def test_a_multiple_store_gives_each_of_its_stores_the_right_topics() -> None:
    needs_hub()
    inner = {"name": "inner", "kind": "multiple", "stores": ["disk"], "exclude": ["y"]}
    found = lanes(
        {**BOTH, "topics": ["a"], "exclude": ["x"], "stores": ["up", "inner"]}, inner, DISK, UP,
        {**BOTH, "name": "also", "topics": ["b"], "stores": ["up"]},
    )  # fmt: skip
    assert list(found) == ["disk", "up"]
    assert found["disk"].filters == [(("a",), ("x", "y"))]
    assert found["up"].filters == [(("a",), ("x",)), (("b",), ())]


def test_a_store_without_topics_gets_all_unless_another_has_it() -> None:
    needs_hub()
    assert lanes(FIRST, UP, DISK)["first"].filters == [(("*",), ())]
    assert lanes({**DISK, "topics": []})["disk"].filters == [((), ())]


def test_spools_are_below_the_journal_the_state_folder_or_home() -> None:
    def root(journal: str = "", **environment: str) -> str:
        return str(store_lanes.spool_root(journal, environment))

    home = {"HOME": "/h", "XDG_STATE_HOME": "/x", "STATE_DIRECTORY": "/var/lib/a:/var/lib/b"}
    assert root("/j", **home) == "/j/spool"
    assert root(**home) == "/var/lib/a/spool"
    assert root(HOME="/h", XDG_STATE_HOME="/x") == "/x/interlock/spool"
    assert root(HOME="/h") == "/h/.local/state/interlock/spool"
    assert store_lanes.spool_root("", {}) is None


def test_what_is_promised_to_be_on_disk_is_there_however_deep(tmp_path: Path) -> None:
    needs_hub()

    def nodes(*stores: dict[str, Any]) -> Any:
        found = read(given=from_arguments({"store": list(stores)}))["store"]
        return store_lanes.for_server(found, tmp_path)

    (kept,) = nodes({**KEPT, "ack": "disk"}, DISK)
    assert kept["spool"] == {"folder": f"{tmp_path}/kept", "bytes": 2**30, "sync": "always"}
    assert kept["children"][0]["sync"] == "always"
    (kept,) = nodes(KEPT, DISK)
    assert (kept["spool"]["sync"], kept["children"][0]["sync"]) == ("everysec", "everysec")
    (disk,) = nodes({**DISK, "full": "spool"})
    assert disk["spool"]["folder"] == f"{tmp_path}/disk"
    # A buffer within has a spool of its own, and what is before it needs none.
    (first,) = nodes({**FIRST, "stores": ["disk", "kept"]}, DISK, {**KEPT, "stores": ["up"]}, UP)
    assert "spool" not in first
    assert [child.get("spool", {}).get("folder") for child in first["children"]] == [
        None, f"{tmp_path}/kept",
    ]  # fmt: skip


def test_a_password_may_come_from_a_file(tmp_path: Path) -> None:
    needs_hub()
    secret = tmp_path / "secret"
    found = read(given=from_arguments({"store": [{**UP, "password_file": str(secret)}]}))
    with pytest.raises(ConfigError, match=r"store\[0\]\.password_file is .*can be read"):
        found.for_server()
    for wrong in ("", "\n", "a\nb", "a\0"):
        secret.write_text(wrong)
        with pytest.raises(ConfigError, match="a password on a line"):
            found.for_server()
    secret.write_text("pass word\n")
    assert found.for_server()["stores"][0]["password"] == "pass word"
    assert "pass word" not in found.text()


def agent(*flags: str) -> tuple[str, ...]:
    return ("hub", "--port", "0", *(f"--upstream={one}" for one in flags if one[0] != "-"),
            *(flag for flag in flags if flag[0] == "-"))  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "kinds"),
    [
        (("h:1",), ["network"]),
        (("h:1", "h:2"), ["priority", "network", "network"]),
        (("h:1", "h:2", "--upstreams=multiple"), ["multiple", "network", "network"]),
    ],
)
def test_an_agents_configuration_gives_the_same_agent(
    flags: tuple[str, ...], kinds: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs_hub()
    assert main([*agent(*flags), "--print-config"]) == 0
    path = tmp_path / "agent.toml"
    path.write_text(capsys.readouterr().out)
    found = read(path)
    assert [store.kind for store in found["store"]] == kinds
    assert [store.upstream for store in found["store"] if store.upstream] == [
        one for one in flags if one[0] != "-"
    ]
    # A publisher is answered once the message is on this machine's disk.
    assert all(lane["ack"] == "disk" for lane in found.for_server()["stores"])
    assert read(path).text() == found.text()


def test_an_agent_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_hub()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main([*agent("redis://u:secret@h:1"), "--check"]) == 0
    told = capsys.readouterr().out
    assert "store upstream: network to h:1 by relay: *" in told
    assert f"store upstream: its spool is in {tmp_path}/interlock/spool/upstream" in told
    assert "secret" not in told
    assert not any(tmp_path.iterdir())
    assert main([*agent("h:x"), "--check"]) == 2
    assert "store[0].upstream is 'h:x' (flag --upstream)" in capsys.readouterr().err
    assert main(["hub", "--upstreams", "multiple", "--check"]) == 2
    assert main(["hub", "--port", "7", "--upstream", "127.0.0.1:7", "--check"]) == 2
    assert "another server than this hub" in capsys.readouterr().err
