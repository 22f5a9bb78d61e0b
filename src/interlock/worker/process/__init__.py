"""The process of a worker: its supervisor, its signals, its app, changes of its modules."""
