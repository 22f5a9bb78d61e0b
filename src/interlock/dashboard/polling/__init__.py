"""Access to an engine, and its poller for open pages: queues, workers, events of one queue."""
