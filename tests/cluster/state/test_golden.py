"""Golden cases of states, by which the Rust form is compared, are what Python makes of them."""

from __future__ import annotations

from tests.cluster.state import golden, golden_calls


def test_golden_histories_are_those_of_this_implementation() -> None:
    assert golden.histories() == golden.PLACE.read_text()


def test_golden_calls_are_those_of_this_implementation() -> None:
    assert golden_calls.all_calls() == golden_calls.PLACE.read_text()
