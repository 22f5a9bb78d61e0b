"""procrastinate: PostgreSQL, one process, up to 10 tasks at a time. Finished jobs are deleted."""

from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

from benchmarks.workers.handled import BROKER, note

app = App(connector=PsycopgConnector(conninfo=BROKER))


@app.task(name="noop")
async def noop(number: int) -> None:
    note(number)


def prepare() -> None:
    with App(connector=SyncPsycopgConnector(conninfo=BROKER)).open() as opened:
        opened.schema_manager.apply_schema()


async def enqueue(numbers: range) -> None:
    async with app.open_async():
        for number in numbers:
            await noop.defer_async(number=number)


WORKER = ("procrastinate", "--app", f"{__package__}.procrastinate.app", "worker",
          "--concurrency", "10", "--delete-jobs", "always")  # fmt: skip
