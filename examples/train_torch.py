# SPDX-License-Identifier: BSD-3-Clause
"""Train a torch model on several ranks with distlite in place of torch.distributed.

    python -m distlite.run --nproc-per-node 2 examples/train_torch.py
    torchrun --nproc-per-node 2 examples/train_torch.py
    python examples/train_torch.py

torch computes on the CPU, and distlite averages the gradients.  A hook on each
parameter tells `GradientReducer` that its gradient is ready, so that the gradients of
the last layers are sent while the backward pass is still in the first ones.
`DistributedSampler` is passed to torch's DataLoader like torch's own.

--check compares the parameters with those of all other ranks and with those of training
in one process.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence

import numpy as np

try:
    import torch
    from sklearn.datasets import load_digits
    from torch.utils.data import DataLoader, TensorDataset
except ImportError as error:
    sys.exit(f"train_torch.py needs torch and scikit-learn: {error}")

import distlite as dist
from distlite.data_parallel import DistributedSampler, GradientReducer

TEST_IMAGES = 360
NEEDED_ACCURACY = 0.9
# The first is set by distlite run and torchrun, the others by mpirun.
LAUNCHED = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


def make_data() -> tuple[TensorDataset, TensorDataset]:
    """Returns the images for training and those for the test."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed=0).permutation(len(labels))
    inputs = torch.from_numpy(images[order] / 16.0)
    classes = torch.from_numpy(labels[order])
    return (
        TensorDataset(inputs[TEST_IMAGES:], classes[TEST_IMAGES:]),
        TensorDataset(inputs[:TEST_IMAGES], classes[:TEST_IMAGES]),
    )


def make_model(seed: int) -> torch.nn.Module:
    """Returns a model in double precision, so that the order of sums hardly matters."""
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 10)]
    return torch.nn.Sequential(*layers).double()


def make_reducer(model: torch.nn.Module) -> GradientReducer:
    """Gives the model rank 0's parameters, and reduces gradients when ready."""
    reducer = GradientReducer(dict(model.named_parameters()))
    for name, parameter in model.named_parameters():

        def tell(parameter: torch.Tensor, name: str = name) -> None:
            reducer.ready(name, parameter.grad)

        hook = parameter.register_post_accumulate_grad_hook
        hook(tell)  # type: ignore[no-untyped-call, unused-ignore]
    return reducer


def train(
    model: torch.nn.Module,
    samplers: Sequence[DistributedSampler],
    options: argparse.Namespace,
    finish: Callable[[], None],
) -> Iterator[float]:
    """Trains on the images of one or several ranks; yields each epoch's mean loss."""
    data = make_data()[0]
    optimizer = torch.optim.SGD(model.parameters(), options.learning_rate, momentum=0.9)
    measure = torch.nn.CrossEntropyLoss()
    loaders = [DataLoader(data, options.batch_size, sampler=each) for each in samplers]
    for epoch in range(options.epochs):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        total = 0.0
        for parts in zip(*loaders, strict=True):
            images = torch.cat([part[0] for part in parts])
            labels = torch.cat([part[1] for part in parts])
            optimizer.zero_grad()
            loss = measure(model(images), labels)
            loss.backward()
            finish()
            optimizer.step()
            total += loss.item()
        yield total / len(loaders[0])


def accuracy(model: torch.nn.Module) -> float:
    """Returns the fraction of the test images that are classified correctly."""
    images, labels = make_data()[1].tensors
    with torch.no_grad():
        return float((model(images).argmax(dim=1) == labels).double().mean())


def check(model: torch.nn.Module, options: argparse.Namespace) -> list[str]:
    """Returns what is wrong with the result."""
    ranks = dist.get_world_size()
    samplers = [
        DistributedSampler(make_data()[0], ranks, rank) for rank in range(ranks)
    ]
    alone = make_model(seed=0)
    for _ in train(alone, samplers, options, finish=lambda: None):
        pass
    problems = []
    others = alone.parameters()
    for (name, parameter), other in zip(model.named_parameters(), others, strict=True):
        everybodys = [torch.empty_like(parameter) for _ in range(ranks)]
        dist.all_gather(everybodys, parameter.detach())
        if not all(torch.equal(parameter, each) for each in everybodys):
            problems.append(f"{name} is not the same on all ranks")
        if not torch.allclose(parameter, other, rtol=1e-6, atol=1e-9):
            problems.append(f"{name} differs from a single process's")
    if (reached := accuracy(model)) < NEEDED_ACCURACY:
        problems.append(f"test accuracy {reached:.4f} is below {NEEDED_ACCURACY}")
    return problems


def main() -> int:
    """Returns the exit code, 1 if the result is wrong."""
    parser = argparse.ArgumentParser(description="Train a torch model on digits.")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=16, help="of each rank")
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--check", action="store_true", help="compare with one process")
    options = parser.parse_args()
    if any(name in os.environ for name in LAUNCHED):
        dist.init_process_group()
    else:
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    is_first = dist.get_rank() == 0
    model = make_model(seed=dist.get_rank())
    reducer = make_reducer(model)
    sampler = DistributedSampler(make_data()[0])
    losses = train(model, [sampler], options, finish=reducer.finish)
    for epoch, loss in enumerate(losses, start=1):
        if is_first:
            print(f"epoch {epoch:2}/{options.epochs}  loss {loss:.4f}", flush=True)
    if is_first:
        print(f"test accuracy {accuracy(model):.4f}")
    problems = check(model, options) if options.check else []
    if is_first and options.check and not problems:
        print("parameters equal on every rank, and to a single process's")
    for problem in problems:
        print(f"train_torch: {problem}", file=sys.stderr)
    dist.destroy_process_group()
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
