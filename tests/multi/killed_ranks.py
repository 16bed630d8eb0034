# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests that kill one of them at a random moment."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import distlite


class Scene:
    """A rank, and the groups and arrays that its operations use."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.pairs = [
            distlite.new_group([i, (i + 1) % size], sort_ranks=False)
            for i in range(size)
        ]
        self.large = np.zeros(700_000, np.float32)
        self.shared = distlite.shared_zeros(700_000, np.float32)
        self.window = distlite.Window(np.zeros(50_000))
        self.grid = distlite.Cartesian((0, 0), True)

        self.following, self.preceding = (rank + 1) % size, (rank - 1) % size

    def all_groups(self) -> list[Any]:
        """Those that this rank is in."""
        groups = [distlite._get_default_group(), self.grid.group, *self.pairs]
        return [group for group in groups if group != -100]

    def small(self) -> np.ndarray:
        return np.ones(5)


def messages(scene: Scene) -> None:
    """To the next rank, from whichever comes."""
    works = [
        distlite.isend(scene.small(), (scene.rank + 1) % scene.size),
        distlite.irecv(np.zeros(5)),
    ]
    for work in works:
        work.wait()


def large_messages(scene: Scene) -> None:
    peer = (scene.rank + 1) % scene.size
    sent = distlite.isend(scene.large, peer, tag=3)
    distlite.recv(np.zeros_like(scene.large), (scene.rank - 1) % scene.size, tag=3)
    sent.wait()


def at_once(scene: Scene) -> None:
    works = [distlite.all_reduce(scene.small(), async_op=True) for _ in range(8)]
    works.append(distlite.all_reduce(np.zeros(100_000), async_op=True))
    for work in works:
        work.wait()


def in_pairs(scene: Scene) -> None:
    for group in scene.pairs:
        if group != -100:
            distlite.all_reduce(scene.small(), group=group)


def new_groups(scene: Scene) -> None:
    group = distlite.new_group(list(range(scene.size)))
    distlite.all_reduce(scene.small(), group=group)
    distlite.destroy_process_group(group)


def blocks(scene: Scene) -> None:
    lists = [np.zeros(3000) for _ in range(scene.size)]
    distlite.all_gather(lists, np.zeros(3000))
    distlite.all_to_all(lists, [each.copy() for each in lists])
    distlite.reduce_scatter(np.zeros(3000), lists)
    is_root = scene.rank == 1
    distlite.gather(np.zeros(3000), lists if is_root else None, 1)
    distlite.scatter(np.zeros(3000), lists if is_root else None, 1)


def by_functions(scene: Scene) -> None:
    distlite.all_reduce(scene.small(), np.hypot)
    distlite.reduce(scene.large[:90_000], 0, np.logaddexp)


def probes(scene: Scene) -> None:
    sent = distlite.isend(scene.large[: 7 * scene.rank], scene.following, tag=8)
    found = distlite.probe(scene.preceding, tag=8)
    distlite.recv(found.empty(), scene.preceding, tag=8)
    sent.wait()


def in_window(scene: Scene) -> None:
    window, peer = scene.window, scene.following
    with window.lock(peer):
        window.put(scene.small(), peer, 3)
    window.get(np.zeros(40_000), scene.preceding)
    window.accumulate(np.ones(20_000), peer)
    window.fetch_and_op(1.0, 0)
    window.fence()


def with_neighbours(scene: Scene) -> None:
    places = len(scene.grid.neighbours)
    scene.grid.neighbor_all_gather(np.zeros((places, 900)), np.zeros(900))


OPERATIONS: list[Callable[[Scene], Any]] = [
    lambda scene: distlite.all_reduce(scene.small()),
    lambda scene: distlite.all_reduce(scene.large),
    lambda scene: distlite.all_reduce(scene.shared),
    lambda scene: distlite.scan(scene.large),
    lambda scene: distlite.exscan(scene.small()),
    lambda scene: distlite.broadcast(scene.large, 1),
    lambda scene: distlite.reduce(scene.large, 0),
    lambda scene: distlite.barrier(),
    messages,
    large_messages,
    at_once,
    in_pairs,
    new_groups,
    blocks,
    by_functions,
    probes,
    in_window,
    with_neighbours,
]


def until_killed(
    rank: int, world_size: int, path: str, seed: int, victim: int
) -> tuple[str, float]:
    """All ranks do the same random operations, until `victim` is gone; what the others
    are told, and how long after they noticed the group said so as well."""
    distlite.init_process_group(
        "gloo", init_method=f"file://{path}", rank=rank, world_size=world_size
    )
    scene = Scene(rank, world_size)
    store = distlite._get_default_store()
    distlite.barrier()
    choice = random.Random(seed)
    moment = choice.random() * 0.05
    if rank == victim:
        threading.Timer(moment, os.kill, [os.getpid(), signal.SIGKILL]).start()
    try:
        while True:
            choice.choice(OPERATIONS)(scene)
    except distlite.DistError:
        noticed = time.monotonic()
    # The first barrier succeeds if the victim had come as far as a fence.
    try:
        while True:
            distlite.barrier()
    except distlite.DistError as error:
        told = str(error)
    # Others may wait for what this rank, which lives, was about to do.
    for group in scene.all_groups():
        group.abort()
    # Nobody leaves before all have been told: it would be named in the victim's place.
    seconds = time.monotonic() - noticed
    store.barrier("told", world_size - 1, 60)
    return told, seconds
