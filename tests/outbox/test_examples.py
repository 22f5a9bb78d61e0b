"""The example programs of the outbox: FastAPI with SQLAlchemy, and Django."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from interlock.outbox.postgres import schema
from tests.docs.running import ROOT
from tests.hub.servers import HubProcess, free_port, needs_hub
from tests.worker.workers import wait_for

pytestmark = pytest.mark.watchdog(200)

EXAMPLES = ROOT / "examples" / "outbox"
INTERLOCK = str(Path(sys.executable).with_name("interlock"))


@contextmanager
def running(words: list[str], folder: Path, environment: dict[str, str]) -> Iterator[None]:
    with subprocess.Popen(
        words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    ) as process:  # fmt: skip
        try:
            yield
        finally:
            process.terminate()
            output, _ = process.communicate(timeout=60)
            print(output)


def environment(database: str, **more: str) -> dict[str, str]:
    return {**os.environ, "SHOP_URL": database, **more}


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/bills", timeout=20).status_code == 200
    except httpx.TransportError:
        return False


def order_and_wait_for_bills(url: str) -> None:
    """Orders three things, one of which costs nothing, so that its transaction is rolled back."""
    wait_for(lambda: answers(url), "no server")
    stored = [
        httpx.post(f"{url}/orders", params={"customer": "ann", "cents": cents}, timeout=20)
        for cents in (500, 0, 700)
    ]
    assert [one.status_code for one in stored] == [200, 422, 200]
    wait_for(lambda: httpx.get(f"{url}/bills", timeout=20).json() == [500, 700], "not billed")


@pytest.mark.share(2)
def test_a_fastapi_application_bills_the_orders_that_were_committed(database: str) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("asyncpg")
    port = free_port()
    words = [sys.executable, "-m", "uvicorn", "fastapi_shop:web", "--port", str(port)]
    with running(words, EXAMPLES, environment(database)):
        order_and_wait_for_bills(f"http://127.0.0.1:{port}")


@pytest.mark.share(2)
def test_a_django_application_bills_the_orders_that_were_committed(
    new_database: str,
) -> None:
    pytest.importorskip("django")
    needs_hub()
    hub = HubProcess("--port", "0")
    folder, port = EXAMPLES / "django_shop", free_port()
    given = environment(new_database, INTERLOCK_URL=f"interlock://127.0.0.1:{hub.port}")
    manage = [sys.executable, "manage.py"]
    try:
        subprocess.run([*manage, "migrate"], cwd=folder, env=given, check=True, timeout=60)
        # An upgrade: the page's migration changes nothing, because the version is the present one.
        upgrade = (
            "from django.db import connection as c, transaction as t\n"
            "from interlock.outbox.postgres.schema import migrate\n"
            "with t.atomic(), c.schema_editor() as editor:\n"
            "    print(migrate(editor.connection.connection, 'interlock'))"
        )
        done = subprocess.run(
            [*manage, "shell", "-c", upgrade], cwd=folder, env=given, check=True, timeout=60,
            capture_output=True, text=True,
        )  # fmt: skip
        assert f"({schema.VERSION}, {schema.VERSION})" in done.stdout
        words = [*manage, "runserver", "--noreload", f"127.0.0.1:{port}"]
        with (
            running(words, folder, given),
            running([INTERLOCK, "worker", "worker:tasks"], folder, given),
        ):
            order_and_wait_for_bills(f"http://127.0.0.1:{port}")
    finally:
        hub.process.kill()
        hub.process.communicate()
