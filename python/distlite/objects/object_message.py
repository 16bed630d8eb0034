# SPDX-License-Identifier: BSD-3-Clause
"""Objects as a stream of bytes and, apart from it, the memory of large arrays.

The sizes of these parts are at the end of the stream, eight bytes each.

NumPy is imported where it is needed: its import takes as long as 10,000 exchanges of
small objects, which need nothing of it.  So does `pickle`, which is `_pickle` and its
slow double, as long as 500.
"""

from __future__ import annotations

from _pickle import PickleBuffer, Pickler, PicklingError, dumps, loads
from copyreg import dispatch_table
from io import BytesIO
from struct import pack as pack_numbers, unpack_from as unpack_numbers
from typing import TYPE_CHECKING, Any

from .. import _C

if TYPE_CHECKING:
    import numpy as np

    from .object_call import Call


# The least size of a part, which is a transfer of its own: smaller memory is cheaper to
# copy into the stream.
PART_LEAST = _C._OBJECT_PART_LEAST
# malloc() itself keeps freed memory of smaller sizes.
SPARE_LEAST = 1 << 20
PROTOCOL = 5
# Of the bits that say how objects are encoded: as data, not by pickle.
SAFE = 1
# The first byte of a pickle, which begins no data.
PICKLE = 0x80
# The errors of a pickler that can be made with a text; others become a PicklingError.
PLAIN_ERRORS = (AttributeError, MemoryError, RecursionError, TypeError, ValueError)


class Message:
    """The data that a rank sends."""

    __slots__ = ("parts", "stream")

    error: Exception | None = None
    text = ""

    def __init__(self, stream: Any, parts: list[Any]) -> None:
        self.stream = stream
        self.parts = parts


class Failure(Message):
    """Why a rank has nothing to send: the error is raised on this rank, the text is for
    the others."""

    __slots__ = ("error", "text")


def failure(error: Exception, text: str = "") -> Message:
    """Returns the message of a rank that has nothing to send."""
    message = Failure(b"", [])
    message.error = error
    message.text = text or str(error)
    return message


# These types have a length, but no elements that could be read or replaced by index.
NO_LISTS = (dict, set, frozenset, str, bytes, bytearray)


def length_of(
    call: Call, name: str, objects: Any, is_output: bool = False
) -> tuple[int, Message | None]:
    """Returns the length of argument `name`, or 0 and a failure if it is no list, or an
    output whose elements cannot be replaced."""
    if type(objects) is list:
        return len(objects), None
    if not isinstance(objects, NO_LISTS) and (
        not is_output or hasattr(objects, "__setitem__")
    ):
        try:
            return len(objects), None
        except TypeError:
            pass  # such as a generator
    kind = _name_of(objects)
    text = f"`{name}` must be a list, as in [object], but is of type {kind}"
    error = TypeError(f"{call.where()}: rank {call.rank}: {text}")
    return 0, failure(error, text)


def pack(
    call: Call,
    value: Any,
    stream: Any = None,
    parts: Any = None,
    error: Exception | None = None,
) -> Message:
    """Returns the message of `value`, or the failure.  The others are the outcome of
    pickling it; `parts` ends with None if that has met read-only memory."""
    try:
        if call.kind & SAFE:
            stream, parts = _encode(value)
        elif error is not None and parts and parts[-1] is None:
            stream, parts = _pickle_thawed(value)
        elif error is not None:
            raise error
    except Exception as error:
        is_safe = call.kind & SAFE
        text = str(error) if is_safe else _explain(call, value, error)
        kind = TypeError if is_safe else type(error)
        if isinstance(error, MemoryError):
            kind, text = MemoryError, text or "there is not enough memory to encode it"
        told = (kind if kind in PLAIN_ERRORS else PicklingError)(
            f"{call.where()}: rank {call.rank}: {text}"
        )
        told.__cause__ = error
        return failure(told, text)
    if parts:
        sizes = [part.nbytes for part in parts]
        stream = b"".join((stream, pack_numbers(f"<{len(sizes)}Q", *sizes)))
    return Message(stream, parts)


def _pickle_thawed(value: Any) -> tuple[Any, list[Any]]:
    import numpy as np

    parts: list[Any] = []

    def keep(buffer: PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes >= PART_LEAST:
            parts.append(view)
        return view.nbytes < PART_LEAST

    out = BytesIO()
    pickler = Pickler(out, PROTOCOL, buffer_callback=keep)
    pickler.dispatch_table = {**dispatch_table, np.ndarray: _reduce_thawed}
    pickler.dump(value)
    return out.getbuffer(), parts


def _reduce_thawed(array: np.ndarray) -> Any:
    import numpy as np

    is_plain = array.flags.writeable or array.dtype.hasobject
    return (array if is_plain else np.asarray(_Thawed(array))).__reduce_ex__(PROTOCOL)


class _Thawed:
    """The memory of a read-only array as that of a writable one, for pickling only."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        place, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (place, False)}


def _encode(value: Any) -> tuple[bytearray, list[Any]]:
    from .safe_codec import encode

    stream, buffers = encode(value, PART_LEAST)
    return stream, [memoryview(buffer) for buffer in buffers]


def _explain(call: Call, value: Any, error: Exception) -> str:
    """Returns which object cannot be pickled, and why.  `value` may be the list of
    objects."""
    culprit = f"an object of type {_name_of(value)}"
    for i, item in enumerate(value if call.sends_list() else []):
        try:
            dumps(item, PROTOCOL, buffer_callback=bool)
        except Exception:
            culprit = f"object {i}, of type {_name_of(item)},"
            break
    return f"{culprit} cannot be pickled: {type(error).__name__}{cause_of(error)}"


def cause_of(error: Exception) -> str:
    """Returns a colon and the text of the error, or nothing if that cannot be made.

    It must not raise, because the other ranks wait for the text.
    """
    try:
        return f": {error}"
    except Exception:
        return ""


def _name_of(value: Any) -> str:
    kind = type(value)
    is_plain = kind.__module__ == "builtins"
    return kind.__qualname__ if is_plain else f"{kind.__module__}.{kind.__qualname__}"


def load(stream: Any, buffers: list[Any], kind: int) -> Any:
    """Returns the value; raises whatever loading it raises."""
    if kind & SAFE or stream[0] != PICKLE:
        from .safe_codec import decode

        return decode(memoryview(stream)[: len(stream) - 8 * len(buffers)], buffers)
    return loads(stream, buffers=buffers) if buffers else loads(stream)


def part_sizes(stream: Any, count: int) -> tuple[int, ...]:
    """Returns the sizes of the parts that belong to the stream."""
    if not count:
        return ()
    return unpack_numbers(f"<{count}Q", stream, len(stream) - 8 * count)


def empty(size: int) -> np.ndarray:
    """Returns memory to receive into; a large one may reuse memory of an earlier
    receive."""
    import numpy as np

    if size < SPARE_LEAST:
        return np.empty(size, np.uint8)
    memory: Any = _C._SpareMemory(size)
    return np.frombuffer(memory, np.uint8)


def memory_of(part: Any) -> np.ndarray:
    """Returns the memory of a stream or part, to send from."""
    import numpy as np

    return np.frombuffer(part, np.uint8) if len(part) else empty(0)
