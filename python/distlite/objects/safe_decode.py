# SPDX-License-Identifier: BSD-3-Clause
"""Values from the bytes of safe_encode.py.

The bytes may come from anybody.  Every size is compared with the bytes that are there
before memory is allocated for it, containers have no more items than bytes are left,
the depth has a limit, and arithmetic takes time in proportion to the bytes.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from math import prod
from typing import Any, Literal

import numpy as np

from .. import _C
from .safe_encode import COMPLEX, registered

__all__ = ["Malformed", "decode"]

# The most bytes of a size, of which each has seven bits: enough for 64 bits.
COUNT_BYTES = 10
# More keys of one hash than data have by chance: -1 and -2 have the same hash, and so
# do tuples of them.
ALIKE = 64
# NumPy's own limit of dimensions.
DIMENSIONS = 64


class Malformed(ValueError):
    """These bytes are not from encode(), or of a type that is not registered here."""


def decode(data: Any, buffers: Iterable[Any] = ()) -> Any:
    """Returns the value; raises Malformed for any other bytes.

    Arrays keep the memory of `buffers`, which should be writable.
    """
    decoder = _Decoder(data, buffers)
    try:
        value = decoder.take(0)
    except (Malformed, MemoryError):
        raise
    except Exception as error:
        raise Malformed(f"malformed bytes: {error}") from error
    if decoder.at != len(decoder.data) or decoder.buffers:
        raise Malformed("malformed bytes: unexpected data after the value")
    return value


class _Decoder:
    """Takes values from the front of `data`."""

    def __init__(self, data: Any, buffers: Iterable[Any]) -> None:
        self.data = memoryview(data).cast("B")
        self.at = 0
        # Reversed, so that pop() takes the next one.
        self.buffers = list(buffers)[::-1]

    def take(self, depth: int) -> Any:
        value, self.at = _C._take_plain(
            self.data, self.at, depth, self.take_other, judge_alike
        )
        return value

    def take_other(self, at: int, depth: int) -> tuple[Any, int]:
        """Returns a value of a kind that the C decoder does not read, and where it
        ends."""
        self.at = at
        letter = self.take_bytes(1)[0]
        reader = _READERS.get(letter)
        if reader is None:
            raise Malformed(f"malformed bytes: {letter} is not a known kind of value")
        return reader(self, depth + 1), self.at

    def take_bytes(self, size: int) -> memoryview:
        end = self.at + size
        if end > len(self.data):
            raise Malformed("malformed bytes: unexpected end of data")
        part = self.data[self.at : end]
        self.at = end
        return part

    def take_count(self) -> int:
        count = 0
        for i in range(COUNT_BYTES):
            byte = self.take_bytes(1)[0]
            count |= (byte & 127) << (7 * i)
            if byte < 128:
                return count
        raise Malformed("malformed bytes: a count that is not terminated")

    def take_length(self) -> int:
        """Takes a count of values that take at least a byte each."""
        count = self.take_count()
        if count > len(self.data) - self.at:
            raise Malformed("malformed bytes: unexpected end of data")
        return count

    def take_buffer(self) -> Any:
        if not self.buffers:
            raise Malformed("malformed bytes: fewer buffers than the data refers to")
        return self.buffers.pop()

    def take_items(self, depth: int) -> list[Any]:
        return [self.take(depth) for _ in range(self.take_length())]

    def take_members(self, depth: int) -> list[Any]:
        """Takes the members of a set."""
        items = self.take_items(depth)
        _C._check_keys(items, judge_alike)
        return items

    def take_int(self) -> int:
        """Takes an int; any other value is Malformed."""
        value = self.take(0)
        if type(value) is not int:
            raise Malformed("malformed bytes: a number was expected")
        return value


def judge_alike(keys: list[Any]) -> None:
    """Raises Malformed if keys of one hash take long to compare with each other.

    Sets and other objects within keys are compared with a search of their own, which
    multiplies; numbers, text, and tuples of them are not.
    """
    if len(keys) > ALIKE or (len(keys) > 2 and not all(map(_is_flat, keys))):
        raise Malformed("malformed bytes: too many keys have the same hash")


def _is_flat(key: Any) -> bool:
    if type(key) is tuple:
        return all(map(_is_flat, key))
    return type(key) in FLAT


def _take_int(of: _Decoder, _depth: int) -> int:
    return int.from_bytes(of.take_bytes(of.take_count()), "little", signed=True)


def _take_str(of: _Decoder, _depth: int) -> str:
    return str(of.take_bytes(of.take_count()), "utf-8", "surrogatepass")


def _take_dataclass(of: _Decoder, depth: int) -> Any:
    name = _take_str(of, depth)
    if name not in registered:
        raise Malformed(f"type {name} is not registered here: see register_safe_type()")
    cls, fields = registered[name]
    value: Any = object.__new__(cls)
    for field in fields:
        # object.__setattr__ also sets fields of frozen classes.
        object.__setattr__(value, field, of.take(depth))
    return value


def _take_timedelta(of: _Decoder, _depth: int) -> datetime.timedelta:
    return datetime.timedelta(of.take_int(), of.take_int(), of.take_int())


def _take_datetime(of: _Decoder, depth: int) -> datetime.datetime:
    parts = [of.take_int() for _ in range(7)]
    fold, offset = of.take_int(), of.take(depth)
    zone = None
    if offset is not None:
        if type(offset) is not int:
            raise Malformed("malformed bytes: a number was expected")
        zone = datetime.timezone(datetime.timedelta(microseconds=offset))
    return datetime.datetime(*parts, tzinfo=zone, fold=fold)  # type: ignore[arg-type,misc]


def _take_date(of: _Decoder, _depth: int) -> datetime.date:
    return datetime.date(of.take_int(), of.take_int(), of.take_int())


def _take_array(of: _Decoder, depth: int, is_beside: bool) -> np.ndarray:
    order = _ORDERS[of.take_bytes(1)[0]]
    dimensions = of.take_length()
    if dimensions > DIMENSIONS:
        raise Malformed("malformed bytes: an array of too many dimensions")
    shape = [of.take_count() for _ in range(dimensions)]
    dtype = _dtype_of(of.take(depth))
    size = prod(shape) * dtype.itemsize
    memory = of.take_buffer() if is_beside else bytearray(of.take_bytes(size))
    if len(memory) != size:
        raise Malformed(
            "malformed bytes: an array whose size does not match its contents"
        )
    return np.ndarray(shape, dtype, memory, order=order)


def _dtype_of(description: Any) -> np.dtype:
    if type(description) is tuple and len(description) == 1:
        import ml_dtypes

        dtype: np.dtype = np.dtype(getattr(ml_dtypes, _as_text(description[0])))
        known = dtype.type.__module__ == "ml_dtypes"
    else:
        dtype = np.lib.format.descr_to_dtype(description)
        known = True
    # Items of size 0: any number of elements would fit into no bytes.
    if dtype.hasobject or not known or not dtype.itemsize:
        raise Malformed("malformed bytes: a dtype that is not plain memory")
    return dtype


def _as_text(value: Any) -> str:
    if type(value) is not str:
        raise Malformed("malformed bytes: a name was expected")
    return value


def _take_scalar(of: _Decoder, depth: int) -> Any:
    array = of.take(depth)
    if type(array) is not np.ndarray or array.ndim:
        raise Malformed("malformed bytes: a scalar was expected")
    return array[()]


FLAT = (int, float, complex, str, bytes, bool, type(None))
_ORDERS: dict[int, Literal["C", "F"]] = {ord("C"): "C", ord("F"): "F"}
_READERS: dict[int, Callable[[_Decoder, int], Any]] = {
    ord("i"): _take_int,
    ord("c"): lambda of, depth: complex(*COMPLEX.unpack(of.take_bytes(16))),
    ord("B"): lambda of, depth: bytearray(of.take_bytes(of.take_count())),
    ord("o"): lambda of, depth: bytes(of.take_buffer()),
    ord("p"): lambda of, depth: bytearray(of.take_buffer()),
    ord("S"): lambda of, depth: set(of.take_members(depth)),
    ord("Z"): lambda of, depth: frozenset(of.take_members(depth)),
    ord("D"): _take_dataclass,
    ord("a"): lambda of, depth: _take_array(of, depth, False),
    ord("A"): lambda of, depth: _take_array(of, depth, True),
    ord("g"): _take_scalar,
    ord("w"): _take_timedelta,
    ord("m"): _take_datetime,
    ord("h"): _take_date,
}
