# SPDX-License-Identifier: BSD-3-Clause
"""A call on objects: who takes part, how objects travel, and the first exchange.

Each rank sends all others a header of 32 bytes, little-endian, and behind it its stream
if that has room: four letters with the version; a byte that says how objects are
encoded, whether only proved ranks may send pickles, and whether this rank has failed;
three zero bytes; how many objects; the size of the stream; its parts.  The stream of a
rank that has failed is the reason.  Collectives exchange them in C
(csrc/python/objects/object_blocks.c).

Loading a pickle runs code that its sender chose, so the sender has to be a rank of this
job.  A rank is proved if it runs as the same user on this host, or has proved the job's
token.
"""

from __future__ import annotations

import struct
from typing import Any
from weakref import WeakKeyDictionary

from .. import _C
from .._C import (
    _OBJECT_ROOM as ROOM,
    DistBackendError,
    ProcessGroup,
    _exchange_blocks,
    all_gather,
)
from .._environment import OBJECTS_VARIABLE, objects_setting
from ..groups.world import info_of, is_outside, world
from .object_message import SAFE, Message, empty, failure, memory_of

__all__ = [
    "ALL_GATHER",
    "BROADCAST",
    "ENTRY",
    "FAILED",
    "FULL",
    "GATHER",
    "MAGIC",
    "MESSAGE",
    "ROOM",
    "SAFE",
    "SCATTER",
    "Call",
    "Header",
    "begin",
    "block_of",
    "exchange",
    "lengths_differ",
    "modes_differ",
    "or_first",
    "root_of",
    "set_safe_objects",
]

# The operations of _exchange_blocks(), and a message from one rank to another.
BROADCAST, ALL_GATHER, GATHER, SCATTER = range(4)
MESSAGE = -1
HEAD = struct.Struct("<4sB3xQQQ")
MAGIC = b"DLO2"
FULL = HEAD.size + ROOM
# What the block of a scatter's source has room for besides, for each rank.
ENTRY = 16
# The bits of a call's kind, and of a header's; SAFE is 1.
FAILED, PROVED = 2, 4
# Objects go through the CPU backend, whose ranks have proved the token.
WITH_TOKEN = ("cpu", "gloo", "mpi", "nccl")
REMEDY = (
    "DISTLITE_OBJECTS=safe sends data only, and DISTLITE_OBJECTS=pickle is for "
    "networks on which everybody is trusted"
)

# The setting of each group that has one of its own.
_is_safe_in: WeakKeyDictionary[ProcessGroup, bool] = WeakKeyDictionary()
_has_warned = False


class Call:
    """One call on objects."""

    __slots__ = ("group", "kind", "name", "op", "rank", "refusal", "root", "size")

    group: ProcessGroup
    kind: int  # SAFE, PROVED or neither
    name: str
    op: int
    rank: int
    refusal: Message | None  # why this rank must not take part
    root: int  # in the group; -1: there is none
    size: int

    def where(self) -> str:
        """Returns the beginning of error texts."""
        return f"{self.name} in group {self.group.group_name}"

    def room(self) -> int:
        """Returns the bytes for streams in the largest block."""
        return ROOM + ENTRY * self.size if self.op == SCATTER else ROOM


def set_safe_objects(safe: bool | None, group: ProcessGroup | None = None) -> None:
    """Chooses whether the objects of a group are sent in safe mode.

    In safe mode only data can be sent: None, numbers, text, bytes, lists, tuples,
    dicts, sets, dates, NumPy arrays, and dataclasses that are registered with
    `register_safe_type`. Loading them runs no code. An argument `safe` of a call takes
    precedence.

    Args:
        safe: True or False; None follows DISTLITE_OBJECTS. All ranks must choose the
            same, otherwise their calls raise DistBackendError. With
            DISTLITE_OBJECTS=safe, calls in a group for which it is False raise
            ValueError.
        group: The group; None is the default group.

    Raises:
        ValueError: There is no default group.

    Example:
        >>> group = dist.new_group()
        >>> dist.set_safe_objects(True, group)
        >>> found = [None, None]
        >>> dist.all_gather_object(found, {"rank": rank}, group=group)
        >>> found
        [{'rank': 0}, {'rank': 1}]
    """
    where = world.require_default() if group is None else group
    if safe is None:
        _is_safe_in.pop(where, None)
    else:
        _is_safe_in[where] = bool(safe)


