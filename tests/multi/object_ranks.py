# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of collectives of objects."""

from __future__ import annotations

import _thread
import os
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from threading import Thread
from typing import Any

import numpy as np
from group_ranks import init
from p2p_ranks import failure_of

import distlite
from distlite.objects import object_collectives

# A part of its own, several rounds of a slot, and odd.
LARGE = 300_001


@distlite.register_safe_type
@dataclass
class Point:
    x: Any


class Picky:
    """Loads nowhere but on rank 0."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __reduce__(self) -> Any:
        return _load_picky, (self.rank,)


def _load_picky(rank: int) -> None:
    if distlite.get_rank() != rank:
        raise LookupError("not here")


def contents(rank: int) -> list[Any]:
    """Small, a long stream, arrays beside it, and all of them: other for each rank."""
    frozen = np.arange(20 + rank)
    frozen.flags.writeable = False
    large = np.arange(LARGE * rank, dtype="f4")
    return [
        {"rank": rank, "none": None},
        "x" * (700 * rank),
        [large, {"y": large[: 40_000 + rank], "bytes": bytes(100_000 * rank)}],
        [frozen, np.ones((300, 200), order="F")[:, ::2], Point(np.float32(rank))],
    ]


def is_same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray):
        is_equal = left.dtype == right.dtype and np.array_equal(left, right)
        return bool(is_equal and left.flags.writeable and left is not right)
    if isinstance(left, Point):
        return is_same(left.x, right.x)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(
            is_same(left[key], right[key]) for key in left
        )
    if isinstance(left, list):
        return len(left) == len(right) and all(map(is_same, left, right))
    return bool(type(left) is type(right) and left == right)


def move_all(rank: int, world_size: int, init_method: str) -> list[str]:
    """The names of what went wrong."""
    init(rank, world_size, init_method)
    wrong = []
    for safe in (False, True):
        distlite.set_safe_objects(safe)
        for root in {0, world_size - 1}:
            for item in range(4):
                wrong += move_one(rank, world_size, root, item)
        wrong += whole_lists(rank, world_size)
        if world_size > 1:
            wrong += messages(rank, world_size)
    distlite.destroy_process_group()
    return wrong


def move_by_arrays(rank: int, world_size: int, init_method: str) -> list[str]:
    """As in a group that is written in Python and has no headers of its own."""
    import distlite.objects.object_call as object_call

    begin = object_call.begin_anew

    def in_python(*arguments: Any) -> Any:
        call = begin(*arguments)
        call.in_python = True
        return call

    object_call.begin_anew = in_python
    return move_all(rank, world_size, init_method)


def move_one(rank: int, world_size: int, root: int, item: int) -> list[str]:
    wrong = []
    everything = [contents(each)[item] for each in range(world_size)]
    own = contents(rank)[item]
    got: list[Any] = [None] * world_size + ["tail"]
    distlite.all_gather_object(got, own)
    if not is_same(got[:-1], everything) or got[-1] != "tail":
        wrong.append(f"all_gather_object {item}")
    got = [None] * world_size
    distlite.gather_object(own, got if rank == root else None, dst=root)
    if rank == root and not is_same(got, everything):
        wrong.append(f"gather_object {item}")
    inputs = everything if rank == root else None
    got = [None, "tail"]
    distlite.scatter_object_list(got, inputs, group_src=root)
    if not is_same(got[0], own) or got[1] != "tail":
        wrong.append(f"scatter_object_list {item}")
    return wrong


def whole_lists(rank: int, world_size: int) -> list[str]:
    wrong = []
    for root in range(world_size):
        sent = contents(root + 1)
        got = sent if rank == root else [None] * 4
        distlite.broadcast_object_list(got, root, device="cpu")
        if got is not sent and not is_same(got, contents(root + 1)):
            wrong.append(f"broadcast_object_list from {root}")
    empty: list[Any] = []
    distlite.broadcast_object_list(empty)
    return wrong


def messages(rank: int, world_size: int) -> list[str]:
    """Round the ring, while arrays of the same ranks are on their way."""
    after, before = (rank + 1) % world_size, (rank - 1) % world_size
    got: list[Any] = [None] * 4
    work = distlite.isend(np.array([rank]), after)
    for sender in range(world_size):
        if sender == rank:
            distlite.send_object_list(contents(rank), after, use_batch=True)
        if sender == before:
            assert distlite.recv_object_list(got, group_src=before) == before
    distlite.recv(np.zeros(1, np.int64), before)
    work.wait()
    return [] if is_same(got, contents(before)) else ["recv_object_list"]


def crossing(
    rank: int, world_size: int, init_method: str, places: list[str]
) -> list[Any]:
    """Every rank sends before it receives, then while it receives, and leaves."""
    os.environ["DISTLITE_HOST_HINT"] = places[rank]
    init(rank, world_size, init_method)
    got: list[Any] = []
    if len({*places}) == 1:
        for peer in range(world_size):
            for i in range(2) if peer != rank else ():
                distlite.send_object_list([rank, "first", i], peer)
        for peer in range(world_size):
            for _ in range(2) if peer != rank else ():
                got.append(taken_from(peer))
    sender = Thread(target=send_large, args=(rank, world_size))
    sender.start()
    work = distlite.isend(np.array([rank]), (rank + 1) % world_size)
    for peer in range(world_size):
        if peer != rank:
            got += [taken_from(peer)[0], np.sum(taken_from(peer)[1])]
    array = np.zeros(1, np.int64)
    distlite.recv(array)
    got.append(array.item())
    work.wait()
    sender.join()
    distlite.barrier()
    distlite.destroy_process_group()
    return got


def taken_from(peer: int) -> list[Any]:
    taken = [None] * 3
    distlite.recv_object_list(taken, peer)
    return taken


def send_large(rank: int, world_size: int) -> None:
    for peer in range(world_size):
        if peer != rank:
            distlite.send_object_list([rank, "x" * 1_000_000, 0], peer)
            distlite.send_object_list([rank, np.full(LARGE, rank), 1], peer)


class Speechless(LookupError):
    """An object that cannot be pickled, for a reason that has no text."""

    def __reduce__(self) -> Any:
        raise self

    def __str__(self) -> str:
        raise ZeroDivisionError


def failures(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    """Of calls that fail on every rank, or on one; between them the group works."""
    init(rank, world_size, init_method)
    is_last = rank == world_size - 1
    none = [None] * world_size
    bad = [1, {"x": (len, lambda: 0)}]
    calls = {
        "broadcast": lambda: distlite.broadcast_object_list(
            bad if is_last else [0, 0], 1
        ),
        "broadcast safe": lambda: distlite.broadcast_object_list(
            bad if is_last else [0, 0], 1, safe=True
        ),
        "all_gather": lambda: distlite.all_gather_object(none, bad if is_last else 1),
        "gather": lambda: distlite.gather_object(
            bad if is_last else 1, none if rank == 0 else None
        ),
        "scatter": lambda: distlite.scatter_object_list(
            [0], [1, bad] if is_last else None, 1
        ),
        "modes": lambda: distlite.all_gather_object(none, 1, safe=is_last),
        "gather list": lambda: distlite.gather_object(1, none if is_last else None),
        "scatter list": lambda: distlite.scatter_object_list([0], None),
        "scatter count": lambda: distlite.scatter_object_list([0], [1] * 3),
        "scatter output": lambda: distlite.scatter_object_list(
            [] if is_last else [0], none
        ),
        "no list": lambda: distlite.broadcast_object_list(None if is_last else [1]),
        "no list at the source": lambda: distlite.broadcast_object_list(
            [1] if is_last else None
        ),
        "a dict to fill": lambda: distlite.broadcast_object_list(
            {0: 1} if is_last else [1]
        ),
        "a dict at the source": lambda: distlite.broadcast_object_list(
            [1] if is_last else {"key": 1}
        ),
        "a tuple to fill": lambda: distlite.broadcast_object_list(
            (1,) if is_last else [1]
        ),
        "a tuple at the source": lambda: distlite.broadcast_object_list(
            [1] if is_last else (1,)
        ),
        "a tuple of all": lambda: distlite.all_gather_object(
            tuple(none) if is_last else none, 1
        ),
        "a tuple to gather": lambda: distlite.gather_object(
            1, None if is_last else tuple(none)
        ),
        "no list to scatter": lambda: distlite.scatter_object_list(
            [0], (i for i in none)
        ),
        "no list to gather": lambda: distlite.gather_object(
            1, None if is_last else True
        ),
        "an array as list": lambda: distlite.gather_object(
            1, None if is_last else np.empty(world_size, object)
        ),
        "no list of all": lambda: distlite.all_gather_object(
            None if is_last else none, 1
        ),
        "speechless": lambda: distlite.all_gather_object(
            none, Speechless() if is_last else 1
        ),
        "short": lambda: distlite.all_gather_object([] if is_last else none, 1),
        "load": lambda: distlite.broadcast_object_list(
            [Picky(0)] if rank == 0 else [0]
        ),
        "load all": lambda: distlite.all_gather_object(none, Picky(rank)),
        "other": lambda: (
            distlite.all_gather_object(none, 1)
            if is_last
            else distlite.gather_object(1, none)
        ),
    }
    got = {}
    for name, call in calls.items():
        if name == "other":
            continue
        got[name] = failure_of(call)
        distlite.all_gather_object(list(none), name)
    got["root"] = failure_of(lambda: distlite.broadcast_object_list([1], 9))
    got["other"] = failure_of(calls["other"])
    distlite.destroy_process_group()
    return got


def mismatches(
    rank: int, world_size: int, init_method: str, case: str, places: list[str]
) -> list[tuple[str, str]]:
    """Of a call that the last rank makes otherwise, and of the next one."""
    os.environ["DISTLITE_HOST_HINT"] = places[rank]
    init(rank, world_size, init_method)
    is_root, is_last = rank == 0, rank == world_size - 1
    safe = is_last and case != "lengths"
    slots = [1] * world_size if is_root else None
    calls = {
        "lengths": lambda: distlite.broadcast_object_list([1] * (1 + is_last)),
        "broadcast": lambda: distlite.broadcast_object_list([1], safe=safe),
        "scatter": lambda: distlite.scatter_object_list([0], slots, safe=safe),
        "gather": lambda: distlite.gather_object(1, slots, safe=safe),
    }
    got = [failure_of(call)[:2] for call in (calls[case], distlite.barrier)]
    distlite.destroy_process_group()
    return got


def going_on(rank: int, world_size: int, init_method: str, places: list[str]) -> Any:
    """Ranks that wait for no object end their calls before the others begin."""
    os.environ["DISTLITE_HOST_HINT"] = places[rank]
    init(rank, world_size, init_method)
    distlite.barrier()  # between hosts, the first of 64 operations waits for all
    is_root = rank == 0
    peers = range(1, world_size) if is_root else [0]
    sent, own, slots = ["settings"] if is_root else [None], [None], [None] * world_size

    def spread() -> None:
        distlite.broadcast_object_list(sent)
        distlite.scatter_object_list(own, [[i] for i in range(world_size)])

    def collect() -> None:
        distlite.gather_object({"rank": rank}, slots if is_root else None)

    def signal() -> None:
        for peer in peers:
            distlite.send_object_list(["go on"], peer)

    def await_signal() -> None:
        for peer in peers:
            distlite.recv_object_list([None], peer)

    for step in (
        (spread, signal, await_signal, collect)
        if is_root
        else (await_signal, spread, collect, signal)
    ):
        step()
    distlite.destroy_process_group()
    return sent, own, slots if is_root else None


def late_rest(
    rank: int, world_size: int, init_method: str, places: list[str]
) -> list[str]:
    """Rank 1 stalls between its block of a gather and what had no room there."""
    os.environ["DISTLITE_HOST_HINT"] = places[rank]
    init(rank, world_size, init_method, seconds=20)
    distlite.barrier()
    if rank == 1:
        rest = object_collectives._RESTS[object_collectives.GATHER]

        def stall(*arguments: Any) -> Any:
            store.wait(["given up"])
            return rest(*arguments)

        object_collectives._RESTS[object_collectives.GATHER] = stall
    store = distlite.group.WORLD.get_group_store()
    if rank == 0:
        distlite.group.WORLD.set_timeout(timedelta(milliseconds=300))
    said = []
    for step in range(2):
        slots = [None] * world_size if rank == 0 else None
        call = partial(distlite.gather_object, [step] * 5000, slots)
        said.append(failure_of(call)[1])
        if rank == 0 and step == 0:
            store.set("given up", "")
    return said


def failing_beside_large(
    rank: int, world_size: int, init_method: str, places: list[str]
) -> tuple[list[str], list[Any]]:
    """Rank 1 fails, while data of others have no room in the blocks."""
    os.environ["DISTLITE_HOST_HINT"] = places[rank]
    init(rank, world_size, init_method)
    own: Any = [np.full(LARGE, rank), "x" * LARGE]
    slots = [None] * world_size if rank == 0 else None
    calls = [
        lambda: distlite.gather_object((lambda: 0) if rank == 1 else own, slots),
        lambda: distlite.broadcast_object_list((1,) if rank == 1 else [own]),
        lambda: distlite.scatter_object_list(
            [] if rank == 1 else [0], [own] * world_size if rank == 0 else None
        ),
    ]
    kinds = [failure_of(call)[0] for call in calls]
    after = [None] * world_size
    distlite.all_gather_object(after, rank)
    distlite.destroy_process_group()
    return kinds, after


def message_failures(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    init(rank, world_size, init_method)
    got = {}
    lines = "x" * LARGE
    cases: dict[str, tuple[Any, Any, bool | None]] = {
        "unpicklable": ([1, lambda: 0], [0, 0], None),
        "lengths": ([1, lines, np.arange(LARGE)], [0], None),
        "modes": ([lines], [0], True),
        "load": ([Picky(0)], [0], None),
        "no list to send": (None, [0], None),
    }
    for name, (sent, taken, safe) in cases.items():
        call = partial(distlite.send_object_list, sent, 1)
        if rank == 1:
            call = partial(distlite.recv_object_list, taken, 0, safe=safe)
        got[name] = failure_of(call)
    for name, wrong in ("no list", None), ("a string", "a"):
        if rank == 1:
            got[name] = failure_of(partial(distlite.recv_object_list, wrong, 0))
    left = [2]
    if rank == 0:
        distlite.send_object_list(left, 1)
    else:
        distlite.recv_object_list(left, 0)
        assert left == [2]
    got["self"] = failure_of(lambda: distlite.send_object_list([1], rank))
    got["self recv"] = failure_of(lambda: distlite.recv_object_list([1], rank))
    got["nobody"] = failure_of(lambda: distlite.send_object_list([1]))
    got["anybody"] = failure_of(lambda: distlite.recv_object_list([1]))
    got["both"] = failure_of(lambda: distlite.recv_object_list([1], 0, group_src=0))
    distlite.barrier()
    distlite.destroy_process_group()
    return got


def in_groups(rank: int, world_size: int, init_method: str) -> list[Any]:
    """What members and others get of a group of global ranks 2 and 1."""
    init(rank, world_size, init_method)
    group = distlite.new_group([2, 1], sort_ranks=False)
    got: list[Any] = [None, None]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        distlite.all_gather_object(got, rank, group)
        one = [rank]
        distlite.broadcast_object_list(one, 1, group)
        two = [rank]
        distlite.broadcast_object_list(two, group=group, group_src=1)
        first = [rank]
        distlite.broadcast_object_list(first, group=group)
        gathered: Any = [None, None] if rank == 2 else None
        distlite.gather_object(rank, gathered, group=group, group_dst=0)
        source = None
        if rank == 1:
            distlite.send_object_list([rank], 2, group)
        else:
            source = distlite.recv_object_list([0], group=group, group_src=1)
        texts = [str(each.message) for each in caught]
    distlite.barrier()
    distlite.destroy_process_group()
    return [got, one + two + first, gathered, source, texts]


def safe_settings(rank: int, world_size: int, init_method: str) -> list[str]:
    """Whether a pickle goes through, and in which words not."""
    init(rank, world_size, init_method)
    group = distlite.new_group()

    def texts(safe: bool | None) -> list[str]:
        return [
            failure_of(
                lambda g=g: distlite.all_gather_object(
                    [0] * world_size, len, g, safe=safe
                )
            )[1]
            for g in (None, group)
        ]

    got = texts(None)
    distlite.set_safe_objects(True, group)
    distlite.set_safe_objects(False)
    got += texts(None) + texts(False) + texts(True)
    distlite.set_safe_objects(None)
    distlite.set_safe_objects(None, group)
    got += texts(None)
    distlite.destroy_process_group()
    return got


def huge(rank: int, world_size: int, init_method: str) -> list[int]:
    """More than 2 GB, in a stream and beside it."""
    init(rank, world_size, init_method, 540)
    size = (1 << 31) + 5
    got = []
    for safe in (False, True):
        sent = [np.ones(size, np.uint8)] if rank == 0 else [None]
        distlite.broadcast_object_list(sent, safe=safe)
        got += [len(sent[0]), int(sent[0][-1]), int(sent[0][0])]
        del sent
    sent = [b"a" * size] if rank == 0 else [None]
    distlite.broadcast_object_list(sent)
    got += [len(sent[0]), sent[0][-1]]
    distlite.destroy_process_group()
    return got


def out_of_memory(rank: int, world_size: int, init_method: str) -> Any:
    """A receiver that has no room tells the others, who are on their way already."""
    init(rank, world_size, init_method)
    if rank == 1:

        def no_memory(size: int) -> None:
            raise MemoryError(f"no room for {size} bytes")

        object_collectives.empty = no_memory
    sent = [np.ones(LARGE)] if rank == 0 else [None]
    began = time.monotonic()
    kind, text, _ = failure_of(lambda: distlite.broadcast_object_list(sent))
    return kind, text, time.monotonic() - began


class Interrupting:
    """To pickle it sets SIGINT pending, and runs no line of Python after it."""

    __getstate__ = _thread.interrupt_main


def interrupted_before_rest(
    rank: int, world_size: int, init_method: str, op: str
) -> tuple[str, str, float]:
    """An interrupt of rank 0 comes between the header and what follows."""
    init(rank, world_size, init_method, seconds=60)
    distlite.barrier()
    objects: list[Any] = ["x" * LARGE if rank == 0 else None]
    if rank == 0 and op == "send":
        objects = [Interrupting(), *objects]
    elif rank == 0:

        def interrupt(*_: Any) -> None:
            raise KeyboardInterrupt

        object_collectives.headers_of = interrupt
    elif op == "send":
        objects = [None, None]
    calls = {
        ("broadcast", 0): distlite.broadcast_object_list,
        ("broadcast", 1): distlite.broadcast_object_list,
        ("send", 0): partial(distlite.send_object_list, dst=1),
        ("send", 1): partial(distlite.recv_object_list, src=0),
    }
    store = distlite.group.WORLD.get_group_store()
    began = time.monotonic()
    try:
        calls[op, rank](objects)
    except BaseException as error:
        said = type(error).__name__, str(error), time.monotonic() - began
    if rank == 0:
        store.wait(["told"])  # without it, the end of this rank would tell the other
    else:
        store.set("told", "")
    return said


@contextmanager
def interrupted_rest(name: str) -> Iterator[None]:
    """Interrupts what follows the header of a message."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    rest = getattr(object_collectives, name)
    setattr(object_collectives, name, interrupt)
    try:
        yield
    finally:
        setattr(object_collectives, name, rest)


