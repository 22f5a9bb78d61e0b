"""The places where handlers run: threads, an event loop, processes."""
