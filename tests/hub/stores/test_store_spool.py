"""Spools of stores: changes while messages wait in one, and a disk that fails below it."""

from __future__ import annotations

import resource
import shutil
import signal
import threading
from pathlib import Path

import pytest

from tests.hub.servers import HubProcess, free_port, hub_process, needs_hub
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


def change(place: Place, agent: HubProcess, *stores: str) -> int:
    """Apply other stores; how long the log was before."""
    begin = len(place.log.read_text())
    place.write(*stores)
    agent.process.send_signal(signal.SIGHUP)
    place.wait_for_log(agent, "reconfigured", begin)
    return begin


def test_what_is_spooled_goes_where_the_store_now_sends(place: Place) -> None:
    dead, port = free_port(), free_port()
    with hub_process(*place.agent(place.spooled(dead))) as agent:
        publish(agent, "a", range(30))
        with upstream(place.folder, port) as (_, out):
            change(place, agent, place.spooled(port))
            publish(agent, "a", range(30, 60))
            wait_until_delivered(agent)
            assert kept(out, "a") == list(range(60))


def test_a_change_does_not_wait_for_a_server_that_hangs(place: Place) -> None:
    port, silent = free_port(), Silent()
    with hub_process(*place.agent(place.spooled(silent.port, timeout="600"))) as agent:
        publish(agent, "a", range(3))
        assert silent.met.wait(20)
        with upstream(place.folder, port) as (_, out):
            change(place, agent, place.spooled(port))
            wait_until_delivered(agent)
            assert kept(out, "a") == [0, 1, 2]
    silent.close()


def test_a_store_that_becomes_files_writes_what_was_spooled_first(place: Place) -> None:
    files = f'name = "up"\nack = "disk"\npath = "{place.folder}/files/[topic].log"'
    with hub_process(*place.agent(place.spooled(free_port()))) as agent:
        publish(agent, "a", range(30))
        # Nothing can be delivered yet: what comes meanwhile must stay behind what waits.
        in_the_way = place.folder / "files"
        in_the_way.touch()
        begin = change(place, agent, files)
        place.wait_for_log(agent, "are delivered first", begin)
        publish(agent, "a", range(30, 60))
        in_the_way.unlink()
        wait_until_delivered(agent)
        assert kept(place.folder / "files", "a") == list(range(60))
        assert "30 messages wait" in place.wait_for_log(agent, "are delivered first", begin)
        # And a spool again.
        change(place, agent, place.spooled(free_port()))
        publish(agent, "a", range(60, 70))
        while figures(agent)["spooled"] < 10:
            pass


def test_a_removed_stores_waiting_messages_are_delivered_or_their_folder_is_named(
    place: Place,
) -> None:
    port = free_port()
    other = 'name = "other"\nkind = "null"'
    flags = place.agent(place.spooled(port), other)
    with hub_process(*flags) as agent:
        publish(agent, "a", range(10))
        begin = change(place, agent, other)
        line = place.wait_for_log(agent, "it was removed", begin)
        assert f"10 messages wait in {place.folder}/spool-up" in line
        publish(agent, "a", range(10, 20))
        assert figures(agent)["spooled"] == 10
        # Declared again meanwhile, it continues.
        change(place, agent, place.spooled(port), other)
        publish(agent, "a", range(10, 20))
        assert figures(agent)["spooled"] == 20
        begin = change(place, agent, other)
        place.wait_for_log(agent, "it was removed", begin)
        agent.end()
    (line,) = place.logged("20 messages stay spooled")
    assert "a store that has this folder as its spool delivers them" in line
    with (
        hub_process(*place.agent(place.spooled(port))) as agent,
        upstream(place.folder, port) as (_, out),
    ):
        wait_until_delivered(agent, replayed=20)
        begin = change(place, agent)
        assert kept(out, "a") == list(range(20))
        with client_of(agent) as client:
            while client.call("STORE", "LIST"):
                pass


def test_an_unchanged_spool_is_not_touched(place: Place) -> None:
    port = free_port()
    with hub_process(*place.agent(place.spooled(port))) as agent:
        publish(agent, "a", range(10))
        begin = change(place, agent, place.spooled(port), 'name = "more"\nkind = "null"')
        assert figures(agent)["accepted"] == 10
        assert not place.logged("store up: spool", begin)


