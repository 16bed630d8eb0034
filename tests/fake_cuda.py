# SPDX-License-Identifier: BSD-3-Clause
"""Arrays that claim to be on a CUDA device, and whose memory is NumPy's.

They are used with the doubles, whose device memory is the host's.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np

_SET = np.ones(1, np.int32)


class CudaArray:
    """An array of NumPy with `__cuda_array_interface__`."""

    def __init__(self, array: np.ndarray, stream: int | None = None) -> None:
        self.array = array
        self.stream = stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        array = self.array
        is_compact = array.flags.c_contiguous
        said: dict[str, Any] = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.ctypes.data, not array.flags.writeable),
            "strides": None if is_compact else array.strides,
            "version": 3,
        }
        if self.stream is not None:
            said["stream"] = self.stream
        return said


class Runtime:
    """The CUDA double of this process, as its streams are used by other libraries."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(os.environ["DISTLITE_CUDART_LIBRARY"])
        for name in (
            "double_streams_alive",
            "double_events_alive",
            "double_memory_alive",
            "double_spoilt_captures",
        ):
            getattr(self.library, name).restype = ctypes.c_int

    def stream(self) -> int:
        handle = ctypes.c_void_p()
        self.library.cudaStreamCreateWithPriority(ctypes.byref(handle), 0, 0)
        assert handle.value is not None
        return handle.value

    def copy(
        self,
        stream: int,
        target: np.ndarray,
        source: np.ndarray,
        flag: np.ndarray | None = None,
    ) -> None:
        """On `stream`, once `flag`, an int32, is not 0; all must live until then."""
        waited_for = _SET if flag is None else flag
        self.library.double_copy_when(
            ctypes.c_void_p(stream),
            ctypes.c_void_p(target.ctypes.data),
            ctypes.c_void_p(source.ctypes.data),
            ctypes.c_size_t(source.nbytes),
            ctypes.c_void_p(waited_for.ctypes.data),
        )

    def synchronize(self, stream: int) -> None:
        self.library.cudaStreamSynchronize(ctypes.c_void_p(stream))

    def begin_capture(self, stream: int) -> None:
        """What `stream` is given from now on goes into a graph."""
        self.library.cudaStreamBeginCapture(ctypes.c_void_p(stream), 0)

    def end_capture(self, stream: int) -> tuple[int, int]:
        """Returns CUDA's result (0 is success), and the graph."""
        graph = ctypes.c_void_p()
        result = self.library.cudaStreamEndCapture(
            ctypes.c_void_p(stream), ctypes.byref(graph)
        )
        return int(result), graph.value or 0

    def launch(self, graph: int, stream: int) -> None:
        """Runs a graph, once, on `stream`."""
        self.library.cudaGraphLaunch(ctypes.c_void_p(graph), ctypes.c_void_p(stream))

    def spoilt_captures(self) -> int:
        """Returns the number of calls that have spoilt a capture."""
        return int(self.library.double_spoilt_captures())

    def streams_alive(self) -> int:
        return int(self.library.double_streams_alive())

    def memory_alive(self) -> int:
        return int(self.library.double_memory_alive())

    def events_alive(self) -> int:
        return int(self.library.double_events_alive())
