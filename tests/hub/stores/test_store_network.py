"""Agents: published messages reach another server, whatever happened to it meanwhile."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.cli import main
from tests.hub.servers import free_port, hub_process, needs_hub, redis_server
from tests.hub.stores.agents import (
    Place,
    Silent,
    client_of,
    figures,
    kept,
    publish,
    upstream,
    wait_until_delivered,
)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    needs_hub()
    return Place(tmp_path)


@pytest.fixture
def silent() -> Iterator[Silent]:
    server = Silent()
    yield server
    server.close()


def test_an_agent_keeps_what_its_upstream_cannot_take_yet(place: Place) -> None:
    port = free_port()
    state = {"XDG_STATE_HOME": str(place.folder)}
    with hub_process("--port=0", f"--upstream=127.0.0.1:{port}", environment=state) as agent:
        publish(agent, "a", range(100))
        found = figures(agent, "upstream")
        assert (found["spooled"], found["replayed"], found["connected"]) == (100, 0, 0)
        with upstream(place.folder, port) as (_, out):
            found = wait_until_delivered(agent, "upstream")
            assert (found["replayed"], found["connected"], found["failing"]) == (100, 1, 0)
            publish(agent, "a", range(100, 200))
            wait_until_delivered(agent, "upstream")
            assert kept(out, "a") == list(range(200))
    assert (place.folder / "interlock/spool/upstream/origin").exists()


def test_what_an_agent_has_answered_survives_it(place: Place) -> None:
    port = free_port()
    flags = place.agent(place.spooled(port))
    with hub_process(*flags) as agent:
        publish(agent, "a", range(50))
        agent.process.kill()
        agent.process.wait()
    with hub_process(*flags) as agent:
        place.wait_for_log(agent, "50 messages wait")
        publish(agent, "a", range(50, 70))
        assert agent.end()[0] == 0
    (line,) = place.logged("stay spooled")
    assert f"store up: 70 messages stay spooled in {place.folder}/spool-up: the next start" in line
    with upstream(place.folder, port) as (_, out), hub_process(*flags) as agent:
        wait_until_delivered(agent, replayed=70)
        assert kept(out, "a") == list(range(70))
        # Delivered messages are forgotten.
        agent.end()
        with hub_process(*flags) as again:
            publish(again, "a", range(70, 71))
            assert wait_until_delivered(again)["replayed"] == 1


def test_ack_upstream_answers_once_the_upstream_has_the_message(place: Place) -> None:
    port = free_port()
    store = place.spooled(port, ack='"upstream"', topics='["far"]')
    with hub_process(*place.agent(store)) as agent:
        publisher = threading.Thread(target=publish, args=(agent, "far", range(3)))
        publisher.start()
        while figures(agent)["spooled"] == 0:
            pass
        # It waits, and others do not.
        publish(agent, "near", range(100))
        assert (figures(agent)["spooled"], publisher.is_alive()) == (1, True)
        with upstream(place.folder, port) as (_, out):
            publisher.join()
            assert kept(out, "far") == [0, 1, 2]


def test_a_stalled_upstream_holds_up_its_publishers_alone_and_within_bounds(
    place: Place, silent: Silent
) -> None:
    store = place.spooled(
        silent.port, topics='["stalled"]', queue='"64KB"', spool_bytes='"1MB"', timeout="60"
    )
    with hub_process(*place.agent(store)) as agent:
        body = "x" * 1000
        stop = threading.Event()

        def fill() -> None:
            with client_of(agent) as client:
                try:
                    while not stop.is_set():
                        client.call("PUBLISH", "stalled", body)
                except OSError:
                    pass

        publishers = [threading.Thread(target=fill) for _ in range(4)]
        for publisher in publishers:
            publisher.start()
        line = place.wait_for_log(agent, "the spool is full")
        assert "nothing is lost" in line
        publish(agent, "other", range(2000))
        found = figures(agent)
        assert found["in_flight_bytes"] <= 2**16
        assert 900_000 < found["spooled_bytes"] <= 2**20
        assert (found["dropped"], found["failing"]) == (0, 1)
        stop.set()
        agent.process.kill()
        for publisher in publishers:
            publisher.join()


def test_a_priority_store_sends_to_the_first_upstream_that_works_and_returns_to_the_first(
    place: Place,
) -> None:
    first, second = free_port(), free_port()
    folders = [place.folder / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    store = 'name = "up"\nkind = "priority"\nstores = ["u1", "u2"]\nack = "disk"\n'
    stores = (
        f'{store}spool = "{place.folder}/spool"',
        place.network(first, "u1"),
        place.network(second, "u2"),
    )
    with hub_process(*place.agent(*stores)) as agent, upstream(folders[1], second) as (_, out):
        publish(agent, "a", range(20))
        wait_until_delivered(agent)
        assert kept(out, "a") == list(range(20))
        assert "u2 takes the place of u1: connecting" in place.wait_for_log(agent, "WARNING")
        with upstream(folders[0], first) as (_, preferred):
            sent = 20
            while not place.logged("u1 takes messages again, in place of u2"):
                publish(agent, "a", range(sent, sent + 1))
                sent += 1
            wait_until_delivered(agent)
            both = kept(out, "a") + kept(preferred, "a")
            assert both == list(range(sent))


def test_each_of_several_gets_it_though_one_is_away(place: Place) -> None:
    port = free_port()
    both = 'name = "both"\nkind = "multiple"\nstores = ["here", "up"]\ntopics = ["a"]'
    here = f'name = "here"\nack = "disk"\npath = "{place.folder}/here/[topic].log"'
    with hub_process(*place.agent(both, here, place.spooled(port))) as agent:
        publish(agent, "a", range(10))
        publish(agent, "b", range(10))
        assert kept(place.folder / "here", "a") == list(range(10))
        assert figures(agent)["spooled"] == 10
        with upstream(place.folder, port) as (_, out):
            wait_until_delivered(agent)
            assert kept(out, "a") == list(range(10))
            assert kept(out, "b") == []


def test_a_redis_gets_what_is_published(place: Place, tmp_path: Path) -> None:
    with redis_server(tmp_path) as (_, port):
        store = place.spooled(port, protocol='"xadd"')
        with hub_process(*place.agent(store)) as agent:
            publish(agent, "a", range(5))
            wait_until_delivered(agent)
        from interlock.hub.client import Client

        with Client(f"127.0.0.1:{port}") as client:
            assert client.call("XLEN", "a") == 5


def test_the_overview_names_the_upstream(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    with hub_process(*place.agent(place.spooled(free_port()))) as agent:
        publish(agent, "a", range(3))
        place.wait_for_log(agent, "start the upstream, or correct its address")
        assert main(["hub", "stores", "--url", f"redis://127.0.0.1:{agent.port}"]) == 0
    told = capsys.readouterr().out
    (line,) = (line for line in told.splitlines() if line.startswith("up "))
    assert line.split()[1:4] == ["network", "disk", "failing"]
    assert "; connected: 0 of 1" in told
    assert "start the upstream" in told


def test_usr1_begins_new_files_below_a_spool(place: Place) -> None:
    buffer = f'name = "up"\nkind = "buffer"\nstores = ["f"]\nspool = "{place.folder}/spool"'
    files = f'name = "f"\npath = "{place.folder}/f/[topic].log"'
    with hub_process(*place.agent(buffer, files)) as agent:
        publish(agent, "a", range(1))
        wait_until_delivered(agent)
        agent.process.send_signal(signal.SIGUSR1)
        number = 1
        while figures(agent)["files_begun"] < 2:
            publish(agent, "a", range(number, number + 1))
            number += 1
        with client_of(agent) as client:
            wait_until_delivered(agent)
            assert client.call("XLEN", "a") == number
