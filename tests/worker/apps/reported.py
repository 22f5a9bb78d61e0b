"""An app whose errors are reported to the Sentry that SENTRY_DSN names."""

from __future__ import annotations

import sentry_sdk

from interlock.app import App
from interlock.contrib.sentry import instrument
from interlock.retry import Retry

app = App(audit=True, retry=Retry(1))
# The address is SENTRY_DSN's; all of Sentry's usual integrations are on.
sentry_sdk.init(traces_sample_rate=1.0)
instrument(app)


@app.task(keys="account:{account}")
def fail(account: int) -> None:
    """Raises."""
    raise LookupError(f"no account {account}")


@app.task(keys="account:{account}")
async def fail_async(account: int) -> None:
    """Raises, awaited."""
    raise LookupError(f"no account {account}")
