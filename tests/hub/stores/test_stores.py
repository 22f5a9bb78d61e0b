"""Stores of a hub: what is published to their topics is kept, and acknowledged as they say."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import threading
from pathlib import Path

import pytest

from interlock.cli import main
from interlock.hub.client import Client
from tests.hub.servers import HubProcess, hub_process, needs_hub


class Place:
    """A folder with a hub's configuration, its log, and what its stores write."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "out"
        self.log = folder / "hub.log"
        self.config = folder / "hub.toml"

    def write(self, *stores: str, head: str = "") -> None:
        text = "".join(f"[[store]]\n{store}\n" for store in stores)
        self.config.write_text(f'port = 0\n{head}\n[log]\nfile = "{self.log}"\n{text}')

    def flags(self, *stores: str, head: str = "") -> tuple[str, str]:
        self.write(*stores, head=head)
        return "--config", str(self.config)

    def store(self, **more: str) -> str:
        keys = {"name": '"files"', "path": f'"{self.out}/[topic].log"', **more}
        return "\n".join(f"{key} = {value}" for key, value in keys.items())

    def lines(self, topic: str) -> list[str]:
        """All messages of a topic, rotated files first."""
        paths = [*sorted(self.out.glob(f"{topic}-*.log")), self.out / f"{topic}.log"]
        return "".join(path.read_text() for path in paths if path.exists()).splitlines()

    def wait_for_log(self, hub: HubProcess, text: str) -> str:
        """Wait until the log has a line with this text."""
        while True:
            logged = self.log.read_text() if self.log.exists() else ""
            found = [line for line in logged.splitlines(keepends=True) if text in line]
            if found and found[0].endswith("\n"):
                return found[0]
            assert hub.process.poll() is None, "the hub has ended"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    needs_hub()
    return Place(tmp_path)


def client_of(hub: HubProcess) -> Client:
    return Client(f"127.0.0.1:{hub.port}")


def figures(hub: HubProcess, name: str = "files") -> dict[str, int]:
    from interlock.hub import introspection

    with client_of(hub) as client:
        return introspection.stores(introspection.info(client))[name]


def test_what_is_published_lands_in_a_file_of_its_topic(place: Place) -> None:
    store = place.store(path=f'"{place.out}/[topic]/[date].log"', topics='["orders.*"]',
                        exclude='["orders.test"]', ack='"disk"')  # fmt: skip
    with hub_process(*place.flags(store)) as hub:
        with client_of(hub) as client:
            assert client.call("PUBLISH", "orders.1", "x") == 0
            assert client.call("SPUBLISH", "orders.1", "y") == 0
            assert client.call("PUBLISH", "orders.test", "x") == 0
            assert client.call("PUBLISH", "other", "x") == 0
        # Answered: it is there.
        (folder,) = (path for path in place.out.iterdir() if path.is_dir())
        assert folder.name == "orders.1"
        (log,) = folder.glob("*.log")
        assert log.read_text() == "x\ny\n"
        found = figures(hub)
        assert (found["accepted"], found["written"], found["in_flight"]) == (2, 2, 0)


def test_queues_are_written_out_at_the_end(place: Place) -> None:
    with hub_process(*place.flags(place.store())) as hub:
        with client_of(hub) as client:
            for number in range(1000):
                client.call("PUBLISH", "a", str(number))
        code, _, _ = hub.end()
    assert code == 0
    assert place.lines("a") == [str(number) for number in range(1000)]


def test_pipelined_publishes_wait_together_and_answers_keep_their_order(place: Place) -> None:
    with hub_process(*place.flags(place.store(ack='"disk"', topics='["kept"]'))) as hub:
        with socket.create_connection(("127.0.0.1", hub.port)) as raw:
            count = 5000
            requests = b"".join(
                b"PUBLISH kept %d\r\nECHO %d\r\nPUBLISH other x\r\n" % (n, n) for n in range(count)
            )
            sender = threading.Thread(target=raw.sendall, args=(requests,))
            sender.start()
            stream = raw.makefile("rb")
            for number in range(count):
                assert stream.readline() == b":0\r\n"
                assert stream.readline() == b"$%d\r\n" % len(str(number))
                assert stream.readline() == b"%d\r\n" % number
                assert stream.readline() == b":0\r\n"
            sender.join()
        assert place.lines("kept") == [str(number) for number in range(count)]


