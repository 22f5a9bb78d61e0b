"""The rig of the runs: networks that are cut, proxies that delay, engines that are promoted, and a
workload whose history holds where nothing is wrong."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from interlock.hub.client import Client
from tests.cluster.faults import chaos, checker, clock, ending, netns, rows, workload
from tests.cluster.faults.delay import DelayProxy
from tests.cluster.faults.history import OK, Recorder
from tests.cluster.faults.netns import Network
from tests.cluster.faults.run import plan_of
from tests.cluster.faults.servers import ENGINE_PORT, Engine
from tests.cluster.faults.workload import Known, Place, Reader, Writer
from tests.hub.servers import hub_process, missing
from tests.hub.tables.tables import new_name

SECONDS = 20.0
HOSTS = {"east": ["a", "b"], "west": ["c"]}


@pytest.fixture
def network() -> Iterator[Network]:
    netns.needed()
    with Network(HOSTS) as made:
        yield made


def at(network: Network, host: str) -> socket.socket:
    """A socket of datagrams at a machine."""
    found: list[socket.socket] = []

    def make() -> None:
        network.enter(host)
        found.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        found[0].bind((network.address[host], 0))
        found[0].settimeout(0.15)

    in_thread(make)
    return found[0]


def in_thread(work: Callable[[], None]) -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def reaches(one: socket.socket, other: socket.socket) -> bool:
    """Sooner or later."""
    return any(arrives(one, other) for _ in range(50))


def arrives(one: socket.socket, other: socket.socket) -> bool:
    """One datagram, soon."""
    one.sendto(b"x", other.getsockname())
    try:
        other.recv(10)
    except TimeoutError:
        return False
    return True


@contextmanager
def sockets(network: Network) -> Iterator[list[socket.socket]]:
    made = [at(network, host) for host in ("a", "b", "c")]
    try:
        yield made
    finally:
        for one in made:
            one.close()


def test_a_way_is_cut_in_one_direction_or_both_and_healed(network: Network) -> None:
    with sockets(network) as (a, b, c):
        assert reaches(a, b) and reaches(b, a) and reaches(a, c) and reaches(c, a)
        network.cut("a", "c", one_way=True)
        assert not arrives(a, c) and reaches(c, a) and reaches(b, c)
        network.cut("a", "b")
        assert not arrives(a, b) and not arrives(b, a)
        network.mend("a", "b")
        assert reaches(a, b) and not arrives(a, c)
        network.isolate("c")
        assert not arrives(c, b) and not arrives(b, c) and reaches(a, b)
        network.heal()
        assert reaches(a, c) and reaches(c, b)


def test_the_link_between_data_centres_is_cut_or_down(network: Network) -> None:
    with sockets(network) as (a, b, c):
        network.part("west", "east", one_way=True)
        assert not arrives(c, a) and reaches(a, c) and reaches(a, b)
        network.unpart()
        network.link(False)
        assert not arrives(c, a) and not arrives(a, c) and reaches(a, b)
        network.heal()
        assert reaches(a, c)


def test_packets_are_lost(network: Network) -> None:
    with sockets(network) as (a, b, _):
        reaches(a, b)
        network.lose("b", 50)
        for number in range(400):
            a.sendto(b"%d" % number, b.getsockname())
        came = 0
        try:
            while b.recv(10):
                came += 1
        except TimeoutError:
            pass
        # 200 are to be expected; beyond these is one run in 10^13.
        assert 125 < came < 275
        network.lose("b", 0)
        assert all(reaches(a, b) for _ in range(20))


def test_nothing_is_left_of_a_network_nor_of_one_whose_run_is_dead(network: Network) -> None:
    names = [network.name_of(host) for host in network.address]
    assert all((netns.PLACE / name).exists() for name in names)
    assert not netns.sweep()
    network.close()
    assert not any((netns.PLACE / name).exists() for name in names)
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = f"{netns.PREFIX}{ended.pid}-0-a"
    subprocess.run(["ip", "netns", "add", left], check=True)
    assert left in netns.sweep()
    assert not (netns.PLACE / left).exists()


def test_a_proxy_delays_and_keeps_the_order() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = listener.getsockname()
        with (
            DelayProxy(None, "", target) as proxy,
            socket.create_connection(("127.0.0.1", proxy.port), SECONDS) as near,
        ):
            far, _ = listener.accept()
            with far:
                far.settimeout(SECONDS)
                near.sendall(b"quick")
                assert far.recv(100) == b"quick"
                proxy.delay = 0.3
                began = time.monotonic()
                far.sendall(b"slow")
                assert near.recv(100) == b"slow"
                assert time.monotonic() - began >= 0.3
                # Pieces that come with ever less delay overtake none.
                sent = random.Random(1).randbytes(300_000)
                proxy.jitter = 0.1
                for start in range(0, len(sent), 30_000):
                    near.sendall(sent[start : start + 30_000])
                    proxy.delay *= 0.5
                near.shutdown(socket.SHUT_WR)
                came = b""
                while data := far.recv(1 << 16):
                    came += data
                assert came == sent
                proxy.cut()
                assert near.recv(100) == b""


@pytest.mark.parametrize("kind", ["redis", "valkey"])
def test_a_promoted_replica_is_found_at_the_address_of_its_primary(
    kind: str, network: Network, tmp_path: Path
) -> None:
    one = Engine(network, "a", tmp_path / "a", kind=kind)
    two = Engine(network, "b", tmp_path / "b", kind=kind)
    deadline = time.monotonic() + SECONDS
    try:
        network.float_to("east", "a")
        one.start()
        one.wait_ready(deadline)
        two.replica_of = network.address["a"]
        two.start()
        two.wait_ready(deadline)
        two.wait_in_step(deadline)

        def write(value: str, replicas: int = 0) -> None:
            network.enter("c")
            with Client(f"{network.floating['east']}:{ENGINE_PORT}", timeout=SECONDS) as client:
                client.call("SET", "key", value)
                assert client.call("WAIT", replicas, 10_000) == replicas
                assert client.call("GET", "key") == value.encode()

        in_thread(lambda: write("first", replicas=1))
        network.cut("a", "b")
        in_thread(lambda: write("lost with the primary"))
        one.kill()
        assert two.ask("GET", "key").strip() == b"first"
        two.ask("REPLICAOF", "NO", "ONE")
        # Not before: what a dead one's kernel has still to send would come.
        network.heal()
        network.float_to("east", "b")
        in_thread(lambda: write("second"))
        assert two.ask("GET", "key").strip() == b"second"
    finally:
        one.close()
        two.close()


def test_a_workload_without_faults_has_a_history_that_holds(tmp_path: Path) -> None:
    name = new_name()
    config = tmp_path / "hub.toml"
    config.write_text(
        f'[[table]]\nname = "{name}"\ncolumns = "{rows.COLUMNS}"\ncapacity = 10000\n',
        encoding="utf-8",
    )
    # Columns of an ordinary hub do not merge: a max is what was written last.
    known = Known([kind for kind in workload.KINDS if kind != "high"], pause=0.002, table=name)
    recorder = Recorder(tmp_path / "history.jsonl")
    with hub_process("--config", str(config), "--port", "0") as hub:
        place = Place("a1", "east", "127.0.0.1", hub.port)
        guests = [
            *(Writer(f"w{n}", [place], recorder, known, f"{n}") for n in range(3)),
            Reader("r", [place], recorder, known, "r"),
        ]
        deadline = time.monotonic() + SECONDS
        while len(recorder.operations) < 2000 and time.monotonic() < deadline:
            assert not ending.settle(guests, deadline)
        ending.end(guests, known)
        with Client(f"127.0.0.1:{hub.port}") as client:
            deadline = time.monotonic() + SECONDS
            while time.monotonic() < deadline:
                replies = [client.call("HGETALL", f"{name}:{key}") for key in known.keys]
                found = dict(zip(known.keys, map(rows.shown, replies), strict=True))
                if not any(row and key.startswith("ttl-") for key, row in found.items()):
                    break
    recorder.close()
    subprocess.run(["rm", "-f", *map(str, Path("/dev/shm").glob(f"*{name}*"))], check=True)
    operations = recorder.operations
    assert {one.answer for one in operations} == {OK}
    assert {one.key.partition("-")[0] for one in operations} == {
        "sum", "net", "own", "flag", "any", "ttl",
    }  # fmt: skip
    assert checker.all_of(operations, {"a1": found}, checker.Promise()) == []
    # It is not an empty claim: the same with one write that was never said to be done.
    acked = next(one for one in operations if one.kind == "incr" and one.value > 0)
    rest = [one for one in operations if one is not acked]
    assert checker.all_of(rest, {"a1": found}, checker.Promise())


def test_a_seed_is_a_plan() -> None:
    plans = [plan_of(seed) for seed in range(300)]
    assert plans == [plan_of(seed) for seed in range(300)]
    assert {fault.kind for plan in plans for fault in plan.faults} == set(chaos.KINDS)
    for plan in plans:
        kinds = {fault.kind for fault in plan.faults}
        assert not (kinds & set(chaos.LOSING) and kinds & {*chaos.DEADLY, *chaos.CUTTING})


def test_a_process_has_the_clock_that_it_is_given(tmp_path: Path) -> None:
    if clock.library() is None:
        missing("no cc: install a C compiler")
    given = tmp_path / "clock"
    clock.set_clock(given, 3600.0)
    code = "import time; print(time.time(), time.monotonic(), flush=True); input(); "
    code += "print(time.time(), time.monotonic(), flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | clock.environment(given),
    ) as asked:  # fmt: skip
        assert asked.stdin is not None and asked.stdout is not None
        for ahead in (3600.0, -7200.0):
            clock.set_clock(given, ahead)
            if ahead < 0:
                asked.stdin.write("\n")
                asked.stdin.flush()
            now, steady = map(float, asked.stdout.readline().split())
            assert abs(now - time.time() - ahead) < 60 and abs(steady - time.monotonic()) < 60
