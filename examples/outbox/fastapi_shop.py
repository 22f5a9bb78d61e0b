"""Orders of a FastAPI application, each billed exactly once, with no server but PostgreSQL.

    SHOP_URL=postgresql://localhost/shop uvicorn fastapi_shop:web

The application sends in the transaction of its session. The handler runs in a thread, in the
transaction that has deleted the call's row.
"""

import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated

import psycopg
from fastapi import Depends, FastAPI, HTTPException
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from interlock.app import App
from interlock.outbox import Outbox

URL = os.environ["SHOP_URL"]
TABLES = """
create table if not exists purchase (id serial primary key, customer text, cents int);
create table if not exists bill (purchase int primary key, customer text, cents int);
"""

engine = create_async_engine(URL.replace("postgresql:", "postgresql+asyncpg:", 1))
sessions = async_sessionmaker(engine)
tasks = App(os.environ.get("INTERLOCK_URL", "memory://"))
outbox = Outbox(tasks, URL)


@tasks.task(keys="customer:{customer}", transaction=outbox)
def bill(db: psycopg.Connection, customer: str, purchase: int) -> None:
    """Writes the bill of an order; the bills of a customer have the order of the purchases."""
    db.execute(
        "insert into bill select id, customer, cents from purchase where id = %s", (purchase,)
    )


async def session() -> AsyncIterator[AsyncSession]:
    """Yields a session with a transaction, which the end of the request commits."""
    async with sessions.begin() as made:
        yield made


@contextlib.asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
    """Creates the tables, and works in this process. With an engine of its own, start workers by
    `interlock worker fastapi_shop:tasks` instead."""
    outbox.migrate()
    with psycopg.connect(URL) as db:
        db.execute(TABLES)
    with tasks.worker(threads=4):
        yield
    await engine.dispose()


web = FastAPI(lifespan=lifespan)
# The scope ends the transaction before the answer is sent.
Session = Annotated[AsyncSession, Depends(session, scope="function")]


@web.post("/orders")
async def order(db: Session, customer: str, cents: int) -> int:
    """Stores an order, and sends its bill if, and only if, the order is stored."""
    found = await db.execute(
        text("insert into purchase (customer, cents) values (:customer, :cents) returning id"),
        {"customer": customer, "cents": cents},
    )
    purchase: int = found.scalar_one()
    await outbox.asend(db, bill, customer, purchase)
    if cents <= 0:
        # Rolls back the order and the call.
        raise HTTPException(422, "nothing to pay")
    return purchase


@web.get("/bills")
async def bills(db: Session) -> list[int]:
    """Returns the amounts of all bills."""
    return list((await db.execute(text("select cents from bill order by purchase"))).scalars())
