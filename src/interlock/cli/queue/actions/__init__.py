"""Subcommands that change a queue, or messages of it."""
