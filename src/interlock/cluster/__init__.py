"""The state table across machines: nodes, logs, links and databases."""