def test_a_full_disk_below_a_spool_loses_nothing_and_passes(place: Place) -> None:
    port = free_port()
    store = place.spooled(port, spool_bytes='"64MB"', topics='["a"]')
    with hub_process(*place.agent(store)) as agent:
        publish(agent, "a", range(5))
        limits = resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, (400_000, limits[1]))
        body = "x" * 100_000
        held = threading.Thread(target=publish, args=(agent, "a", [body] * 80))
        held.start()
        line = place.wait_for_log(agent, "WARNING store up: writing the spool")
        assert "waiting messages are kept" in line
        # Others do not wait.
        publish(agent, "b", range(50))
        assert figures(agent)["failing"] == 1
        resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, limits)
        held.join()
        with upstream(place.folder, port) as (_, out):
            wait_until_delivered(agent)
            lines = (out / "a.log").read_text().split()
            assert lines[:5] == ["0", "1", "2", "3", "4"]
            assert len(lines) == 85


def test_a_spools_folder_that_vanishes_is_made_again(place: Place) -> None:
    port = free_port()
    with hub_process(*place.agent(place.spooled(port))) as agent:
        publish(agent, "a", range(5))
        shutil.rmtree(place.folder / "spool-up")
        publish(agent, "a", range(5, 10))
        place.wait_for_log(agent, "was removed, and 5 messages that waited in it are lost")
        assert figures(agent)["lost"] == 5
        assert (place.folder / "spool-up" / "origin").exists()
        with upstream(place.folder, port) as (_, out):
            wait_until_delivered(agent)
            # Some were under way, and are not lost.
            assert kept(out, "a")[-5:] == list(range(5, 10))
            assert kept(out, "a") == sorted(kept(out, "a"))


def test_a_spool_with_damage_delivers_what_is_whole_and_counts_the_rest(place: Place) -> None:
    port = free_port()
    flags = place.agent(place.spooled(port))
    with hub_process(*flags) as agent:
        publish(agent, "a", range(200))
        agent.end()
    (segment,) = sorted((place.folder / "spool-up").glob("segment-*"))
    content = bytearray(segment.read_bytes())
    content[content.index(b"100")] ^= 1
    segment.write_bytes(content)
    with hub_process(*flags) as agent:
        line = place.wait_for_log(agent, "WARNING store up: spool")
        assert "set aside" in line
        assert ".damaged-1" in line
        found = figures(agent)
        assert (found["lost"], found["set_aside"]) == (1, 2)
        with upstream(place.folder, port) as (_, out):
            wait_until_delivered(agent, replayed=199)
            assert kept(out, "a") == [number for number in range(200) if number != 100]


def test_a_spool_that_is_damaged_while_it_is_used_is_repaired(place: Place) -> None:
    port = free_port()
    with hub_process(*place.agent(place.spooled(port))) as agent:
        publish(agent, "a", range(2000))
        (segment,) = sorted((place.folder / "spool-up").glob("segment-*"))
        with segment.open("r+b") as file:
            content = file.read()
            # Beyond what was read already.
            file.seek(content.rindex(b"1900"))
            file.write(b"x")
        with upstream(place.folder, port) as (_, out):
            place.wait_for_log(agent, "set aside")
            wait_until_delivered(agent, replayed=1999)
            assert kept(out, "a") == [number for number in range(2000) if number != 1900]
            publish(agent, "a", range(2000, 2010))
            wait_until_delivered(agent)
            assert kept(out, "a")[-10:] == list(range(2000, 2010))


def test_two_hubs_do_not_share_a_spool(place: Place) -> None:
    port = free_port()
    flags = place.agent(place.spooled(port))
    with hub_process(*flags) as agent:
        publish(agent, "a", range(1))
        begin = len(place.log.read_text())
        with hub_process(*flags) as second:
            line = place.wait_for_log(second, "opening the spool", begin)
            assert "stop that one, or give the stores names or folders of their own" in line
            agent.end()
            # Free again, it is taken.
            publish(second, "a", range(1, 2))
            assert figures(second)["spooled"] == 2


@pytest.mark.parametrize("full", ["wait", "spool"])
def test_files_that_cannot_be_written_hold_up_nobody_who_has_a_spool(
    place: Place, full: str
) -> None:
    (place.folder / "no").write_text("in the way")
    store = (
        f'name = "up"\nfull = "{full}"\nack = "memory"\nqueue = "2KB"\ntopics = ["a"]\n'
        f'path = "{place.folder}/no/[topic].log"\n'
    )
    if full == "spool":
        store += f'spool = "{place.folder}/spool"\nspool_bytes = "16MB"'
    with hub_process(*place.agent(store)) as agent:
        publisher = threading.Thread(target=publish, args=(agent, "a", range(200)))
        publisher.start()
        if full == "spool":
            publisher.join()
            while figures(agent)["spooled"] < 200:
                pass
        else:
            place.wait_for_log(agent, "WARNING")
            assert figures(agent)["accepted"] < 200
        (place.folder / "no").unlink()
        publisher.join()
        wait_until_delivered(agent)
        assert kept(place.folder / "no", "a") == list(range(200))
