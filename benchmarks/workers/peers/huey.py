"""huey: a list of Redis, one thread. More threads were slower."""

from huey import RedisHuey

from benchmarks.workers.handled import BROKER, note

app = RedisHuey("load", url=BROKER, results=False)


@app.task()
def noop(number: int) -> None:
    note(number)


def enqueue(numbers: range) -> None:
    for number in numbers:
        noop(number)


WORKER = ("huey_consumer", f"{__package__}.huey.app", "-w", "1", "-n", "-q")
