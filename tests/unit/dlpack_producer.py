# SPDX-License-Identifier: BSD-3-Clause
"""A library of one array class that speaks DLPack and nothing else.

The memory is a NumPy array's; what is said of it is free, so that a test can stand in
for libraries, types and devices that are not here.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_index", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Legacy(ctypes.Structure):
    _fields_ = (
        ("tensor", DLTensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


class Producer:
    """`array` as another library would export it.

    `code`, `bits`, `device`, `flags`, `major`, `offset` and `shape` replace what is
    true; the pointer that `absent` names is NULL.  `capsules` counts those exported
    and not yet dropped.
    """

    def __init__(
        self, array: np.ndarray, *, versioned: bool = True, **said: Any
    ) -> None:
        self.array = array
        self.versioned = versioned
        self.said = said
        self.capsules = 0
        self.kept: list[Any] = []

    def __dlpack__(self, **keywords: Any) -> object:
        # Who has no current stream is told the one of the operation, 1 by default; it
        # knows no -1, as JAX.
        is_cuda = self.said.get("device", 1) in (2, 13)
        wanted = {"stream": self.said.get("stream", 1)} if is_cuda else {}
        if not self.versioned:
            if keywords != wanted:
                raise TypeError("__dlpack__() got an unexpected keyword argument")
            return self._capsule(Legacy(self._tensor()), b"dltensor")
        assert keywords == {"max_version": (1, 0), **wanted}
        managed = Versioned(
            major=self.said.get("major", 1),
            minor=0,
            flags=self.said.get("flags", 0),
            tensor=self._tensor(),
        )
        return self._capsule(managed, b"dltensor_versioned")

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.said.get("device", 1), 0

    def _tensor(self) -> DLTensor:
        array, offset = self.array, self.said.get("offset", 0)
        integers = ctypes.c_int64 * max(array.ndim, 1)
        shape = integers(*self.said.get("shape", array.shape))
        strides = integers(*(stride // array.itemsize for stride in array.strides))
        self.kept += [shape, strides]
        absent = self.said.get("absent")
        return DLTensor(
            data=None if absent == "data" else array.ctypes.data - offset,
            device_type=self.said.get("device", 1),
            ndim=array.ndim,
            code=self.said.get("code", CODES.get(array.dtype.kind, 3)),
            bits=self.said.get("bits", array.itemsize * 8),
            lanes=self.said.get("lanes", 1),
            shape=None if absent == "shape" else shape,
            strides=None if self.said.get("strides", 1) is None else strides,
            byte_offset=offset,
        )

    def _capsule(self, managed: ctypes.Structure, name: bytes) -> object:
        destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(self._dropped)
        self.kept += [managed, name, destructor]
        self.capsules += 1
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, type(destructor)]
        return new(ctypes.addressof(managed), name, destructor)

    def _dropped(self, capsule: int) -> None:
        self.capsules -= 1


class Writable(Producer):
    """As an older CuPy would export it, whose arrays everybody may write to."""

    __module__ = "cupy.stand_in"

    def __init__(self, array: np.ndarray, **said: Any) -> None:
        # No stream is to wait for another: -1.
        super().__init__(array, versioned=False, **{"stream": -1, **said})


class OfAUser(Writable):
    """Derived from a library's class, in a module of the user's."""
