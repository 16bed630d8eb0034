# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of one coalesced call that share memory.

Such a call is one operation: all arrays are read before any of them is written to, as
if they were packed into one.  Those that share memory with another are therefore worked
on in copies, which are put back in their order at the end.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Extent = tuple[int, int]


class Packed:
    """`used` is what to work on in the place of `arrays`, until `unpack()`."""

    def __init__(self, arrays: Sequence[Any]) -> None:
        self.arrays = list(arrays)
        self.used = list(arrays)
        for i in _sharing(self.arrays):
            self.used[i] = _copy_of(self.arrays[i])

    def unpack(self) -> None:
        """Puts the results where they belong; once."""
        pairs = zip(self.arrays, self.used, strict=True)
        self.used = self.arrays
        for array, result in pairs:
            if result is not array:
                _assign(array, result)


def apart(inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    """The inputs, in copies where they share memory with an output."""
    taken = [extent for extent in map(_extent_of, outputs) if extent is not None]
    return [_copy_of(each) if _meets(each, taken) else each for each in inputs]


def _meets(array: Any, others: list[Extent]) -> bool:
    extent = _extent_of(array)
    return extent is not None and any(
        extent[0] < end and first < extent[1] for first, end in others
    )


def _sharing(arrays: list[Any]) -> list[int]:
    """Which of them lie in each other's memory, or in each other's gaps."""
    if len(arrays) < 2:
        return []
    extents = sorted(
        (*extent, i)
        for i, extent in enumerate(map(_extent_of, arrays))
        if extent is not None and extent[0] != extent[1]
    )
    found: set[int] = set()
    reach, last = 0, -1
    for first, end, i in extents:
        if first < reach:
            found.update((last, i))
        if end > reach:
            reach, last = end, i
    return sorted(found)


def _extent_of(array: Any) -> Extent | None:
    """From its first byte to behind its last; None: nobody knows."""
    if hasattr(array, "data_ptr"):
        strides, size, first = array.stride(), array.element_size(), array.data_ptr()
        lengths, steps = tuple(array.shape), [step * size for step in strides]
    else:
        interface = getattr(array, "__array_interface__", None) or getattr(
            array, "__cuda_array_interface__", None
        )
        if interface is None:
            return None
        size = _item_size(interface["typestr"])
        lengths, first = interface["shape"], interface["data"][0]
        steps = interface.get("strides") or _compact(lengths, size)
    if 0 in lengths:
        return None
    spans = [(n - 1) * step for n, step in zip(lengths, steps, strict=True)]
    below = sum(span for span in spans if span < 0)
    above = sum(span for span in spans if span > 0)
    return first + below, first + above + size


def _item_size(typestr: str) -> int:
    """Read from the text: NumPy makes no dtype of some texts that ml_dtypes has, such
    as the '<f1' of float8_e5m2.  Types without a size are refused by the operations."""
    digits = typestr[2:].partition("[")[0]
    return int(digits) if digits.isdecimal() else 1


def _compact(lengths: Sequence[int], size: int) -> list[int]:
    steps = []
    for length in reversed(lengths):
        steps.append(size)
        size *= length
    return steps[::-1]


def _copy_of(array: Any) -> Any:
    if hasattr(array, "clone"):
        return array.detach().clone()
    if hasattr(array, "copy"):
        return array.copy()
    raise ValueError(
        f"arrays of a coalesced call share memory, and {type(array).__name__} has no "
        "copy(): pass copies"
    )


def _assign(array: Any, result: Any) -> None:
    if hasattr(array, "copy_"):
        array.detach().copy_(result)
    else:
        array[...] = result