def test_the_overview_names_the_stores(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    null = 'name = "nothing"\nkind = "null"\ntopics = ["n"]'
    with hub_process(*place.flags(place.store(ack='"disk"'), null)) as hub:
        with client_of(hub) as client:
            client.call("PUBLISH", "n", "12345")
        assert main(["hub", "stores", "--url", f"redis://127.0.0.1:{hub.port}"]) == 0
    told = capsys.readouterr().out
    assert "stores: 2" in told
    (line,) = (line for line in told.splitlines() if line.startswith("files"))
    assert line.split()[1:6] == ["file", "disk", "ok", "1", "1"]


def test_check_names_the_stores(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hub", "--check", *place.flags(place.store(topics='["a"]'))]) == 0
    assert f"store files: file in {place.out}/[topic].log: a" in capsys.readouterr().out
    assert not place.out.exists()


class Publisher(threading.Thread):
    """Publishes numbers to a topic, and remembers those that were acknowledged."""

    def __init__(self, hub: HubProcess, topic: str) -> None:
        super().__init__()
        self.topic = topic
        self.acknowledged: list[int] = []
        self._address = f"127.0.0.1:{hub.port}"
        self.moved = threading.Event()
        self._ends = threading.Event()

    def run(self) -> None:
        number = 0
        try:
            with Client(self._address, timeout=60) as client:
                while not self._ends.is_set():
                    client.call("PUBLISH", self.topic, f"{self.topic} {number}")
                    self.acknowledged.append(number)
                    number += 1
                    self.moved.set()
        except OSError:
            pass

    def end(self) -> None:
        self._ends.set()
        self.join()


def assert_kept(place: Place, publisher: Publisher) -> None:
    """Each acknowledged message is in the file once, in order; at most one more was under way."""
    lines = place.lines(publisher.topic)
    expected = [f"{publisher.topic} {number}" for number in range(len(lines))]
    assert lines == expected
    assert len(publisher.acknowledged) <= len(lines) <= len(publisher.acknowledged) + 1


@pytest.mark.share(2)
def test_what_was_acknowledged_is_there_after_a_kill(place: Place) -> None:
    flags = place.flags(place.store(ack='"disk"', rotate='"16KB"'))
    for round_ in range(3):
        with hub_process(*flags) as hub:
            publishers = [Publisher(hub, f"t{round_}-{number}") for number in range(4)]
            for publisher in publishers:
                publisher.start()
            while any(len(one.acknowledged) < 100 for one in publishers):
                publishers[0].moved.wait(1)
            hub.process.kill()
            hub.process.wait()
            for publisher in publishers:
                publisher.end()
        # The next start cuts torn records.
        with hub_process(*flags) as hub:
            place.wait_for_log(hub, "store files: open")
            for publisher in publishers:
                assert_kept(place, publisher)


def test_a_full_disk_holds_up_its_publishers_and_nobody_else(place: Place) -> None:
    store = place.store(topics='["kept"]', queue='"64KB"')
    with hub_process(*place.flags(store)) as hub:
        limits = resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE, (200_000, limits[1]))
        kept = Publisher(hub, "kept")
        kept.start()
        line = place.wait_for_log(hub, "WARNING")
        assert str(place.out) in line
        with client_of(hub) as client:
            # Full: only those who publish there wait.
            while figures(hub)["in_flight_bytes"] < 60_000:
                pass
            for number in range(1000):
                assert client.call("PUBLISH", "other", str(number)) == 0
        found = figures(hub)
        assert found["failing"] == 1
        assert found["in_flight_bytes"] <= 2**16
        resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE, limits)
        place.wait_for_log(hub, "it writes again")
        before = len(kept.acknowledged)
        while len(kept.acknowledged) < before + 100:
            kept.moved.wait(1)
        kept.end()
        assert hub.end()[0] == 0
    assert place.lines("kept") == [f"kept {number}" for number in range(len(kept.acknowledged))]


def test_what_could_not_be_written_at_the_end_is_counted(place: Place) -> None:
    place.out.mkdir()
    (place.out / "no").write_text("in the way")
    store = place.store(path=f'"{place.out}/no/[topic].log"')
    with hub_process(*place.flags(store, head="drain = 0.5")) as hub:
        with client_of(hub) as client:
            for number in range(10):
                client.call("PUBLISH", "a", str(number))
        place.wait_for_log(hub, "store files: ")
        assert hub.end()[0] == 0
    assert "store files: 10 messages were not written: " in place.log.read_text()


def test_a_pipe_in_the_place_of_a_file_holds_up_nobody(place: Place) -> None:
    place.out.mkdir()
    in_the_way = place.out / "a.log"
    os.mkfifo(in_the_way)
    with hub_process(*place.flags(place.store(ack='"disk"'))) as hub:
        publisher = Publisher(hub, "a")
        publisher.start()
        assert ("it is not a regular file; move what is in the way") in place.wait_for_log(
            hub, "WARNING"
        )
        in_the_way.unlink()
        publisher.moved.wait(20)
        publisher.end()
        assert_kept(place, publisher)
        assert hub.end()[0] == 0


def test_who_waits_for_a_disk_may_leave(place: Place) -> None:
    place.out.mkdir()
    (place.out / "no").write_text("in the way")
    store = place.store(ack='"disk"', path=f'"{place.out}/no/[topic].log"', topics='["a"]')
    with hub_process(*place.flags(store)) as hub:
        for number in range(3):
            with socket.create_connection(("127.0.0.1", hub.port)) as raw:
                raw.sendall(b"PUBLISH a x\r\n")
                while figures(hub)["in_flight"] <= number:
                    pass
                # Not on disk, and so not answered.
                with pytest.raises(BlockingIOError):
                    raw.recv(1, socket.MSG_DONTWAIT)
        with client_of(hub) as client:
            assert client.call("PUBLISH", "other", "x") == 0
        (place.out / "no").unlink()
        with client_of(hub) as client:
            assert client.call("PUBLISH", "a", "y") == 0
        assert (place.out / "no" / "a.log").read_text() == "x\nx\nx\ny\n"


