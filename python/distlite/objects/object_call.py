# SPDX-License-Identifier: BSD-3-Clause
"""A call on objects: who takes part, how objects travel, and the first exchange.

A rank sends a header of 32 bytes, little-endian, and behind it its stream if that has
room: four letters with the version; a byte that says how objects are encoded, whether
only proved ranks may send pickles, and whether this rank has failed; three zero bytes;
how many objects; the size of the stream; its parts (for a scatter see
object_collectives.py).  The stream of a rank that has failed is the reason.  What is
small is packed, moved and loaded in C (csrc/python/objects/object_call.c).  Small plain
values are data even without safe mode: the first byte of a stream tells whether it is a
pickle.

Loading a pickle runs code that its sender chose, so the sender has to be a rank of this
job.  A rank is proved if it runs as the same user on this host, or has proved the job's
token.
"""

from __future__ import annotations

import struct
from operator import index
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from .. import _C
from .._C import (
    _OBJECT_ROOM as ROOM,
    _OBJECT_TAG as TAG,
    DistBackendError,
    ProcessGroup,
    _ObjectCall,
    all_gather,
    broadcast,
    recv,
    send,
)
from .._environment import OBJECTS_VARIABLE, objects_setting
from ..groups.world import info_of, is_outside, world
from .object_message import (
    SAFE,
    Message,
    cause_of,
    empty,
    failure,
    load,
    memory_of,
    pack,
)

# As csrc/python/objects/object_call.c numbers them; messages are between two ranks.
BROADCAST, ALL_GATHER, GATHER, SCATTER, SEND, RECV = range(6)
MESSAGES = SEND, RECV
HEAD = struct.Struct("<4sB3xQQQ")
MAGIC = b"DLO3"
FULL = HEAD.size + ROOM
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
_latest_choice = object()  # another one after each change of these
_has_warned = False


class Call(_ObjectCall):
    """One call on objects.

    Its `root` is a rank in the group, -1 without one; `refusal` is why this rank must
    not take part; `kind` is SAFE, PROVED or neither. C calls the last five methods, for
    what it leaves to them."""

    __slots__ = ()

    def where(self) -> str:
        """Returns the beginning of error texts."""
        return f"{self.name} in group {self.group.group_name}"

    def hears_all(self) -> bool:
        """Returns whether this rank gets blocks of all ranks, not only one."""
        is_taker = self.op == GATHER and self.rank == self.root
        return self.op == ALL_GATHER or is_taker

    def sends_list(self) -> bool:
        """Returns whether the objects of a rank are in a list, as one object."""
        return self.op in (BROADCAST, SEND)

    def pack(self, value: Any, stream: Any, parts: Any, error: Any) -> Message | bytes:
        """Returns the message of an object that is no pickle alone, as a stream if that
        is enough."""
        message = pack(self, value, stream, parts, error)
        is_more = message.error is not None or message.parts
        is_stream = not is_more and len(message.stream) <= ROOM
        return bytes(message.stream) if is_stream else message

    def block(self, sent: Any, count: int) -> bytes:
        """Returns this rank's block, or those of all ranks in a scatter."""
        is_source = self.op == SCATTER and self.rank == self.root
        if not is_source:
            return block_of(self, message_of(sent), count)
        messages = messages_of(sent) if type(sent) is list else [sent]
        return blocks_to_scatter(self, messages)

    def move(self, block: bytes) -> bytes:
        """Moves blocks as arrays."""
        return b"".join(moved_as_arrays(self, block))

    def load(self, stream: bytes) -> Any:
        """Loads an object in safe mode."""
        return load(stream, [], self.kind)

    def cannot_load(self, source: int, error: Exception) -> NoReturn:
        """Raises for an object that cannot be loaded.  All ranks have their data by
        now, so this does not affect the group."""
        raise DistBackendError(
            f"{self.where()}: the object from rank {source} cannot be loaded on rank "
            f"{self.rank}: {type(error).__name__}{cause_of(error)}"
        ) from error


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
    global _latest_choice
    where = world.require_default() if group is None else group
    if safe is None:
        _is_safe_in.pop(where, None)
    else:
        _is_safe_in[where] = bool(safe)
    _latest_choice = object()
    _C._forget_calls(where)


def begin_call(
    op: int,
    name: str,
    group: Any,
    root: tuple[int | None, int | None] | None,
    safe: bool | None,
) -> Call | None:
    """Returns the call's description, which is kept for the next call with the same
    arguments, where _kept_call() finds it; outside of the group it warns and returns
    None.  `root` is (global rank, rank in the group); without either, a collective has
    the default root."""
    if root is not None:
        src, group_src = (None if each is None else index(each) for each in root)
        root = src, group_src
        # Of ranks that were of another type, such as NumPy's.
        kept: Call | None = _C._kept_call(op, group, *root, safe)
        if kept is not None:
            return kept
    choice = _latest_choice
    call = begin_anew(op, name, group, root, safe)
    if call is not None and call.refusal is None and call.group in world.groups:
        call.keep(group, *(root or (None, None)), safe)
        # Another thread may have changed the mode, or left the group, meanwhile.
        if _latest_choice is not choice or call.group not in world.groups:
            _C._forget_calls(call.group)
    return call


