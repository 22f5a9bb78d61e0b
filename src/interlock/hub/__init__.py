"""The hub: a server in one process that speaks the Redis protocol. Today it serves topics.

`server.Hub` runs one in this process, `config` says how, `client.Client` talks to one.
"""
