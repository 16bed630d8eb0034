# SPDX-License-Identifier: BSD-3-Clause
"""One rank of training.py: training_peer.py, with the words

    torch RANK SIZE FOLDER ROUNDS TRACE MIB...

The same model and batch are trained by DistributedDataParallel over gloo, by
GradientReducer with torch's tensors, and by GradientReducer with NumPy alone, the last
two with buckets of each size.  All take turns in one process.  Rank 0 writes a line of
JSON for each: {"way", "bucket", "seconds": [of steps], "hidden": [share, of steps]},
and a trace of torch.profiler of one more step to the file TRACE, unless that is "-".
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
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

# Gradients of 24 MiB.
WIDTH, LAYERS, BATCH, RATE = 1024, 6, 4, 1e-3
# Steps in a row, of which the first warms the caches up.
STEPS = 3
Step = Callable[[], None]


def torch_model() -> nn.Sequential:
    """The same on all ranks."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers)


def torch_step(model: nn.Module, finish: Step, block: Any = None) -> Step:
    """Forward, backward, what comes after it, and the optimizer."""
    optimizer = torch.optim.SGD(model.parameters(), RATE, fused=True)
    batch = torch.ones(BATCH, WIDTH)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        with block() if block else contextlib.nullcontext():
            model(batch).sum().backward()
        finish()
        optimizer.step()

    return step


def ddp_step() -> Step:
    model = DistributedDataParallel(torch_model(), gradient_as_bucket_view=True)
    return torch_step(model, lambda: None)


def alone_step() -> Step:
    """Without communication."""
    model = DistributedDataParallel(torch_model(), gradient_as_bucket_view=True)
    return torch_step(model, lambda: None, model.no_sync)


def reduced_step(bucket: float) -> tuple[Step, GradientReducer]:
    """As a training loop of torch would use the reducer."""
    model = torch_model()
    parameters = dict(model.named_parameters())
    reducer = GradientReducer(
        {name: each.detach() for name, each in parameters.items()}, bucket_cap_mb=bucket
    )
    for name, gradient in reducer.gradients.items():
        parameters[name].grad = gradient
        parameters[name].register_post_accumulate_grad_hook(
            lambda _, name=name: reducer.ready(name)
        )
    return torch_step(model, reducer.finish), reducer


def numpy_step(bucket: float) -> tuple[Step, GradientReducer]:
    """The same model, forward and backward by hand."""
    start = {
        name: each.detach().numpy() for name, each in torch_model().state_dict().items()
    }
    parameters = {name: each.copy() for name, each in start.items()}
    reducer = GradientReducer(parameters, bucket_cap_mb=bucket)
    gradients = reducer.gradients
    batch = np.ones((BATCH, WIDTH), np.float32)
    scratch = np.empty((WIDTH, WIDTH), np.float32)

    def step() -> None:
        inputs, x = [], batch
        for layer in range(0, 2 * LAYERS, 2):
            inputs.append(x)
            x = x @ parameters[f"{layer}.weight"].T + parameters[f"{layer}.bias"]
            np.maximum(x, 0, out=x)
        back = np.ones_like(x)
        for layer in range(2 * LAYERS - 2, -1, -2):
            back = back * (x > 0)
            x = inputs[layer // 2]
            np.sum(back, axis=0, out=gradients[f"{layer}.bias"])
            reducer.ready(f"{layer}.bias")
            np.matmul(back.T, x, out=gradients[f"{layer}.weight"])
            reducer.ready(f"{layer}.weight")
            if layer:
                back = back @ parameters[f"{layer}.weight"]
        reducer.finish()
        for name, parameter in parameters.items():
            room = scratch[0] if parameter.ndim == 1 else scratch
            np.multiply(gradients[name], RATE, out=room)
            parameter -= room

    return step, reducer


def measure(steps: dict[Any, Any], rounds: int) -> list[dict[str, Any]]:
    """Seconds of the steps of each way, all but the first of each turn."""
    rows = {
        key: {"way": key[0], "bucket": key[1], "seconds": [], "hidden": []}
        for key in steps
    }
    for number, key in alternate(rounds + 1, list(steps)):
        step, reducer = steps[key]
        distlite.barrier()
        for turn in range(STEPS):
            start = time.perf_counter()
            step()
            spent = time.perf_counter() - start
            if number and turn:
                rows[key]["seconds"].append(spent)
                if reducer is not None:
                    rows[key]["hidden"].append(reducer.statistics.overlap)
    return list(rows.values())


def trace_step(step: Step, path: str, rank: int) -> None:
    """Of rank 0: the backward pass, and the buckets on their way beside it."""
    if path == "-" or rank != 0:
        step()
        return
    with torch.profiler.profile() as profile:
        step()
    profile.export_chrome_trace(path)


def main() -> None:
    """Measures, and tells."""
    rank, size, folder = int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    rounds, buckets = int(sys.argv[5]), [float(word) for word in sys.argv[7:]]
    torch.set_num_threads(1)
    where = dict(rank=rank, world_size=size)
    store = torch.distributed.FileStore(str(folder / "store"), size)
    torch.distributed.init_process_group("gloo", store=store, **where)
    distlite.init_process_group(init_method=f"file://{folder}/meet", **where)
    steps: dict[Any, Any] = {("torch DDP, gloo", 25): (ddp_step(), None)}
    steps["torch DDP, communication left out", 25] = alone_step(), None
    for bucket in buckets:
        steps["GradientReducer, torch", bucket] = reduced_step(bucket)
        steps["GradientReducer, NumPy", bucket] = numpy_step(bucket)
    rows = measure(steps, rounds)
    trace_step(steps["GradientReducer, torch", buckets[0]][0], sys.argv[6], rank)
    if rank == 0:
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "said").write_text(lines)
    distlite.destroy_process_group()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
