"""Tasks that come back without a used attempt; imported by processes of a pool."""

from __future__ import annotations

import os
from pathlib import Path

from interlock import App, Retry, RetryAfter, current_lease

app = App(retry=Retry(1))


def noted(path: str) -> int:
    """The number of calls so far, this one included."""
    with open(path, "a") as file:
        file.write(f"{current_lease().attempt}\n")
    return len(Path(path).read_text().splitlines())


@app.task(keys="{path}", result_ttl=60)
def wait(path: str, times: int) -> list[str]:
    if noted(path) <= times:
        raise RetryAfter(0.01, attempt=False)
    return [f"{os.path.basename(path)}:{current_lease().attempt}"]


@app.task(keys="{path}", result_ttl=60)
async def wait_async(path: str, times: int) -> list[str]:
    if noted(path) <= times:
        raise RetryAfter(0.01, attempt=False)
    return [f"{os.path.basename(path)}:{current_lease().attempt}"]
