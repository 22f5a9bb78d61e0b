"""The live view of all queues in a terminal."""
