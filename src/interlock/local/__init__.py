"""Parts of the in-process executor: its own threads, and calls in another executor."""
