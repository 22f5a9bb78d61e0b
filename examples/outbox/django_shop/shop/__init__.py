"""Orders of a Django application, each billed exactly once."""
