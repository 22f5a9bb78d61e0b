"""The check of the crates finds licences that deny.toml forbids."""

from typing import Any

import pytest

from scripts.check_licences import check, permitted

CRATES_IO = "https://github.com/rust-lang/crates.io-index"
POLICY: dict[str, Any] = {
    "licenses": {"allow": ["MIT", "Zlib"]},
    "bans": {"skip": [], "deny": ["worse"]},
    "sources": {"allow-registry": [CRATES_IO]},
}


def crate(name: str = "one", version: str = "1.0.0", **other: Any) -> dict[str, Any]:
    found = {"name": name, "version": version, "license": "MIT", "dependencies": []}
    return {**found, "source": f"registry+{CRATES_IO}", **other}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("MIT OR GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("MIT/Apache-2.0", True),
        ("(GPL-3.0-only OR Apache-2.0) AND MIT", False),
        ("(GPL-3.0-only OR Zlib) AND MIT", True),
        ("GPL-3.0-only OR MIT AND Zlib", True),
        ("GPL-3.0-only AND MIT OR Zlib", True),
        ("MIT WITH Some-exception", True),
        ("Apache-2.0 WITH Some-exception", False),
    ],
)
def test_a_licence_expression_is_checked_against_the_allowed_licences(
    expression: str, expected: bool
) -> None:
    assert permitted(expression, {"MIT", "Zlib"}) is expected


@pytest.mark.parametrize("expression", ["MIT OR", "(MIT", "MIT Zlib", "AND MIT", "MIT)", "MI?T"])
def test_an_invalid_licence_expression_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        permitted(expression, {"MIT", "Zlib"})


@pytest.mark.parametrize(
    ("packages", "fault"),
    [
        ([crate(license=None)], "one 1.0.0 names no licence"),
        ([crate(license="GPL-3.0-only")], "one 1.0.0 is under GPL-3.0-only"),
        ([crate(license="MIT OR")], "one 1.0.0: a licence is missing"),
        ([crate(source="git+https://example.org/one")], "one 1.0.0 comes from git"),
        ([crate(), crate(version="2.0.0")], "one is there 2 times: 1.0.0, 2.0.0"),
        ([crate("worse")], "worse is denied by [bans]"),
        (
            [crate(source=None, dependencies=[{"name": "two", "req": "*"}])],
            "one depends on any version of two",
        ),
    ],
)
def test_a_forbidden_licence_is_named(packages: list[dict[str, Any]], fault: str) -> None:
    (found,) = check(packages, POLICY)
    assert found.startswith(fault)


def test_a_path_dependency_within_the_workspace_is_allowed() -> None:
    path = {"name": "two", "req": "*", "path": "crates/two"}
    assert not list(check([crate(source=None, dependencies=[path])], POLICY))
