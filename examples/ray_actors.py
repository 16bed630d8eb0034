# SPDX-License-Identifier: BSD-3-Clause
"""A group among Ray actors: Ray starts the processes, distlite moves the arrays.

    pip install ray
    python examples/ray_actors.py --actors 4 --check

Each actor is one rank, and none of them has torch.  The first one serves the store on
a free port, whose number Ray passes to the others, so neither environment variables nor
a launcher is needed.  Together they compute the mean and the spread of numbers of which
each actor has a part.

--check compares the result with that of one process which has all the numbers.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

try:
    import ray
except ImportError:
    sys.exit("ray_actors.py needs Ray: pip install ray")

import distlite as dist

SAMPLES = 10_000


def samples_of(rank: int) -> np.ndarray:
    """Returns the samples that only this actor has."""
    return np.random.default_rng(seed=rank).normal(loc=rank, size=SAMPLES)


class Member:
    """One rank."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.store: dist.TCPStore | None = None

    def serve(self) -> tuple[str, int]:
        """Serves the store on the first actor; returns its host and port."""
        node: Any = ray.util
        host = str(node.get_node_ip_address())
        self.store = dist.TCPStore(
            host, 0, self.size, is_master=True, wait_for_workers=False
        )
        return host, self.store.port

    def join(self, host: str, port: int) -> None:
        """Joins the group; all actors call it, and it returns when all have joined."""
        if self.store is None:
            self.store = dist.TCPStore(host, port, self.size, is_master=False)
        dist.init_process_group(
            "gloo", store=self.store, rank=self.rank, world_size=self.size
        )

    def mean_and_spread(self) -> tuple[float, float]:
        """Returns the mean and the spread of the samples of all actors, the same on
        each."""
        mine = samples_of(self.rank)
        mean = np.array([mine.mean()])
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        variance = np.array([np.mean((mine - mean[0]) ** 2)])
        dist.all_reduce(variance, op=dist.ReduceOp.AVG)
        return float(mean[0]), float(variance[0]) ** 0.5

    def has_torch(self) -> bool:
        """Returns whether this process has imported torch."""
        return "torch" in sys.modules

    def leave(self) -> None:
        """Leaves the group; all actors call it."""
        dist.destroy_process_group()


def run(count: int) -> tuple[list[tuple[float, float]], list[bool]]:
    """Returns what each actor found, and whether it has torch."""
    kind: Any = ray.remote(Member)
    actors = [kind.remote(rank, count) for rank in range(count)]
    host, port = ray.get(actors[0].serve.remote())
    ray.get([actor.join.remote(host, port) for actor in actors])
    found = ray.get([actor.mean_and_spread.remote() for actor in actors])
    torches = ray.get([actor.has_torch.remote() for actor in actors])
    ray.get([actor.leave.remote() for actor in actors])
    return found, torches


def main() -> int:
    """Returns the exit code, 1 if the result is wrong."""
    parser = argparse.ArgumentParser(description="A group among Ray actors.")
    parser.add_argument("--actors", type=int, default=4)
    parser.add_argument("--check", action="store_true", help="compare with one process")
    options = parser.parse_args()
    # As many processors as actors, because each actor takes one.
    ray.init(num_cpus=options.actors, include_dashboard=False, log_to_driver=False)
    try:
        found, torches = run(options.actors)
    finally:
        ray.shutdown()
    mean, spread = found[0]
    print(f"{options.actors} actors: mean {mean:.6f}, spread {spread:.6f}")
    problems = []
    if len(set(found)) != 1:
        problems.append(f"the actors differ: {found}")
    if any(torches):
        problems.append("an actor has torch")
    if options.check:
        everything = np.concatenate([samples_of(r) for r in range(options.actors)])
        expected = everything.mean(), everything.std()
        if not np.allclose((mean, spread), expected, rtol=1e-12):
            problems.append(f"one process finds {expected}")
        elif not problems:
            print("the same as one process finds, on every actor, without torch")
    for problem in problems:
        print(f"ray_actors: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
