"""`interlock queue configure`."""

from __future__ import annotations

import pytest

from interlock.client.faces.queue import RemoteQueue
from interlock.errors import Full
from interlock.runtime.concurrency import Rate
from tests.cli.conftest import Command


def test_configure_shows_and_changes_options(cli: Command, queue: RemoteQueue[bytes]) -> None:
    queue.put(b"a")
    before = cli("configure", queue.name, "--json").json
    assert before["options"]["maxsize"] == 0 and before["changed"] == {}
    said = cli(
        "configure", queue.name, "--maxsize", 1, "--attempts", "none", "--dedup-window", "1.5"
    )
    assert said.out.splitlines() == [
        f"{queue.name}  maxsize  0 -> 1",
        f"{queue.name}  dedup_window  300 -> 1.5",
        f"{queue.name}  attempts  3 -> none",
    ]
    with pytest.raises(Full):
        queue.put_nowait(b"b")
    after = cli("configure", queue.name, "--jitter", "false", "--maxsize", 1, "--json").json
    assert after["changed"] == {"jitter": [True, False]}
    assert after["options"] == before["options"] | {
        "maxsize": 1, "dedup_window": 1.5, "attempts": None, "jitter": False,
    }  # fmt: skip
    assert ["maxsize", "1"] in [
        line.split() for line in cli("configure", queue.name).out.splitlines()
    ]


def test_configure_shows_and_changes_limits_and_rates(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    queue.put(b"a")
    said = cli("configure", queue.name, "--limits", "host:*=2/m,api=10/1s:20,bank=4")
    assert said.out == f"{queue.name}  limits  none -> api=10/1s:20,bank=4,host:*=2/60s:1\n"
    assert queue.configure()["limits"] == {
        "api": Rate(10, burst=20), "bank": 4, "host:*": Rate(2, per=60),
    }  # fmt: skip
    said = cli("configure", queue.name, "--limits", "api=1/0.25s", "--json")
    assert said.json["changed"]["limits"][1] == {"api": "1/0.25s:1"}
    assert cli("configure", queue.name, "--limits", "none").out.endswith("api=1/0.25s:1 -> none\n")


def test_configure_shows_and_changes_weights(cli: Command, queue: RemoteQueue[bytes]) -> None:
    queue.put(b"a")
    said = cli("configure", queue.name, "--weights", "free:*=1,acme=3")
    assert said.out == f"{queue.name}  weights  none -> acme=3,free:*=1\n"
    assert queue.configure()["weights"] == {"acme": 3, "free:*": 1}
    said = cli("configure", queue.name, "--weights", "none", "--json")
    assert said.json["changed"]["weights"] == [{"acme": 3, "free:*": 1}, {}]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--limits", "bank"), "--limits has 'bank'; allowed: NAME=N or NAME=N/TIME:BURST"),
        (("--limits", "a=1,a=2/s"), "--limits has 'a' twice"),
        (("--limits", "a=10/1"), "--limits has 'a=10/1': '10/1' is not a rate; allowed: N/TIME"),
        (("--limits", "a=0/s"), "--limits has 'a=0/s': n is 0; allowed: 1"),
        (("--limits", "a=0"), "--limits['a'] is 0; allowed: 1"),
        (("--weights", "acme"), "--weights has 'acme'; allowed: GROUP=N"),
        (("--weights", "a=1,a=2"), "--weights has 'a' twice"),
        (("--limits", ""), "--limits has ''; allowed: NAME=N or NAME=N/TIME:BURST, several joined"),
        (("--limits", "a=1/2ms"), "a TIME in s, m, h or d"),
        (
            ("--weights", ""),
            "--weights has ''; allowed: GROUP=N, several joined by commas, or none",
        ),
        (("--weights", "a=1/s"), "--weights has 'a=1/s'; allowed: GROUP=N"),
        (("--weights", "a=1001"), "--weights['a'] is 1001; allowed: 1 to 1,000"),
        (("--maxsize", "many"), "--maxsize is 'many'; allowed: a whole number"),
        (("--maxdead", "-1"), "--maxdead is -1; allowed: 0"),
        (("--factor", "0.5"), "--factor is 0.5; allowed: 1 or more"),
        (("--dedup-window", "-1"), "--dedup-window is -1.0; allowed: 0 or more"),
        (("--jitter", "yes"), "--jitter is 'yes'; allowed: true, false"),
        (("--durability", "server2"), "--durability is 'server2'; allowed: 'always'"),
    ],
)
def test_configure_names_what_is_wrong(
    cli: Command, queue: RemoteQueue[bytes], flags: tuple[str, ...], words: str
) -> None:
    queue.put(b"a")
    said = cli("configure", queue.name, *flags)
    assert (said.code, words in said.err) == (2, True), said.err
    assert cli("configure", queue.name, "--json").json["options"]["maxsize"] == 0


def test_blanks_around_names_and_numbers_do_not_count(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    queue.put(b"a")
    told = cli(
        "configure", queue.name, "--limits", "bank = 4, api =10/1s", "--weights", " a= 2", "--json"
    ).json
    assert told["options"]["limits"] == {"api": "10/1s:1", "bank": 4}
    assert told["options"]["weights"] == {"a": 2}
