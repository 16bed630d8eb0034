# SPDX-License-Identifier: BSD-3-Clause
"""A complete script of data-parallel training, in NumPy.

    python -m distlite.run --nproc-per-node 4 examples/train_digits_ddp.py
    torchrun --nproc-per-node 4 examples/train_digits_ddp.py
    python examples/train_digits_ddp.py

    ... --epochs 4 --checkpoint digits.npz              # stop after 4 epochs
    ... --epochs 12 --checkpoint digits.npz --resume    # and continue from there

1. `DistributedSampler` distributes the images, in another order in each epoch;
2. `GradientReducer` gives all ranks rank 0's parameters, and averages the gradients of
   a layer while those of the layer below are computed;
3. rank 0 writes a checkpoint after each epoch, and a barrier makes the others wait;
4. after `--resume` the others get it from rank 0, so that only rank 0 needs the file.

--check repeats the training in one process, including the epochs before a checkpoint,
and compares the parameters.  The images are scikit-learn's: 8 x 8 pixels, ten classes.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

try:
    from sklearn.datasets import load_digits
except ImportError:
    sys.exit("train_digits_ddp.py needs scikit-learn: pip install scikit-learn")

import distlite as dist
from distlite.data_parallel import DistributedSampler, GradientReducer

SIZES = (64, 96, 48, 10)
TEST_IMAGES = 360
MOMENTUM = 0.9
NEEDED_ACCURACY = 0.95
# The first is set by distlite run and torchrun, the others by mpirun.
LAUNCHED = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")

Arrays = dict[str, np.ndarray]


class Data:
    """All images, divided into those for training and those for the test."""

    def __init__(self) -> None:
        images, labels = load_digits(return_X_y=True)
        order = np.random.default_rng(seed=0).permutation(len(labels))
        images, labels = images[order] / 16.0, labels[order]
        self.test = images[:TEST_IMAGES], labels[:TEST_IMAGES]
        self.images, self.labels = images[TEST_IMAGES:], labels[TEST_IMAGES:]

    def __len__(self) -> int:
        return len(self.labels)


class Model:
    """Layers of weights and biases; the backward pass yields the gradients in turn."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.parameters: Arrays = {}
        for i, (inputs, outputs) in enumerate(pairwise(SIZES)):
            weights = random.normal(scale=inputs**-0.5, size=(inputs, outputs))
            self.parameters[f"weights_{i}"] = weights
            self.parameters[f"bias_{i}"] = np.zeros(outputs)
        self.depth = len(SIZES) - 1

    def forward(self, images: np.ndarray) -> list[np.ndarray]:
        """Returns the values of each layer; the last are the classes' probabilities."""
        values = [images]
        for i in range(self.depth):
            weights = self.parameters[f"weights_{i}"]
            sums = values[-1] @ weights + self.parameters[f"bias_{i}"]
            values.append(np.tanh(sums))
        scores = np.exp(sums - sums.max(axis=1, keepdims=True))
        values[-1] = scores / scores.sum(axis=1, keepdims=True)
        return values

    def backward(
        self, values: Sequence[np.ndarray], labels: np.ndarray
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yields the gradients of the mean loss, the last layer's first."""
        error = values[-1].copy()
        error[np.arange(len(labels)), labels] -= 1.0
        error /= len(labels)
        for i in reversed(range(self.depth)):
            yield f"bias_{i}", error.sum(axis=0)
            yield f"weights_{i}", values[i].T @ error
            error = error @ self.parameters[f"weights_{i}"].T * (1.0 - values[i] ** 2)

    def accuracy(self, images: np.ndarray, labels: np.ndarray) -> float:
        """Returns the fraction of the images that are classified correctly."""
        return float(np.mean(self.forward(images)[-1].argmax(axis=1) == labels))


class Momentum:
    """Steps along an average of the last gradients."""

    def __init__(self, parameters: Arrays, rate: float) -> None:
        self.parameters, self.rate = parameters, rate
        self.velocities = {k: np.zeros_like(v) for k, v in parameters.items()}

    def step(self, gradients: Arrays) -> None:
        for name, parameter in self.parameters.items():
            velocity = self.velocities[name]
            velocity *= MOMENTUM
            velocity -= self.rate * gradients[name]
            parameter += velocity


def save(path: Path, epoch: int, model: Model, optimizer: Momentum) -> None:
    """Writes the file on rank 0; the others wait until it is complete."""
    if dist.get_rank() == 0:
        state: dict[str, Any] = {"epoch": epoch}
        state |= {f"parameter_{k}": v for k, v in model.parameters.items()}
        state |= {f"velocity_{k}": v for k, v in optimizer.velocities.items()}
        unfinished = path.with_suffix(".part.npz")
        np.savez(unfinished, **state)
        os.replace(unfinished, path)
    dist.barrier()


def resume(path: Path, model: Model, optimizer: Momentum) -> int:
    """Restores the state from rank 0's file; returns the first epoch to train."""
    state: list[Any] = [None]
    if dist.get_rank() == 0:
        with np.load(path) as file:
            state[0] = dict(file)
    dist.broadcast_object_list(state, src=0)
    for name, parameter in model.parameters.items():
        parameter[...] = state[0][f"parameter_{name}"]
        optimizer.velocities[name][...] = state[0][f"velocity_{name}"]
    return int(state[0]["epoch"])


def train(
    model: Model, data: Data, options: argparse.Namespace
) -> Iterator[tuple[int, float]]:
    """Trains, and yields the number and the mean loss of each epoch."""
    optimizer = Momentum(model.parameters, options.learning_rate)
    first = 0
    if options.resume:
        first = resume(options.checkpoint, model, optimizer)
    sampler = DistributedSampler(data, shuffle=True, seed=options.seed)
    reducer = GradientReducer(model.parameters)
    for epoch in range(first, options.epochs):
        sampler.set_epoch(epoch)
        mine = np.array(list(sampler))
        total = np.zeros(1)
        for start in range(0, len(mine), options.batch_size):
            batch = mine[start : start + options.batch_size]
            labels = data.labels[batch]
            values = model.forward(data.images[batch])
            total -= np.log(values[-1][np.arange(len(batch)), labels]).sum()
            gradients = {}
            for name, gradient in model.backward(values, labels):
                reducer.ready(name, gradient)
                gradients[name] = gradient
            reducer.finish()
            optimizer.step(gradients)
        dist.all_reduce(total)
        if options.checkpoint:
            save(options.checkpoint, epoch + 1, model, optimizer)
        yield epoch, float(total[0]) / (len(sampler) * dist.get_world_size())


def train_alone(data: Data, options: argparse.Namespace, world_size: int) -> Model:
    """Does in this process alone what all ranks do together."""
    model = Model(seed=0)
    optimizer = Momentum(model.parameters, options.learning_rate)
    samplers = [
        DistributedSampler(data, world_size, rank, shuffle=True, seed=options.seed)
        for rank in range(world_size)
    ]
    for epoch in range(options.epochs):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        shares = np.array([list(sampler) for sampler in samplers])
        for start in range(0, shares.shape[1], options.batch_size):
            batch = shares[:, start : start + options.batch_size].reshape(-1)
            values = model.forward(data.images[batch])
            optimizer.step(dict(model.backward(values, data.labels[batch])))
    return model


def differs(parameters: Arrays, others: Arrays) -> str:
    """Returns the first parameter that differs by more than rounding, or ""."""
    for name, parameter in parameters.items():
        if not np.allclose(parameter, others[name], rtol=1e-6, atol=1e-9):
            return name
    return ""


def check(model: Model, data: Data, options: argparse.Namespace) -> list[str]:
    """Returns what is wrong with the result, on rank 0."""
    problems = []
    everybodys: list[Any] = [None] * dist.get_world_size()
    dist.gather_object(
        model.parameters, everybodys if dist.get_rank() == 0 else None, dst=0
    )
    if dist.get_rank() != 0:
        return []
    for rank, parameters in enumerate(everybodys):
        if name := differs(model.parameters, parameters):
            problems.append(f"{name} of rank {rank} differs from rank 0's")
    alone = train_alone(data, options, dist.get_world_size())
    if name := differs(model.parameters, alone.parameters):
        problems.append(f"{name} differs from a single process's")
    if (reached := model.accuracy(*data.test)) < NEEDED_ACCURACY:
        problems.append(f"test accuracy {reached:.4f} is below {NEEDED_ACCURACY}")
    if not problems:
        print("parameters equal on every rank, and to a single process's")
    return problems


def parse() -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description="Data-parallel training of digits.")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=16, help="of each rank")
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0, help="of the images' order")
    parser.add_argument("--checkpoint", type=Path, metavar="FILE.npz")
    parser.add_argument("--resume", action="store_true", help="from the checkpoint")
    parser.add_argument("--check", action="store_true", help="compare with one process")
    options = parser.parse_args()
    if options.resume and not options.checkpoint:
        parser.error("--resume needs --checkpoint FILE.npz")
    return options


def main() -> int:
    """Returns the exit code, 1 if the result is wrong."""
    options = parse()
    if any(name in os.environ for name in LAUNCHED):
        dist.init_process_group()
    else:
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    data = Data()
    # Ranks begin with different parameters; GradientReducer makes them rank 0's.
    model = Model(seed=dist.get_rank())
    for epoch, loss in train(model, data, options):
        if dist.get_rank() == 0:
            print(f"epoch {epoch + 1:2}/{options.epochs}  loss {loss:.4f}", flush=True)
    if dist.get_rank() == 0:
        print(f"test accuracy {model.accuracy(*data.test):.4f}")
    problems = check(model, data, options) if options.check else []
    for problem in problems:
        print(f"train_digits_ddp: {problem}", file=sys.stderr)
    dist.destroy_process_group()
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
