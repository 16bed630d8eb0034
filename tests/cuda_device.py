# SPDX-License-Identifier: BSD-3-Clause
"""Memory, streams and graphs of a CUDA device by ctypes: no other library is needed.

It works with the doubles, too. `cudart()` returns the runtime that a process is to use,
or the reason why there is none.
"""

from __future__ import annotations

import ctypes
import glob
import os
import sys
from typing import Any

import numpy as np

_PATTERNS = (
    "nvidia/cu1?/lib/libcudart.so.1?",
    "nvidia/cuda_runtime/lib/libcudart.so.1?",
)


def cudart() -> tuple[str, str]:
    """The path of a runtime that sees a device, or "" and what is missing."""
    given = os.environ.get("DISTLITE_CUDART_LIBRARY")
    found = [given] if given else []
    for folder in sys.path if not given else ():
        for pattern in _PATTERNS:
            found += sorted(glob.glob(os.path.join(folder, pattern)), reverse=True)
    if not given:
        found += ["libcudart.so.13", "libcudart.so.12"]
    reason = "there is no CUDA runtime: pip install nvidia-cuda-runtime-cu12"
    for path in found:
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        count = ctypes.c_int()
        if library.cudaGetDeviceCount(ctypes.byref(count)) == 0 and count.value > 0:
            return path, ""
        reason = f"{path} sees no device"
    return "", reason


class DeviceArray:
    """Memory of the device, ordered by the default stream."""

    def __init__(self, device: Device, array: np.ndarray) -> None:
        self.device, self.shape, self.dtype = device, array.shape, array.dtype
        self.pointer = ctypes.c_void_p()
        self.bytes = array.nbytes
        device.call("cudaMalloc", ctypes.byref(self.pointer), max(1, self.bytes))

    def __del__(self) -> None:
        # An operation on the memory may still run.  (It must not be freed during a
        # capture.)
        self.device.library.cudaStreamSynchronize(None)
        self.device.library.cudaFree(self.pointer)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.pointer.value, False),
            "strides": None,
            "version": 3,
        }


class DeviceRow:
    """A row of an array on the device."""

    def __init__(self, whole: DeviceArray, row: int) -> None:
        self.whole, self.shape, self.dtype = whole, whole.shape[1:], whole.dtype
        self.offset = row * (whole.bytes // whole.shape[0])
        self.bytes = whole.bytes // whole.shape[0]
        self.pointer = ctypes.c_void_p((whole.pointer.value or 0) + self.offset)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        told = dict(self.whole.__cuda_array_interface__)
        return {**told, "shape": self.shape, "data": (self.pointer.value, False)}


class Device:
    """The first device, as this process uses it."""

    def __init__(self) -> None:
        path, reason = cudart()
        assert path, reason
        # The library under test is to use the same one.
        os.environ["DISTLITE_CUDART_LIBRARY"] = path
        self.library = ctypes.CDLL(path)
        self.library.cudaGetErrorString.restype = ctypes.c_char_p
        self.call("cudaSetDevice", 0)

    def call(self, name: str, *args: Any) -> None:
        """Numbers are int or size_t: those of 64 bits are wrapped here."""
        wrapped = [ctypes.c_size_t(a) if isinstance(a, int) else a for a in args]
        result = getattr(self.library, name)(*wrapped)
        assert result == 0, f"{name}: {self.library.cudaGetErrorString(result)}"

    def put(self, array: np.ndarray) -> DeviceArray:
        """A copy on the device."""
        compact = np.ascontiguousarray(array)
        made = DeviceArray(self, compact.reshape(np.shape(array)))
        source = ctypes.c_void_p(compact.ctypes.data)
        self.call("cudaMemcpy", made.pointer, source, made.bytes, 1)
        # The copy may still be on its way, and streams need not wait for it.
        self.call("cudaStreamSynchronize", None)
        return made

    def rows(self, array: DeviceArray) -> list[DeviceRow]:
        """Its rows, which follow each other in memory."""
        return [DeviceRow(array, row) for row in range(array.shape[0])]

    def get(self, array: DeviceArray | DeviceRow) -> np.ndarray:
        """A copy here, once the default stream has come so far."""
        copy = np.empty(array.shape, array.dtype)
        target = ctypes.c_void_p(copy.ctypes.data)
        self.call("cudaMemcpy", target, array.pointer, array.bytes, 2)
        return copy

    def stream(self) -> ctypes.c_void_p:
        """A new one, for `stream=`."""
        made = ctypes.c_void_p()
        self.call("cudaStreamCreateWithPriority", ctypes.byref(made), 1, 0)
        return made

    def synchronize(self, stream: ctypes.c_void_p) -> None:
        """Waits for all that the stream was given."""
        self.call("cudaStreamSynchronize", stream)

    def is_idle(self, stream: ctypes.c_void_p) -> bool:
        """Whether all that the stream was given has ended."""
        return bool(self.library.cudaStreamQuery(stream) == 0)

    def begin_capture(self, stream: ctypes.c_void_p) -> None:
        """What the stream is given from now on goes into a graph."""
        self.call("cudaStreamBeginCapture", stream, 0)

    def end_capture(self, stream: ctypes.c_void_p) -> ctypes.c_void_p:
        """The graph, ready to be launched."""
        graph, ready = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cudaStreamEndCapture", stream, ctypes.byref(graph))
        self.call("cudaGraphInstantiate", ctypes.byref(ready), graph, 0)
        return ready

    def launch(self, graph: ctypes.c_void_p, stream: ctypes.c_void_p) -> None:
        """Runs the graph on the stream."""
        self.call("cudaGraphLaunch", graph, stream)

    def forget(self, graph: ctypes.c_void_p) -> None:
        """Frees the graph."""
        self.call("cudaGraphExecDestroy", graph)
