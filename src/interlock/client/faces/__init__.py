"""The public classes of the client, for threads and for asyncio; consume() on an engine."""
