# SPDX-License-Identifier: BSD-3-Clause
"""The measured side of pairs.py: one rank of one library, with a group for each pair.

    pairs_peer.py PEER RANK SIZE FOLDER REPEATS

Every rank writes a line of JSON to a file FOLDER/said*: seconds of making all groups,
and of REPEATS all_reduce on each of its own, one after the other and all at once.
"""

from __future__ import annotations

import importlib
import itertools
import json
import sys
import tempfile
import time
from typing import Any

import numpy as np

MODULES = {"distlite": "distlite", "torch": "torch.distributed"}
SHAPE = (10, 10)


def arrays(peer: str, count: int) -> list[Any]:
    """Returns arrays of zeros, which stay zeros however often they are summed."""
    made = [np.zeros(SHAPE, np.float32) for _ in range(count)]
    if peer != "torch":
        return made
    torch = importlib.import_module("torch")
    return [torch.from_numpy(array) for array in made]


def one_by_one(dist: Any, groups: list[Any], array: Any, repeats: int) -> None:
    """All ranks go through the pairs in the same order, so that no circle of ranks
    waits."""
    for group in groups:
        for _ in range(repeats):
            dist.all_reduce(array, group=group)


def all_at_once(dist: Any, groups: list[Any], own: list[Any], repeats: int) -> None:
    """Begins everything, then waits for it."""
    works = [
        dist.all_reduce(array, group=group, async_op=True)
        for group in groups
        for array in own[:repeats]
    ]
    for work in works:
        work.wait()


def seconds(dist: Any, run: Any, *args: Any) -> float:
    """Returns the seconds of a call that all ranks begin together."""
    dist.barrier()
    start = time.perf_counter()
    run(*args)
    return time.perf_counter() - start


def main(peer: str, rank: str, size: str, folder: str, repeats: str) -> None:
    """All steps."""
    dist: Any = importlib.import_module(MODULES[peer])
    place = {"rank": int(rank), "world_size": int(size)}
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", **place)
    pairs = list(itertools.combinations(range(int(size)), 2))
    made: list[Any] = []
    told = {"new_group": seconds(dist, lambda: made.extend(map(dist.new_group, pairs)))}
    groups = [
        group for pair, group in zip(pairs, made, strict=True) if int(rank) in pair
    ]
    count = int(repeats)
    own = arrays(peer, count)
    one_by_one(dist, groups, own[0], 2)
    told["sync"] = seconds(dist, one_by_one, dist, groups, own[0], count)
    told["async"] = seconds(dist, all_at_once, dist, groups, own, count)
    dist.barrier()
    dist.destroy_process_group()
    with tempfile.NamedTemporaryFile("w", dir=folder, prefix="said", delete=False) as f:
        f.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
