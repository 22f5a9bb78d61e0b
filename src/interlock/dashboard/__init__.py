"""The dashboard: a web page over the queues of an engine, and the server that gives it."""
