"""Tasks of the shop: their handlers use the models, in the transaction that deletes the row."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from django.db import close_old_connections, connection, transaction

from interlock.app import App
from interlock.outbox import Outbox
from shop.models import Bill, Purchase


@contextlib.contextmanager
def begin() -> Iterator[Any]:
    """Yields the thread's connection with an open transaction."""
    # Also one that the server has closed meanwhile.
    close_old_connections()
    with transaction.atomic():
        yield connection


tasks = App(os.environ.get("INTERLOCK_URL", "interlock://127.0.0.1:7070"))
outbox = Outbox(tasks, os.environ["SHOP_URL"], begin=begin)


@tasks.task(keys="customer:{customer}", transaction=outbox)
def bill(_db: Any, customer: str, purchase: int) -> None:
    """Writes the bill of an order; the bills of a customer have the order of the purchases."""
    found = Purchase.objects.get(id=purchase)
    Bill.objects.create(purchase=found, cents=found.cents)
