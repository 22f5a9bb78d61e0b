"""The dashboard: a web page for the queues of an engine, with its server."""
