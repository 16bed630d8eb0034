# SPDX-License-Identifier: BSD-3-Clause
"""What ranks run that are told of other hosts' failures: see test_hosts_told.py."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
from hosts_ranks import join
from operations import wait_until_ahead, wait_until_in

import distlite as dist

# What a rank was told, and how many seconds after it could be known.
Told = tuple[str, float]
# The deadline of the one whose time runs out.
SHORT = 0.15


class Scene:
    """A group of its own, in which something fails while some ranks are late."""

    def __init__(
        self,
        name: str,
        rank: int,
        size: int,
        late: tuple[int, ...],
        store: Any = None,
    ) -> None:
        self.name = name
        self.rank = rank
        self.size = size
        self.late = late
        self.store = store or dist.group.WORLD.get_group_store()
        self.group = dist.new_group(timeout=timedelta(seconds=60))

    def key(self, what: str) -> str:
        return f"{self.name}/{what}"

    def begin(self) -> None:
        """From now on something can be known."""
        self.store.set(self.key("begun"), repr(time.monotonic()))

    def early_others(self) -> set[int]:
        return set(range(self.size)) - set(self.late) - {self.rank}

    def wait_for_others(self) -> None:
        """Until all others but the late are in an operation."""
        wait_until_ahead(self.early_others())

    def meet(self, what: str, count: int) -> None:
        if self.store.add(self.key(what), 1) == count:
            self.store.set(self.key(f"{what} by all"), "yes")
        self.store.wait([self.key(f"{what} by all")])


Step = Callable[[Scene], None]


def reduce(scene: Scene) -> None:
    dist.all_reduce(np.zeros(3), group=scene.group)


def differ(scene: Scene) -> None:
    scene.wait_for_others()
    scene.begin()
    dist.broadcast(np.zeros(3), 0, group=scene.group)


def _end_by(scene: Scene, end: Callable[[], object]) -> None:
    waiting = scene.early_others() | {scene.rank}

    def run() -> None:
        wait_until_in(waiting, scene.group.group_name)
        scene.begin()
        end()

    threading.Thread(target=run).start()
    while True:
        reduce(scene)


def abort(scene: Scene) -> None:
    _end_by(scene, scene.group.abort)


def abort_between(scene: Scene) -> None:
    scene.wait_for_others()
    scene.begin()
    scene.group.abort()
    reduce(scene)


def interrupt(scene: Scene) -> None:
    _end_by(scene, lambda: os.kill(os.getpid(), signal.SIGINT))


def run_out_of_time(scene: Scene) -> None:
    scene.group.set_timeout(timedelta(seconds=SHORT))
    due = time.monotonic() + SHORT
    scene.store.set(scene.key("begun"), repr(due))
    reduce(scene)


def leave(scene: Scene) -> None:
    scene.wait_for_others()
    scene.begin()
    dist.destroy_process_group(scene.group)
    raise ValueError("left")


def die(scene: Scene) -> None:
    scene.wait_for_others()
    end_process(scene)


def end_process(scene: Scene) -> None:
    scene.begin()
    os.kill(os.getpid(), signal.SIGKILL)


def play(scene: Scene, culprit: int, fail: Step, step: Step = reduce) -> Told:
    """All but the late are in an operation when `culprit` fails; these come when the
    others know."""
    dist.barrier(group=scene.group)
    scene.meet("ready", scene.size)
    begin = None
    if scene.rank in scene.late:
        scene.store.wait([scene.key("told by all")])
        begin = time.monotonic()
    try:
        while True:
            (fail if scene.rank == culprit else step)(scene)
    except (dist.DistBackendError, ValueError, KeyboardInterrupt) as error:
        end = time.monotonic()
        text = f"{type(error).__name__}: {error}"
    alive = scene.size - (fail is die)
    if begin is None:
        begin = float(scene.store.get(scene.key("begun")))
        scene.meet("told", alive - len(scene.late))
    scene.meet("over", alive)
    return text, end - begin


def _leave() -> None:
    """Rank 0, which has the store, not before the others have done with it."""
    dist.barrier()
    dist.destroy_process_group()


# Name: who fails, how, and who is late.
FAILURES: dict[str, tuple[int, Step, tuple[int, ...]]] = {
    "differ, a leader waits": (1, differ, (3,)),
    "differ, a leader is late": (1, differ, (2,)),
    "differ, two leaders": (4, differ, (3,)),
    "abort, a leader waits": (1, abort, (3,)),
    "abort, a leader is late": (4, abort, (0, 2)),
    "abort between, a leader waits": (1, abort_between, (3,)),
    "interrupt, a leader waits": (0, interrupt, (3,)),
    "interrupt, a leader is late": (1, interrupt, (0, 2)),
    "timeout, a leader waits": (4, run_out_of_time, (3,)),
    "timeout, a leader is late": (1, run_out_of_time, (0, 2)),
    "leave, a leader waits": (4, leave, (3,)),
}


def failures(rank: int, world_size: int, address: str) -> dict[str, Told]:
    """Each in a group of its own."""
    join(rank, world_size, address)
    results = {}
    for name, (culprit, fail, late) in FAILURES.items():
        scene = Scene(name, rank, world_size, late)
        results[name] = play(scene, culprit, fail)
    _leave()
    return results


def end(
    rank: int, world_size: int, init_method: str, address: str, victim: int, late: Any
) -> Told:
    """The victim is killed; the rest meet by a file, whose server nobody is."""
    join(rank, world_size, address)
    store = dist.FileStore(init_method.removeprefix("file://"), world_size)
    return play(Scene("end", rank, world_size, tuple(late), store), victim, die)


def _blocks(sizes: list[int]) -> list[Any]:
    return [np.zeros(size) for size in sizes]


# Rank 3 has 5 elements where rank 1 counts on 4 and all others on 5, or the same the
# other way round.


def _sizes(scene: Scene, confused: int = 1) -> list[int]:
    sizes = [3] * scene.size
    sizes[3] = 4 if scene.rank == confused else 5
    return sizes


def gather_all(scene: Scene) -> None:
    sizes = _sizes(scene)
    dist.all_gather(_blocks(sizes), np.zeros(sizes[scene.rank]), group=scene.group)


def gather(scene: Scene) -> None:
    sizes = _sizes(scene)
    blocks = _blocks(sizes) if scene.rank == 1 else None
    dist.gather_v(np.zeros(sizes[scene.rank]), blocks, 1, group=scene.group)


def scatter(scene: Scene) -> None:
    sizes = _sizes(scene)
    blocks = _blocks(sizes) if scene.rank == 1 else None
    dist.scatter_v(np.zeros(sizes[scene.rank]), blocks, 1, group=scene.group)


def reduce_scatter(scene: Scene) -> None:
    sizes = _sizes(scene)
    out = np.zeros(sizes[scene.rank])
    dist.reduce_scatter(out, _blocks(sizes), group=scene.group)


def all_to_all(scene: Scene) -> None:
    sent, expected = [2] * scene.size, [2] * scene.size
    if scene.rank == 3:
        sent[1] = 5
    if scene.rank == 1:
        expected[3] = 4
    dist.all_to_all_single(
        np.zeros(sum(expected)), np.zeros(sum(sent)), expected, sent, group=scene.group
    )


STEPS = (gather_all, gather, scatter, reduce_scatter, all_to_all)


def sizes(rank: int, world_size: int, address: str) -> dict[str, Told]:
    """Two ranks on different hosts disagree about a block; the others cannot know."""
    join(rank, world_size, address)
    results = {}
    for step in STEPS:
        scene = Scene(step.__name__, rank, world_size, ())
        if rank == 0:
            scene.begin()
        results[step.__name__] = play(scene, -1, differ, step)
    _leave()
    return results


def watch(
    rank: int, world_size: int, init_method: str, address: str, victim: int
) -> Told:
    """Who is gone before a monitored barrier, which no rank needs to wait for."""
    join(rank, world_size, address)
    store = dist.FileStore(init_method.removeprefix("file://"), world_size)
    scene = Scene("watch", rank, world_size, (), store)
    scene.meet("ready", world_size)
    if rank == victim:
        end_process(scene)
    begin = float(scene.store.get(scene.key("begun")))
    try:
        dist.monitored_barrier(group=scene.group)
    except (dist.DistBackendError, RuntimeError) as error:
        end = time.monotonic()
        scene.meet("over", world_size - 1)
        return str(error), end - begin
    raise AssertionError("nothing was raised")


def receive(rank: int, world_size: int, address: str) -> list[Told]:
    """Rank 0 receives in vain from another host, and gives up; its timers run only if
    the interpreter is let go meanwhile."""
    join(rank, world_size, address)
    results = []
    for end in ("interrupt", "abort"):
        scene = Scene(end, rank, world_size, ())
        dist.barrier(group=scene.group)
        if rank == 0:
            results.append(_receive_in_vain(scene))
        scene.meet("over", world_size)
    _leave()
    return results


def _receive_in_vain(scene: Scene) -> Told:
    def end() -> None:
        wait_until_in([0], scene.group.group_name)
        scene.begin()
        if scene.name == "abort":
            scene.group.abort()
        else:
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=end).start()
    try:
        dist.recv(np.zeros(1), scene.size - 1, group=scene.group)
    except (dist.DistBackendError, KeyboardInterrupt) as error:
        when = time.monotonic()
        text = f"{type(error).__name__}: {error}"
    return text, when - float(scene.store.get(scene.key("begun")))
