"""Hubs that pass on to hubs: one behind the other, side by side, and to each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from interlock.hub import introspection
from interlock.hub.client import Client
from tests.hub.servers import HubProcess, hub_process, needs_hub


class Hubs:
    """Hubs by their names, each in a folder with a unix socket."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def socket(self, name: str) -> str:
        return f"unix:{self._folder / name}.sock"

    @contextmanager
    def running(self, name: str, *stores: str) -> Iterator[HubProcess]:
        config = self._folder / f"{name}.toml"
        tables = "".join(f"[[store]]\n{store}\n" for store in stores)
        config.write_text(
            f'port = 0\nunix = "{self._folder / name}.sock"\n'
            f'[log]\nfile = "{self._folder / name}.log"\n{tables}'
        )
        with hub_process("--config", str(config)) as hub:
            yield hub

    def files(self, name: str) -> str:
        return f'name = "files"\npath = "{self._folder / name}/[topic].log"'

    def to(self, name: str, here: str, *, topics: bool = True) -> str:
        return (
            f'name = "to-{name}"\nkind = "network"\nupstream = "{self.socket(name)}"\n'
            f'spool = "{self._folder / here}-to-{name}"\ntimeout = 2.0\n'
            + ("" if topics else "topics = []\n")
        )

    def lines(self, name: str, topic: str = "t") -> list[str]:
        path = self._folder / name / f"{topic}.log"
        return path.read_text().splitlines() if path.exists() else []

    def publish(self, name: str, *messages: str) -> None:
        with Client(self.socket(name), timeout=60) as client:
            replies = client.pipeline([("PUBLISH", "t", message) for message in messages])
        assert all(isinstance(reply, int) for reply in replies)

    def info(self, name: str) -> dict[str, object]:
        with Client(self.socket(name), timeout=60) as client:
            return dict(introspection.info(client))

    def rest(self, name: str) -> None:
        """Wait until it has passed on what it has."""
        while True:
            with Client(self.socket(name), timeout=60) as client:
                found = introspection.stores(introspection.info(client))
            if all(one["spooled"] == one["in_flight"] == 0 for one in found.values()):
                return


@pytest.fixture
def hubs(tmp_path: Path) -> Hubs:
    needs_hub()
    return Hubs(tmp_path)


def numbers(start: int, end: int) -> list[str]:
    return [f"m{number}" for number in range(start, end)]


def test_a_hub_in_between_passes_on_each_message_once_though_it_is_killed(hubs: Hubs) -> None:
    with ExitStack() as stack:
        stack.enter_context(hubs.running("far", hubs.files("far")))
        stack.enter_context(hubs.running("near", hubs.to("middle", "near") + 'ack = "disk"'))
        for life in range(3):
            with hubs.running("middle", hubs.to("far", "middle")) as middle:
                hubs.publish("near", *numbers(life * 1000, life * 1000 + 1000))
                if life == 2:
                    hubs.rest("near")
                    hubs.rest("middle")
                middle.process.kill()
    assert hubs.lines("far") == numbers(0, 3000)


def test_an_agent_that_turns_from_one_hub_to_another_loses_nothing(
    hubs: Hubs, tmp_path: Path
) -> None:
    """Both pass on to a third, and the first, which was away, comes last with the earlier part."""
    both = (
        'name = "one"\nkind = "priority"\nstores = ["to-left", "to-right"]\nack = "disk"\n'
        f'spool = "{tmp_path}/near-to-one"'
    )
    left, right = (
        "\n".join(
            line
            for line in hubs.to(name, "near", topics=False).splitlines()
            if not line.startswith("spool")
        )
        for name in ("left", "right")
    )
    with ExitStack() as stack:
        stack.enter_context(hubs.running("right", hubs.to("far", "right")))
        with hubs.running("left", hubs.to("far", "left")) as first:
            stack.enter_context(hubs.running("near", both, left, right))
            hubs.publish("near", *numbers(0, 1000))
            hubs.rest("near")
            # There is nobody yet to whom it could pass them on.
            first.process.kill()
        hubs.publish("near", *numbers(1000, 2000))
        hubs.rest("near")
        stack.enter_context(hubs.running("far", hubs.files("far")))
        hubs.rest("right")
        assert hubs.lines("far") == numbers(1000, 2000)
        stack.enter_context(hubs.running("left", hubs.to("far", "left")))
        while len(hubs.lines("far")) < 2000:
            pass
    assert hubs.lines("far") == numbers(1000, 2000) + numbers(0, 1000)


def test_two_hubs_that_send_to_each_other_have_each_message_once(hubs: Hubs) -> None:
    with (
        hubs.running("left", hubs.files("left"), hubs.to("right", "left")),
        hubs.running("right", hubs.files("right"), hubs.to("left", "right")),
        hubs.running("near", hubs.to("left", "near")),
    ):
        for start in range(0, 300, 100):
            hubs.publish("left", *(f"l{number}" for number in range(start, start + 100)))
            hubs.publish("right", *(f"r{number}" for number in range(start, start + 100)))
            hubs.publish("near", *(f"n{number}" for number in range(start, start + 100)))
        for name in ("near", "left", "right"):
            while len(hubs.lines(name)) < 900 and name != "near":
                pass
            hubs.rest(name)
        for name in ("left", "right"):
            found = Counter(hubs.lines(name))
            assert (len(found), set(found.values())) == (900, {1})
            for letter in "lrn":
                own = [line for line in hubs.lines(name) if line[0] == letter]
                assert own == [f"{letter}{number}" for number in range(300)]
            while str(hubs.info(name)["relay_circles"]) != {"left": "600", "right": "300"}[name]:
                pass
