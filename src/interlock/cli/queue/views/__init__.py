"""Subcommands that show a queue: its counts, its messages, why they wait."""
