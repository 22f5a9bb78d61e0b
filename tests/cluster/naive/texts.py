"""Values of columns as clients write and read them: text, as of a hash; and the replies they get.

The rules and the words are those of the hub's own tables.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from tests.cluster.naive.merge import ClusterColumn

__all__ = ["ColumnText", "Refusal", "bulk", "integer", "null", "shown", "sum_reply"]


class Refusal(Exception):
    """An error reply; ``text`` begins with its code."""

    def __init__(self, text: bytes | str) -> None:
        super().__init__(text)
        self.text = text if isinstance(text, bytes) else text.encode()

    def reply(self) -> bytes:
        """Return it as it goes out; a line break in it would end the reply."""
        return b"-" + self.text.translate(_ONE_LINE) + b"\r\n"


class ColumnText:
    """The texts of one column.

    ``given`` makes a value of a text, ``checked`` one that the column can hold of a value; both
    raise ``Refusal``. A table's own commands do the one before they look for the row, and the other
    when they write it, so an error of the first kind comes before one of the second.
    """

    def __init__(self, column: ClusterColumn) -> None:
        self.column = column
        kind = column.kind
        self.type_name = f"{kind}[{column.size}]" if column.size else kind
        self.is_sized = kind in ("str", "bytes")
        self.is_integer = column.range is not None
        self.given: Callable[[bytes], Any] = {
            "bytes": _itself,
            "str": self._given_str,
            "bool": self._given_bool,
            "F32": self._given_float,
            "F64": self._given_float,
        }.get(kind, self._given_integer)
        self.checked: Callable[[Any], Any] = _itself
        if self.is_sized:
            self.checked = self._checked_size
        elif self.is_integer:
            self.checked = self._checked_range
            self.least, self.most = column.range or (0, 0)
        elif kind == "F32":
            self.checked = self._checked_narrow

    def _given_str(self, text: bytes) -> str:
        try:
            return text.decode()
        except UnicodeDecodeError:
            raise self.wrong("text in UTF-8") from None

    def _given_bool(self, text: bytes) -> bool:
        if text in (b"0", b"1"):
            return text == b"1"
        raise self.wrong("0 or 1")

    def _given_float(self, text: bytes) -> float:
        number = _float(text)
        if number is None:
            raise self.wrong("a number")
        return number

    def _given_integer(self, text: bytes) -> int:
        number = _whole(text)
        if number is None or not -(2**63) <= number < 2**64:
            raise self.wrong(f"a whole number from {self.least} to {self.most}")
        return number

    def _checked_size(self, value: str | bytes) -> str | bytes:
        size = len(value)
        if isinstance(value, str) and not value.isascii():
            size = len(value.encode())
        if size > self.column.size:
            raise self._refused(f"{size} bytes; its size is {self.column.size}")
        return value

    def _checked_range(self, value: int) -> int:
        if self.least <= value <= self.most:
            return value
        raise self._refused(f"{value} is not in {self.least} to {self.most}")

    def _checked_narrow(self, value: float) -> float:
        try:
            narrow: float = _F32.unpack(_F32.pack(value))[0]
        except OverflowError:
            raise self._refused(f"{_shortest(value)} is beyond its range") from None
        return narrow

    def increment(self, text: bytes) -> int | float:
        """Return by how much a text raises the column.

        Raises:
            Refusal: it is not such a number, or the column does not hold numbers.
        """
        if self.column.is_float:
            number = _float(text)
            if number is None:
                raise Refusal("ERR value is not a valid float")
            return number
        if not self.is_integer:
            raise self.wrong("no increment")
        whole = _whole(text)
        if whole is None:
            raise Refusal("ERR value is not an integer or out of range")
        # Beyond 128 bits the sign alone counts.
        return min(max(whole, -(2**127)), 2**127 - 1)

    def raised(self, now: Any, by: int | float, overflow: str = "") -> Any:
        """Return the sum of a value and an increment.

        Args:
            now: what the column is.
            by: an ``increment``, or any int.
            overflow: ``""`` refuses a sum beyond the column's range; ``"wrap"``, ``"saturate"``.

        Raises:
            Refusal: the sum is beyond the range, and that is refused.
        """
        if self.column.is_float:
            return self._raised_float(now, by, overflow)
        total = now + by
        if self.least <= total <= self.most:
            return total
        if overflow == "wrap":
            return (total - self.least) % (self.most - self.least + 1) + self.least
        if overflow == "saturate":
            return min(max(total, self.least), self.most)
        raise beyond()

    def _raised_float(self, now: float, by: float, overflow: str) -> float:
        total, most = now + by, _F64_MOST
        if math.isnan(total):
            # Which nan machines make of two infinities differs.
            return math.nan
        if self.column.kind == "F32":
            total, most = _narrow(total), _F32_MOST
        if math.isfinite(total) or not math.isfinite(now) or not math.isfinite(by):
            return total
        if overflow == "saturate":
            return math.copysign(most, total)
        raise beyond()

    def same(self, one: Any, other: Any) -> bool:
        """Return whether two values are the same to the bit, as a table compares them."""
        if self.column.is_float:
            return _F64.pack(one) == _F64.pack(other)
        return bool(one == other)

    def wrong(self, allowed: str) -> Refusal:
        """Return the refusal of a text that is not a value of this column."""
        name = self.column.name
        return Refusal(f"WRONGTYPE column {name} is {self.type_name}; allowed: {allowed}")

    def _refused(self, why: str) -> Refusal:
        return Refusal(f"WRONGTYPE column {self.column.name}: {why}")


def beyond() -> Refusal:
    """Return the refusal of a sum beyond a column's range."""
    return Refusal("ERR increment or decrement would overflow")


