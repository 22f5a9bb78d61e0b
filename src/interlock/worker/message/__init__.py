"""One message in a worker: where it is leased from, its handler's run, and its measures."""
