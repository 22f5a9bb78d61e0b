"""The client of an engine: queues, tables and operators on a hub, on Redis or in memory."""
