"""Subcommands that write a queue as lines of JSON, and read it again."""
