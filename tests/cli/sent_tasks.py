"""Tasks that `interlock send` sends in tests."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from dataclasses import dataclass

from interlock import App, Reject, Run

app = App()


class Colour(enum.Enum):
    RED = "r"


@dataclass
class Order:
    id: int
    customer: str


@app.task(keys="order:{order.id}", shared="day:{day}", result_ttl=60)
def ship(order: Order, day: dt.date, *notes: str, rush: bool = False) -> list[object]:
    if rush:
        raise Reject("no rush")
    return [order.id, order.customer, day, notes]


@app.task(name="shop.note", queue="slow")
async def note(text: str, one: uuid.UUID | None = None, colour: Colour = Colour.RED) -> None: ...


@app.task(name="shop.price", coalesce="price:{symbol}")
def price(symbol: str, cents: int) -> None: ...


@dataclass
class Bill:
    tenant: str
    cents: int


@app.task(
    name="shop.bill",
    keys="tenant:{bills.tenant}",
    limit="bank:{bills.tenant}",
    group="{bills.tenant}",
    run=5,
)
def bill(bills: Run[Bill]) -> None: ...


no_task = 3