def begin(
    op: int,
    name: str,
    group: Any,
    root: tuple[int | None, int | None] | None,
    safe: bool | None,
) -> Call | None:
    """Returns the call's description; outside of the group it warns and returns None.
    `root` is (global rank, rank in the group)."""
    if group is None:
        group = world.require_default()
    elif is_outside(group):
        import warnings

        rank = world.default.rank() if world.default is not None else -1
        text = f"Running {name} on global rank {rank} which does not belong to the "
        warnings.warn(text + "given group.", stacklevel=3)
        return None
    elif not isinstance(group, ProcessGroup):
        info_of(group)  # raises
    call = Call()
    call.group = group
    call.kind = 0
    call.name = name
    call.op = op
    call.rank = group.rank()
    call.refusal = None
    call.size = group.size()
    call.root = -1 if root is None else root_of(call, *root)
    if safe is None and _is_safe_in:
        safe = _is_safe_in.get(group)
    setting = objects_setting()
    if safe or (safe is None and setting == "safe"):
        call.kind = SAFE
    elif setting != "pickle" and not (_has_warned and not setting):
        judge(call, setting)
    return call


def root_of(call: Call, rank: int | None, group_rank: int | None) -> int:
    """Returns the rank in the group; raises ValueError if it is not a member."""
    if rank is not None and group_rank is not None:
        raise ValueError("Can't specify both group_rank and global_rank")
    root = group_rank
    if rank is not None:
        root = rank
        info = None if call.group is world.default else world.groups.get(call.group)
        if info is not None:
            if rank not in info.ranks:
                raise ValueError(
                    f"Global rank {rank} is not part of group {call.group}"
                )
            root = info.ranks.index(rank)
    if root is None:
        raise ValueError("Must specify global_rank or group_rank")
    if not 0 <= root < call.size:
        raise ValueError(f"{call.where()}: rank {root} is not in it, of {call.size}")
    return root


def or_first(group: Any, rank: int | None, group_rank: int | None) -> Any:
    """Returns the given ranks or, without any, the default root: global rank 0, or the
    first rank of a group without it."""
    if rank is None and group_rank is None:
        info = None if group is None or is_outside(group) else world.groups.get(group)
        return (None, 0) if info is None or 0 not in info.ranks else (0, None)
    return rank, group_rank


def judge(call: Call, setting: str) -> None:
    """Refuses a call with pickles, or warns, where they may not travel; the caller
    tells the other ranks."""
    global _has_warned
    if setting == "safe":
        call.kind = SAFE
        call.refusal = failure(
            ValueError(
                f"{call.where()}: {OBJECTS_VARIABLE}=safe allows no pickle, which "
                "this call or set_safe_objects(False) asks for"
            )
        )
        return
    if setting == "proved":
        call.kind = PROVED
    peer = call.root if call.op == MESSAGE else -1
    if call.group._is_proved(peer):
        return
    if setting == "proved":
        text = f"{OBJECTS_VARIABLE}=proved refuses pickles: {_reason(call, peer)}"
        call.refusal = failure(DistBackendError(f"{call.where()}: {text}"), text)
    elif peer >= 0 or call.rank == 0:
        # Of a collective's ranks only rank 0 warns, whose log is usually read.
        _has_warned = True
        _C._log_warning(
            f"{call.where()}: {_reason(call, peer)}, and loading a pickle runs code "
            f"that its sender chose; {REMEDY}"
        )


