# SPDX-License-Identifier: BSD-3-Clause
"""Ray actors that lose one, for elastic_beside.py: `elastic_ray.py RANKS FILE HOW`.  By
"ray" Ray alone recovers, by "distlite" the actors are in a world of distlite.elastic.

    pip install ray distlite numpy

In both, Ray starts the actor again, and its call (`max_restarts`, `max_task_retries`).
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import ray
from elastic_peer import EVENT, LIMIT, REST, die, note

import distlite as dist
from distlite import elastic

# Of a step until the actor is back, in which the others leave the cores to its start.
PAUSE = 0.02


def is_again() -> bool:
    """Whether this actor was started again."""
    return bool(ray.get_runtime_context().was_current_actor_reconstructed)


class Worker:
    """An actor whose results the main program adds up."""

    def step(self, file: str, dies: bool) -> np.ndarray:
        if dies and not is_again():
            die(file)
        return np.zeros(256)


class Member:
    """An actor that is in a world with the others."""

    def live(self, number: int, ranks: int, port: int, file: str) -> None:
        """Works until some steps after the actor has come back."""
        store = dist.TCPStore("127.0.0.1", port, timeout=LIMIT)
        state, x = {"x": np.zeros(1)}, np.zeros(256)
        is_after, noted, left = is_again(), set(), REST
        with elastic.join(
            store, min_size=max(1, ranks - 1), max_size=ranks, timeout=LIMIT
        ) as member:
            while left:
                try:
                    view = member.next()
                    member.restore(view, state.update, lambda: state)
                    is_after, is_full = is_after or bool(view.lost), view.size == ranks
                    step = (member.done or 0) + 1
                    is_event = is_full and not is_after and step >= EVENT
                    if is_event and number == ranks - 1:
                        die(file)
                    with member.step(step):
                        dist.all_reduce(x, group=view.group)
                except dist.DistBackendError:
                    continue
                what = "again" if is_full else "first"
                if is_after and what not in noted:
                    note(file, what)
                    noted.add(what)
                left -= is_after and is_full
                time.sleep(PAUSE * (is_after and not is_full))


def actors(kind: type, ranks: int) -> list[Any]:
    """They are started again as often as they die."""
    options = {"num_cpus": 1, "max_restarts": -1, "max_task_retries": -1}
    return [ray.remote(**options)(kind).remote() for _ in range(ranks)]


def main() -> None:
    ranks, file, how = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    ray.init(num_cpus=ranks, include_dashboard=False, log_to_driver=False)
    if how == "ray":
        workers = actors(Worker, ranks)
        for step in range(EVENT + 1):
            calls = [
                worker.step.remote(file, step == EVENT and worker is workers[-1])
                for worker in workers
            ]
            sum(ray.get(calls))
        note(file, "again")
    else:
        with dist.TCPStore("127.0.0.1", 0, is_master=True) as store:
            members = enumerate(actors(Member, ranks))
            calls = [
                member.live.remote(number, ranks, store.port, file)
                for number, member in members
            ]
            ray.get(calls)
    ray.shutdown()


if __name__ == "__main__":
    main()
