# SPDX-License-Identifier: BSD-3-Clause
"""A store as a dict of numbers, arrays and other data: what `store.dict()` returns.

An integer of 64 bits is in the store as decimal digits, as those that `Store.add`
changes. Any other value is a mark, eight random bytes, and the bytes of the safe codec.
The random bytes make all writes different, so that the answer to a compare_set tells
whether its value is there.
"""

from __future__ import annotations

import operator
import os
import re
from collections.abc import ItemsView, Iterator, MutableMapping, ValuesView
from typing import Any

from .._C import Store
from ..objects.safe_decode import Malformed, decode
from ..objects.safe_encode import Unsafe, encode
from .reading import check_prefix, list_names, read_items

__all__ = ["StoreDict"]

MARK = b"\x93distlite\x01"
NONCE_SIZE = 8
DIGITS = re.compile(rb"-?[0-9]{1,19}")
# The range of the integers of Store.add.
INT_MIN, INT_END = -(2**63), 2**63
# The most keys of one multi_set.
SET_KEYS, SET_BYTES = 4096, 16 << 20


class _Missing:
    def __repr__(self) -> str:
        return "StoreDict.MISSING"


class StoreDict(MutableMapping[str, Any]):
    """A view of a store as a dict from str to numbers, arrays and other data.

    `Store.dict` makes it. Values are what the safe mode of object collectives takes:
    None, bool, int, float, str, bytes, lists, tuples, dicts, sets, dates, NumPy arrays
    and scalars, and dataclasses that are registered with `register_safe_type`. Each is
    a copy: a list that is changed has to be set again. No value is ever a pickle, and
    reading one runs no code of whoever wrote it.

    All users of the store may use such views at the same time. Setting, getting,
    `increment`, `setdefault` and `compare_set` are atomic; `d[key] += by` reads and
    then writes. `pop` gives a value to one caller only, but loses what another
    sets in the same moment. `items`, `values`, `len` and iteration show the keys of one
    moment, and values from then or shortly after; a key that is deleted meanwhile is
    left out.

    Integers of 64 bits are counters of `Store.add`, too.

    Args:
        store: The store.
        prefix: What the names of the view's keys begin with in the store. With "" the
            view also has keys that a `TCPStore` keeps for itself.

    Example:
        >>> from distlite.stores import StoreDict
        >>> store = dist.HashStore()
        >>> run = StoreDict(store, "run/")
        >>> run.update(epoch=3, means=np.array([0.5, 0.25]))
        >>> run.increment("epoch")
        4
        >>> run["epoch"], run["means"], store.get("run/epoch")
        (4, array([0.5 , 0.25]), b'4')
    """

    #: What `compare_set` takes for a key that does not exist.
    MISSING = _Missing()

    def __init__(self, store: Store, prefix: str = "") -> None:
        self.store = store
        self.prefix = check_prefix(prefix)

    def __repr__(self) -> str:
        return f"StoreDict({self.store!r}, {self.prefix!r})"

    def __getitem__(self, key: str) -> Any:
        return self._value(key, self._raw(key))

    def __setitem__(self, key: str, value: Any) -> None:
        self.store.set(self._name(key), _bytes_of(key, value))

    def __delitem__(self, key: str) -> None:
        if not self.store.delete_key(self._name(key)):
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.store.check([self._name(key)])

    def __iter__(self) -> Iterator[str]:
        names = list_names(self.store, self.prefix)
        return iter([name[len(self.prefix) :] for name in names])

    def __len__(self) -> int:
        return len(list_names(self.store, self.prefix))

    def items(self) -> ItemsView[str, Any]:
        """Returns a view of the keys and values, which each iteration reads at once."""
        return _Items(self)

    def values(self) -> ValuesView[Any]:
        """Returns a view of the values, which each iteration reads at once."""
        return _Values(self)

    def increment(self, key: str, by: int = 1) -> int:
        """Adds to an integer, atomically.

        Args:
            key: The key; one that does not exist counts from 0.
            by: The number to add, which may be negative.

        Returns:
            The sum.

        Raises:
            TypeError: The value is not an integer; it stays as it is.
            DistStoreError: The store is closed, or its server cannot be reached.

        Example:
            >>> view = dist.HashStore().dict()
            >>> view.increment("steps"), view.increment("steps", 5)
            (1, 6)
        """
        name, number = self._name(key), operator.index(by)
        if INT_MIN < number < INT_END:
            try:
                total = self.store.add(name, number)
            except ValueError:
                pass  # not digits
            else:
                if not _has_wrapped(total, number):
                    return total
                self.store.add(name, -number)
        return self._increment_by_swaps(key, number)

    def compare_set(self, key: str, old: Any, new: Any) -> bool:
        """Replaces a value if it is what the caller expects, atomically.

        Args:
            key: The key.
            old: The value that shall be replaced: of the same type and equal;
                `StoreDict.MISSING` is that of a key that does not exist.
            new: The new value.

        Returns:
            Whether this call has replaced it. Of several callers with the same `old`,
            one gets True.

        Raises:
            TypeError: Safe mode does not take the new value.
            DistStoreError: The store is closed, or its server cannot be reached.

        Example:
            >>> view = dist.HashStore().dict()
            >>> view.compare_set("leader", view.MISSING, "rank 1")
            True
            >>> view.compare_set("leader", "rank 2", "rank 3"), view["leader"]
            (False, 'rank 1')
        """
        # Not as digits, which would be the same for two callers.
        desired = _coded(key, new)
        while True:
            found = self._find(key)
            if found is None or old is self.MISSING:
                is_expected = found is None and old is self.MISSING
            else:
                is_expected = _is_same(self._value(key, found), old)
            if not is_expected:
                return False
            if self._swap(key, found, desired):
                return True

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Returns the value of a key, and sets it first if there is none, atomically.

        Args:
            key: The key.
            default: The value that is set if the key does not exist.

        Returns:
            The value: the same for all callers.

        Raises:
            TypeError: Safe mode does not take the default.
            DistStoreError: The store is closed, or its server cannot be reached.
        """
        desired = _bytes_of(key, default)
        while True:
            found = self._find(key)
            if found is not None:
                return self._value(key, found)
            if self._swap(key, None, desired):
                return default

    def pop(self, key: str, *default: Any) -> Any:
        """Removes a key, and returns its value.

        Args:
            key: The key.

        Returns:
            The value, or the second argument if the key does not exist.

        Raises:
            KeyError: The key does not exist, and there is no second argument.
            DistStoreError: The store is closed, or its server cannot be reached.
        """
        if len(default) > 1:
            raise TypeError(f"pop takes 1 or 2 arguments, not {1 + len(default)}")
        found = self._find(key)
        if found is not None:
            # Before the key is deleted, so that a value that cannot be read is not
            # lost.
            value = self._value(key, found)
            if self.store.delete_key(self._name(key)):
                return value
        if default:
            return default[0]
        raise KeyError(key)

    def popitem(self) -> tuple[str, Any]:
        """Removes any key, and returns it with its value.

        Returns:
            A pair of key and value.

        Raises:
            KeyError: There is none.
            DistStoreError: The store is closed, or its server cannot be reached.
        """
        for key in self:
            value = self.pop(key, self.MISSING)
            if value is not self.MISSING:
                return key, value
        raise KeyError("popitem(): the view is empty")

    def update(self, other: Any = (), /, **values: Any) -> None:
        """Sets several values, in few round trips.

        All of them are checked before any is set. Names of values may also be given as
        keywords.

        Args:
            other: A mapping, or pairs of key and value.

        Raises:
            TypeError: Safe mode does not take one of the values.
            DistStoreError: The store is closed, or its server cannot be reached.
        """
        pairs = {
            self._name(key): _bytes_of(key, value)
            for key, value in {**dict(other), **values}.items()
        }
        names: list[str] = []
        size = 0
        for name, value in pairs.items():
            if len(names) == SET_KEYS or size + len(value) > SET_BYTES:
                self.store.multi_set(names, [pairs[each] for each in names])
                names, size = [], 0
            names.append(name)
            size += len(value)
        if names:
            self.store.multi_set(names, [pairs[each] for each in names])

    def __ior__(self, other: Any) -> StoreDict:
        self.update(other)
        return self

    def clear(self) -> None:
        """Removes all keys of the view.

        Raises:
            DistStoreError: The store is closed, or its server cannot be reached.
        """
        for name in list_names(self.store, self.prefix):
            self.store.delete_key(name)

    def _name(self, key: object) -> str:
        if not isinstance(key, str):
            raise TypeError(f"keys must be str, not {type(key).__name__}")
        return self.prefix + key

    def _raw(self, key: str) -> bytes:
        found = self._find(key)
        if found is None:
            raise KeyError(key)
        return found

    def _find(self, key: str) -> bytes | None:
        """Returns the bytes of a value; None if there is none."""
        try:
            return self.store[self._name(key)]
        except KeyError:
            return None

    def _swap(self, key: str, expected: bytes | None, desired: bytes) -> bool:
        """Returns whether `desired` is in the store now; if it is encoded, by this
        call."""
        name = self._name(key)
        return self.store.compare_set(name, expected or b"", desired) == desired

    def _value(self, key: str, found: bytes) -> Any:
        if DIGITS.fullmatch(found):
            return int(found)
        if not found.startswith(MARK):
            raise ValueError(
                f"the {len(found)} bytes of key {self._name(key)!r} were not written "
                "by a store.dict(): read them with store.get()"
            )
        try:
            return decode(memoryview(found)[len(MARK) + NONCE_SIZE :])
        except Malformed as error:
            raise ValueError(f"the value of key {self._name(key)!r}: {error}") from None

    def _increment_by_swaps(self, key: str, by: int) -> int:
        while True:
            found = self._find(key)
            value = 0 if found is None else self._value(key, found)
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(
                    f"the value of key {self._name(key)!r} is not an int but "
                    f"{type(value).__name__}"
                )
            if self._swap(key, found, _coded(key, value + by)):
                return value + by


StoreDict.__module__ = "distlite.stores"


class _Items(ItemsView[str, Any]):
    _mapping: StoreDict

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        of = self._mapping
        for name, found in read_items(of.store, of.prefix):
            key = name[len(of.prefix) :]
            yield key, of._value(key, found)


class _Values(ValuesView[Any]):
    _mapping: StoreDict

    def __iter__(self) -> Iterator[Any]:
        return (value for _, value in _Items(self._mapping))


def _bytes_of(key: str, value: Any) -> bytes:
    if type(value) is int and INT_MIN <= value < INT_END:
        return b"%d" % value
    return _coded(key, value)


def _coded(key: str, value: Any) -> bytes:
    try:
        coded, _ = encode(value)
    except Unsafe as error:
        error.at = f"the value of key {key!r}{error.at}"
        raise
    return b"".join((MARK, os.urandom(NONCE_SIZE), coded))


def _has_wrapped(total: int, by: int) -> bool:
    """Returns whether the sum of a 64-bit number and `by` has overflowed."""
    return total < INT_MIN + by if by > 0 else total >= INT_END + by


def _is_same(value: Any, other: Any) -> bool:
    """Returns whether two values are of the same type and equal."""
    if type(value) is not type(other):
        return False
    if encode(value)[0] == encode(other)[0]:
        return True
    try:
        return bool(value == other)
    except ValueError:
        # Arrays, or values that contain some, are the same if their bytes are.
        return False
