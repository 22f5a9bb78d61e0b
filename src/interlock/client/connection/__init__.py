"""Calls: sent, repeated until they are answered, and routed to the right server."""
