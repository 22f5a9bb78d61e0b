"""The thread that owns a worker's state: it leases, starts handlers and settles; and batches."""
