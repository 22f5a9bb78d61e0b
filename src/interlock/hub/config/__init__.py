"""Configuration of a hub: settings, users, tables and stores, each checked before use."""
