"""The functions for Redis and Valkey, in Lua."""
