"""The poller of the engine for open pages: queues, workers, and events of one queue."""
