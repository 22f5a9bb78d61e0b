"""The reference says what the code has: every flag, name, method, parameter and field."""

import ast
import dataclasses
import importlib.util
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import interlock
from interlock import auditor, postgres, testing
from interlock.app.timetable import Timetable
from interlock.client.rows.announcements import Announcement
from interlock.cluster.control import HELP
from interlock.contrib import opentelemetry, sentry
from interlock.hub import client
from interlock.testing import contract
from tests.docs.running import ROOT

REFERENCE = ROOT / "docs" / "reference"
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in sorted(REFERENCE.glob("*.md")))
BLOCK = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SIGNATURE = re.compile(
    r"^([A-Za-z_]\w*(?:\.\w+)?)\((.*?)\)(?: -> [^\n]+)?$", re.MULTILINE | re.DOTALL
)

# Documented method by method. What `concurrent.futures` and `asyncio` give beyond that is theirs.
CLASSES = {
    "KeyedQueue": interlock.KeyedQueue,
    "AsyncQueue": interlock.AsyncQueue,
    "Lease": interlock.Lease,
    "AsyncLease": interlock.AsyncLease,
    "LeaseBatch": interlock.LeaseBatch,
    "Consumer": interlock.Consumer,
    "RemoteQueue": interlock.RemoteQueue,
    "AsyncRemoteQueue": interlock.AsyncRemoteQueue,
    "RemoteLease": interlock.RemoteLease,
    "AsyncRemoteLease": interlock.AsyncRemoteLease,
    "AsyncClient": interlock.AsyncClient,
    "RemoteTable": interlock.RemoteTable,
    "AsyncRemoteTable": interlock.AsyncRemoteTable,
    "KeyedExecutor": interlock.KeyedExecutor,
    "Future": interlock.Future,
    "KeyedTaskGroup": interlock.KeyedTaskGroup,
    "ManualClock": testing.ManualClock,
    "Auditor": auditor.Auditor,
    "Hub": interlock.Hub,
    "Client": client.Client,
    "App": interlock.App,
    "Task": interlock.Task,
    "Job": interlock.Job,
    "Worker": interlock.Worker,
    "TestWorker": testing.TestWorker,
    "SharedTable": interlock.SharedTable,
    "Leader": interlock.Leader,
    "Term": interlock.Term,
}
# Made by a call, never by their users.
NOT_MADE = {
    "AsyncQueue",
    "Lease",
    "AsyncLease",
    "LeaseBatch",
    "Consumer",
    "RemoteQueue",
    "AsyncRemoteQueue",
    "RemoteLease",
    "AsyncRemoteLease",
    "AsyncClient",
    "RemoteTable",
    "AsyncRemoteTable",
    "Future",
    "Task",
    "Job",
    "Worker",
    "TestWorker",
    "SharedTable",
    "Leader",
    "Term",
}
OTHERS = {
    "SharedTable.attach": interlock.SharedTable.attach,
    "SharedTable.open": interlock.SharedTable.open,
    "Retry": interlock.Retry,
    "Rate": interlock.Rate,
    "Run": interlock.Run,
    "Run.done": interlock.Run.done,
    "RetryAfter": interlock.RetryAfter,
    "Reject": interlock.Reject,
    "connect": interlock.connect,
    "Timetable.add": Timetable.add,
    "Timetable.change": Timetable.change,
    "Timetable.remove": Timetable.remove,
    "Timetable.stored": Timetable.stored,
    "Timetable.other_queues": Timetable.other_queues,
    "Outbox": postgres.Outbox,
    "Outbox.send": postgres.Outbox.send,
    "Outbox.asend": postgres.Outbox.asend,
    "Outbox.explain": postgres.Outbox.explain,
    "Outbox.send_many": postgres.Outbox.send_many,
    "Outbox.asend_many": postgres.Outbox.asend_many,
    "Outbox.job": postgres.Outbox.job,
    "Outbox.migrate": postgres.Outbox.migrate,
    "RowJob.result": postgres.RowJob.result,
    "RowJob.state": postgres.RowJob.state,
    "RowJob.cancel": postgres.RowJob.cancel,
    "RowJob.forget": postgres.RowJob.forget,
    "current_lease": interlock.current_lease,
    "cases": contract.cases,
    "run": contract.run,
    "replay": testing.replay,
    "opentelemetry.instrument": opentelemetry.instrument,
    "Tracing": opentelemetry.Tracing,
    "Tracing.flush": opentelemetry.Tracing.flush,
    "sentry.instrument": sentry.instrument,
    "Reporting": sentry.Reporting,
}


STARS: dict[object, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}
RECORDS = [
    "Explanation",
    "ExplainNode",
    "FullLimit",
    "Blocker",
    "Stats",
    "HotKey",
    "LimitUse",
    "DeadLetter",
    "Message",
    "QueuedMessage",
    "TableStats",
]


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts" / "reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def documented() -> dict[str, list[str]]:
    """The parameters of each signature that the reference shows, `*` and `/` among them."""
    found = {}
    for block in BLOCK.findall(TEXT):
        for name, inside in SIGNATURE.findall(block):
            parts = [part.strip() for part in re.split(r",(?![^(\[]*[)\]])", inside)]
            found[name] = [part.partition("=")[0] for part in parts if part]
    return found


