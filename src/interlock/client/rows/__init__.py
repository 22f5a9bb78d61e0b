"""Rows of named tables: in this process, on a hub or on a cluster, and how nodes are found."""
