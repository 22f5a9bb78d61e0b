"""The check of names: private words are found in every part of an identifier, and only there."""

from pathlib import Path

import pytest

from scripts.words import names, refused


@pytest.mark.parametrize(
    "name", ["seat", "SEATS", "take_seat", "SeatTaken", "takeSeats", "TCPSeat", "_seat2"]
)
def test_a_word_is_found_in_an_identifier(name: str) -> None:
    assert set(refused(name)) == {"seat"}


@pytest.mark.parametrize("name", ["seating", "overflow", "timekeeper", "faraway", "bookkeeper"])
def test_a_word_within_another_is_none(name: str) -> None:
    assert not set(refused(name))


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("a.py", '"""A seat."""\nx = "seat"  # seat\ntaken = y'),
        ("b.rs", 'let s = "a \\" seat"; /* seat */ // seat\nlet taken = r#"seat"#;'),
        ("c.lua", "--[[ seat\n]] local taken = 'x' -- seat"),
    ],
)
def test_comments_and_strings_have_no_names(file: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / file
    path.write_text(text)
    found = list(names(path))
    assert not [name for _, name in found if "seat" in name]
    assert [(line, name) for line, name in found if name == "taken"] == [
        (text.count("\n", 0, text.index("taken")) + 1, "taken")
    ]
