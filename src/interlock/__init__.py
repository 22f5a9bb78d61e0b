"""Interlock: messages that share a key are handled in order, never at the same time.

Everything else runs in parallel; a message may carry several keys; nothing deadlocks; and one can
ask why a message waits.

>>> from interlock import KeyedQueue
>>> queue = KeyedQueue()
>>> queue.put("debit", keys=["account:1", "account:2"])
1
>>> with queue.get() as payload:
...     print(payload)
debit
"""

from __future__ import annotations

import os as _os
import sys as _sys
from importlib import import_module as _import_module

# Checked before anything native is loaded: without the GIL, which guards its queues, two threads
# would be in one at the same time. Such an interpreter is recognised by its build, because it may
# switch the GIL on meanwhile.
if "t" in getattr(_sys, "abiflags", ""):
    raise ImportError(
        f"interlock does not support the free-threaded build of Python ({_sys.executable}): its "
        f"queues are guarded by the GIL. Use the build with the GIL, such as python3.13 where this "
        f"is python3.13t"
    )

from interlock import _core

TYPE_CHECKING = False  # Type checkers know the name; the import of typing would take 5 ms.
if TYPE_CHECKING:
    from interlock.aio import AsyncQueue
    from interlock.app.app import App
    from interlock.app.job import Job
    from interlock.app.keyspec import KeySet, KeySpec
    from interlock.app.middleware import Handling, Middleware, Sending
    from interlock.app.run import Run
    from interlock.app.task import AsyncTask, Task, TaskDecorator
    from interlock.client.faces.aio_client import AsyncClient
    from interlock.client.faces.aio_lease import AsyncRemoteLease
    from interlock.client.faces.aio_queue import AsyncRemoteQueue
    from interlock.client.faces.aio_table import AsyncRemoteTable
    from interlock.client.faces.client import Client, connect
    from interlock.client.faces.leader import CurrentLeader, Leader, Term
    from interlock.client.faces.lease import RemoteLease
    from interlock.client.faces.queue import RemoteQueue
    from interlock.client.faces.table import RemoteTable
    from interlock.client.requests.lease_state import RemoteLeaseBatch
    from interlock.consumer import Consumer
    from interlock.errors import (
        Empty,
        EngineUnavailable,
        Full,
        InterlockError,
        JobFailed,
        LeaseLost,
        NotATable,
        NotDrained,
        OptionsMismatch,
        PayloadError,
        Reject,
        ResultGone,
        RetryAfter,
        RowBusy,
        SchemaMismatch,
        ShutDown,
        TableFull,
        TableKept,
        WorkerBroken,
        WouldDeadlock,
    )
    from interlock.executor import Future, KeyedExecutor
    from interlock.explanation import (
        Blocker,
        ExplainNode,
        Explanation,
        FullLimit,
        LimitUse,
        Turn,
    )
    from interlock.hub.serve.server import Hub
    from interlock.message import (
        AsyncLease,
        AsyncLeaseBatch,
        DeadLetter,
        HotKey,
        Key,
        Keys,
        Lease,
        LeaseBatch,
        Message,
        Put,
        QueuedMessage,
        Stats,
        current_lease,
    )
    from interlock.queue import KeyedQueue
    from interlock.retry import Retry, Seconds
    from interlock.roots import Root, Roots
    from interlock.runtime.concurrency import Rate
    from interlock.table.kinds import F32, F64, I8, I16, I32, I64, U8, U16, U32, U64
    from interlock.table.merge import Flags, Last, Max, Sum
    from interlock.table.row import Row, Size
    from interlock.table.stats import Resized, TableStats
    from interlock.table.table import SharedTable
    from interlock.taskgroup import KeyedTaskGroup
    from interlock.worker.message.execution import TaskLease
    from interlock.worker.worker import Worker

__all__ = [
    "F32",
    "F64",
    "I8",
    "I16",
    "I32",
    "I64",
    "U8",
    "U16",
    "U32",
    "U64",
    "App",
    "AsyncClient",
    "AsyncLease",
    "AsyncLeaseBatch",
    "AsyncQueue",
    "AsyncRemoteLease",
    "AsyncRemoteQueue",
    "AsyncRemoteTable",
    "AsyncTask",
    "Blocker",
    "Client",
    "Consumer",
    "CurrentLeader",
    "DeadLetter",
    "Empty",
    "EngineUnavailable",
    "ExplainNode",
    "Explanation",
    "Flags",
    "Full",
    "FullLimit",
    "Future",
    "Handling",
    "HotKey",
    "Hub",
    "InterlockError",
    "Job",
    "JobFailed",
    "Key",
    "KeySet",
    "KeySpec",
    "KeyedExecutor",
    "KeyedQueue",
    "KeyedTaskGroup",
    "Keys",
    "Last",
    "Leader",
    "Lease",
    "LeaseBatch",
    "LeaseLost",
    "LimitUse",
    "Max",
    "Message",
    "Middleware",
    "NotATable",
    "NotDrained",
    "OptionsMismatch",
    "PayloadError",
    "Put",
    "QueuedMessage",
    "Rate",
    "Reject",
    "RemoteLease",
    "RemoteLeaseBatch",
    "RemoteQueue",
    "RemoteTable",
    "Resized",
    "ResultGone",
    "Retry",
    "RetryAfter",
    "Root",
    "Roots",
    "Row",
    "RowBusy",
    "Run",
    "SchemaMismatch",
    "Seconds",
    "Sending",
    "SharedTable",
    "ShutDown",
    "Size",
    "Stats",
    "Sum",
    "TableFull",
    "TableKept",
    "TableStats",
    "Task",
    "TaskDecorator",
    "TaskLease",
    "Term",
    "Turn",
    "Worker",
    "WorkerBroken",
    "WouldDeadlock",
    "connect",
    "current_lease",
]

