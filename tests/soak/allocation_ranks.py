# SPDX-License-Identifier: BSD-3-Clause
"""Operations of which one allocation fails, the first, the second, and so on: a
MemoryError on that rank or none at all, word of it on the others, and nothing lost."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

import distlite

TIMEOUT = 8.0
MOST = 400  # allocations of one operation
SLACK = 5.0
# What is in a store stays there, and who calls for a group that was never made.
STORED = ["monitored_barrier", "split_group"]
# Who waits for a message is told of the rank it waits for, which may have given up
# because of the victim.
CHAINED = ["messages"]


class Memory:
    """The preloaded allocator's side of it."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(None)
        spans = [
            [int(end, 16) for end in line.split()[0].split("-")]
            for line in Path("/proc/self/maps").read_text().splitlines()
            if "/_C." in line
        ]
        low, high = min(s[0] for s in spans), max(s[1] for s in spans)
        self.library.soak_watch(ctypes.c_size_t(low), ctypes.c_size_t(high))

    def fail_call(self, number: int) -> None:
        self.library.soak_doom(ctypes.c_long(number))

    def has_failed(self) -> bool:
        return bool(self.library.soak_has_failed())

    def in_use(self) -> Counter[str]:
        """Blocks by size and place in the code."""
        gc.collect()
        text = ctypes.create_string_buffer(1 << 20)
        self.library.soak_in_use(text, ctypes.c_size_t(len(text)))
        return Counter(text.value.decode().split())


Group = Any
Call = Callable[[Group], None]


def ones(count: int = 100) -> np.ndarray:
    return np.ones(count)


def lists(group: Group, count: int = 50) -> list[np.ndarray]:
    return [ones(count) for _ in range(group.size())]


def message(group: Group) -> None:
    """In a ring, of both sizes and strides."""
    size, rank = group.size(), group.rank()
    works = []
    for tag, count in enumerate((10, 100_000)):
        to, source = (rank + 1) % size, (rank - 1) % size
        sent, got = np.ones((2, count)).T[:, 0], np.ones(count)
        works.append(distlite.isend(sent, group=group, group_dst=to, tag=tag))
        works.append(distlite.irecv(got, group=group, group_src=source, tag=tag))
    for work in works:
        assert work is not None
        work.wait()


def later(function: Callable[..., Any], *arguments: Any, **named: Any) -> None:
    function(*arguments, async_op=True, **named).wait()


def gather_objects(group: Group) -> None:
    objects = [{"a": [1, 2.5, "text"]}, np.ones(5000), "x" * 9000]
    distlite.all_gather_object([None] * group.size(), objects, group)


def part(group: Group) -> None:
    limit = timedelta(seconds=TIMEOUT)
    made = distlite.split_group(group, [list(range(group.size()))], limit)
    assert made is not None
    try:
        distlite.barrier(made)
    finally:
        made.abort()
        distlite.destroy_process_group(made)


def shared(group: Group) -> None:
    array = distlite.shared_zeros(100_000, group=group)
    distlite.all_reduce(array, group=group)


CALLS: dict[str, Call] = {
    "all_reduce": lambda g: distlite.all_reduce(ones(), group=g),
    "all_reduce of columns": lambda g: distlite.all_reduce(
        np.ones((300, 300))[:, 7], group=g
    ),
    "all_reduce of much": lambda g: distlite.all_reduce(ones(200_000), group=g),
    "all_reduce later": lambda g: later(distlite.all_reduce, ones(), group=g),
    "coalesced": lambda g: distlite.all_reduce_coalesced([ones(), ones()], group=g),
    "broadcast": lambda g: distlite.broadcast(ones(), group=g, group_src=0),
    "broadcast later": lambda g: later(
        distlite.broadcast, ones(50_000), group=g, group_src=0
    ),
    "reduce": lambda g: distlite.reduce(ones(), group=g, group_dst=0),
    "all_gather": lambda g: distlite.all_gather(lists(g), ones(50), g),
    "all_gather later": lambda g: later(distlite.all_gather, lists(g), ones(50), g),
    "all_to_all": lambda g: distlite.all_to_all(lists(g), lists(g), g),
    "reduce_scatter": lambda g: distlite.reduce_scatter(ones(50), lists(g), group=g),
    "all_gather_arrays": lambda g: distlite.all_gather_arrays(ones(9), g) and None,
    "barrier": lambda g: distlite.barrier(g),
    "monitored_barrier": lambda g: distlite.monitored_barrier(g),
    "messages": message,
    "objects": gather_objects,
    "split_group": part,
    "shared": shared,
}


