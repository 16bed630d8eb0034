# SPDX-License-Identifier: BSD-3-Clause
"""Ranks of which one is killed, stopped or interrupted at any moment, while all do the
same random operations in several groups; what the others are told, and how they go on.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from datetime import timedelta
from typing import Any

import numpy as np
from killed_ranks import OPERATIONS, Scene, new_groups

import distlite

# Of the groups, where a rank that is stopped is to be missed.
TIMEOUT = 3.0
# A stop that is no failure, and the operations that are to go well in spite of it.
SHORT_STOP = 0.3
OPERATION_COUNT = 60


def join(rank: int, world_size: int, path: str) -> None:
    distlite.init_process_group(
        "gloo",
        init_method=f"file://{path}",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=60),
    )


def groups_in_time(scene: Scene) -> None:
    limit = distlite._get_default_group().timeout
    group = distlite.new_group(list(range(scene.size)), limit)
    distlite.all_reduce(scene.small(), group=group)
    distlite.destroy_process_group(group)


CHOICES = [*(each for each in OPERATIONS if each is not new_groups), groups_in_time]


def signal_later(signals: str, moment: float, stop: float) -> None:
    """From another process: this one may be stopped by then."""
    pid = os.getpid()
    words = [f"sleep {moment}", f"kill -{signals} {pid}"]
    if signals == "STOP":
        words += [f"sleep {stop}", f"kill -CONT {pid}"]
    subprocess.Popen(["sh", "-c", "; ".join(words)], stderr=subprocess.DEVNULL)


class Told:
    """What a rank saw: how late, and in which words."""

    def __init__(self) -> None:
        self.first = ""
        self.text = ""
        self.seconds = 0.0  # from the last operation that went well
        self.operations = 0


def run_until_told(
    scene: Scene,
    witness: Any,
    choice: random.Random,
    count: int,
) -> Told:
    told = Told()
    went_well = time.monotonic()
    try:
        while told.operations < count:
            choice.choice(CHOICES)(scene)
            went_well = time.monotonic()
            told.operations += 1
    except distlite.DistError as error:
        told.first = str(error)
    else:
        return told
    # It may be of a survivor, which aborted that group or had gone on to another call.
    # In the group that nothing else is done in, only the victim is missing.
    end_groups(scene)
    try:
        distlite.barrier(witness)
    except distlite.DistError as error:
        told.text = str(error)
    told.seconds = time.monotonic() - went_well
    return told


def end_groups(scene: Scene) -> None:
    """Others may wait for what this rank, which lives, was about to do."""
    for group in scene.all_groups():
        group.abort()


def go_on(victim: int, path: str, how: str) -> float:
    """Without the victim: the sum over those who stay."""
    rank, size = distlite.get_rank(), distlite.get_world_size()
    if how == "new":
        distlite.destroy_process_group()
        join(rank - (rank > victim), size - 1, f"{path}-again")
    else:
        distlite._get_default_group().set_timeout(timedelta(seconds=60))
        flags = distlite.distributed_c10d.SHRINK_ABORT if how == "abort" else 0
        distlite.shrink_group([victim], None, flags)
    assert distlite.get_world_size() == size - 1
    for count in (1, 5000, 300_000):
        values = np.full(count, 1.0 + rank)
        distlite.all_reduce(values)
        assert values[0] == values[-1]
    pair = distlite.new_group([0, size - 2])
    distlite.barrier(pair) if pair != -100 else None
    distlite.barrier()
    distlite.destroy_process_group()
    return float(values[0])


def survive(
    rank: int,
    world_size: int,
    path: str,
    seed: int,
    victim: int,
    what: str,
    moment: float,
    how: str,
    host_of: list[int],
) -> dict[str, Any]:
    os.environ["DISTLITE_HOST_HINT"] = f"host{host_of[rank]}"
    join(rank, world_size, path)
    scene = Scene(rank, world_size)
    witness = distlite.new_group(list(range(world_size)), timedelta(seconds=60))
    store = distlite._get_default_store()
    distlite.barrier()
    if what == "stop":
        # By then all have come that wait for something else.
        witness.set_timeout(2 * TIMEOUT)
        for group in scene.all_groups():
            group.set_timeout(TIMEOUT)
    choice = random.Random(seed)
    if rank == victim:
        stop = SHORT_STOP if what == "pause" else 5 * TIMEOUT
        names = {"kill": "KILL", "interrupt": "INT"}
        signal_later(names.get(what, "STOP"), moment, stop)
    count = OPERATION_COUNT if what == "pause" else 1 << 30
    lives_on = what == "interrupt" and how == "abort"
    try:
        told = run_until_told(scene, witness, choice, count)
    except KeyboardInterrupt:
        if how == "abort":
            end_groups(scene)
            witness.abort()
            store.barrier("told", world_size, timedelta(seconds=60))
        distlite.destroy_process_group()
        return {"interrupted": True}
    found = {**vars(told)}
    if what == "pause":
        distlite.barrier()
        distlite.destroy_process_group()
        return found
    if rank == victim:
        # It was stopped for too long, and hears of it once it goes on.
        distlite.destroy_process_group()
        return found
    # Nobody leaves before all have been told: it would be named in the victim's place.
    store.barrier("told", world_size - (not lives_on), timedelta(seconds=60))
    found["sum"] = go_on(victim, path, how)
    return found