__version__: str = _core.__version__

_os.register_at_fork(after_in_child=_core.forked)

if _core.DEBUG_BUILD:
    import warnings as _warnings

    _warnings.warn(
        "interlock's core was built without optimisation; build with --release before measuring",
        RuntimeWarning,
        stacklevel=2,
    )

# Imported at first use, so that a program pays for what it uses; the import of all takes 100 ms.
_LOADED_WHEN_ASKED_FOR = {
    "App": "interlock.app.app",
    "AsyncClient": "interlock.client.faces.aio_client",
    "AsyncLease": "interlock.message",
    "AsyncLeaseBatch": "interlock.message",
    "AsyncQueue": "interlock.aio",
    "AsyncRemoteLease": "interlock.client.faces.aio_lease",
    "AsyncRemoteQueue": "interlock.client.faces.aio_queue",
    "AsyncRemoteTable": "interlock.client.faces.aio_table",
    "AsyncTask": "interlock.app.task",
    "Blocker": "interlock.explanation",
    "Client": "interlock.client.faces.client",
    "Consumer": "interlock.consumer",
    "CurrentLeader": "interlock.client.faces.leader",
    "DeadLetter": "interlock.message",
    "Empty": "interlock.errors",
    "EngineUnavailable": "interlock.errors",
    "ExplainNode": "interlock.explanation",
    "FullLimit": "interlock.explanation",
    "Turn": "interlock.explanation",
    "Explanation": "interlock.explanation",
    "F32": "interlock.table.kinds",
    "F64": "interlock.table.kinds",
    "Flags": "interlock.table.merge",
    "Full": "interlock.errors",
    "Future": "interlock.executor",
    "Handling": "interlock.app.middleware",
    "HotKey": "interlock.message",
    "Hub": "interlock.hub.serve.server",
    "I16": "interlock.table.kinds",
    "I32": "interlock.table.kinds",
    "I64": "interlock.table.kinds",
    "I8": "interlock.table.kinds",
    "InterlockError": "interlock.errors",
    "Job": "interlock.app.job",
    "JobFailed": "interlock.errors",
    "Key": "interlock.message",
    "KeySet": "interlock.app.keyspec",
    "KeySpec": "interlock.app.keyspec",
    "KeyedExecutor": "interlock.executor",
    "KeyedQueue": "interlock.queue",
    "KeyedTaskGroup": "interlock.taskgroup",
    "Keys": "interlock.message",
    "Last": "interlock.table.merge",
    "Leader": "interlock.client.faces.leader",
    "Lease": "interlock.message",
    "LeaseBatch": "interlock.message",
    "LimitUse": "interlock.explanation",
    "LeaseLost": "interlock.errors",
    "Max": "interlock.table.merge",
    "Message": "interlock.message",
    "Middleware": "interlock.app.middleware",
    "NotATable": "interlock.errors",
    "NotDrained": "interlock.errors",
    "OptionsMismatch": "interlock.errors",
    "PayloadError": "interlock.errors",
    "Put": "interlock.message",
    "QueuedMessage": "interlock.message",
    "Rate": "interlock.runtime.concurrency",
    "Reject": "interlock.errors",
    "RemoteLease": "interlock.client.faces.lease",
    "RemoteLeaseBatch": "interlock.client.requests.lease_state",
    "RemoteQueue": "interlock.client.faces.queue",
    "RemoteTable": "interlock.client.faces.table",
    "Resized": "interlock.table.stats",
    "ResultGone": "interlock.errors",
    "Retry": "interlock.retry",
    "RetryAfter": "interlock.errors",
    "Root": "interlock.roots",
    "Roots": "interlock.roots",
    "Row": "interlock.table.row",
    "RowBusy": "interlock.errors",
    "Run": "interlock.app.run",
    "SchemaMismatch": "interlock.errors",
    "Seconds": "interlock.retry",
    "Sending": "interlock.app.middleware",
    "SharedTable": "interlock.table.table",
    "ShutDown": "interlock.errors",
    "Size": "interlock.table.row",
    "Stats": "interlock.message",
    "Sum": "interlock.table.merge",
    "TableFull": "interlock.errors",
    "TableKept": "interlock.errors",
    "TableStats": "interlock.table.stats",
    "Task": "interlock.app.task",
    "TaskDecorator": "interlock.app.task",
    "TaskLease": "interlock.worker.message.execution",
    "Term": "interlock.client.faces.leader",
    "U16": "interlock.table.kinds",
    "U32": "interlock.table.kinds",
    "U64": "interlock.table.kinds",
    "U8": "interlock.table.kinds",
    "Worker": "interlock.worker.worker",
    "WorkerBroken": "interlock.errors",
    "WouldDeadlock": "interlock.errors",
    "connect": "interlock.client.faces.client",
    "current_lease": "interlock.message",
}


def __getattr__(name: str) -> object:
    if name == "errors":
        return _import_module("interlock.errors")
    if name not in _LOADED_WHEN_ASKED_FOR:
        raise AttributeError(f"module 'interlock' has no attribute {name!r}")
    found: object = getattr(_import_module(_LOADED_WHEN_ASKED_FOR[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
