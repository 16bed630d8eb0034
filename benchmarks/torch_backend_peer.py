# SPDX-License-Identifier: BSD-3-Clause
"""One rank of torch_backend.py: `PEER RANK SIZE FOLDER ROUNDS BYTES...`.

Both backends have a group of the same processes, and take turns.  Rank 0 writes a line
of JSON for each cell: {"what", "bytes", "microseconds": {backend: [of each round]}}.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from measure import alternate
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import distlite.torch  # noqa: F401

BACKENDS = ("gloo", "distlite")
# A model whose gradients take longer to sum up than to compute.
WIDTH, LAYERS = 1024, 6


def repeats(size: int) -> int:
    """Calls in a round: a few hundredths of a second of the slower side."""
    return max(2, min(100, (32 << 20) // max(size, 1 << 18)))


def all_reduce(group: Any, size: int) -> Callable[[], None]:
    """A call of `size` bytes."""
    tensor = torch.zeros(size // 4)
    return lambda: dist.all_reduce(tensor, group=group)


def ddp_step(group: Any, is_alone: bool = False) -> Callable[[], None]:
    """Forward, backward and optimizer of a data-parallel model, with one sample; alone:
    without communication."""
    torch.manual_seed(0)
    layers = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    model = DistributedDataParallel(
        layers, process_group=group, gradient_as_bucket_view=True
    )
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, fused=True)
    sample = torch.ones(1, WIDTH)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        with model.no_sync() if is_alone else contextlib.nullcontext():
            model(sample).sum().backward()
        optimizer.step()

    return step


def measure(
    calls: dict[str, Callable[[], None]],
    meet: Callable[[], None],
    rounds: int,
    count: int,
) -> dict[str, list[float]]:
    """Microseconds of one call in each round, by backend."""
    for call in calls.values():
        call()
        call()
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _, name in alternate(rounds, list(calls)):
        meet()
        begin = time.perf_counter()
        for _ in range(count):
            calls[name]()
        found[name].append((time.perf_counter() - begin) / count * 1e6)
    return found


def main() -> None:
    """Measures, and tells."""
    rank, size, folder = int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    rounds, sizes = int(sys.argv[5]), [int(each) for each in sys.argv[6:]]
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    groups = {name: dist.new_group(backend=name) for name in BACKENDS}
    cells: list[tuple[str, int, dict[str, Callable[[], None]], int]] = [
        (
            "all_reduce",
            each,
            {name: all_reduce(group, each) for name, group in groups.items()},
            repeats(each),
        )
        for each in sizes
    ]
    steps = {name: ddp_step(group) for name, group in groups.items()}
    gradients = 4 * LAYERS * (WIDTH * WIDTH + WIDTH)
    cells.append(("DDP step", gradients, steps, 3))
    alone = {name: ddp_step(group, True) for name, group in groups.items()}
    cells.append(("DDP step, communication left out", gradients, alone, 3))
    with open(folder / f"said{rank}", "w") as said:
        for what, count_of_bytes, calls, count in cells:
            found = measure(calls, dist.barrier, rounds, count)
            row = {"what": what, "bytes": count_of_bytes, "microseconds": found}
            if rank == 0:
                print(json.dumps(row), file=said, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
