# SPDX-License-Identifier: BSD-3-Clause
"""Flat memory for many gradients, so that one operation reduces them together.

A bucket has gradients of one dtype, one behind the other, and then one more element:
the number of ranks that did not have all of them. It is reduced along with the
gradients, so that every rank gets it without another operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._C import ProcessGroup, Work

# The alignment of gradients, in bytes, for vector instructions.
ALIGNMENT = 64
MEBIBYTE = 1 << 20
FIRST_CAP = MEBIBYTE


class Parameter:
    """The description of one parameter: its name, and the form of its gradients."""

    __slots__ = ("dtype", "is_torch", "item_size", "key", "number", "shape", "size")

    def __init__(self, number: int, key: int | str, array: Any) -> None:
        self.number = number
        self.key = key
        self.is_torch = _is_torch(array)
        try:
            self.shape: tuple[int, ...] = tuple(array.shape)
            self.dtype = array.dtype
            self.item_size: int = self.dtype.itemsize
        except AttributeError:
            raise TypeError(
                f"parameter {key!r} is not an array: {type(array).__name__}"
            ) from None
        if not self.is_torch and not _is_numpy(array):
            raise TypeError(
                f"parameter {key!r} is a {type(array).__name__}; GradientReducer takes "
                "NumPy arrays and torch tensors on the cpu"
            )
        if self.is_torch and array.device.type != "cpu":
            raise TypeError(
                f"parameter {key!r} is on {array.device}; GradientReducer takes NumPy "
                "arrays and torch tensors on the cpu"
            )
        self.size = 1
        for extent in self.shape:
            self.size *= extent

    @property
    def places(self) -> int:
        """The number of elements that its gradient takes in a bucket."""
        each = max(1, ALIGNMENT // self.item_size)
        return -(-self.size // each) * each

    def kind(self) -> tuple[bool, Any]:
        """The dtype and the array library; only parameters of the same kind share a
        bucket."""
        return self.is_torch, self.dtype

    def has_fractions(self) -> bool:
        """Returns False for integers and bool."""
        if self.is_torch:
            return bool(self.dtype.is_floating_point or self.dtype.is_complex)
        return self.dtype.kind not in "biu"

    def describe(self) -> str:
        """Returns a text such as "float32[64, 10]"."""
        return _describe(self.dtype, self.shape)

    def check(self, gradient: Any) -> Any:
        """Returns the gradient without its graph; raises TypeError or ValueError unless
        it fits this parameter."""
        is_own_kind = _is_torch if self.is_torch else _is_numpy
        if not is_own_kind(gradient):
            raise TypeError(
                f"the gradient of {self.key!r} is a {type(gradient).__name__}, "
                "not an array of the parameter's kind"
            )
        if tuple(gradient.shape) != self.shape or gradient.dtype != self.dtype:
            raise ValueError(
                f"the gradient of {self.key!r} is "
                f"{_describe(gradient.dtype, gradient.shape)}, "
                f"and the parameter {self.describe()}"
            )
        if isinstance(gradient, np.ma.MaskedArray):
            raise ValueError(
                f"the gradient of {self.key!r} is a masked array, whose mask would be "
                "lost: fill the masked elements, as with gradient.filled(0)"
            )
        if is_read_only(gradient):
            raise ValueError(
                f"the gradient of {self.key!r} is read-only, and finish() writes the "
                "average there: give a copy, or write it into "
                f"reducer.gradients[{self.key!r}]"
            )
        if _has_shared_elements(gradient):
            raise ValueError(
                f"the gradient of {self.key!r} has strides of 0, as expand() makes "
                "them: its elements share memory, and finish() cannot write the "
                "average there; give gradient.contiguous()"
            )
        # A gradient of backward(create_graph=True): writing to it must not be part of
        # the graph.
        has_graph = self.is_torch and gradient.requires_grad
        return gradient.detach() if has_graph else gradient


def _is_torch(array: object) -> bool:
    # A class of the user's may be derived from torch's.
    return any(
        kind.__module__.partition(".")[0] == "torch" for kind in type(array).__mro__
    )


def _is_numpy(array: object) -> bool:
    return isinstance(array, np.ndarray)


def is_read_only(array: object) -> bool:
    """Returns whether it is a read-only NumPy array."""
    return getattr(getattr(array, "flags", None), "writeable", True) is False


def _has_shared_elements(array: Any) -> bool:
    strides = array.stride() if hasattr(array, "stride") else array.strides
    # An array without elements shares none, whatever its strides are.
    return 0 not in array.shape and any(
        step == 0 and count > 1
        for step, count in zip(strides, array.shape, strict=True)
    )


def _describe(dtype: Any, shape: Sequence[int]) -> str:
    return f"{str(dtype).removeprefix('torch.')}{list(shape)}"


class Bucket:
    """The memory of some gradients, and its state in a step."""

    def __init__(self, parameters: Sequence[Parameter], group: ProcessGroup) -> None:
        self.parameters = parameters
        first = parameters[0]
        places = sum(parameter.places for parameter in parameters)
        self.size = places * first.item_size
        spare = max(1, ALIGNMENT // first.item_size)
        self.flat = _memory(first, places + spare, group)
        self.missing = self.flat[places : places + 1]
        self.views: dict[int, Any] = {}
        begin = 0
        for parameter in parameters:
            part = self.flat[begin : begin + parameter.size]
            self.views[parameter.number] = part.reshape(parameter.shape)
            begin += parameter.places
        self.begin_step()

    def begin_step(self) -> None:
        """Forgets the gradients and the reduction of the step before."""
        self.waiting = len(self.parameters)
        self.work: Work | None = None

    def launch(self, all_reduce: Any, op: Any, group: ProcessGroup) -> None:
        """Begins the reduction."""
        self.missing[0] = 1 if self.waiting else 0
        self.work = all_reduce(self.flat, op, group, True)

    def wait(self) -> None:
        """Waits until the bucket is reduced."""
        assert self.work is not None
        self.work.wait()

    def is_whole(self) -> bool:
        """Returns whether all ranks had all of its gradients, once it is reduced."""
        return bool(self.missing[0] == 0)


def _memory(like: Parameter, places: int, group: ProcessGroup) -> Any:
    """Returns zeros, if possible in memory that peers can read in place."""
    from ..shared import shared_zeros

    size = places * like.item_size
    try:
        memory = shared_zeros(size, np.uint8, group)
    except (MemoryError, TypeError):
        # There is no room, or the group is written in Python.
        memory = np.zeros(size, np.uint8)
    if not like.is_torch:
        return memory.view(like.dtype)
    import torch

    return torch.from_numpy(memory).view(like.dtype)


def plan(parameters: Sequence[Parameter], cap: float) -> list[list[Parameter]]:
    """Returns the parameters of each bucket, in the order in which buckets will be
    full.

    `parameters` are in the order in which their gradients are expected. `cap` is the
    size of buckets in bytes; the first one is small, because it is to be sent early.
    """
    if cap <= 0:
        raise ValueError("GradientReducer: the bucket size must be greater than 0")
    done: list[list[Parameter]] = []
    open_ones: dict[tuple[bool, Any], list[Parameter]] = {}
    last: dict[int, int] = {}
    for position, parameter in enumerate(parameters):
        bucket = open_ones.get(parameter.kind())
        limit = cap if done else min(cap, FIRST_CAP)
        size = parameter.places * parameter.item_size
        if bucket is not None and _bytes_of(bucket) + size > limit:
            done.append(open_ones.pop(parameter.kind()))
            bucket = None
        if bucket is None:
            bucket = open_ones[parameter.kind()] = []
        bucket.append(parameter)
        last[parameter.number] = position
    done += open_ones.values()
    return sorted(done, key=lambda bucket: last[bucket[-1].number])


def _bytes_of(bucket: Sequence[Parameter]) -> int:
    return sum(parameter.places * parameter.item_size for parameter in bucket)
