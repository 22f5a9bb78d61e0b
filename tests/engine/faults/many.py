"""Many runs, some of them at the same time."""

from __future__ import annotations

import itertools
import multiprocessing
import shutil
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

from tests.engine.faults.run import Result, run
from tests.engine.faults.servers import die_with_parent

Task = tuple[str, int, Path, str]
"""Engine, seed, folder, mutant."""


def done(tasks: Iterator[Task], jobs: int) -> Iterator[tuple[str, Result]]:
    """The results, as they come. A run forks, so it is alone in its process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, initializer=die_with_parent) as pool:
        under_way: dict[Future[Result], str] = {}
        try:
            while True:
                for task in itertools.islice(tasks, jobs - len(under_way)):
                    under_way[pool.submit(one, task)] = task[0]
                if not under_way:
                    return
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    yield under_way.pop(future), future.result()
        finally:
            for future in under_way:
                future.cancel()


def one(task: Task) -> Result:
    """In a process of the pool; the folder stays if something does not hold."""
    engine, seed, folder, mutant = task
    folder.mkdir(parents=True)
    result = run(engine, seed, folder, mutant)
    if not result.violations:
        shutil.rmtree(folder)
    return result
