"""The wire format, version 1: arguments of the functions, and their replies."""
