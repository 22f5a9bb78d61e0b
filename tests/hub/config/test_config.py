"""The configuration: every value checked, every fault told with where it came from."""

from __future__ import annotations

import pickle
import tomllib
from pathlib import Path

import pytest

from interlock import Hub
from interlock.hub.config.configuration import ConfigError, Configuration, Raw, from_arguments, read
from interlock.hub.config.settings import SETTINGS, Setting

# For each key one value that it takes, and some that it does not.
VALUES: dict[str, tuple[object, list[object]]] = {
    "host": ("::1", ["localhost", "1.2.3", 1, "127.0.0.1 "]),
    "port": (0, [-1, 65536, "6399", True, 1.0]),
    "unix": ("/run/hub", ["x" * 108, "a\0b", 3]),
    "unix_mode": ("0660", ["rw", "9", "66", 660, None]),
    "unprotected": (True, [1, "true"]),
    "ignore_case_topics": (True, [1, "true"]),
    "workers": (3, [-1, 65, True, "2"]),
    "maxclients": (1, [0, 1000001]),
    "max_per_address": (7, [-1]),
    "query_limit": (1024, [1023, 2**31 + 1]),
    "frame_limit": (4096, [0, "1mb"]),
    "idle_timeout": (1, [-1, 1.5, "1s", True]),
    "http.host": ("::1", ["", "localhost", None]),
    "http.port": (9100, [-2, 65536, "off", True]),
    "drain": (1.5, [-0.1, float("nan"), float("inf"), "1s", True]),
    **{f"limits.{name}.soft": (1, [-1, 1.5]) for name in ("normal", "pubsub")},
    **{f"limits.{name}.soft_seconds": (1, [-1]) for name in ("normal", "pubsub")},
    **{f"limits.{name}.hard": (0, ["none"]) for name in ("normal", "pubsub")},
    "limits.pubsub.subscriptions": (0, [-1, "64mb"]),
    "limits.clients": (0, [-1, True]),
    "login_timeout": (5, [-1, 1.5]),
    "logins.waiting": (1, [0, 1025, True]),
    "logins.failures": (0, [-1, 1.5]),
    "log.repeats": (0, [-1, "all"]),
    "slow_log.threshold": (-1, [-2, "slow"]),
    "slow_log.length": (0, [-1]),
    "queues.journal": ("/x", [1, "\0"]),
    "queues.durability": ("none", ["never", 1]),
    "queues.repair": (True, [1, "yes please"]),
    "queues.memory": (1 << 30, [-1, "1gb"]),
    "tls.cert": ("", [1, "\0"]),
    "tls.key": ("", [1, "\0"]),
    "tls.client_ca": ("", [1, "\0"]),
    "tls.port": (-1, [-2, 65536]),
    "log.level": ("error", ["debug", 1]),
    "log.format": ("json", ["xml", 1]),
    "log.file": ("/x", [1, "\0"]),
    "user": ((), ["a", 1]),
    "table": ((), ["a", 1, [1]]),
    "store": ((), ["a", 1, [1]]),
}
BAD = [(key, value) for key, (_, bad) in VALUES.items() for value in bad]


def given(**values: object) -> Configuration:
    return read(given=from_arguments(values))


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "hub.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_every_key_takes_its_default_and_what_it_allows(setting: Setting) -> None:
    assert read()[setting.key] == setting.default
    assert type(read()[setting.key]) is type(setting.default)
    assert (
        read(given={setting.key: Raw(VALUES[setting.key][0], "t")})[setting.key]
        == (VALUES[setting.key][0])
    )


@pytest.mark.parametrize(("key", "value"), BAD)
def test_a_wrong_value_is_told_with_key_value_origin_and_what_is_allowed(
    key: str, value: object
) -> None:
    with pytest.raises(ConfigError) as refused:
        read(given={key: Raw(value, "flag --x")})
    (setting,) = (setting for setting in SETTINGS if setting.key == key)
    (fault,) = refused.value.faults
    assert fault.startswith(f"{key} is {repr(value)[:80]}")
    assert "(flag --x); allowed: " in fault
    assert fault.endswith(setting.allowed)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        given(port=-1, limits={"pubsub": {"hard": -1}}, wrokers=2)
    assert [fault.partition(" ")[0] for fault in refused.value.faults] == [
        "wrokers",
        "port",
        "limits.pubsub.hard",
    ]


def test_an_unknown_key_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"prot is not a key .*\(argument\); did you mean port\?"):
        given(prot=1)
    with pytest.raises(ConfigError, match=r"limits.pubsub.hrad is not a key"):
        given(limits={"pubsub": {"hrad": 1}})


def test_a_table_where_a_value_belongs_and_a_value_where_a_table_does_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"port is \{'a': 1\} \(argument\); allowed: a whole"):
        given(port={"a": 1})
    with pytest.raises(ConfigError, match=r"limits is not a key"):
        given(limits=3)


def test_a_flag_goes_before_the_environment_that_before_the_file_that_before_the_default(
    tmp_path: Path,
) -> None:
    file = written(tmp_path, "port = 1\nworkers = 1\nmaxclients = 1\n")
    environment = {"INTERLOCK_HUB_PORT": "2", "INTERLOCK_HUB_WORKERS": "2", "PATH": "x"}
    found = read(file, environment=environment, given={"port": Raw(3, "flag --port")})
    assert (found["port"], found.origins["port"]) == (3, "flag --port")
    assert (found["workers"], found.origins["workers"]) == (
        2,
        "environment INTERLOCK_HUB_WORKERS",
    )
    assert (found["maxclients"], found.origins["maxclients"]) == (1, f"file {file}")
    assert (found["host"], found.origins["host"]) == ("127.0.0.1", "default")


