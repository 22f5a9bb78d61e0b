"""An operator's requests: the queues of a whole server, whichever programs use them."""
