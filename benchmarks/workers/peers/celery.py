"""celery: one process that runs tasks itself, without what workers tell each other."""

from celery import Celery

from benchmarks.workers.handled import BROKER, note

app = Celery("load", broker=BROKER)
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=64)


@app.task(name="noop")
def noop(number: int) -> None:
    note(number)


def enqueue(numbers: range) -> None:
    for number in numbers:
        noop.delay(number)


WORKER = (
    *(
        "celery",
        "--app",
        f"{__package__}.celery",
        "worker",
        "--pool",
        "solo",
        "--loglevel",
        "ERROR",
    ),
    *("--without-gossip", "--without-mingle", "--without-heartbeat"),
)
