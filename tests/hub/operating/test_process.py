"""`interlock hub` as a process: ready line, signals, exit codes, what keeps it from starting."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from interlock import __version__
from interlock.cli import main
from interlock.cli.hub import FLAGS
from interlock.hub import passwords
from interlock.hub.client import Client
from tests.hub.servers import INTERLOCK, hub_process, missing, needs_hub


def refused(*flags: str, without: str = "") -> tuple[int, str]:
    """The exit code and the errors of a hub that does not start; `without` a right of root's."""
    needs_hub()
    command = [str(INTERLOCK), "hub", *flags]
    if without and os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            missing("root may do this, and there is no setpriv to take that from it")
        command = ["setpriv", f"--bounding-set=-{without}", f"--inh-caps=-{without}", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_the_ready_line_names_every_address_and_they_answer(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with hub_process("--port", "0", "--unix", str(path)) as hub:
        assert re.fullmatch(
            rf"interlock hub: ready on 127\.0\.0\.1:\d+, unix:{re.escape(str(path))}\n", hub.ready
        )
        for address in hub.addresses:
            with Client(address) as client:
                assert client.call("PING") == "PONG"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_with_0(number: signal.Signals) -> None:
    with hub_process("--port", "0") as hub:
        code, out, err = hub.end(number)
        assert (code, out, err) == (0, "", "interlock hub: stopping\n")
        with pytest.raises(ConnectionRefusedError):
            Client(f"127.0.0.1:{hub.port}")


def test_a_hub_that_cannot_listen_leaves_signals_and_logging_as_they_were() -> None:
    def state() -> tuple[set[int], list[logging.Handler]]:
        return set(signal.pthread_sigmask(signal.SIG_BLOCK, [])), [*logger.handlers]

    logger = logging.getLogger("interlock.hub")
    before = state()
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert main(["hub", "--port", str(other.getsockname()[1])]) == 1
    assert state() == before


def test_a_stopping_hub_delivers_what_it_owes(tmp_path: Path) -> None:
    with hub_process("--port", "0") as hub, Client(f"127.0.0.1:{hub.port}") as subscriber:
        subscriber.subscribe("a")
        with Client(f"127.0.0.1:{hub.port}") as publisher:
            # More than the kernel takes for a subscriber that does not read yet.
            replies = publisher.pipeline([("PUBLISH", "a", b"x" * 100_000)] * 80)
            assert replies == [1] * 80
            hub.process.send_signal(signal.SIGTERM)
            assert hub.process.stderr is not None
            assert hub.process.stderr.readline() == "interlock hub: stopping\n"
        sizes = []
        for _ in range(80):
            published = subscriber.message(20)
            assert published is not None
            sizes.append(len(published.payload))
        assert sizes == [100_000] * 80
        with pytest.raises(ConnectionResetError):
            subscriber.message(20)
        assert hub.process.wait(30) == 0


def test_who_never_reads_does_not_hold_up_the_end_for_longer_than_drain(tmp_path: Path) -> None:
    config = tmp_path / "hub.toml"
    config.write_text("drain = 0.1\n")
    flags = ("--port", "0", "--config", str(config))
    with hub_process(*flags) as hub, Client(f"127.0.0.1:{hub.port}") as subscriber:
        subscriber.subscribe("a")
        with Client(f"127.0.0.1:{hub.port}") as publisher:
            publisher.pipeline([("PUBLISH", "a", b"x" * 100_000)] * 100)
        code, _, err = hub.end()
        assert code == 0
        assert err.splitlines() == [
            "interlock hub: stopping",
            "interlock hub: 1 clients were closed with pending output",
        ]


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    config = tmp_path / "hub.toml"
    config.write_text("drain = 1000\n")
    flags = ("--port", "0", "--config", str(config))
    with hub_process(*flags) as hub, Client(f"127.0.0.1:{hub.port}") as subscriber:
        subscriber.subscribe("a")
        with Client(f"127.0.0.1:{hub.port}") as publisher:
            publisher.pipeline([("PUBLISH", "a", b"x" * 100_000)] * 100)
        hub.process.send_signal(signal.SIGTERM)
        assert hub.process.stderr is not None
        assert hub.process.stderr.readline() == "interlock hub: stopping\n"
        assert hub.end()[0] == -signal.SIGTERM


def test_hup_is_answered_and_it_goes_on() -> None:
    with hub_process("--port", "0") as hub:
        hub.process.send_signal(signal.SIGHUP)
        assert hub.process.stderr is not None
        assert "reconfigured: nothing has changed" in hub.process.stderr.readline()
        with Client(f"127.0.0.1:{hub.port}") as client:
            assert client.call("PING") == "PONG"
        assert hub.end()[0] == 0


def test_lines_of_the_log_are_json_if_asked(tmp_path: Path) -> None:
    config = tmp_path / "hub.toml"
    config.write_text("", encoding="utf-8")
    with hub_process("--port", "0", "--log-format", "json", "--config", str(config)) as hub:
        assert hub.process.stderr is not None
        hub.process.send_signal(signal.SIGHUP)
        line = json.loads(hub.process.stderr.readline())
        assert (line["level"], line["logger"]) == ("info", "interlock.hub")
        assert line["message"] == "reconfigured: nothing has changed"
        # The flag goes before the file, as all do.
        config.write_text("[log]\nformat = 'text'\n", encoding="utf-8")
        hub.process.send_signal(signal.SIGHUP)
        assert json.loads(hub.process.stderr.readline())["level"] == "info"


def test_the_form_of_the_log_follows_the_configuration(tmp_path: Path) -> None:
    config = tmp_path / "hub.toml"
    config.write_text("[log]\nformat = 'json'\n", encoding="utf-8")
    with hub_process("--port", "0", "--config", str(config)) as hub:
        assert hub.process.stderr is not None
        config.write_text("", encoding="utf-8")
        hub.process.send_signal(signal.SIGHUP)
        line = hub.process.stderr.readline()
        assert " INFO " in line and "log.format" in line


def test_a_port_that_is_taken_is_1_and_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, err = refused("--port", str(port))
    assert code == 1
    assert err.startswith("interlock: ")
    assert f"127.0.0.1:{port}" in err
    assert "in use" in err
    assert len(err.splitlines()) == 1


def test_an_address_of_another_machine_is_1_and_named(tmp_path: Path) -> None:
    config = tmp_path / "hub.toml"
    config.write_text('host = "192.0.2.1"\nunprotected = true\n')
    code, err = refused("--config", str(config), "--port", "0")
    assert (code, len(err.splitlines())) == (1, 1)
    assert "192.0.2.1" in err


def test_a_unix_path_in_no_folder_is_1_and_named(tmp_path: Path) -> None:
    path = tmp_path / "none" / "s"
    code, err = refused("--port", "0", "--unix", str(path))
    assert (code, len(err.splitlines())) == (1, 1)
    assert str(path) in err


def test_a_unix_path_without_permission_is_1_and_named(tmp_path: Path) -> None:
    # Root may write everywhere but here; where others run the test, they may not either.
    code, err = refused("--port", "0", "--unix", "/proc/interlock.sock")
    assert (code, len(err.splitlines())) == (1, 1)
    assert "/proc/interlock.sock" in err
    assert not list(tmp_path.iterdir())


def test_a_port_for_root_alone_is_1_and_named() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    if first <= 1:
        pytest.skip("anybody may listen on any port here")
    # The lowest one: tcpmux has been unused for decades.
    code, err = refused("--port", "1", without="net_bind_service")
    assert (code, len(err.splitlines())) == (1, 1)
    assert err.startswith("interlock: ")
    assert "127.0.0.1:1" in err
    assert "denied" in err


def test_a_unix_path_in_a_folder_of_others_is_1_and_named(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    code, err = refused("--port", "0", "--unix", str(folder / "s"), without="dac_override")
    assert (code, len(err.splitlines())) == (1, 1)
    assert str(folder / "s") in err
    assert "denied" in err


def test_a_start_that_fails_behind_the_unix_socket_leaves_none(tmp_path: Path) -> None:
    needs_hub()
    path = tmp_path / "s"
    # Enough for both sockets, and too few for the workers behind them.
    limited = ["sh", "-c", 'ulimit -n 8 && exec "$@"', "sh", str(INTERLOCK), "hub"]
    flags = ["--port", "0", "--unix", str(path), "--workers", "4"]
    done = subprocess.run(
        [*limited, *flags], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"interlock: Too many open files.*\n", done.stderr)
    assert not path.exists()


def test_a_unix_socket_goes_with_its_hub_and_a_left_one_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with hub_process("--port", "0", "--unix", str(path)) as hub:
        hub.process.kill()
        hub.process.wait()
    assert path.exists()
    with hub_process("--port", "0", "--unix", str(path)) as hub:
        with Client(f"unix:{path}") as client:
            assert client.call("PING") == "PONG"
        assert hub.end()[0] == 0
    assert not path.exists()


def test_a_unix_socket_of_a_running_hub_and_a_file_are_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with hub_process("--port", "0", "--unix", str(path)):
        assert refused("--port", "0", "--unix", str(path))[0] == 1
        with Client(f"unix:{path}") as client:
            assert client.call("PING") == "PONG"
    file = tmp_path / "file"
    file.write_text("precious")
    assert refused("--port", "0", "--unix", str(file))[0] == 1
    assert file.read_text() == "precious"


def test_a_bad_configuration_is_2_with_a_line_for_each_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "hub.toml"
    config.write_text("prot = 1\nmaxclients = 0\n")
    assert main(["hub", "--config", str(config), "--workers", "x"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        f"interlock: prot is not a key of the configuration (file {config}); did you mean port?",
        "interlock: workers is 'x' (flag --workers); allowed: a whole number from 0 to 64",
        f"interlock: maxclients is 0 (file {config}); allowed: a whole number from 1 to 1000000",
    ]
    assert main(["hub", "--config", str(tmp_path / "none")]) == 2
    assert "none: No such file or directory" in capsys.readouterr().err


# Every flag has a test here or above, or in one of the files that are named, or the first of these
# fails.


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.name)
def test_every_flag_is_used_by_a_test(flag: object) -> None:
    here = Path(__file__)
    others = ("config/test_kids", "config/test_store_tree", "queues/test_journal")
    files = (here, *(here.parents[1] / f"{name}.py" for name in others))
    files = (*files, here.with_name("test_daemon.py"))
    source = "".join(file.read_text(encoding="utf-8") for file in files)
    assert f'"{flag.name}"' in source  # type: ignore[attr-defined]


def test_check_says_what_is_open_to_whom_and_starts_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["hub", "--check", "--unix", "/x", "--port", "1"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "the configuration is valid",
        "127.0.0.1:1 is open to this machine, in the clear, without a password",
        "unix:/x is open to everyone who may write to it, without a password",
        "everybody may publish to *; subscribe to *; queues *; tables *; commands @all",
    ]


def test_print_config_shows_values_with_their_origins(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLOCK_HUB_MAXCLIENTS", "5")
    assert main(["hub", "--print-config", "--workers", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(re.match(r"workers = 3 +# flag --workers: ", line) for line in lines)
    assert any(
        re.match(r"maxclients = 5 +# environment INTERLOCK_HUB_MAXCLIENTS: ", line)
        for line in lines
    )
    assert any(re.match(r"port = 6399 +# default: ", line) for line in lines)


def test_hash_password_prints_a_hash_of_what_it_reads() -> None:
    done = subprocess.run(
        [INTERLOCK, "hub", "--hash-password"],
        input="a word\n", capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    assert passwords.matches(b"a word", done.stdout.strip())
    empty = subprocess.run(
        [INTERLOCK, "hub", "--hash-password"],
        input="\n", capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (empty.returncode, empty.stdout) == (2, "")


def test_info_tells_the_version_and_the_process() -> None:
    with hub_process("--port", "0") as hub, Client(f"127.0.0.1:{hub.port}") as client:
        info = client.call("INFO")
        assert isinstance(info, bytes)
        assert f"process_id:{hub.process.pid}".encode() in info
        assert __version__.encode() in info


def test_two_hubs_run_side_by_side() -> None:
    needs_hub()
    with hub_process("--port", "0") as one, hub_process("--port", "0") as other:
        assert one.port != other.port