def _reason(call: Call, peer: int) -> str:
    backend = call.group.name()
    if backend not in WITH_TOKEN and ":" not in backend:
        return f"backend {backend} cannot prove that a rank is one of this job"
    who = "the ranks on other hosts" if peer < 0 else f"rank {peer} on another host"
    return (
        f"nothing proves that {who} {'are' if peer < 0 else 'is'} of this job: set "
        "DISTLITE_TOKEN on all of its processes"
    )


class Header:
    """The fields of a block that has been received."""

    __slots__ = ("body", "count", "kind", "magic", "parts", "size")

    def __init__(self, block: bytes) -> None:
        self.magic, self.kind, self.count, self.size, self.parts = HEAD.unpack_from(
            block
        )
        self.body = memoryview(block)[HEAD.size :]

    def stream(self) -> memoryview | None:
        """Returns the stream; None if it had no room in the block."""
        return self.body[: self.size] if self.size <= len(self.body) else None

    def text(self) -> str:
        """Returns why the header's rank failed."""
        text = bytes(self.body).rstrip(b"\0").decode(errors="replace")
        return text or "it failed; see its own error"


def block_of(call: Call, message: Message, count: int) -> bytes:
    """Returns this rank's header, and its stream if that has room."""
    kind, stream = call.kind, message.stream
    size, room = len(stream), call.room()
    if message.error is not None:
        kind |= FAILED
        if call.op in (BROADCAST, SCATTER) and call.rank != call.root:
            room = 0
        text = message.text.encode(errors="replace")
        stream = text if len(text) <= room else text[: max(room - 3, 0)] + b"..."[:room]
    elif size > room:
        stream = b""
    head = HEAD.pack(MAGIC, kind, count, size, len(message.parts))
    return b"".join((head, stream))


def exchange(call: Call, message: Message, count: int = 1) -> tuple[bool, list[Any]]:
    """Returns True and the streams of all ranks, if they had room in the blocks;
    otherwise False and the headers of all ranks, which agree.

    If not all ranks agree on how objects travel, and on the number in a broadcast, it
    raises on every rank: this rank's own error, or one that names the ranks that failed
    or differ.
    """
    message = call.refusal or message
    own = block_of(call, message, count)
    try:
        is_complete, found = _exchange_blocks(call.group, call.op, call.root, own)
    except NotImplementedError:
        is_complete, found = False, exchange_arrays(call, own)
    return is_complete, found if is_complete else headers_of(call, message, found)


def exchange_arrays(call: Call, own: bytes) -> list[bytes]:
    """Exchanges the blocks in a group that has only the operations of the public
    functions."""
    blocks = [empty(HEAD.size + call.room()) for _ in range(call.size)]
    blocks[call.rank][:] = 0
    blocks[call.rank][: len(own)] = memory_of(own)
    all_gather(blocks, blocks[call.rank].copy(), call.group)
    return [block.tobytes() for block in blocks]


def headers_of(call: Call, message: Message, blocks: list[bytes]) -> list[Header]:
    """Reads the blocks; raises unless all ranks take part, in the same way."""
    headers = [Header(block) for block in blocks]
    if any(header.magic != MAGIC for header in headers):
        raise DistBackendError(f"{call.where()}: ranks have different versions")
    if text := modes_differ({rank: each.kind for rank, each in enumerate(headers)}):
        raise DistBackendError(f"{call.where()}: {text}")
    if message.error is not None:
        raise message.error
    for rank, header in enumerate(headers):
        if header.kind & FAILED:
            raise DistBackendError(f"{call.where()}: rank {rank}: {header.text()}")
    if call.op == BROADCAST and len({header.count for header in headers}) > 1:
        text = lengths_differ({rank: each.count for rank, each in enumerate(headers)})
        raise DistBackendError(f"{call.where()}: {text}")
    return headers


def lengths_differ(lengths: dict[int, int]) -> str:
    """Returns the text for lists of different lengths, by rank."""
    each = ", ".join(f"rank {rank} {length}" for rank, length in lengths.items())
    return f"ranks' lists have different lengths: {each}"


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
