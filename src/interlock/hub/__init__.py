"""The hub: a server of topics and keyed queues in one process; it speaks the Redis protocol.

`serve.server.Hub` runs one in this process, `config` says how, `client.Client` talks to one.
"""
