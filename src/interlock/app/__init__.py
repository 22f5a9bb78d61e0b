"""Tasks: functions that are sent through an engine's queues and handled by workers."""

from interlock.app.app import App
from interlock.app.job import Job
from interlock.app.keyspec import KeySet, KeySpec
from interlock.app.middleware import Handling, Middleware, Sending
from interlock.app.task import AsyncTask, Task, TaskDecorator
from interlock.worker.message.execution import TaskLease

__all__ = [
    "App",
    "AsyncTask",
    "Handling",
    "Job",
    "KeySet",
    "KeySpec",
    "Middleware",
    "Sending",
    "Task",
    "TaskDecorator",
    "TaskLease",
]
