"""A configuration that changes while the hub runs: HUP, CONFIG, and what of it takes effect."""

from __future__ import annotations

import logging
import os
import random
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import interlock
from interlock.hub import passwords
from interlock.hub.client import Client
from interlock.hub.config.configuration import ConfigError, read
from interlock.hub.config.settings import SETTINGS
from interlock.hub.resp import ReplyError
from tests import seeds
from tests.hub.protocol.certificates import Authority
from tests.hub.servers import HubProcess, hub_process, needs_hub


class Written:
    """A configuration file and the hub that was started with it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = path.with_suffix(".log")
        self.write("maxclients = 100")

    def write(self, text: str) -> None:
        self.path.write_text(f'{text}\n[log]\nfile = "{self.log}"\n')

    def logged(self, process: HubProcess, number: int, text: str) -> str:
        """Signal it, and wait for a line with this text."""
        before = self.log.stat().st_size
        process.process.send_signal(number)
        while True:
            with self.log.open() as file:
                file.seek(before)
                found = [line for line in file if text in line and line.endswith("\n")]
            if found:
                return found[0]
            assert process.process.poll() is None, "the hub has ended"


@pytest.fixture
def written(tmp_path: Path) -> Written:
    needs_hub()
    return Written(tmp_path / "hub.toml")


@pytest.fixture
def process(written: Written) -> Iterator[HubProcess]:
    with hub_process("--config", str(written.path), "--port", "0") as started:
        yield started


def setting(client: Client, name: str) -> str:
    found = client.call("CONFIG", "GET", name)
    assert isinstance(found, dict)
    (value,) = found.values()
    assert isinstance(value, bytes)
    return value.decode()


def test_hup_applies_what_can_change_and_names_what_cannot(
    written: Written, process: HubProcess
) -> None:
    with Client(process.addresses[0]) as client:
        written.write("maxclients = 200\nworkers = 3\nunix = '/x'")
        assert "need a restart: unix, workers" in written.logged(
            process, signal.SIGHUP, "need a restart"
        )
        assert setting(client, "maxclients") == "200"
        assert setting(client, "workers") == "0"


def test_a_bad_file_is_refused_whole_and_the_running_one_stays(
    written: Written, process: HubProcess
) -> None:
    with Client(process.addresses[0]) as client:
        written.write("maxclients = 300\nidle_timeout = -1")
        line = written.logged(process, signal.SIGHUP, "refused")
        assert "idle_timeout is -1" in line
        written.path.write_text("maxclients =")
        assert "is not TOML" in written.logged(process, signal.SIGHUP, "refused")
        for deep in ("[" * 5000 + "]" * 5000, "{a=" * 3000 + "1" + "}" * 3000):
            written.path.write_text(f"maxclients = {deep}")
            line = written.logged(process, signal.SIGHUP, "refused")
            assert "nested too deeply; allowed: 16 levels" in line
        chain = "".join(
            f'[[store]]\nname = "s{n}"\nkind = "multiple"\nstores = ["s{n + 1}"]\n'
            for n in range(1500)
        )
        written.path.write_text(f'{chain}[[store]]\nname = "s1500"\nkind = "null"\n')
        written.logged(process, signal.SIGHUP, "refused")
        written.path.unlink()
        assert "No such file" in written.logged(process, signal.SIGHUP, "cannot be read")
        assert setting(client, "maxclients") == "100"
        assert process.end()[0] == 0


def test_usr1_opens_the_log_anew(written: Written, process: HubProcess) -> None:
    moved = written.log.with_suffix(".1")
    written.logged(process, signal.SIGHUP, "reconfigured")
    written.log.rename(moved)
    process.process.send_signal(signal.SIGUSR1)
    while not written.log.exists():
        assert process.process.poll() is None
    written.logged(process, signal.SIGHUP, "reconfigured")
    assert moved.read_text().count("reconfigured") == 1


def test_a_port_that_speaks_tls_goes_on_to_whatever_is_read_later(tmp_path: Path) -> None:
    needs_hub()
    pair = Authority(tmp_path).sign("server")
    secure = f'[tls]\ncert = "{pair.cert}"\nkey = "{pair.key}"\n'
    file = tmp_path / "hub.toml"
    for before, after, speaks in ((secure, "", "tls:"), ("", secure, "")):
        file.write_text(f"port = 0\n{before}")
        with interlock.Hub(file) as hub:
            assert hub.addresses[0].startswith(speaks)
            file.write_text(f"port = 0\n{after}")
            assert hub.reload() == ["tls.cert", "tls.key"]
            with socket.create_connection(("127.0.0.1", hub.port), 20) as plain:
                plain.sendall(b"PING\r\n")
                assert (plain.recv(7) == b"+PONG\r\n") == (speaks == "")


def test_a_reload_says_which_files_have_new_contents(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    needs_hub()
    caplog.set_level(logging.INFO, "interlock.hub")
    authority = Authority(tmp_path)
    pair, renewed, word = authority.sign("server"), authority.sign("renewed"), tmp_path / "word"
    word.write_text("first\n")
    file = tmp_path / "hub.toml"
    file.write_text(
        f'port = 0\n[tls]\ncert = "{pair.cert}"\nkey = "{pair.key}"\n[[store]]\nname = "far"\n'
        f'kind = "network"\ntopics = ["a"]\nupstream = "interlock://me@127.0.0.1:1"\n'
        f'password_file = "{word}"\nspool = "{tmp_path / "spool"}"\n'
    )
    with interlock.Hub(file) as hub:
        said = []
        for change in (
            lambda: None,
            lambda: (shutil.copy(renewed.cert, pair.cert), shutil.copy(renewed.key, pair.key)),
            lambda: word.write_text("second\n"),
            lambda: None,
        ):
            change()
            caplog.clear()
            hub.reload()
            said += [one for one in caplog.messages if "reconfigured" in one]
    assert [one.removeprefix("reconfigured: ") for one in said] == [
        "nothing has changed",
        "the contents of tls.cert, the contents of tls.key",
        "the contents of store far: password",
        "nothing has changed",
    ]


def test_an_address_that_stays_keeps_the_users_that_guard_it(tmp_path: Path) -> None:
    file = tmp_path / "hub.toml"
    guard = f'[[user]]\nname = "a"\ntopics = ["*"]\npasswords = ["{passwords.hashed("x")}"]\n'
    file.write_text(f'host = "0.0.0.0"\n{guard}')
    running = read(file)
    # Right by itself, but the address cannot change while the hub runs.
    file.write_text("")
    with pytest.raises(ConfigError, match=r"host is '0\.0\.0\.0'"):
        running.renewed()
    file.write_text(guard)
    new, fixed = running.renewed()
    assert (new["host"], fixed) == ("0.0.0.0", ["host"])


def test_a_log_that_cannot_be_opened_is_1_at_the_start_and_refused_later(
    written: Written, process: HubProcess, tmp_path: Path
) -> None:
    written.path.write_text(f'[log]\nfile = "{tmp_path}/none/log"\n')
    line = written.logged(process, signal.SIGHUP, "refused")
    assert "log.file is" in line
    assert "No such file" in line
    from tests.hub.operating.test_process import refused

    code, err = refused("--config", str(written.path), "--port", "0")
    assert (code, len(err.splitlines())) == (1, 1)
    assert "none/log" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_costs_lines_of_the_log_and_nothing_else(tmp_path: Path) -> None:
    needs_hub()
    config = tmp_path / "hub.toml"
    config.write_text('[log]\nfile = "/dev/full"\n')
    with hub_process("--config", str(config), "--port", "0") as hub:
        for _ in range(3):
            hub.process.send_signal(signal.SIGHUP)
            with Client(hub.addresses[0]) as client:
                assert client.call("CONFIG", "RELOAD") == "OK"
        code, _, err = hub.end()
        assert code == 0
        assert err.count("cannot log to /dev/full") == 1


def test_config_reload_is_what_hup_is(written: Written, process: HubProcess) -> None:
    with Client(process.addresses[0]) as client:
        written.write("maxclients = 77")
        assert client.call("CONFIG", "RELOAD") == "OK"
        assert setting(client, "maxclients") == "77"
        written.write("maxclients = 'x'")
        with pytest.raises(ReplyError, match="refused: maxclients is 'x'"):
            client.call("CONFIG", "RELOAD")


def test_config_set_holds_until_the_next_reload(written: Written, process: HubProcess) -> None:
    with Client(process.addresses[0]) as client:
        assert client.call("CONFIG", "SET", "maxclients", "5", "timeout", "9") == "OK"
        assert (setting(client, "maxclients"), setting(client, "idle_timeout")) == ("5", "9")
        with pytest.raises(ReplyError, match=r"Unknown option .* - 'nonsense'"):
            client.call("CONFIG", "SET", "maxclients", "6", "nonsense", "1")
        with pytest.raises(ReplyError, match=r"'port'.* - can't set immutable config"):
            client.call("CONFIG", "SET", "maxclients", "6", "port", "1")
        with pytest.raises(ReplyError, match="maxclients is 'x'"):
            client.call("CONFIG", "SET", "timeout", "8", "maxclients", "x")
        for name in ("log.file", "logfile", "tls.cert", "tls.key", "tls.client_ca", "user"):
            with pytest.raises(ReplyError, match="can't set protected config"):
                client.call("CONFIG", "SET", name, "/tmp/x")
        assert (setting(client, "maxclients"), setting(client, "idle_timeout")) == ("5", "9")
        assert client.call("CONFIG", "RELOAD") == "OK"
        assert (setting(client, "maxclients"), setting(client, "idle_timeout")) == ("100", "0")


def test_a_pipeline_behind_config_set_is_answered_in_order(process: HubProcess) -> None:
    with Client(process.addresses[0]) as client:
        calls = [("ECHO", "1"), ("CONFIG", "SET", "timeout", "7"), ("CONFIG", "GET", "timeout"),
                 ("CONFIG", "SET", "timeout", "x"), ("ECHO", "2")]  # fmt: skip
        found = client.pipeline(calls)
        assert found[:3] == [b"1", "OK", {b"timeout": b"7"}]
        assert isinstance(found[3], ReplyError)
        assert found[4] == b"2"


def test_every_key_is_shown_and_a_pattern_chooses(process: HubProcess) -> None:
    with Client(process.addresses[0]) as client:
        found = client.call("CONFIG", "GET", "*")
        assert isinstance(found, dict)
        assert {setting.key.encode() for setting in SETTINGS} <= found.keys()
        some = client.call("CONFIG", "GET", "LIMITS.pubsub.*", "nothing")
        assert isinstance(some, dict)
        assert sorted(some) == [
            b"limits.pubsub.hard", b"limits.pubsub.soft", b"limits.pubsub.soft_seconds",
            b"limits.pubsub.subscriptions",
        ]  # fmt: skip


def test_a_hash_is_not_shown() -> None:
    needs_hub()
    user = {"name": "default", "passwords": [passwords.hashed("x")], "topics": ["*"],
            "commands": ["@all"]}  # fmt: skip
    with interlock.Hub(port=0, user=[user]) as hub, Client(f"redis://:x@{hub.addresses[0]}") as c:
        assert b"scrypt" not in repr(c.call("CONFIG", "GET", "*")).encode()


def test_limits_apply_to_connections_that_are_there() -> None:
    needs_hub()
    with (
        interlock.Hub(port=0, limits={"pubsub": {"soft": 0, "hard": 0}}) as hub,
        Client(hub.url, timeout=20) as slow,
        Client(hub.url, timeout=20) as publisher,
    ):
        slow.subscribe("a")
        assert publisher.pipeline([("PUBLISH", "a", b"x" * 100_000)] * 100) == [1] * 100
        hub.set({"limits.pubsub.hard": 1 << 20})
        while publisher.publish("a", "x") == 1:
            pass
        assert hub.info()["client_output_buffer_limit_disconnections"] == 1


def test_maxclients_that_shrinks_refuses_the_next_and_keeps_who_is_there() -> None:
    needs_hub()
    with interlock.Hub(port=0) as hub, Client(hub.url) as one, Client(hub.url) as two:
        hub.set({"maxclients": 1})
        with pytest.raises(ReplyError, match="max number of clients"), Client(hub.url):
            pass
        assert one.call("PING") == two.call("PING") == "PONG"


def test_from_python_what_cannot_change_is_refused_and_nothing_is_applied() -> None:
    needs_hub()
    with interlock.Hub(port=0) as hub:
        with pytest.raises(ConfigError, match="workers cannot change while the hub runs"):
            hub.set({"maxclients": 5, "workers": 2})
        with pytest.raises(ConfigError, match="maxclients is 0"):
            hub.set({"maxclients": 0})
        assert hub.config["maxclients"] == 10000
        assert hub.reload() == []


THOUSAND = int(os.environ.get("INTERLOCK_RELOADS", "60"))


@pytest.mark.share(2)
def test_reloads_under_load_lose_nothing_and_leave_nothing(
    written: Written, process: HubProcess
) -> None:
    """A thousand with INTERLOCK_RELOADS=1000; every third file is bad."""
    seed = seeds.seed()
    chance = random.Random(seed)
    stop = threading.Event()
    sent = 0

    def publish() -> None:
        nonlocal sent
        with Client(process.addresses[0], timeout=30) as publisher:
            while not stop.is_set():
                batch = [("PUBLISH", "a", str(sent + number)) for number in range(100)]
                assert publisher.pipeline(batch) == [1] * 100
                sent += 100

    def footprint() -> tuple[int, int]:
        pid = process.process.pid
        with open(f"/proc/{pid}/statm") as file:
            resident = int(file.read().split()[1])
        return len(os.listdir(f"/proc/{pid}/fd")), resident * os.sysconf("SC_PAGESIZE")

    with Client(process.addresses[0], timeout=30) as subscriber:
        subscriber.subscribe("a")
        thread = threading.Thread(target=publish)
        thread.start()
        before = None
        got = 0
        try:
            for number in range(THOUSAND):
                if number % 3 == 2:
                    written.write(chance.choice(["maxclients = 0", "= 1", "nonsense = 1"]))
                    written.logged(process, signal.SIGHUP, "refused")
                else:
                    written.write(f"maxclients = {chance.randrange(50, 5000)}")
                    written.logged(process, signal.SIGHUP, "reconfigured")
                while (found := subscriber.message(0)) is not None:
                    assert int(found.payload) == got
                    got += 1
                if number == 10:
                    before = footprint()
        finally:
            stop.set()
            thread.join()
        while got < sent:
            found = subscriber.message(30)
            assert found is not None
            assert int(found.payload) == got
            got += 1
        assert before is not None
        after = footprint()
    assert sent > 0
    assert after[0] <= before[0], "descriptors"
    assert after[1] - before[1] < 16 << 20, "memory"
