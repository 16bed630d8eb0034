# SPDX-License-Identifier: BSD-3-Clause
"""Objects as bytes that are harmless to load: no code runs, whoever wrote the bytes.

Plain values are a letter and what it needs; sizes <n> come in groups of seven bits:

    N T F         None, True, False            i <n> ...       int, little-endian
    f <8> c <16>  float, complex               s b B <n> ...   str, bytes, bytearray
    l t S Z <n>   list, tuple, set, frozenset  d <n>           dict: key, value, ...
    a A           array, inside or beside      D               dataclass: name, fields
                  the bytes                    w m h           timedelta, datetime, date
    g             NumPy scalar, as an array    o p             long bytes, bytearray

What is long lies beside the bytes, in buffers counted in the order of their use.  Only
these types, and not their subclasses; each object as often as it occurs.  The frequent
ones are written and read in C (csrc/python/objects/safe_codec.c), the others here and
in safe_decode.py.
"""

from __future__ import annotations

import dataclasses
import datetime
import struct
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .. import _C

__all__ = ["Unsafe", "encode", "register_safe_type"]

DEPTH_LIMIT = _C._SAFE_DEPTH_LIMIT
COMPLEX = struct.Struct("<2d")

# The registered dataclasses by name, and their names by class.
registered: dict[str, tuple[type, tuple[str, ...]]] = {}
_names: dict[type, str] = {}


