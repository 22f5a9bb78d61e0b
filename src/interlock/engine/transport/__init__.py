"""The way of a command to a server, on threads and in asyncio: one link is one connection."""