def test_a_subscriber_that_publishes_gets_its_own_copy_and_then_the_answer(place: Place) -> None:
    with hub_process(*place.flags(place.store(ack='"disk"'))) as hub, client_of(hub) as client:
        client.subscribe("a")
        assert client.call("PUBLISH", "a", "x") == 1
        found = client.message(5)
        assert found is not None
        assert found.payload == b"x"
        assert place.lines("a") == ["x"]


def test_a_folder_that_vanishes_is_made_again(place: Place) -> None:
    with hub_process(*place.flags(place.store(ack='"disk"'))) as hub:
        with client_of(hub) as client:
            client.call("PUBLISH", "a", "1")
            shutil.rmtree(place.out)
            client.call("PUBLISH", "a", "2")
        assert place.lines("a") == ["2"]


def test_a_full_queue_drops_where_it_is_told_so(place: Place) -> None:
    store = place.store(queue='"2KB"', full='"drop"', path=f'"{place.out}/no/[topic].log"')
    place.out.mkdir()
    (place.out / "no").write_text("in the way")
    with hub_process(*place.flags(store)) as hub:
        place.wait_for_log(hub, "store files")
        with client_of(hub) as client:
            for number in range(1000):
                client.call("PUBLISH", "a", str(number))
        found = figures(hub)
        assert found["accepted"] + found["dropped"] == 1000
        assert found["dropped"] > 800
        (place.out / "no").unlink()
        place.wait_for_log(hub, "it writes again")
        hub.end()
    lines = (place.out / "no" / "a.log").read_text().splitlines()
    assert lines == [str(number) for number in range(found["accepted"])]


def test_stores_change_while_the_hub_runs(place: Place) -> None:
    with hub_process(*place.flags(place.store(topics='["a"]', ack='"disk"'))) as hub:
        with client_of(hub) as client:
            client.call("PUBLISH", "a", "1")
            client.call("PUBLISH", "b", "1")
            place.write(
                place.store(topics='["a"]', ack='"disk"'),
                'name = "more"\ntopics = ["b"]\nack = "disk"\n'
                f'path = "{place.out}/more/[topic].log"',
            )
            hub.process.send_signal(signal.SIGHUP)
            place.wait_for_log(hub, "reconfigured: store")
            client.call("PUBLISH", "a", "2")
            client.call("PUBLISH", "b", "2")
            assert place.lines("a") == ["1", "2"]
            assert (place.out / "more" / "b.log").read_text() == "2\n"
            assert figures(hub)["accepted"] == 2
            # Another path for the first, and the second goes.
            changed = place.store(
                topics='["a"]', ack='"disk"', path=f'"{place.out}/new/[topic].log"'
            )
            before = place.log.stat().st_size
            place.write(changed)
            hub.process.send_signal(signal.SIGHUP)
            while "reconfigured" not in place.log.read_text()[before:]:
                assert hub.process.poll() is None
            client.call("PUBLISH", "a", "3")
            client.call("PUBLISH", "b", "3")
        assert place.lines("a") == ["1", "2"]
        assert (place.out / "new" / "a.log").read_text() == "3\n"
        assert (place.out / "more" / "b.log").read_text() == "2\n"


def test_usr1_begins_new_files(place: Place) -> None:
    with hub_process(*place.flags(place.store(ack='"disk"'))) as hub, client_of(hub) as client:
        client.call("PUBLISH", "a", "1")
        hub.process.send_signal(signal.SIGUSR1)
        while figures(hub)["files_begun"] < 2:
            client.call("PUBLISH", "a", "2")
        assert len(list(place.out.glob("a*.log"))) == 2


NAMES = ("a/b", "..", ".", "../../x", "a\0b", "a\nb", "x" * 4000, "\udcff\udcfe", "%2F", "ü")


@pytest.mark.parametrize("name", NAMES)
def test_no_topic_leaves_the_folder(place: Place, name: str) -> None:
    topic = os.fsencode(name)
    with hub_process(*place.flags(place.store(ack='"disk"'))) as hub, client_of(hub) as client:
        client.call("PUBLISH", topic, "x")
        found = [path for path in place.config.parent.rglob("*") if path.suffix == ".log"]
        found.remove(place.log)
        assert [path.parent for path in found] == [place.out]


def test_metrics_have_the_stores_as_labels(place: Place) -> None:
    from interlock.hub import introspection
    from interlock.hub.serve import metrics

    with hub_process(*place.flags(place.store(ack='"disk"'))) as hub, client_of(hub) as client:
        client.call("PUBLISH", "a", "123")
        found = introspection.stores(introspection.info(client))
    text = metrics.text({}, {}, found)
    assert 'interlock_hub_store_written_total{store="files"} 1\n' in text
    assert 'interlock_hub_store_written_bytes_total{store="files"} 3\n' in text
