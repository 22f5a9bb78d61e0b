"""A running hub: the server, its control thread, its log, and its pages over HTTP."""
