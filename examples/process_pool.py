"""Work that computes, in processes, with the order of each key kept.

The keys stay here, the functions go there. A step of a document is handed to the pool when the step
before it has come back; the documents run side by side on all processes.
"""

import hashlib
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from interlock import KeyedExecutor, current_lease

DOCUMENTS = 4
STEPS = 6


def render(document: int, step: int) -> tuple[int, int, int, int]:
    """Some work; answers the step, the process, and the token of the lease it ran under."""
    digest = b""
    for _ in range(2_000):
        digest = hashlib.sha256(digest + bytes([document, step])).digest()
    return document, step, os.getpid(), current_lease().token


def main() -> None:
    # Not fork: this program may have threads, and a child would inherit their locks.
    with (
        ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool,
        KeyedExecutor(2, pool=pool) as executor,
    ):
        futures = [
            executor.submit_keyed(f"document:{document}", render, document, step)
            for step in range(STEPS)
            for document in range(DOCUMENTS)
        ]
        results = [future.result() for future in futures]

    assert os.getpid() not in {process for _, _, process, _ in results}
    for document in range(DOCUMENTS):
        # Tokens rise with every lease, so they tell in which order the steps were begun.
        of_document = [(token, step) for d, step, _, token in results if d == document]
        assert [step for _, step in sorted(of_document)] == list(range(STEPS))
    processes = len({process for _, _, process, _ in results})
    print(f"{len(results)} steps of {DOCUMENTS} documents in {processes} processes, in order")


if __name__ == "__main__":
    main()