def begin_anew(
    op: int,
    name: str,
    group: Any,
    root: tuple[int | None, int | None] | None,
    safe: bool | None,
) -> Call | None:
    """As begin_call(); the description is not kept."""
    if group is None:
        group = world.require_default()
    elif is_outside(group):
        import warnings

        rank = world.default.rank() if world.default is not None else -1
        text = f"Running {name} on global rank {rank} which does not belong to the "
        warnings.warn(text + "given group.", stacklevel=4)
        return None
    elif not isinstance(group, ProcessGroup):
        info_of(group)  # raises
    call = Call()
    call.group = group
    call.name = name
    call.op = op
    call.rank = group.rank()
    call.size = group.size()
    if root is not None and op not in MESSAGES:
        root = or_first(group, *root)
    call.root = -1 if root is None else root_of(call, *root)
    if safe is None and _is_safe_in:
        safe = _is_safe_in.get(group)
    setting = objects_setting()
    if safe or (safe is None and setting == "safe"):
        call.kind = SAFE
    elif setting != "pickle" and not (_has_warned and not setting):
        check_pickles(call, setting)
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


def check_pickles(call: Call, setting: str) -> None:
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
    peer = call.root if call.op in MESSAGES else -1
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


def block_of(call: Call, message: Message, count: int, parts: int = -1) -> bytes:
    """Returns a rank's header, and its stream if that has room.  `parts` is the
    message's number of them, unless it is given: then the stream follows if it is not
    0."""
    kind, stream = call.kind, message.stream
    size = len(stream)
    if message.error is not None:
        kind |= FAILED
        text = message.text.encode(errors="replace")
        stream = text if len(text) <= ROOM else text[: ROOM - 3] + b"..."
    elif size > ROOM or parts > 0:
        stream = b""
    head = HEAD.pack(
        MAGIC, kind, count, size, len(message.parts) if parts < 0 else parts
    )
    return b"".join((head, stream))


def message_of(sent: Any) -> Message:
    """Returns the message of what may be a stream alone, or None."""
    return sent if isinstance(sent, Message) else Message(sent or b"", [])


def messages_of(sent: list[Any]) -> list[Message]:
    """Returns the messages of a scatter, or one of them that is a failure."""
    messages = [message_of(each) for each in sent]
    failed = [each for each in messages if each.error is not None]
    return failed[:1] or messages


def blocks_to_scatter(call: Call, messages: list[Message]) -> bytes:
    """Returns the blocks that a scatter's source sends; all ranks get a failure."""
    if messages[0].error is not None:
        messages = messages[:1] * call.size
    parts = 1 + max(len(message.parts) for message in messages)
    if parts == 1 and all(len(message.stream) <= ROOM for message in messages):
        parts = 0
    blocks = [block_of(call, each, len(each.parts), parts) for each in messages]
    return b"".join([block.ljust(FULL, b"\0") for block in blocks])


def moved_as_arrays(call: Call, block: bytes) -> list[bytes]:
    """Moves blocks by the public operations, which are all that a group has that is
    written in Python."""
    if call.op == SEND:
        send(memory_of(block), group=call.group, tag=TAG, group_dst=call.root)
        return []
    is_scatter = call.op == SCATTER
    memory = empty(FULL * call.size if is_scatter else FULL)
    memory[:] = 0
    if call.op == RECV:
        recv(memory, group=call.group, tag=TAG, group_src=call.root)
        return [memory.tobytes()]
    memory[: len(block)] = memory_of(block)
    if call.op == BROADCAST or is_scatter:
        broadcast(memory, group=call.group, group_src=call.root)
        start = call.rank * FULL if is_scatter else 0
        return [memory[start : start + FULL].tobytes()]
    blocks = [empty(FULL) for _ in range(call.size)]
    all_gather(blocks, memory, call.group)
    return [each.tobytes() for each in (blocks if call.hears_all() else [memory])]


def headers_of(
    call: Call, message: Message, count: int, blocks: list[bytes]
) -> list[Header]:
    """Reads the blocks; raises unless their ranks and this one call it in the same way.
    Ranks that do not wait for this one learn it from their next operation."""
    headers = [Header(block) for block in blocks]
    source = call.rank if call.op == GATHER else call.root
    ranks = range(call.size) if call.hears_all() else [source]
    kinds = {rank: each.kind for rank, each in zip(ranks, headers, strict=True)}
    text = modes_differ(kinds | {call.rank: call.kind})
    has_failed = message.error is not None or headers[0].kind & FAILED
    if not all(any(header.magic) for header in headers):
        raise DistBackendError(f"{call.where()}: the backend moves no data")
    if any(header.magic != MAGIC for header in headers):
        text = "ranks have different versions"
    elif call.op == BROADCAST and not text and not has_failed:
        lengths = {call.root: headers[0].count, call.rank: count}
        text = lengths_differ(lengths) if headers[0].count != count else ""
    if text:
        if call.op != ALL_GATHER:
            call.group._abort(f"{call.where()}: {text}")
        raise DistBackendError(f"{call.where()}: {text}")
    return headers


def raise_failure(call: Call, message: Message, headers: list[Header]) -> None:
    """Raises this rank's own error, or one that names a rank that failed."""
    if message.error is not None:
        raise message.error
    for i, header in enumerate(headers):
        if header.kind & FAILED:
            rank = i if call.hears_all() else call.root
            raise DistBackendError(f"{call.where()}: rank {rank}: {header.text()}")


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
