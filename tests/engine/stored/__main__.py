"""Writes the file of the present layout."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import redis

from tests.engine.stored.form import FOLDER, answers, made, text_of, written
from tests.engine.timed import TimedQueue
from tests.hub.servers import redis_server

with (
    tempfile.TemporaryDirectory() as folder,
    redis_server(Path(folder)) as (_, port),
    redis.Redis(port=port) as connection,
):
    queue = TimedQueue(connection, "stored")
    made(queue)
    commands = written(connection)
    path = FOLDER / f"layout-{int(sys.argv[1])}.jsonl"
    path.write_text(text_of(commands, answers(queue)))
    print(path, len(commands), "commands")
