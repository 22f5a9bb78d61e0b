"""The fixtures of the engine; see ``fixtures``."""

from tests.engine.fixtures import connection, engine_port, hub_url, queue, redis_url, timed

__all__ = ["connection", "engine_port", "hub_url", "queue", "redis_url", "timed"]
