"""Sending commands to a server, on threads and in asyncio: one link is one connection."""
