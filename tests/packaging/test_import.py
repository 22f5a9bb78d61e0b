"""`import interlock`: the names it offers, and the modules it must not load."""

import __future__

import inspect
import subprocess
import sys
import types

import pytest

import interlock
from interlock.cli import COMMANDS

# Modules that a program which only puts and gets need not load.
NOT_LOADED = [
    "aio_pika",
    "argparse",
    "asyncio",
    "confluent_kafka",
    "interlock.cli",
    "interlock.errors",
    "interlock.queue",
    "interlock.replay",
    "interlock.testing",
    "kafka",
    "logging",
    "multiprocessing",
    "nats",
    "pytest",
    "redis",
    "subprocess",
]


def loaded_by(program: str) -> set[str]:
    command = [sys.executable, "-c", f"{program}\nimport sys\nprint(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


@pytest.fixture(scope="module")
def added() -> set[str]:
    """Return the modules that `import interlock` loads in a bare interpreter."""
    return loaded_by("import interlock") - loaded_by("")


@pytest.mark.parametrize("module", NOT_LOADED)
def test_importing_interlock_loads_no_optional_modules(module: str, added: set[str]) -> None:
    assert module not in added


def loaded_by_command(*words: str) -> set[str]:
    """Return the modules that `interlock` has loaded when it has printed something."""
    program = f"""
import sys
sys.argv[1:] = {words!r}
try:
    from interlock.__main__ import main
    main()
except SystemExit:
    pass
"""
    return loaded_by(program)


def test_the_version_is_printed_without_loading_what_commands_need() -> None:
    loaded = loaded_by_command("--version")
    assert "interlock._core" in loaded
    assert not {"argparse", "interlock.cli", "interlock.errors", "threading"} & loaded


@pytest.mark.parametrize("words", [("--help",), (), ("unknown",)])
def test_the_list_of_commands_is_printed_without_loading_any(words: tuple[str, ...]) -> None:
    loaded = loaded_by_command(*words)
    assert "interlock.cli" in loaded
    assert not {f"interlock.cli.{name}" for name in COMMANDS} & loaded


def test_the_module_of_errors_can_be_named_after_importing_interlock_alone() -> None:
    assert "interlock.errors" in loaded_by("import interlock; interlock.errors.Full")


def test_all_names_everything_public() -> None:
    no_names = (types.ModuleType, __future__._Feature)
    public = {
        name
        for name, value in vars(interlock).items()
        if not name.startswith("_") and not isinstance(value, no_names)
        if name != "TYPE_CHECKING"
    }
    assert public <= set(interlock.__all__)
    assert len(interlock.__all__) == len(set(interlock.__all__))
    # A name may be loaded on first use, but dir() and completion must list it anyway.
    assert set(interlock.__all__) <= set(dir(interlock))
    for name in interlock.__all__:
        assert hasattr(interlock, name), name


def test_every_public_class_and_function_is_described() -> None:
    for name in interlock.__all__:
        value = getattr(interlock, name)
        if inspect.isclass(value) or inspect.isroutine(value):
            assert inspect.getdoc(value), f"{name} has no docstring"


def test_every_public_class_can_be_imported_from_its_module() -> None:
    # Pickle and tracebacks use this name, so it must be importable for a public class.
    for name in interlock.__all__:
        value = getattr(interlock, name)
        if inspect.isclass(value) and value.__module__.partition(".")[0] == "interlock":
            module = sys.modules[value.__module__]
            assert getattr(module, value.__qualname__) is value, name


def test_a_free_threaded_interpreter_is_refused_before_anything_native_is_loaded() -> None:
    program = """
import sys
sys.abiflags = "t"
try:
    import interlock
except ImportError as error:
    print(error, "interlock._core" in sys.modules, sep="\\n")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    text, native = done.stdout.splitlines()
    assert "free-threaded" in text and "guarded by the GIL" in text and native == "False"
