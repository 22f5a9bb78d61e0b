"""See one held message stop a queue of two-key messages, and the report that says so.

Random transfers between 400 accounts, and workers that are faster than the producers. The first
message is held. Whatever waits for it closes its other account too, so after about 900 transfers
nothing runs any more. `roots()` names the message, says how many wait for it, and frees them.
"""

import random

from interlock import Empty, KeyedQueue, Retry

ACCOUNTS = 400


def main() -> None:
    random.seed(1)
    queue = KeyedQueue[str](retry=Retry(attempts=1, then="hold"), warn_depth=0)
    queue.put("freeze", keys="account:0")
    queue.get().nack(error="502")
    for step in range(1, 3001):
        a, b = random.sample(range(ACCOUNTS), 2)
        queue.put("transfer", keys=[f"account:{a}", f"account:{b}"])
        work_off(queue)
        if step % 500 == 0:
            stats = queue.stats()
            print(f"put {step}, done {stats.acks}, waiting {stats.waiting}, ready {stats.ready}")

    roots = queue.roots()
    print(roots)
    (root,) = roots
    assert root.id is not None
    queue.skip(root.id)
    work_off(queue)
    assert queue.stats().unsettled == 0 and not queue.roots()
    print("skipped: all were handled")


def work_off(queue: KeyedQueue[str]) -> None:
    """Handle all that is ready."""
    while True:
        try:
            lease = queue.get_nowait()
        except Empty:
            return
        lease.ack()


if __name__ == "__main__":
    main()