def parameters(of: object) -> list[str]:
    """Parameters of a callable, as `documented` gives them; without self and the mark behind it."""
    shown: list[str] = []
    keyword_only = False
    for parameter in inspect.signature(of).parameters.values():  # type: ignore[arg-type]
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            if not any(name.startswith("*") for name in shown):
                shown.append("*")
        star = STARS.get(parameter.kind, "")
        shown.append(star + parameter.name)
    return shown


def methods() -> Iterator[str]:
    for name, kind in CLASSES.items():
        for method in dir(kind):
            if method.startswith("_") or not callable(inspect.getattr_static(kind, method)):
                continue
            # Members that a task group inherits from asyncio are not ours to describe.
            if name == "KeyedTaskGroup" and method not in vars(kind):
                continue
            yield f"{name}.{method}"


LOGS = {"debug", "info", "warning", "error", "exception", "critical", "log"}


def logged() -> Iterator[str]:
    """The text of every log call of the package; where that is a name, all that it was set to."""
    for file in sorted((ROOT / "src" / "interlock").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from logged_by(node)


def logged_by(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    texts = []
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of_a_logger = getattr(node.func.value, "id", None) in {"log", "_log", "logger"}
            if of_a_logger and node.func.attr in LOGS:
                texts.append(node.args[node.func.attr == "log"])
    names = {text.id for text in texts if isinstance(text, ast.Name)}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in names:
            texts.append(node.value)
    for text in texts:
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            yield text.value.partition("\n")[0]


SHOWN = documented()


@pytest.mark.parametrize("path", script().PAGES, ids=lambda path: path.name)
def test_a_generated_page_matches_its_declarations(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == script().PAGES[path](), "run scripts/reference.py"


def test_every_method_is_documented_with_every_parameter() -> None:
    taken = {}
    for method in methods():
        kind, name = method.split(".")
        taken[method] = parameters(getattr(CLASSES[kind], name))
    shown = {
        method: [part for part in SHOWN[method] if part != "/"]
        for method in taken
        if method in SHOWN
    }
    assert shown == taken, "what docs/reference shows, and what there is"


def test_every_public_callable_is_documented_with_every_parameter() -> None:
    names = {*OTHERS, *CLASSES} - NOT_MADE
    taken = {name: parameters(OTHERS.get(name) or CLASSES[name]) for name in names}
    shown = {name: SHOWN[name] for name in names & SHOWN.keys()}
    assert shown == taken, "what docs/reference shows, and what there is"


def test_nothing_is_documented_that_does_not_exist() -> None:
    gone = [name for name in SHOWN if name not in {*OTHERS, *CLASSES, *methods()}]
    assert not gone


def test_every_public_name_is_in_the_reference() -> None:
    assert not [name for name in interlock.__all__ if not re.search(rf"\b{name}\b", TEXT)]


@pytest.mark.parametrize("name", RECORDS)
def test_every_field_of_a_record_is_documented(name: str) -> None:
    pages = ("records.md", "table.md")
    text = "\n".join((REFERENCE / page).read_text(encoding="utf-8") for page in pages)
    # Stats has two tables under its heading; the others are as long as to the next heading.
    section = re.search(rf"^#+ {name}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert section is not None
    missing = [
        field.name
        for field in dataclasses.fields(getattr(interlock, name))
        if f"`{field.name}`" not in section[1]
    ]
    assert not missing


def test_every_log_line_is_documented() -> None:
    page = (REFERENCE / "logs.md").read_text(encoding="utf-8")
    lines = set(logged()) - {"%s"}
    assert lines
    assert not [text for text in lines if not re.search(with_values(text), page)]


def with_values(text: str) -> str:
    """The pattern of a log line; where a value is put in, the page has a word of its own."""
    return r"[^`|\n]+?".join(map(re.escape, re.split(r"%[.\d]*[a-z]", text.strip())))


def test_every_clause_of_the_suite_is_in_the_contract() -> None:
    text = (REFERENCE / "contract.md").read_text(encoding="utf-8")
    numbers = [int(number) for number in re.findall(r"^### Clause (\d+):", text, re.MULTILINE)]
    assert numbers == list(range(1, 32))
    assert {case.clause for case in contract.cases()} <= {*numbers, contract.BAD_CALL}


def test_messages_between_nodes_are_documented() -> None:
    text = (REFERENCE / "node.md").read_text(encoding="utf-8")
    named = {line.split(" ")[0] for line in HELP[1:]} | {"HELP"}
    assert named <= set(re.findall(r"^\| `NODE ([A-Z]+)", text, re.MULTILINE))
    assert all(f"`{name}`" in text for name in Announcement.__struct_fields__)
