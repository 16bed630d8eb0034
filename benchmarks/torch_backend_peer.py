# SPDX-License-Identifier: BSD-3-Clause
"""One rank of torch_backend.py: `PEER RANK SIZE FOLDER ROUNDS BYTES...`.

Both backends have a group of the same processes, and take turns.  Rank 0 writes a line
of JSON for each cell: {"what", "bytes", "microseconds": {side: [of each round]},
"placements": [of each round]}.  A side is a backend, or what of a step remains without
communication: "alone" is the step of one rank, and "floor" that of DDP with all that
DDP does beside it, such as copying gradients into its buckets.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from measure import alternate
from placement import Placement, of_both
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import distlite.torch  # noqa: F401

BACKENDS = ("gloo", "distlite")
ALONE, FLOOR = "alone", "floor"
Calls = dict[str, Callable[[], None]]

WIDTH, LAYERS, EXPERTS = 1024, 6, 6
ROWS, DIMENSIONS, HIDDEN, SAMPLES, WORDS = 50_000, 128, 64, 64, 20


class Layers(nn.Module):
    """A model that computes about as long as the all_reduce of its gradients takes,
    with one sample."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
        self.sample = torch.ones(1, WIDTH)

    def forward(self) -> torch.Tensor:
        """A loss."""
        return self.layers(self.sample).sum()


class Layer(nn.Module):
    """Computes little beside what its gradients take to be summed up."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.sample = torch.ones(1, WIDTH)

    def forward(self) -> torch.Tensor:
        """A loss."""
        return self.layer(self.sample).relu().sum()


class Experts(nn.Module):
    """Layers of which a step uses one on each rank.  DDP sums up the gradients of all,
    as it cannot know which of them other ranks use."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS))
        self.sample = torch.ones(1, WIDTH)

    def forward(self) -> torch.Tensor:
        """A loss."""
        return self.experts[dist.get_rank()](self.sample).relu().sum()


class Recommender(nn.Module):
    """A large embedding with dense gradients, and little to compute."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(ROWS, DIMENSIONS, mode="sum")
        self.layers = nn.Sequential(
            nn.Linear(DIMENSIONS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1)
        )
        self.samples = torch.randint(0, ROWS, (SAMPLES, WORDS))

    def forward(self) -> torch.Tensor:
        """A loss."""
        return self.layers(self.embedding(self.samples)).sum()


def repeats(size: int) -> int:
    """Calls in a round: a few hundredths of a second of the slower side."""
    return max(2, min(100, (32 << 20) // max(size, 1 << 18)))


def all_reduce(group: Any, size: int) -> Callable[[], None]:
    """A call of `size` bytes."""
    tensor = torch.zeros(size // 4)
    return lambda: dist.all_reduce(tensor, group=group)


def step_of(model: nn.Module, is_sharded: bool = False) -> Callable[[], None]:
    """Forward, backward and the fastest optimizer that there is."""
    how = {"foreach": True} if is_sharded else {"fused": True}
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, **how)

    def step() -> None:
        optimizer.zero_grad()
        model().backward()
        optimizer.step()

    return step


def ddp(kind: type[nn.Module], group: Any) -> DistributedDataParallel:
    """The data-parallel model, which is the same on all ranks."""
    torch.manual_seed(0)
    return DistributedDataParallel(
        kind(),
        process_group=group,
        gradient_as_bucket_view=True,
        find_unused_parameters=kind is Experts,
    )


def ended(tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    """A future that has its value."""
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(tensor)
    return future


def ddp_steps(kind: type[nn.Module], groups: dict[str, Any]) -> Calls:
    """A step with each backend, and two without communication."""
    steps = {name: step_of(ddp(kind, group)) for name, group in groups.items()}
    # Of experts, DDP sums up which are used even so: by the faster of the backends.
    silent = ddp(kind, groups[BACKENDS[1]])
    silent.register_comm_hook(None, lambda _, bucket: ended(bucket.buffer()))
    model = ddp(kind, groups[BACKENDS[0]])
    step = step_of(model)

    def alone() -> None:
        with model.no_sync():
            step()

    return {**steps, ALONE: alone, FLOOR: step_of(silent)}


def fsdp_steps(groups: dict[str, Any]) -> Calls:
    """The same of FSDP2, whose step without communication is that of a plain model."""
    steps = {}
    for name, group in groups.items():
        mesh = DeviceMesh.from_group(group, "cpu")
        torch.manual_seed(0)
        model = Layers()
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        steps[name] = step_of(fully_shard(model, mesh=mesh), is_sharded=True)
    return {**steps, ALONE: step_of(Layers())}


def size_of(kind: type[nn.Module]) -> int:
    """Bytes of the gradients."""
    return sum(4 * each.numel() for each in kind().parameters())


def measure(
    calls: Calls, meet: Callable[[], None], place: Placement, rounds: int, count: int
) -> dict[str, Any]:
    """Microseconds of one call in each round, by side, and how the cores lay."""
    for call in calls.values():
        call()
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    placements = []
    before = place.measure()
    for turn, name in alternate(rounds, list(calls)):
        meet()
        begin = time.perf_counter()
        for _ in range(count):
            calls[name]()
        times[name].append((time.perf_counter() - begin) / count * 1e6)
        if min(map(len, times.values())) > turn:
            meet()
            after = place.measure()
            placements.append(of_both(before, after))
            before = after
    return {"microseconds": times, "placements": placements}


def main() -> None:
    """Measures, and tells."""
    rank, size, folder = int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    rounds, sizes = int(sys.argv[5]), [int(each) for each in sys.argv[6:]]
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    groups = {name: dist.new_group(backend=name) for name in BACKENDS}
    place = Placement(folder / "placement", 0) if rank == 0 else None
    dist.barrier()
    place = place or Placement(folder / "placement", rank)
    cells: list[tuple[str, int, Calls, int]] = [
        (
            "all_reduce",
            each,
            {name: all_reduce(group, each) for name, group in groups.items()},
            repeats(each),
        )
        for each in sizes
    ]
    cells += [
        ("DDP, one layer", size_of(Layer), ddp_steps(Layer, groups), 10),
        ("DDP, experts", size_of(Experts), ddp_steps(Experts, groups), 3),
        ("DDP, recommender", size_of(Recommender), ddp_steps(Recommender, groups), 3),
        ("DDP, layers", size_of(Layers), ddp_steps(Layers, groups), 3),
        ("FSDP2, layers", size_of(Layers), fsdp_steps(groups), 3),
    ]
    with open(folder / f"said{rank}", "w") as said:
        for what, count_of_bytes, calls, count in cells:
            found = measure(calls, dist.barrier, place, rounds, count)
            row = {"what": what, "bytes": count_of_bytes, **found}
            if rank == 0:
                print(json.dumps(row), file=said, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
