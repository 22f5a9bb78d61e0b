"""The tables of stores: allowed contents, and the errors of wrong ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from interlock.hub.config.configuration import ConfigError, from_arguments, read
from tests.hub.servers import needs_hub

WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"path": "a"}, r"store\[0\]\.name is 'missing'"),
    ({"name": "a/b", "path": "a"}, r"store\[0\]\.name is 'a/b'"),
    ({"name": "a"}, r"store\[0\]\.path is 'missing'"),
    ({"name": "a", "path": ""}, r"store\[0\]\.path is 'missing'"),
    ({"name": "a", "path": "out/"}, r"store\[0\]\.path is 'out/'.*it ends with /"),
    ({"name": "a", "path": "../../[topic]/../x"}, r"store\[0\]\.path"),
    ({"name": "a", "path": "[wrong]"}, r"store\[0\]\.path"),
    ({"name": "a", "path": "x.log", "kind": "web"}, r"kind is 'web'.*allowed: file, null, network"),
    ({"name": "a", "path": "x.log", "topics": "a"}, r"store\[0\]\.topics is 'a'"),
    ({"name": "a", "path": "x.log", "topics": ["\ud800"]}, r"store\[0\]\.topics"),
    ({"name": "a", "path": "x.log", "queue": "64XB"}, r"store\[0\]\.queue is '64XB'"),
    ({"name": "a", "path": "x.log", "queue": True}, r"store\[0\]\.queue is True"),
    ({"name": "a", "path": "x.log", "full": "no"}, r"full is 'no'.*allowed: wait, drop, spool"),
    (
        {"name": "a", "path": "x.log", "ack": "upstream"},
        r"ack is 'upstream'.*none, memory",
    ),
    (
        {"name": "a", "path": "x.log", "ack": "disk", "full": "drop"},
        r"full is 'drop'.*be acknow",
    ),
    ({"name": "a", "path": "x.log", "ack": "disk", "sync": "no"}, r"sync is 'no'.*always"),
    ({"name": "a", "path": "x.log", "rotate": "90s"}, r"store\[0\]\.rotate is '90s'"),
    ({"name": "a", "path": "x.log", "rotate": "0MB"}, r"store\[0\]\.rotate"),
    ({"name": "a", "path": "x.log", "compress": 20}, r"store\[0\]\.compress is 20"),
    ({"name": "a", "path": "x.log", "keep": "30"}, r"store\[0\]\.keep is '30'"),
    ({"name": "a", "path": "x.log", "local": "yes"}, r"store\[0\]\.local is 'yes'"),
    ({"name": "a", "kind": "null", "path": "x.log"}, r"path is 'x.log'.*a null store has none"),
    ({"name": "a", "kind": "null", "ack": "disk"}, r"ack is 'disk'.*a null store writes"),
    ({"name": "a", "path": "x.log", "size": 1}, r"\.size is 'an unknown key'"),
)


@pytest.mark.parametrize(("store", "told"), WRONG)
def test_a_wrong_store_is_told_with_its_place(store: dict[str, Any], told: str) -> None:
    needs_hub()
    with pytest.raises(ConfigError, match=told):
        read(given=from_arguments({"store": [store]}))


def test_two_stores_have_two_names_and_there_are_64_at_most() -> None:
    needs_hub()
    stores = [{"name": f"s{number}", "kind": "null"} for number in range(65)]
    assert len(read(given=from_arguments({"store": stores[:64]}))["store"]) == 64
    with pytest.raises(ConfigError, match=r"up to 64"):
        read(given=from_arguments({"store": stores}))
    with pytest.raises(ConfigError, match=r"store\[1\]\.name is 's0'.*no other store has"):
        read(given=from_arguments({"store": [stores[0], stores[0]]}))


def test_what_is_printed_gives_the_same_again(tmp_path: Path) -> None:
    needs_hub()
    path = tmp_path / "hub.toml"
    path.write_text(
        '[[store]]\nname = "a"\npath = "out/[topic]/[date].log"\nrotate = "64MB"\nkeep = "30d"\n'
        'compress = true\nqueue = "1MB"\nack = "disk"\ntopics = ["a.*", "b"]\nexclude = ["a.x"]\n'
        '[[store]]\nname = "b"\nkind = "null"\nfull = "drop"\n'
    )
    first = read(path)
    assert (first["store"][0].sync, first["store"][0].queue) == ("always", 2**20)
    path.write_text(first.text())
    assert read(path).values == first.values
