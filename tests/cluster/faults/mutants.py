"""Nodes with a fault of their own, which runs must find: the checks are worth as much as that.

Each is a piece of Python that a node's interpreter runs before the node.
"""

from __future__ import annotations

MUTANTS: dict[str, str] = {}