def test_the_environment_is_text_and_is_checked_like_the_rest() -> None:
    found = read(
        environment={
            "INTERLOCK_HUB_LIMITS_PUBSUB_HARD": "0",
            "INTERLOCK_HUB_LIMITS_PUBSUB_SOFT": "0",
            "INTERLOCK_HUB_DRAIN": "2.5",
            "INTERLOCK_HUB_UNPROTECTED": "true",
        }
    )
    assert found["limits.pubsub.hard"] == 0
    assert found["drain"] == 2.5
    assert found["unprotected"] is True
    with pytest.raises(ConfigError, match=r"port is 'x' \(environment INTERLOCK_HUB_PORT\)"):
        read(environment={"INTERLOCK_HUB_PORT": "x"})
    with pytest.raises(ConfigError, match=r"unprotected is 'maybe' \(environment"):
        read(environment={"INTERLOCK_HUB_UNPROTECTED": "maybe"})


def test_a_file_that_is_no_toml_is_refused_with_the_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"hub\.toml is not TOML: .*line 2"):
        read(written(tmp_path, "port = 1\nport: 2\n"))
    with pytest.raises(ConfigError, match=r"hub\.toml is not TOML: .*digits"):
        read(written(tmp_path, f"port = {'9' * 5000}\n"))
    (tmp_path / "hub.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"hub\.toml is not TOML"):
        read(tmp_path / "hub.toml")


@pytest.mark.parametrize(
    "text",
    [
        f"workers = {'[' * 5000}{']' * 5000}",
        f"workers = {'[' * 20}{']' * 20}",
        f"[{'.'.join('a' * 5000)}]\nb = 1",
        f"store.{'.'.join('a' * 5000)} = 1",
        f"log = {'{a = ' * 3000}1{'}' * 3000}",
    ],
)
def test_a_file_that_is_nested_too_deeply_is_refused_with_the_limit(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "hub.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"nested too deeply.*allowed: 16 levels"):
        read(path)


def test_a_value_of_a_program_or_the_environment_may_not_be_deeper_either() -> None:
    value: object = 1
    for _ in range(5000):
        value = [value]
    with pytest.raises(ConfigError, match=r"store is nested too deeply \(argument\)"):
        read(given=from_arguments({"store": value}))
    deep = "[" * 5000 + "]" * 5000
    with pytest.raises(ConfigError, match="user is '"):
        read(environment={"INTERLOCK_HUB_USER": deep})


def test_the_text_of_a_configuration_is_a_file_that_gives_it_again(tmp_path: Path) -> None:
    before = given(unix='/a "b" \\ c\u00e4\u2028', port=0, limits={"pubsub": {"soft": 5}})
    again = read(written(tmp_path, before.text()))
    assert dict(again.values) == dict(before.values)
    assert "# argument: TCP port" in before.text()
    assert "# default: " in before.text()
    # Every key is in it, also for the standard library's parser.
    tree = tomllib.loads(before.text())
    assert tree["limits"]["pubsub"]["soft"] == 5


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_an_address_that_others_reach_needs_to_be_told(host: str) -> None:
    with pytest.raises(ConfigError, match=r"allowed: a loopback address; any other with users"):
        given(host=host)
    assert given(host=host, unprotected=True)["host"] == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1"])
def test_loopback_is_open(host: str) -> None:
    assert given(host=host)["host"] == host


def test_a_hub_without_any_address_is_refused() -> None:
    assert given(host="", unix="/x")["host"] == ""
    with pytest.raises(ConfigError, match=r"host is \'\' \(argument\); allowed: an IP address, or"):
        given(host="")


def test_a_soft_limit_lies_below_the_hard_one() -> None:
    with pytest.raises(ConfigError, match=r"limits.pubsub.soft is 6 .*hard, which is 5"):
        given(limits={"pubsub": {"soft": 6, "hard": 5}})
    assert given(limits={"pubsub": {"soft": 6, "hard": 0}})["limits.pubsub.soft"] == 6


def test_the_server_is_given_every_key_but_pythons_own() -> None:
    settings = read().for_server()
    assert settings["port"] == 6399
    assert settings["normal"] == [0, 0, 256 << 20]
    assert settings["pubsub"] == [8388608, 60, 33554432]
    assert not {"drain", "unprotected"} & settings.keys()


def test_a_config_error_survives_pickling() -> None:
    with pytest.raises(ConfigError) as refused:
        given(port=-1)
    again = pickle.loads(pickle.dumps(refused.value))
    assert (again.faults, str(again)) == (refused.value.faults, str(refused.value))


def test_a_hub_takes_a_path_a_mapping_a_configuration_and_keywords(tmp_path: Path) -> None:
    path = written(tmp_path, "port = 7\nworkers = 1\n")
    assert Hub(path, port=0).config["port"] == 0
    assert Hub(str(path)).config["port"] == 7
    assert Hub({"limits": {"pubsub": {"hard": 0}}}).config["limits.pubsub.hard"] == 0
    assert Hub(given(port=3)).config["port"] == 3
    assert Hub(given(port=3), workers=2).config.origins["workers"] == "argument"
    with pytest.raises(TypeError, match=r"config is int; allowed: a path"):
        Hub(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"port is -1 \(argument\)"):
        Hub(port=-1)
    with pytest.raises(FileNotFoundError):
        Hub(tmp_path / "none")
