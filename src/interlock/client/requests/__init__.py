"""The calls of one queue as requests, without I/O: both faces run them."""