def integer(text: bytes) -> int | None:
    """Return the 64-bit number that a text is, without anything that could be left out."""
    number = _whole(text)
    return number if number is not None and -(2**63) <= number < 2**63 else None


def shown(value: Any) -> bytes:
    """Return a value as clients read it."""
    if value.__class__ is str:
        return bytes(value.encode())
    if value.__class__ is int:
        return b"%d" % value
    if value.__class__ is bytes:
        return bytes(value)
    if value.__class__ is bool:
        return b"1" if value else b"0"
    if math.isnan(value):
        return b"nan"
    text = _shortest(value)
    # Without an exponent as far as the digits go, as a hub.
    if "e" in text and 1e-17 <= abs(value) < 1e21:
        text = f"{Decimal(text):f}"
    return text.removesuffix(".0").encode()


def bulk(text: bytes) -> bytes:
    """Return a text as a reply."""
    return b"$%d\r\n%b\r\n" % (len(text), text)


def null(resp3: bool) -> bytes:
    """Return the reply for nothing."""
    return b"_\r\n" if resp3 else b"$-1\r\n"


def sum_reply(value: Any) -> bytes:
    """Return a sum as a reply: an integer of the protocol, as far as that goes."""
    if value.__class__ is int and value < 2**63:
        return b":%d\r\n" % value
    return bulk(shown(value))


def _whole(text: bytes) -> int | None:
    if _DIGITS.fullmatch(text) is None:
        return None
    # A number of more digits is beyond every range, and takes long to read.
    return int(text[:80])


def _float(text: bytes) -> float | None:
    return float(text) if _FLOAT.fullmatch(text) is not None else None


def _shortest(number: float) -> str:
    """Return the shortest text that reads as the same float, as tables write it: 1e16, 1e-7.

    Of two that are as short and as near, Python takes the one with an even last digit, and tables
    the one that is further from zero.
    """
    mantissa, _, exponent = repr(number).partition("e")
    if len(mantissa) > 15:
        digits = mantissa.strip("-0").replace(".", "").rstrip("0")
        exact = "".join(map(str, Decimal(number).as_tuple().digits)).rstrip("0")
        if exact == f"{digits}5":
            further = f"{mantissa[:-1]}{int(mantissa[-1]) + 1}"
            if mantissa[-1] != "9" and float(f"{further}e{exponent or 0}") == number:
                mantissa = further
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa


def _narrow(number: float) -> float:
    try:
        narrow: float = _F32.unpack(_F32.pack(number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    return narrow


def _itself(value: Any) -> Any:
    return value


_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")
_DIGITS = re.compile(rb"0|-?[1-9][0-9]*")
_FLOAT = re.compile(
    rb"[+-]?(?:inf|infinity|nan|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)", re.IGNORECASE
)
_F32, _F64 = struct.Struct("<f"), struct.Struct("<d")
_F32_MOST, _F64_MOST = 3.4028234663852886e38, 1.7976931348623157e308
