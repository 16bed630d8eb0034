# SPDX-License-Identifier: BSD-3-Clause
"""The measured side of overlap.py: one rank, with a backward pass that is made up.

    overlap_peer.py distlite RANK SIZE FOLDER KIND MEBIBYTES ROUNDS RATIO...

KIND is who computes: "waiting", as on an accelerator that works while its host waits,
or "numpy", on the core of the rank.  For each RATIO of computing to communication, rank
0 writes a line of JSON to a file FOLDER/said*: for each way to take a step, the seconds
of each step on the slowest rank.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import numpy as np
from measure import alternate

import distlite as dist
from distlite.data_parallel import GradientReducer

# Each is a bucket.  What cannot be hidden is the time of the last one.
LAYERS = 32
WAYS = ("compute", "communication", "one after the other", "overlapped")
WARM_UPS = 3

Compute = Callable[[float], None]


def wait(seconds: float) -> None:
    """Stands for an accelerator that computes."""
    time.sleep(seconds)


def multiply(seconds: float) -> None:
    """Computes on this core as much as takes so long on an idle machine."""
    for _ in range(max(1, round(seconds / multiply.seconds))):
        np.matmul(*multiply.arrays)


def calibrate() -> None:
    """How long one small product takes."""
    ones = np.ones((96, 96), np.float32)
    multiply.arrays = ones, ones, np.empty_like(ones)
    times = []
    for _ in range(200):
        start = time.perf_counter()
        np.matmul(*multiply.arrays)
        times.append(time.perf_counter() - start)
    multiply.seconds = min(times)


class Step:
    """All ways to take a step with the same gradients."""

    def __init__(self, mebibytes: int, compute: Compute) -> None:
        count = (mebibytes << 20) // 4 // LAYERS
        parameters = [np.zeros(count, np.float32) for _ in range(LAYERS)]
        cap = mebibytes / LAYERS
        self.reducer = GradientReducer(parameters, bucket_cap_mb=cap)
        self.gradients = self.reducer.gradients  # in the buckets: nothing is copied
        self.compute = compute

    def backward(self, seconds: float) -> Iterator[int]:
        """Layer by layer, from the last to the first."""
        for layer in reversed(range(LAYERS)):
            if seconds:
                self.compute(seconds / LAYERS)
            yield layer

    def take(self, way: str, seconds: float) -> None:
        """One step, with so much computing."""
        reducer = self.reducer
        block = reducer.no_sync() if way == "compute" else nullcontext()
        layers = self.backward(0 if way == "communication" else seconds)
        with block:
            for layer in layers if way != "one after the other" else list(layers):
                reducer.ready(layer)
            reducer.finish()

    def seconds(self, way: str, compute_seconds: float) -> float:
        """Of the slowest rank."""
        dist.barrier()
        start = time.perf_counter()
        self.take(way, compute_seconds)
        spent = np.array([time.perf_counter() - start])
        dist.all_reduce(spent, op=dist.ReduceOp.MAX)
        return float(spent[0])


def measure(step: Step, ratio: float, rounds: int) -> dict[str, list[float]]:
    """Seconds of each step by way, the ways taking turns."""
    alone = [step.seconds("communication", 0) for _ in range(3 * WARM_UPS)]
    # The same on all ranks: it is the slowest rank's.
    compute_seconds = ratio * float(np.median(alone[WARM_UPS:]))
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for number, way in alternate(rounds + 1, WAYS):
        spent = step.seconds(way, compute_seconds)
        if number:
            times[way].append(spent)
    return times


def main(_: str, rank: str, size: str, folder: str, kind: str, *words: str) -> None:
    mebibytes, rounds = int(words[0]), int(words[1])
    dist.init_process_group(
        init_method=f"file://{folder}/meet", rank=int(rank), world_size=int(size)
    )
    calibrate()
    step = Step(mebibytes, wait if kind == "waiting" else multiply)
    told = []
    for ratio in map(float, words[2:]):
        times = measure(step, ratio, rounds)
        told.append({"kind": kind, "ratio": ratio, "seconds": times})
    dist.destroy_process_group()
    if rank == "0":
        with tempfile.NamedTemporaryFile(
            "w", dir=folder, prefix="said", delete=False
        ) as f:
            f.writelines(json.dumps(each) + "\n" for each in told)


if __name__ == "__main__":
    main(*sys.argv[1:])
