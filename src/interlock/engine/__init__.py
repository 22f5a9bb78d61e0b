"""Queues on an engine: one wire, which any server with Redis Functions can speak."""
