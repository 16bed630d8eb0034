# SPDX-License-Identifier: BSD-3-Clause
"""The headers that ranks exchange before objects are moved.

A header is 32 bytes, little-endian, and a body: four letters with the version; a byte
that says how objects are encoded, whether only proved ranks may send pickles, and
whether this rank has failed; three zero bytes;
how many objects; the size of the stream; its parts.  The body is the whole stream if
that has room, or the text of the failure.
"""

from __future__ import annotations

import struct
from typing import NoReturn

from .._C import DistBackendError, ProcessGroup, _exchange_headers, all_gather
from .object_message import Message, empty, memory_of

__all__ = [
    "COUNT_END",
    "FAILED",
    "FULL",
    "HEAD",
    "KIND_END",
    "MAGIC",
    "PROVED",
    "ROOM",
    "SAFE",
    "Call",
    "Header",
    "exchange",
    "header_of",
    "modes_differ",
    "stream_on",
]

# The largest body in bytes; sending it costs about as much as sending none.
ROOM = 480
HEAD = struct.Struct("<4sB3xQQQ")
SIZES = struct.Struct("<QQ")
MAGIC = b"DLO1"
FULL = HEAD.size + ROOM
SAFE, FAILED, PROVED = 1, 2, 4
# Bytes at the beginning that must be the same in all headers: the magic and the kind,
# and for lists also the length.
KIND_END, COUNT_END = 8, 16


class Call:
    """One collective on objects: who takes part, and how."""

    __slots__ = ("group", "kind", "name", "op", "rank", "refusal", "root", "size")

    def __init__(self, op: int, name: str, group: ProcessGroup, root: int) -> None:
        self.op = op  # of _exchange_headers(); -1: a message
        self.name = name
        self.group = group
        self.rank = group.rank()
        self.size = group.size()
        self.root = root  # in the group; -1: there is none
        self.kind = 0  # SAFE, PROVED or neither
        self.refusal: Message | None = None  # why this rank must not take part

    @property
    def is_safe(self) -> bool:
        return self.kind == SAFE

    def where(self) -> str:
        """Returns the beginning of error texts."""
        return f"{self.name} in group {self.group.group_name}"


class Header:
    """The fields of a header that has been received."""

    __slots__ = ("body", "count", "kind", "magic", "parts", "size")

    def __init__(self, header: bytes) -> None:
        self.magic, self.kind, self.count, self.size, self.parts = HEAD.unpack_from(
            header
        )
        self.body = memoryview(header)[HEAD.size :]

    def text(self) -> str:
        """Returns why the header's rank failed."""
        text = bytes(self.body).rstrip(b"\0").decode(errors="replace")
        return text or "it failed; see its own error"


def stream_on(header: bytes) -> memoryview | None:
    """Returns the stream; None if it did not fit in the header, or if parts follow."""
    size, parts = SIZES.unpack_from(header, COUNT_END)
    if size > ROOM or parts:
        return None
    return memoryview(header)[HEAD.size : HEAD.size + size]


def header_of(kind: int, message: Message, count: int, room: int) -> bytes:
    """Returns the bytes of a header whose body has `room` bytes."""
    size = len(message.stream)
    body = message.stream if size <= room else b""
    if message.error is not None:
        kind |= FAILED
        text = message.text.encode(errors="replace")
        body = text if len(text) <= room else text[: max(room - 3, 0)] + b"..."[:room]
    return HEAD.pack(MAGIC, kind, count, size, len(message.parts)) + body


def exchange(
    call: Call, message: Message, own: bytes, sizes: tuple[int, int], end: int
) -> list[bytes]:
    """Returns the headers of all ranks, of which the root's takes sizes[1] bytes.

    If not all headers agree in their first `end` bytes, it raises on every rank: this
    rank's own error, or one that names the ranks that failed or differ.
    """
    try:
        is_agreed, headers = _exchange_headers(
            call.group, call.op, call.root, own, *sizes, end
        )
    except NotImplementedError:
        headers = exchange_arrays(call, own, sizes)
        is_agreed = all(header[:end] == own[:end] for header in headers)
    if message.error is not None or not is_agreed:
        disagree(call, message, headers)
    return headers


def exchange_arrays(call: Call, own: bytes, sizes: tuple[int, int]) -> list[bytes]:
    """Exchanges the headers in a group that has only the operations of the public
    functions."""
    headers = [
        empty(sizes[call.root < 0 or rank == call.root]) for rank in range(call.size)
    ]
    headers[call.rank][:] = 0
    headers[call.rank][: len(own)] = memory_of(own)
    all_gather(headers, headers[call.rank].copy(), call.group)
    return [header.tobytes() for header in headers]


def disagree(call: Call, message: Message, headers: list[bytes]) -> NoReturn:
    """Raises the reason why the headers do not agree."""
    read = [Header(header) for header in headers]
    if any(header.magic != MAGIC for header in read):
        raise DistBackendError(f"{call.where()}: ranks have different versions")
    check_modes(call, {rank: header.kind for rank, header in enumerate(read)})
    if message.error is not None:
        raise message.error
    for rank, header in enumerate(read):
        if header.kind & FAILED:
            raise DistBackendError(f"{call.where()}: rank {rank}: {header.text()}")
    lengths = ", ".join(
        f"rank {rank} {header.count}" for rank, header in enumerate(read)
    )
    raise DistBackendError(
        f"{call.where()}: ranks' lists have different lengths: {lengths}"
    )


def check_modes(call: Call, kinds: dict[int, int]) -> None:
    """Raises unless all ranks choose the same way for objects to travel."""
    if text := modes_differ(kinds):
        raise DistBackendError(f"{call.where()}: {text}")


def modes_differ(kinds: dict[int, int]) -> str:
    """Returns how the ranks' choices differ; empty if they do not."""
    for flag, text in (
        (SAFE, "safe mode: it is on at rank {on}, and off at rank {off}"),
        (PROVED, "DISTLITE_OBJECTS: it is proved at rank {on}, and not at rank {off}"),
    ):
        on = [str(rank) for rank, kind in kinds.items() if kind & flag]
        off = [str(rank) for rank, kind in kinds.items() if not kind & flag]
        if on and off:
            text = text.format(on=", ".join(on), off=", ".join(off))
            return f"ranks do not agree on {text}"
    return ""
