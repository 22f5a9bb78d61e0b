"""The hub as a service: what it says to its manager, and the sockets it is handed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from interlock.hub.client import Client
from interlock.hub.serve.heartbeat import Heartbeat, status
from interlock.runtime import systemd
from interlock.runtime.systemd import Notifier
from tests.docs.running import ROOT
from tests.docs.snippets import fenced
from tests.hub.operating.manager import Manager, handed_over, manager
from tests.hub.servers import INTERLOCK, free_port, hub_process, missing, needs_hub


@pytest.fixture(params=["path", "abstract"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "notify") if request.param == "path" else f"@interlock-{tmp_path}"


def test_a_hub_says_when_it_is_ready_alive_and_stopping(address: str) -> None:
    with manager(address) as systemd:
        environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "20000"}
        with hub_process("--port", "0", environment=environment) as hub:
            said = systemd.said()
            assert (said["READY"], said["MAINPID"]) == ("1", str(hub.process.pid))
            assert said["STATUS"] == f"ready on 127.0.0.1:{hub.port}"
            # More than one: the workers have answered.
            for _ in range(3):
                assert systemd.until("WATCHDOG")["WATCHDOG"] == "1"
            assert systemd.until("STATUS")["STATUS"].endswith(" messages published")
            hub.process.send_signal(signal.SIGTERM)
            systemd.until("STOPPING")
            assert hub.process.wait(30) == 0


def test_a_hub_that_cannot_start_never_says_it_is_ready(tmp_path: Path) -> None:
    needs_hub()
    address = str(tmp_path / "notify")
    with manager(address) as systemd, socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        process = handed_over([], "--port", port, environment={"NOTIFY_SOCKET": address})
        assert process.communicate(timeout=30)[1].startswith("interlock: cannot listen")
        assert process.returncode == 1
        systemd._socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            systemd.said()


def test_the_variables_are_taken_out_of_the_environment() -> None:
    mine, other = str(os.getpid()), str(os.getpid() + 1)
    environment = {"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": mine}
    notifier = Notifier.of(environment)
    assert (bool(notifier), notifier.watchdog, environment) == (True, 3.0, {})
    for process, usec in ((other, "3000000"), (mine, "0"), (mine, "x"), (mine, "-1")):
        environment = {"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": usec, "WATCHDOG_PID": process}
        assert Notifier.of(environment).watchdog is None
    assert Notifier.of({"WATCHDOG_USEC": "3000000"}).watchdog is None
    environment = {"LISTEN_PID": other, "LISTEN_FDS": "1", "LISTEN_FDNAMES": "x", "PATH": "p"}
    assert systemd.handed(environment) == []
    assert environment == {"PATH": "p"}


def test_the_notifier_reports_reload_status_and_stop(tmp_path: Path) -> None:
    with manager(str(tmp_path / "n")) as heard:
        notifier = Notifier(heard.address)
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        notifier.reloading()
        said = heard.said()
        assert said["RELOADING"] == "1"
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        assert before <= int(said["MONOTONIC_USEC"]) <= now
        notifier.status("two\nREADY=1")
        assert heard.said() == {"STATUS": "two READY=1"}
        notifier.stopping()
        assert heard.said() == {"STOPPING": "1"}


def test_a_manager_that_is_gone_or_never_was_ends_no_hub(tmp_path: Path) -> None:
    assert not Notifier(str(tmp_path / "none")).send("READY=1")
    assert not Notifier().send("READY=1")
    assert not Notifier()


def beats(heard: Manager, *answers: list[bool], watchdog: float | None = 9.0) -> list[str]:
    """The words that a manager hears of beats whose answers are these."""
    left = iter(answers)
    notifier = Notifier(heard.address, watchdog)
    heartbeat = Heartbeat(notifier, lambda: next(left), lambda: {"connected_clients": 2})
    assert [heartbeat.beat() for _ in answers] == [all(answer) for answer in answers]
    notifier.send("END=1")
    said = []
    while "END" not in (words := heard.said()):
        said += [f"{name}={value}" for name, value in words.items()]
    return said


def test_a_worker_that_hangs_is_named_and_no_sign_of_life_is_given(tmp_path: Path) -> None:
    well = ["WATCHDOG=1", "STATUS=2 connections, 0 topics, 0 messages published"]
    with manager(str(tmp_path / "n")) as heard:
        said = beats(heard, [True, True], [True, False], [False, False], [True, True])
        ill = ["STATUS=no answer from worker 1", "STATUS=no answer from worker 0, 1"]
        assert said == [*well, *ill, *well]
        assert beats(heard, [True], watchdog=None) == well[1:]


def test_the_heartbeat_is_half_of_the_watchdog_time() -> None:
    assert Heartbeat(Notifier("/n", 20.0), list, dict).interval == 10.0
    assert Heartbeat(Notifier("/n"), list, dict).interval == 30.0
    assert status({"connected_clients": 1, "pubsub_channels": 2, "messages_published": 3}) == (
        "1 connections, 2 topics, 3 messages published"
    )


def test_handed_sockets_are_served_named_and_left_where_they_are(tmp_path: Path) -> None:
    needs_hub()
    path = str(tmp_path / "s")
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(path)
        unix.listen()
        port = tcp.getsockname()[1]
        # A client that comes before the hub waits for it.
        early = socket.create_connection(("127.0.0.1", port), 30)
        environment = {"INTERLOCK_HUB_PORT": "1"}
        process = handed_over([tcp, unix], names="a:b", environment=environment)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line == f"interlock hub: ready on 127.0.0.1:{port}, unix:{path}\n"
            early.sendall(b"QUIT\r\n")
            assert early.recv(100) == b"+OK\r\n"
            for address in (f"127.0.0.1:{port}", f"unix:{path}"):
                with Client(address) as client:
                    assert client.call("PING") == "PONG"
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
            assert process.returncode == 0
        finally:
            early.close()
            end(process)
    assert Path(path).is_socket()


@pytest.mark.parametrize("kind", ["udp", "connected"])
def test_a_handed_socket_that_does_not_listen_is_refused_by_name(kind: str) -> None:
    needs_hub()
    with socket.socket(type=socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM) as given:
        process = handed_over([given], names="mine", environment={})
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (1, "")
    assert err == (
        "interlock: socket 'mine' (descriptor 3), which was handed over, is not a listening stream "
        "socket; use ListenStream= with Accept=no\n"
    )


def test_a_descriptor_that_is_not_there_or_no_number_is_refused(tmp_path: Path) -> None:
    mine = str(os.getpid())
    with open(tmp_path / "file", "w") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(systemd, "FIRST", file.fileno())
        with pytest.raises(systemd.NotUsable, match=r"'unknown' .* is not a socket"):
            systemd.handed({"LISTEN_PID": mine, "LISTEN_FDS": "1"})
    with pytest.raises(systemd.NotUsable, match=r"LISTEN_FDS is 'x'"):
        systemd.handed({"LISTEN_PID": mine, "LISTEN_FDS": "x"})


def test_a_handed_socket_that_other_machines_reach_must_be_allowed(tmp_path: Path) -> None:
    needs_hub()
    with socket.create_server(("0.0.0.0", 0)) as given:
        process = handed_over([given], names="mine", environment={})
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out) == (1, "")
        assert "'mine' (descriptor 3)" in err
        assert "listens on 0.0.0.0; allowed: a loopback address" in err
        environment = {"INTERLOCK_HUB_UNPROTECTED": "true"}
        process = handed_over([given], environment=environment)
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("interlock hub: ready on 0.0.0.0:")
        finally:
            end(process)


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_the_units_of_the_page_are_what_systemd_takes(tmp_path: Path) -> None:
    page = ROOT / "docs" / "howto" / "hub-systemd.md"
    service, listeners = (
        "\n".join(block.code) + "\n" for block in fenced(page) if block.language == "ini"
    )
    units = [tmp_path / "interlock-hub.service", tmp_path / "interlock-hub.socket"]
    # Where the program is differs from machine to machine.
    units[0].write_text(service.replace("/usr/local/bin/interlock", str(INTERLOCK)))
    units[1].write_text(listeners)
    command = [tool("systemd-analyze"), "--man=no", "verify", *map(str, units)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    # Of other units of this machine it complains too.
    assert "interlock-hub" not in done.stderr
    assert (done.returncode, done.stdout) == (0, "")


def test_systemds_own_tool_hands_the_hub_its_sockets() -> None:
    needs_hub()
    address = f"127.0.0.1:{free_port()}"
    # Without the path of the tests, the tool would start another interlock or none.
    command = [tool("systemd-socket-activate"), "--listen", address, "--fdname", "mine"]
    process = subprocess.Popen(
        [*command, str(INTERLOCK), "hub"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None and process.stdout is not None
        assert "Listening on" in process.stderr.readline()
        # The first one to connect has it start the hub, and is served.
        with Client(address, timeout=30) as client:
            assert client.call("PING") == "PONG"
        assert process.stdout.readline() == f"interlock hub: ready on {address}\n"
    finally:
        end(process)


def tool(name: str) -> str:
    """The path of a tool of systemd; without it the test is skipped, or fails in the CI."""
    found = shutil.which(name)
    if found is None:
        missing(f"no {name} on this machine")
    assert found is not None
    return found