def interrupted_message(
    rank: int, world_size: int, init_method: str, interrupted: int
) -> list[tuple[str, str] | None]:
    """Rank 0 sends two large objects, and one rank is interrupted within the first."""
    init(rank, world_size, init_method, seconds=60)
    distlite.barrier()
    store = distlite.group.WORLD.get_group_store()
    name = "take_rest" if rank else "put_rest"
    with interrupted_rest(name) if rank == interrupted else nullcontext():
        said = [message_failure(rank, "first")]
    store.set(f"{rank} was told", "")
    store.wait([f"{interrupted} was told"])
    said.append(message_failure(rank, "second"))
    store.set(f"{rank} is done", "")
    # Without it, the end of this rank would tell the other.
    store.wait([f"{1 - rank} is done"])
    return said


def message_failure(rank: int, name: str) -> tuple[str, str] | None:
    objects = [name * LARGE] if rank == 0 else [None]
    try:
        if rank == 0:
            distlite.send_object_list(objects, dst=1)
        else:
            distlite.recv_object_list(objects, src=0)
    except BaseException as error:
        return type(error).__name__, str(error)
    assert objects == [name * LARGE]
    return None


def all_calls(world_size: int, rank: int, group: Any = None) -> list[Any]:
    """Kind and text of how each call on an object fails, if it does.

    The message is from rank 0 to the last.
    """
    alone = [0] * world_size if rank == 0 else None
    everything = list(range(world_size)) if rank == 0 else None
    calls = [
        lambda: distlite.all_gather_object([0] * world_size, rank, group),
        lambda: distlite.broadcast_object_list([rank], group=group),
        lambda: distlite.gather_object(rank, alone, group=group),
        lambda: distlite.scatter_object_list([0], everything, group=group),
        lambda: (
            distlite.send_object_list([1], group_dst=world_size - 1, group=group)
            if rank == 0
            else distlite.recv_object_list([0], group_src=0, group=group)
            if rank == world_size - 1
            else None
        ),
    ]
    return [failure_of(call)[:2] for call in calls]


def trusting(
    rank: int,
    world_size: int,
    init_method: str,
    places: list[str],
    settings: list[str],
) -> tuple[list[Any], str]:
    """The failures of calls on objects between hosts, and what the log says."""
    os.environ["DISTLITE_HOST_HINT"] = places[rank]
    if settings[rank]:
        os.environ["DISTLITE_OBJECTS"] = settings[rank]
    with tempfile.TemporaryFile() as log:
        kept = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            init(rank, world_size, init_method)
            failures = all_calls(world_size, rank)
            failures += all_calls(world_size, rank)
            ends = distlite.new_group([0, world_size - 1])
            if rank in (0, world_size - 1):
                failures += all_calls(2, int(rank != 0), ends)
            distlite.destroy_process_group()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        log.seek(0)
        return failures, log.read().decode()


def settings_at_once(rank: int, world_size: int, init_method: str) -> tuple[str, str]:
    """How joining fails if rank 1 asks for what does not exist."""
    if rank == 1:
        os.environ["DISTLITE_OBJECTS"] = "prooved"
    return failure_of(lambda: init(rank, world_size, init_method))[:2]
