"""A configuration of kids as one of the hub: what it says, and what has no counterpart is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from interlock.cli import main
from interlock.hub.config.configuration import read
from interlock.hub.kids.conversion import converted
from interlock.hub.kids.grammar import KidsError, parsed
from tests.hub.servers import needs_hub

AGENT = """
# An agent.
worker_threads 2;
max_clients 200;
nlimit pubsub 32MB 16mb 10min;
nlimit networkstore 1gb 1gb 1h;
log { level critical; file /var/log//kids.log; }
listen { host localhost; port 3388; socket /run/kids.sock; }
STORE multiple {
  success any;
  store buffer {
    store file secondary { path /data/kidsbuf; rotate 5min; }
    store network primary { host server; port 3388; }
  }
  store priority {
    store null { topic debug.*; }
    store file {
      path "/logs/[topic]/[date]"; name '[time].log'; rotate 1hour; flush 5s; # at once
      topic app#*;
    }
  }
  store null {}
}
"""


def as_read(text: str, tmp_path: Path) -> dict[str, object]:
    """The converted configuration, as a hub reads it."""
    needs_hub()
    path = tmp_path / "hub.toml"
    path.write_text(converted(text).text)
    return dict(read(path).values)


def test_an_agent_is_converted_whole(tmp_path: Path) -> None:
    found = as_read(AGENT, tmp_path)
    expected = {
        "host": "127.0.0.1",
        "port": 3388,
        "unix": "/run/kids.sock",
        "unix_mode": "666",
        "unprotected": False,
        "workers": 2,
        "max_per_address": 200,
        "limits.pubsub.hard": 32 << 20,
        "limits.pubsub.soft": 16 << 20,
        "limits.pubsub.soft_seconds": 600,
        "log.level": "error",
        "log.file": "/var/log/kids.log",
    }
    assert {key: found[key] for key in expected} == expected
    stores = found["store"]
    assert isinstance(stores, tuple)
    network, file = stores
    assert (network.kind, network.upstream) == ("network", "server:3388")
    assert network.spool == "/data/kidsbuf/network"
    assert (file.kind, file.path) == ("file", "/logs/[topic]/[date]/[time].log")
    assert (file.topics, file.exclude) == (("app#*",), ("debug.*",))
    assert (file.rotate, file.local) == ("hour", True)


NOTED = (
    ("nlimit networkstore 1gb 1gb 1s;", "line 1: nlimit networkstore has no counterpart"),
    ("listen { port 1; }", "it listens on all addresses without a password"),
    ("listen { host a.example; port 1; }", "listen: a.example is a name"),
    ("ignore_case on;", "ignore_case_topics: kids compared patterns so"),
    ("speed 9;", "line 1: kids ignored the unknown speed"),
    ("store network { host a; port 1; }", 'line 1, store network: while .* protocol = "publish"'),
    ("store network { socket /x; }", "not the socket /x"),
    ("store file { path /x; name a; }", r"an ending of its own: a\.log"),
    ("store file { path /x; name a.log; rotate 90s; }", "rotate 90s is 2 min"),
    ("store file { path /x; name a.log; topic a; topic b; }", "of its 2 topics kids used the last"),
    ("store priority { store file { path /x; name a.log; topic b; } store null {} }", None),
    (
        "store priority { store file { path /x; name a.log; }\n"
        "store file { path /y; name b.log; topic b; } }",
        "line 2, store file: topic b has no counterpart",
    ),
    (
        "store buffer { store multiple primary { success any; store file { path /x; name a.log; }"
        " store null { topic q; } } store file secondary { path /b; } }",
        "success any has no counterpart",
    ),
)


@pytest.mark.parametrize(("text", "noted"), NOTED)
def test_a_kids_setting_without_a_counterpart_is_named(
    text: str, noted: str | None, tmp_path: Path
) -> None:
    found = converted(text)
    if noted is None:
        assert [note for note in found.notes if "store" in note] == []
    else:
        assert any(re.search(noted, note) for note in found.notes), found.notes
    # It is also in the configuration, and counts as one.
    assert all(f"# {note}\n" in found.text for note in found.notes)
    needs_hub()
    path = tmp_path / "hub.toml"
    path.write_text(found.text if "listen" in text else found.text.replace('host = ""', ""))
    read(path)


REFUSED = (
    ("listen {\n}", "line 2: '}' where a setting of listen should be"),
    ("listen\nport 1;", "line 2: 'port' where '{' should be"),
    ("port 1", "line 1: the file ends where a value of port, then ; should be"),
    ("port ;", "';' where a value of port, then ; should be"),
    ("a <b>;", "'<' has no meaning outside quotes"),
    ("store what {}", "a store of the kind 'what'"),
    ("store file { size 1; }", "a store has no size"),
    ("store multiple {}", "a multiple store without a store in it"),
    ("store buffer { store null primary {} }", "one store primary and one secondary"),
    ("store null {} store null {}", "a second store"),
    ("listen { port 1; } listen { port 2; }", "a second listen"),
    ("a log;", "the value of a cannot be 'log'"),
    ('a "b', None),
    ("}", "line 1: '}' where a setting, listen, log or store should be"),
)


@pytest.mark.parametrize(("text", "told"), REFUSED)
def test_a_file_that_kids_rejects_is_refused_with_the_line(text: str, told: str | None) -> None:
    with pytest.raises(KidsError) as refused:
        parsed(text)
    assert told is None or told in str(refused.value)


def test_a_word_may_have_quotes_and_hashes_in_it() -> None:
    whole = parsed('a b#c d"e; #no\r\nf \'1 2\';g "x\\"y";')
    assert [setting.values for setting in whole.settings] == [("b#c", 'd"e'), ("1 2",), ('x"y',)]
    assert [setting.line for setting in whole.settings] == [1, 2, 2]


def test_the_command_prints_the_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kids.conf"
    path.write_text(AGENT)
    assert main(["hub", "--convert-kids", str(path)]) == 0
    printed = capsys.readouterr()
    assert printed.out == converted(AGENT).text
    assert f"{path}: line 6: nlimit networkstore has no counterpart" in printed.err
    path.write_text("{")
    assert main(["hub", "--convert-kids", str(path)]) == 2
    assert f"{path}: line 1: " in capsys.readouterr().err
    assert main(["hub", "--convert-kids", str(tmp_path / "none")]) == 2


def test_stores_that_are_nested_too_deeply_are_refused_with_the_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kids.conf"
    path.write_text("store multiple {\n" * 1500 + "store null {}" + "}" * 1500)
    assert main(["hub", "--convert-kids", str(path)]) == 2
    assert "line 18: a store in 17 others; allowed: in at most 16" in capsys.readouterr().err