def attempt(call: Call, group: Group) -> str:
    try:
        call(group)
    except (MemoryError, distlite.DistError) as error:
        # What a program does that cannot go on; the others are told.
        group.abort()
        return f"{type(error).__name__}: {error}"
    return ""


def judge(
    name: str, outcomes: list[tuple[str, float]], victim: int, has_failed: bool
) -> str:
    """What is wrong with what the ranks were told; empty: nothing."""
    told = outcomes[victim][0]
    for rank, (text, seconds) in enumerate(outcomes):
        if seconds > SLACK:
            return f"rank {rank} was told after {seconds:.1f} s: {text}"
        if not has_failed and text:
            return f"rank {rank} was told without a failure: {text}"
        blamed = range(len(outcomes)) if name in CHAINED else [victim]
        is_named = any(re.search(rf"rank {r}\b", text) for r in blamed if r != rank)
        if rank != victim and text and not is_named:
            return f"rank {rank} was told {text!r}, rank {victim} {told!r}"
    if told and not re.match("MemoryError|.*memory", told, re.DOTALL):
        return f"rank {victim} was told {told!r}"
    return ""


def lost_since(memory: Memory, before: Counter[str]) -> Counter[str]:
    """What is in use now and was not; a thread may still be about to give it back."""
    lost = memory.in_use() - before
    deadline = time.monotonic() + 1
    while lost and time.monotonic() < deadline:
        time.sleep(0.05)
        lost = memory.in_use() - before
    return lost


def fail_in_turn(size: int, victim: int, name: str, memory: Memory) -> int:
    """How many allocations there are."""
    rank = distlite.get_rank()
    number = -2  # Before the first that fails, as usual: what stays then are caches.
    suspects: Counter[str] | None = None  # of the try before, if this is the second
    while number < MOST:
        group = distlite.new_group(list(range(size)), timedelta(seconds=TIMEOUT))
        distlite.barrier(group)
        before = memory.in_use()
        memory.fail_call(number if rank == victim and number > 0 else 0)
        began = time.monotonic()
        text = attempt(CALLS[name], group)
        seconds = time.monotonic() - began
        has_failed = memory.has_failed()
        outcomes: list[Any] = [None] * size
        distlite.all_gather_object(outcomes, (text, seconds, has_failed))
        has_failed = outcomes[victim][2]
        wrong = judge(name, [each[:2] for each in outcomes], victim, has_failed)
        distlite.destroy_process_group(group)
        del group
        # What works that were dropped have kept goes with the next one.
        later(distlite.all_reduce, ones())
        lost: Counter[str] = Counter()
        if not wrong and number > 1 and has_failed and name not in STORED:
            lost = lost_since(memory, before)
        # What is lost each time is a leak.  A busy machine may have made a rank ask for
        # the first time whether another lives: the connection is kept, and lost once.
        if suspects is not None and lost & suspects:
            wrong = f"lost {dict(lost & suspects)}"
        found: list[Any] = [None] * size
        distlite.all_gather_object(found, (wrong, bool(lost)))
        for each, (complaint, _) in enumerate(found):
            if complaint:
                text = f"{name}, allocation {number}, rank {each}: {complaint}"
                raise AssertionError(text)
        if suspects is None and any(is_suspect for _, is_suspect in found):
            suspects = lost
            continue
        suspects = None
        if number > 0 and not has_failed:
            return number - 1
        number += 1
    raise AssertionError(f"{name}: more than {MOST} allocations")


def run_failures(
    rank: int,
    world_size: int,
    init_method: str,
    names: list[str],
    victim: int,
    host_of: list[int],
) -> None:
    os.environ["DISTLITE_HOST_HINT"] = f"host{host_of[rank]}"
    distlite.init_process_group(
        "gloo",
        init_method=init_method,
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=60),
    )
    memory = Memory()
    for name in names:
        fail_in_turn(world_size, victim, name, memory)
    distlite.destroy_process_group()
