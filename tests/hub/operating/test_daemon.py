"""`interlock hub --daemon` and `--pid`: ready or refused is the parent's to say."""

from __future__ import annotations

import os
import select
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from interlock.cli.hub.pidfile import PidFile, Taken
from interlock.hub.client import Client
from tests.hub.servers import INTERLOCK, hub_process, needs_hub


def run(*flags: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command whose end is seen by its pipes, too."""
    needs_hub()
    done = subprocess.run(
        [INTERLOCK, "hub", *flags], capture_output=True, text=True, timeout=50, check=False
    )
    return done.returncode, done.stdout, done.stderr


@contextmanager
def living(pid: int) -> Iterator[int]:
    """A descriptor of a process that is not a child, readable at its end; it is killed at last."""
    watch = os.pidfd_open(pid)
    try:
        yield watch
    finally:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(watch, signal.SIGKILL)
        os.close(watch)


def gone(watch: int) -> None:
    """Wait for the process's end."""
    assert select.select([watch], [], [], 30)[0]


def test_it_returns_when_the_daemon_serves_and_that_goes_on_until_it_is_stopped(
    tmp_path: Path,
) -> None:
    pid = tmp_path / "hub.pid"
    # Had the daemon kept the pipes, this would wait for its end.
    code, out, err = run("--port", "0", "--daemon", "--pid", str(pid))
    number = int(pid.read_text())
    with living(number) as watch:
        assert (code, err) == (0, "")
        assert out.startswith("interlock hub: ready on 127.0.0.1:")
        assert out.count("\n") == 1
        with Client(out.split()[-1]) as client:
            info = client.call("INFO", "server")
            assert isinstance(info, bytes)
            assert f"process_id:{number}\r\n".encode() in info
        # A session of its own, which it does not lead: no terminal can end it.
        assert os.getsid(number) not in (os.getsid(0), number)
        for standard in (0, 1, 2):
            assert os.readlink(f"/proc/{number}/fd/{standard}") == "/dev/null"
        signal.pidfd_send_signal(watch, signal.SIGTERM)
        gone(watch)
    assert not pid.exists()


def test_what_keeps_it_from_starting_is_told_by_who_started_it(tmp_path: Path) -> None:
    pid = tmp_path / "hub.pid"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = run("--port", str(port), "--daemon", "--pid", str(pid))
    assert (code, out) == (1, "")
    assert err.startswith(f"interlock: cannot listen on 127.0.0.1:{port}: ")
    assert len(err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_bad_configuration_is_2_for_a_daemon_too() -> None:
    code, out, err = run("--port", "x", "--daemon")
    assert (code, out) == (2, "")
    assert "port is 'x'" in err


def test_the_file_has_the_number_and_goes_with_the_hub(tmp_path: Path) -> None:
    pid = tmp_path / "hub.pid"
    with hub_process("--port", "0", "--pid", str(pid)) as hub:
        assert pid.read_text() == f"{hub.process.pid}\n"
        assert [path.name for path in tmp_path.iterdir()] == ["hub.pid"]
        assert hub.end()[0] == 0
    assert not pid.exists()


def test_a_second_hub_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    pid = tmp_path / "hub.pid"
    with hub_process("--port", "0", "--pid", str(pid)) as hub:
        for more in ([], ["--daemon"]):
            code, out, err = run("--port", "0", "--pid", str(pid), *more)
            assert (code, out) == (1, "")
            assert err == f"interlock: {pid}: a hub is already running, process {hub.process.pid}\n"
        assert pid.read_text() == f"{hub.process.pid}\n"
        assert hub.end()[0] == 0


def test_a_file_left_by_a_killed_hub_is_replaced(tmp_path: Path) -> None:
    pid = tmp_path / "hub.pid"
    with hub_process("--port", "0", "--pid", str(pid)) as hub:
        hub.process.kill()
        hub.process.wait()
    assert pid.exists()
    with hub_process("--port", "0", "--pid", str(pid)) as hub:
        assert pid.read_text() == f"{hub.process.pid}\n"
        assert hub.end()[0] == 0


@pytest.mark.parametrize(
    "left",
    [f"{os.getpid()}\n", "", "nonsense", "x" * 5000],
    ids=["of the test", "empty", "nonsense", "long"],
)
def test_a_stale_or_damaged_pid_file_is_replaced(tmp_path: Path, left: str) -> None:
    pid = tmp_path / "hub.pid"
    pid.write_text(left)
    with PidFile(str(pid)):
        assert pid.read_text() == f"{os.getpid()}\n"
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_is_1_and_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none" / "hub.pid", tmp_path):
        code, out, err = run("--port", "0", "--pid", str(path))
        assert (code, out) == (1, "")
        assert str(path) in err
        assert len(err.splitlines()) == 1
    assert not list(tmp_path.parent.glob(f"{tmp_path.name}.*"))


def test_a_file_that_was_replaced_is_not_removed(tmp_path: Path) -> None:
    pid = tmp_path / "hub.pid"
    with PidFile(str(pid)):
        pid.unlink()
        pid.write_text("another")
    assert pid.read_text() == "another"


def test_who_finds_a_stale_file_and_is_slow_does_not_replace_a_living_hubs(tmp_path: Path) -> None:
    pid = tmp_path / "hub.pid"
    pid.write_text("1\n")
    quick = PidFile(str(pid))

    class Slow(PidFile):
        def _locked(self, old: int) -> None:
            # It has opened the stale file; then the other takes its place.
            if quick not in taken:
                taken.append(quick.__enter__())
            super()._locked(old)

    taken: list[PidFile] = []
    with pytest.raises(Taken), Slow(str(pid)):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["hub.pid"]
    assert stat.S_IMODE(pid.stat().st_mode) == 0o644
    quick.__exit__(None, None, None)
    assert not list(tmp_path.iterdir())


def test_of_many_that_start_at_once_one_has_the_file(tmp_path: Path) -> None:
    pid = tmp_path / "hub.pid"
    for stale in (False, True) * 10:
        if stale:
            pid.write_text("1\n")
        (told, tell), (go, start), (over, finish) = os.pipe(), os.pipe(), os.pipe()
        children = []
        for _ in range(4):
            child = os.fork()
            if not child:
                _contend(str(pid), go, tell, over)
            children.append(child)
        os.write(start, b"....")
        answers = b"".join(os.read(told, 1) for _ in children)
        assert sorted(answers.decode()) == ["h", "t", "t", "t"]
        os.write(finish, b"....")
        for child in children:
            assert os.waitpid(child, 0)[1] == 0
        for end in (told, tell, go, start, over, finish):
            os.close(end)
        assert not list(tmp_path.iterdir())


def _contend(path: str, go: int, tell: int, over: int) -> None:
    """Try to take the file, report the result, and end when all have reported."""
    # Should the test itself be ended.
    signal.alarm(30)
    code = 1
    try:
        os.read(go, 1)
        try:
            with PidFile(path):
                os.write(tell, b"h")
                os.read(over, 1)
        except Taken:
            os.write(tell, b"t")
            os.read(over, 1)
        code = 0
    finally:
        os._exit(code)
