"""The imports between the package's modules, read from the sources."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

SRC = Path(__file__).resolve().parents[2] / "src"


def name_of(path: Path) -> str:
    """Return the dotted name of a module."""
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted((SRC / "interlock").rglob("*.py"))}


def imported(module: str, types: bool) -> set[str]:
    """Return the modules of the package that a module imports, anywhere in it.

    `types`: include imports that only the type checker sees.
    """
    found = set()
    for node in _nodes(ast.parse(MODULES[module].read_text(encoding="utf-8")), types):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{one.name}" for one in node.names]
            found |= {name if name in MODULES else str(node.module) for name in names}
    # Every module imports the package itself, so that does not count.
    return found & MODULES.keys() - {module, "interlock"}


def _nodes(tree: ast.AST, types: bool) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if not types and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        yield node
        yield from _nodes(node, types)


def cycles(graph: Mapping[str, set[str]]) -> list[tuple[str, ...]]:
    """Return the groups of nodes that can reach one another."""
    reached = {node: _reachable(graph, node) for node in graph}
    groups = {
        tuple(sorted(other for other in reached[node] if node in reached[other]))
        for node in graph
        if node in reached[node]
    }
    return sorted(groups)


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    next_ones = [start]
    while next_ones:
        for other in graph[next_ones.pop()] - found:
            found.add(other)
            next_ones.append(other)
    return found


def longest_chain(graph: Mapping[str, set[str]]) -> list[str]:
    """Return the longest path of a graph, which visits each node of a cycle once."""
    known: dict[str, list[str]] = {}

    def chain(node: str, above: tuple[str, ...]) -> list[str]:
        if node not in known:
            below = [chain(other, (*above, node)) for other in graph[node] - {*above, node}]
            known[node] = [node, *max(below, key=len, default=[])]
        return known[node]

    return max((chain(node, ()) for node in graph), key=len, default=[])
