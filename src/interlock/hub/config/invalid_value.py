"""A fault in one value of the configuration."""

from __future__ import annotations


class InvalidValue(ValueError):
    """A value that a setting does not accept. Without `allowed` the setting states the allowed
    values; a part of a value is named by its place within it, with its value and what is allowed
    there."""

    def __init__(self, place: str = "", value: object = None, allowed: str = "") -> None:
        self.place = place
        self.value = value
        self.allowed = allowed
        super().__init__(place, value, allowed)
