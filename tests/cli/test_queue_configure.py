"""`interlock queue configure`."""

from __future__ import annotations

import pytest

from interlock.client.faces.queue import RemoteQueue
from interlock.errors import Full
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


@pytest.mark.parametrize(
    ("flags", "words"),
    [
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
