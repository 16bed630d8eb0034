# SPDX-License-Identifier: BSD-3-Clause
"""One rank of training.py: training_peer.py, with the words

    torch RANK SIZE FOLDER MODEL ROUNDS TRACE MIB...

The same model (one of MODELS) and batch are trained by DistributedDataParallel over
gloo, by GradientReducer with torch's tensors, and by GradientReducer with NumPy alone,
the last two with buckets of each size.  All take turns in one process.  Rank 0 writes a
line of JSON for each: {"way", "bucket", "seconds": [of steps]}, and a trace of
torch.profiler of one more step to the file TRACE, unless that is "-".
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as torch below: a rank has one core
import numpy as np
import torch
import torch.distributed
from measure import alternate
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import distlite
from distlite.data_parallel import GradientReducer

RATE = 1e-3
# Steps in a row, of which the first warms the caches up.
STEPS = 3
Step = Callable[[], None]


@dataclass(frozen=True)
class Model:
    """Linear layers of WIDTH x WIDTH with ReLU, behind the sums of BAG rows of a table
    each if there is one."""

    width: int
    layers: int
    batch: int
    rows: int = 0
    bag: int = 0

    def make(self) -> nn.Sequential:
        """The same on all ranks."""
        torch.manual_seed(0)
        layers: list[nn.Module] = []
        if self.rows:
            layers.append(nn.EmbeddingBag(self.rows, self.width, mode="sum"))
        for _ in range(self.layers):
            layers += [nn.Linear(self.width, self.width), nn.ReLU()]
        return nn.Sequential(*layers)

    def make_batch(self) -> np.ndarray[Any, Any]:
        """What goes in: rows of the table, or ones."""
        if not self.rows:
            return np.ones((self.batch, self.width), np.float32)
        random = np.random.default_rng(0)
        return random.integers(0, self.rows, (self.batch, self.bag))


MODELS = {
    # Gradients of 24 MiB.
    "wide": Model(width=1024, layers=6, batch=4),
    # Gradients of 65 KiB, as those of a policy in reinforcement learning.
    "small": Model(width=64, layers=4, batch=32),
    # A table of 24 MiB, of which a batch reads a hundredth, as in recommendation.
    "table": Model(width=64, layers=2, batch=128, rows=98_304, bag=8),
}


def torch_step(
    model: nn.Module, batch: torch.Tensor, finish: Step, block: Any = None
) -> Step:
    """Forward, backward, what comes after it, and the optimizer."""
    optimizer = torch.optim.SGD(model.parameters(), RATE, fused=True)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        with block() if block else contextlib.nullcontext():
            model(batch).sum().backward()
        finish()
        optimizer.step()

    return step


def ddp_step(kind: Model, alone: bool = False) -> Step:
    """Returns a step of DistributedDataParallel; with `alone`, without
    communication."""
    model = DistributedDataParallel(kind.make(), gradient_as_bucket_view=True)
    batch = torch.from_numpy(kind.make_batch())
    return torch_step(model, batch, lambda: None, model.no_sync if alone else None)


def reduced_step(kind: Model, bucket: float) -> Step:
    """Returns a step that uses the reducer as a training loop of torch would."""
    model = kind.make()
    parameters = dict(model.named_parameters())
    reducer = GradientReducer(
        {name: each.detach() for name, each in parameters.items()}, bucket_cap_mb=bucket
    )
    for name, gradient in reducer.gradients.items():
        parameters[name].grad = gradient
        parameters[name].register_post_accumulate_grad_hook(
            lambda _, name=name: reducer.ready(name)
        )
    batch = torch.from_numpy(kind.make_batch())
    return torch_step(model, batch, reducer.finish)


def numpy_step(kind: Model, bucket: float) -> Step:
    """The same model, forward and backward by hand."""
    start = {
        name: each.detach().numpy() for name, each in kind.make().state_dict().items()
    }
    parameters = {name: each.copy() for name, each in start.items()}
    reducer = GradientReducer(parameters, bucket_cap_mb=bucket)
    gradients = reducer.gradients
    batch = kind.make_batch()
    rooms = {name: np.empty_like(each) for name, each in parameters.items()}
    first = 1 if kind.rows else 0
    numbers = range(first, first + 2 * kind.layers, 2)

    def step() -> None:
        inputs = []
        x = parameters["0.weight"][batch].sum(axis=1) if kind.rows else batch
        for layer in numbers:
            inputs.append(x)
            x = x @ parameters[f"{layer}.weight"].T + parameters[f"{layer}.bias"]
            np.maximum(x, 0, out=x)
        back = np.ones_like(x)
        for layer in reversed(numbers):
            back = back * (x > 0)
            x = inputs.pop()
            np.sum(back, axis=0, out=gradients[f"{layer}.bias"])
            reducer.ready(f"{layer}.bias")
            np.matmul(back.T, x, out=gradients[f"{layer}.weight"])
            reducer.ready(f"{layer}.weight")
            if layer:
                back = back @ parameters[f"{layer}.weight"]
        if kind.rows:
            gradients["0.weight"].fill(0)
            np.add.at(gradients["0.weight"], batch, back[:, None, :])
            reducer.ready("0.weight")
        reducer.finish()
        for name, parameter in parameters.items():
            np.multiply(gradients[name], RATE, out=rooms[name])
            parameter -= rooms[name]

    return step


def measure(steps: dict[Any, Any], rounds: int) -> list[dict[str, Any]]:
    """Seconds of the steps of each way, all but the first of each turn."""
    rows = {key: {"way": key[0], "bucket": key[1], "seconds": []} for key in steps}
    for number, key in alternate(rounds + 1, list(steps)):
        step = steps[key]
        distlite.barrier()
        for turn in range(STEPS):
            start = time.perf_counter()
            step()
            spent = time.perf_counter() - start
            if number and turn:
                rows[key]["seconds"].append(spent)
    return list(rows.values())


def trace_step(step: Step, path: str, rank: int) -> None:
    """Writes rank 0's trace of one step: the backward pass, and the buckets beside
    it."""
    if path == "-" or rank != 0:
        step()
        return
    with torch.profiler.profile() as profile:
        step()
    profile.export_chrome_trace(path)


def main() -> None:
    """Measures, and tells."""
    rank, size, folder = int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    kind, rounds, trace = MODELS[sys.argv[5]], int(sys.argv[6]), sys.argv[7]
    buckets = [float(word) for word in sys.argv[8:]]
    torch.set_num_threads(1)
    where = dict(rank=rank, world_size=size)
    store = torch.distributed.FileStore(str(folder / "store"), size)
    torch.distributed.init_process_group("gloo", store=store, **where)
    distlite.init_process_group(init_method=f"file://{folder}/meet", **where)
    steps: dict[Any, Any] = {("torch DDP, gloo", 25): ddp_step(kind)}
    steps["torch DDP, communication left out", 25] = ddp_step(kind, alone=True)
    for bucket in buckets:
        steps["GradientReducer, torch", bucket] = reduced_step(kind, bucket)
        steps["GradientReducer, NumPy", bucket] = numpy_step(kind, bucket)
    rows = measure(steps, rounds)
    trace_step(steps["GradientReducer, torch", buckets[0]], trace, rank)
    if rank == 0:
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "said").write_text(lines)
    distlite.destroy_process_group()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