class Unsafe(TypeError):
    """An object that encode() does not take; `at` is where it is, as "[2]['x'].y"."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.at = ""

    def __str__(self) -> str:
        return f"{self.at or 'the object'} {self.what}"


def register_safe_type(cls: type) -> type:
    """Allows objects of a dataclass in safe mode; also a decorator.

    Every process must register the class. Loading fills in the fields and runs no code
    of the class, neither `__init__` nor `__post_init__`; the types of the fields are
    not checked.

    Args:
        cls: The dataclass; the values of its fields must be allowed in safe mode.

    Returns:
        The class.

    Raises:
        TypeError: `cls` is not a dataclass.

    Example:
        >>> from dataclasses import dataclass
        >>> @dist.register_safe_type
        ... @dataclass
        ... class Step:
        ...     number: int
        >>> steps = [None, None]
        >>> dist.all_gather_object(steps, Step(rank), safe=True)
        >>> [step.number for step in steps]
        [0, 1]
    """
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise TypeError(f"only dataclasses can be registered, not {cls!r}")
    name = f"{cls.__module__}.{cls.__qualname__}"
    fields = tuple(field.name for field in dataclasses.fields(cls))
    registered[name] = (cls, fields)
    _names[cls] = name
    return cls


def encode(value: Any, beside: int = 1 << 62) -> tuple[bytearray, list[Any]]:
    """Returns `value` in bytes, and the memory of what takes `beside` bytes or more.

    It raises Unsafe, which names the first object of another type and its place.
    """
    encoder = _Encoder(beside)
    encoder.put(value, 0)
    return encoder.out, encoder.buffers


class _Encoder:
    """Puts values at the end of `out`."""

    def __init__(self, beside: int) -> None:
        self.out = bytearray()
        self.buffers: list[Any] = []
        self.beside = beside

    def put(self, value: Any, depth: int) -> None:
        _C._put_plain(self.out, value, self.beside, depth, self.put_other)

    def put_other(self, value: Any, depth: int) -> None:
        kind = type(value)
        if depth > DEPTH_LIMIT:
            raise Unsafe(f"is nested more than {DEPTH_LIMIT} deep")
        writer = _WRITERS.get(kind)
        if writer is not None:
            writer(self, value, depth + 1)
        elif kind in _names:
            self.put_dataclass(value, depth + 1)
        elif isinstance(value, np.generic) and kind.__module__ in (
            "numpy",
            "ml_dtypes",
        ):
            self.out += b"g"
            _put_array(self, np.asarray(value), depth)
        else:
            name = f"{kind.__module__}.{kind.__qualname__}"
            raise Unsafe(f"is of type {name}, which safe mode does not support")

    def put_part(self, value: Any, depth: int, step: str) -> None:
        try:
            self.put(value, depth)
        except Unsafe as error:
            error.at = step + error.at
            raise

    def put_count(self, count: int) -> None:
        while count > 127:
            self.out.append(count & 127 | 128)
            count >>= 7
        self.out.append(count)

    def put_bytes(self, letter: bytes, contents: Any) -> None:
        self.out += letter
        self.put_count(len(contents))
        self.out += contents

    def put_dataclass(self, value: Any, depth: int) -> None:
        name = _names[type(value)]
        self.put_bytes(b"D", name.encode())
        for field in registered[name][1]:
            try:
                part = getattr(value, field)
            except AttributeError:
                raise Unsafe(f"has no value for its field {field!r}") from None
            self.put_part(part, depth, f".{field}")


def _put_int(to: _Encoder, value: int, _depth: int) -> None:
    """Writes an integer of any size."""
    size = (value.bit_length() + 8) // 8
    to.put_bytes(b"i", value.to_bytes(size, "little", signed=True))


def _put_complex(to: _Encoder, value: complex, _depth: int) -> None:
    to.out += b"c" + COMPLEX.pack(value.real, value.imag)


def _put_raw(to: _Encoder, value: bytes | bytearray, _depth: int) -> None:
    is_mutable = type(value) is bytearray
    if len(value) < to.beside:
        to.put_bytes(b"B" if is_mutable else b"b", value)
        return
    to.out += b"p" if is_mutable else b"o"
    to.buffers.append(value)


def _put_set(to: _Encoder, value: set[Any] | frozenset[Any], depth: int) -> None:
    to.out += b"S" if type(value) is set else b"Z"
    to.put_count(len(value))
    for item in value:
        to.put_part(item, depth, "{...}")


def _put_numbers(to: _Encoder, letter: bytes, numbers: Iterable[int | None]) -> None:
    to.out += letter
    for number in numbers:
        to.put(number, 0)


def _put_timedelta(to: _Encoder, value: datetime.timedelta, _depth: int) -> None:
    _put_numbers(to, b"w", (value.days, value.seconds, value.microseconds))


def _offset_of(value: datetime.datetime) -> int | None:
    """Returns the offset of a time zone in microseconds; a zone with rules is not
    data."""
    if value.tzinfo is None:
        return None
    if type(value.tzinfo) is not datetime.timezone:
        raise Unsafe(
            f"has the time zone {value.tzinfo!r}, which safe mode does not support"
        )
    return value.tzinfo.utcoffset(None) // datetime.timedelta(microseconds=1)


def _put_datetime(to: _Encoder, value: datetime.datetime, _depth: int) -> None:
    offset = _offset_of(value)
    day = (value.year, value.month, value.day, value.hour, value.minute)
    rest = (value.second, value.microsecond, value.fold, offset)
    _put_numbers(to, b"m", day + rest)


def _put_date(to: _Encoder, value: datetime.date, _depth: int) -> None:
    _put_numbers(to, b"h", (value.year, value.month, value.day))


def _put_array(to: _Encoder, value: np.ndarray, depth: int) -> None:
    """Writes an array: order, shape, dtype, contents."""
    if value.dtype.hasobject:
        raise Unsafe(f"is an array of {value.dtype}, which holds Python objects")
    if not value.dtype.itemsize:
        raise Unsafe(f"is an array of {value.dtype}, whose elements have no size")
    is_fortran = value.flags.f_contiguous and not value.flags.c_contiguous
    flat = (value.T if is_fortran else np.ascontiguousarray(value)).reshape(-1)
    is_beside = value.nbytes >= to.beside
    to.out += b"A" if is_beside else b"a"
    to.out += b"F" if is_fortran else b"C"
    to.put_count(value.ndim)
    for length in value.shape:
        to.put_count(length)
    to.put(_describe(value.dtype), depth)
    if is_beside:
        to.buffers.append(flat.view(np.uint8))
    else:
        to.out += flat.tobytes()


def _describe(dtype: np.dtype) -> Any:
    """Returns what descr_to_dtype() reads; the name of a dtype of ml_dtypes."""
    if dtype.isbuiltin == 1:
        return dtype.str
    if dtype.type.__module__ == "ml_dtypes":
        return (dtype.name,)
    description = np.lib.format.dtype_to_descr(dtype)
    if np.lib.format.descr_to_dtype(description) != dtype:
        raise Unsafe(f"is an array of {dtype}, which safe mode does not support")
    return description


_WRITERS: dict[type, Callable[[_Encoder, Any, int], None]] = {
    int: _put_int,
    complex: _put_complex,
    bytes: _put_raw,
    bytearray: _put_raw,
    set: _put_set,
    frozenset: _put_set,
    datetime.timedelta: _put_timedelta,
    datetime.datetime: _put_datetime,
    datetime.date: _put_date,
    np.ndarray: _put_array,
}
