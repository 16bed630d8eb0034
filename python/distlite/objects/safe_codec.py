# SPDX-License-Identifier: BSD-3-Clause
"""Objects as bytes that are harmless to load: no code runs, whoever wrote the bytes.

Plain values are a letter and what it needs; sizes <n> come in groups of seven bits:

    N T F         None, True, False            i <n> ...       int, little-endian
    f <8>         float                        s b B <n> ...   str, bytes, bytearray
    l t S Z <n>   list, tuple, set, frozenset  d <n>           dict: key, value, ...
    a A           array, inside or beside      D               dataclass: name, fields
                  the bytes                    c w m h         complex, timedelta,
    g             NumPy scalar, as an array                    datetime, date: numbers
                                               o p             long bytes, bytearray

What is long lies beside the bytes, in buffers counted in the order of their use.  Only
these types, and not their subclasses; each object as often as it occurs.  The frequent
ones are written and read in C (csrc/python/objects/safe_codec.c), the others here.

The bytes may come from anybody.  Every size is compared with the bytes that are there
before memory is allocated for it, containers have no more items than bytes are left,
the depth has a limit, and arithmetic takes time in proportion to the bytes.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any, Literal

import numpy as np

from .. import _C

DEPTH_LIMIT = _C._SAFE_DEPTH_LIMIT
# The most bytes of a size, of which each has seven bits: enough for 64 bits.
COUNT_BYTES = 10
# More keys of one hash than data have by chance: -1 and -2 have the same hash, and so
# do tuples of them.
ALIKE = 64
# NumPy's own limit of dimensions.
DIMENSIONS = 64
MICROSECOND = datetime.timedelta(microseconds=1)

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


class Malformed(ValueError):
    """These bytes are not from encode(), or of a type that is not registered here."""


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


# Types that are made of numbers: their letter, how many numbers, and what they are.
_NUMBERS: dict[type, tuple[bytes, int, Callable[[Any], Sequence[Any]]]] = {
    complex: (b"c", 2, lambda z: (z.real, z.imag)),
    datetime.timedelta: (b"w", 3, lambda w: (w.days, w.seconds, w.microseconds)),
    datetime.date: (b"h", 3, lambda d: (d.year, d.month, d.day)),
    datetime.datetime: (
        b"m",
        9,
        lambda m: (
            *(m.year, m.month, m.day, m.hour, m.minute, m.second),
            *(m.microsecond, m.fold, _offset_of(m)),
        ),
    ),
}


def _offset_of(value: datetime.datetime) -> int | None:
    """Returns the offset of a time zone in microseconds; a zone with rules is not
    data."""
    if value.tzinfo is None:
        return None
    if type(value.tzinfo) is not datetime.timezone:
        raise Unsafe(
            f"has the time zone {value.tzinfo!r}, which safe mode does not support"
        )
    return value.tzinfo.utcoffset(None) // MICROSECOND


def _datetime_of(*numbers: Any) -> datetime.datetime:
    *parts, fold, offset = numbers
    zone = None if offset is None else datetime.timezone(offset * MICROSECOND)
    return datetime.datetime(*parts, tzinfo=zone, fold=fold)  # type: ignore[misc]


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
        if kind is int:  # of more than 64 bits
            size = (value.bit_length() + 8) // 8
            self.put_bytes(b"i", value.to_bytes(size, "little", signed=True))
        elif kind in _NUMBERS:
            letter, _, numbers_of = _NUMBERS[kind]
            self.out += letter
            for number in numbers_of(value):
                self.put(number, 0)
        elif kind is bytes or kind is bytearray:
            self.put_raw(value)
        elif kind is set or kind is frozenset:
            self.out += b"S" if kind is set else b"Z"
            self.put_count(len(value))
            for item in value:
                self.put_part(item, depth + 1, "{...}")
        elif kind in _names:
            self.put_dataclass(value, depth + 1)
        elif kind is np.ndarray:
            self.put_array(value, depth + 1)
        elif isinstance(value, np.generic) and kind.__module__ in (
            "numpy",
            "ml_dtypes",
        ):
            self.out += b"g"
            self.put_array(np.asarray(value), depth)
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

    def put_raw(self, value: bytes | bytearray) -> None:
        is_mutable = type(value) is bytearray
        if len(value) < self.beside:
            self.put_bytes(b"B" if is_mutable else b"b", value)
            return
        self.out += b"p" if is_mutable else b"o"
        self.buffers.append(value)

    def put_dataclass(self, value: Any, depth: int) -> None:
        name = _names[type(value)]
        self.put_bytes(b"D", name.encode())
        for field in registered[name][1]:
            try:
                part = getattr(value, field)
            except AttributeError:
                raise Unsafe(f"has no value for its field {field!r}") from None
            self.put_part(part, depth, f".{field}")

    def put_array(self, value: np.ndarray, depth: int) -> None:
        """Writes an array: order, shape, dtype, contents."""
        if value.dtype.hasobject:
            raise Unsafe(f"is an array of {value.dtype}, which holds Python objects")
        if not value.dtype.itemsize:
            raise Unsafe(f"is an array of {value.dtype}, whose elements have no size")
        is_fortran = value.flags.f_contiguous and not value.flags.c_contiguous
        flat = (value.T if is_fortran else np.ascontiguousarray(value)).reshape(-1)
        is_beside = value.nbytes >= self.beside
        self.out += (b"A" if is_beside else b"a") + (b"F" if is_fortran else b"C")
        self.put_count(value.ndim)
        for length in value.shape:
            self.put_count(length)
        self.put(_describe(value.dtype), depth)
        if is_beside:
            self.buffers.append(flat.view(np.uint8))
        else:
            self.out += flat.tobytes()


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


class _Decoder:
    """Takes values from the front of `data`."""

    def __init__(self, data: Any, buffers: Iterable[Any]) -> None:
        self.data = memoryview(data).cast("B")
        self.at = 0
        # Reversed, so that pop() takes the next one.
        self.buffers = list(buffers)[::-1]

    def take(self, depth: int) -> Any:
        value, self.at = _C._take_plain(
            self.data, self.at, depth, self.take_other, check_alike
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

    def take_run(self) -> memoryview:
        return self.take_bytes(self.take_count())

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

    def take_members(self, depth: int) -> list[Any]:
        """Takes the members of a set."""
        items = [self.take(depth) for _ in range(self.take_length())]
        _C._check_keys(items, check_alike)
        return items

    def take_numbers(self, count: int, make: Callable[..., Any]) -> Any:
        """Takes what is made of numbers; a value of a class could run its code."""
        numbers = [self.take(0) for _ in range(count)]
        if not all(type(each) in (int, float, type(None)) for each in numbers):
            raise Malformed("malformed bytes: a number was expected")
        return make(*numbers)

    def take_dataclass(self, depth: int) -> Any:
        name = str(self.take_run(), "utf-8", "surrogatepass")
        if name not in registered:
            raise Malformed(
                f"type {name} is not registered here: see register_safe_type()"
            )
        cls, fields = registered[name]
        value: Any = object.__new__(cls)
        for field in fields:
            # object.__setattr__ also sets fields of frozen classes.
            object.__setattr__(value, field, self.take(depth))
        return value

    def take_array(self, depth: int, is_beside: bool) -> np.ndarray:
        order = _ORDERS[self.take_bytes(1)[0]]
        dimensions = self.take_length()
        if dimensions > DIMENSIONS:
            raise Malformed("malformed bytes: an array of too many dimensions")
        shape = [self.take_count() for _ in range(dimensions)]
        dtype = _dtype_of(self.take(depth))
        size = prod(shape) * dtype.itemsize
        memory = self.take_buffer() if is_beside else bytearray(self.take_bytes(size))
        if len(memory) != size:
            raise Malformed(
                "malformed bytes: an array whose size does not match its contents"
            )
        return np.ndarray(shape, dtype, memory, order=order)

    def take_scalar(self, depth: int) -> Any:
        array = self.take(depth)
        if type(array) is not np.ndarray or array.ndim:
            raise Malformed("malformed bytes: a scalar was expected")
        return array[()]


def check_alike(keys: list[Any]) -> None:
    """Raises Malformed if keys of one hash take long to compare with each other.

    Sets and other objects within keys are compared with a search of their own, which
    multiplies; numbers, text, and tuples of them are not.
    """
    if len(keys) > ALIKE or (len(keys) > 2 and not all(map(_is_flat, keys))):
        raise Malformed("malformed bytes: too many keys have the same hash")


def _is_flat(key: Any) -> bool:
    if type(key) is tuple:
        return all(map(_is_flat, key))
    return type(key) in (int, float, complex, str, bytes, bool, type(None))


def _dtype_of(description: Any) -> np.dtype:
    known = True
    if type(description) is tuple and len(description) == 1:
        import ml_dtypes

        if type(description[0]) is not str:
            raise Malformed("malformed bytes: a name was expected")
        dtype: np.dtype = np.dtype(getattr(ml_dtypes, description[0]))
        known = dtype.type.__module__ == "ml_dtypes"
    else:
        dtype = np.lib.format.descr_to_dtype(description)
    # Items of size 0: any number of elements would fit into no bytes.
    if dtype.hasobject or not known or not dtype.itemsize:
        raise Malformed("malformed bytes: a dtype that is not plain memory")
    return dtype


def _reader_of(count: int, make: Callable[..., Any]) -> Callable[[_Decoder, int], Any]:
    return lambda of, depth: of.take_numbers(count, make)


_ORDERS: dict[int, Literal["C", "F"]] = {ord("C"): "C", ord("F"): "F"}
_READERS: dict[int, Callable[[_Decoder, int], Any]] = {
    ord("i"): lambda of, depth: int.from_bytes(of.take_run(), "little", signed=True),
    ord("B"): lambda of, depth: bytearray(of.take_run()),
    ord("o"): lambda of, depth: bytes(of.take_buffer()),
    ord("p"): lambda of, depth: bytearray(of.take_buffer()),
    ord("S"): lambda of, depth: set(of.take_members(depth)),
    ord("Z"): lambda of, depth: frozenset(of.take_members(depth)),
    ord("D"): _Decoder.take_dataclass,
    ord("a"): lambda of, depth: of.take_array(depth, False),
    ord("A"): lambda of, depth: of.take_array(depth, True),
    ord("g"): _Decoder.take_scalar,
}
for _kind, (_letter, _count, _) in _NUMBERS.items():
    _make = _datetime_of if _kind is datetime.datetime else _kind
    _READERS[ord(_letter)] = _reader_of(_count, _make)
