# SPDX-License-Identifier: BSD-3-Clause
"""Train a small network on handwritten digits, with as many processes as you like.

    python -m distlite.run --nproc-per-node 4 examples/train_digits.py
    torchrun --nproc-per-node 4 examples/train_digits.py
    python examples/train_digits.py

This is data-parallel training in its plainest form, in NumPy only:

1. every rank has the same model, because rank 0's parameters are broadcast;
2. each rank has its own share of the images;
3. of every batch, it computes the gradient of the images that it has;
4. one all_reduce adds the gradients up, so that every rank takes the same step.

The result is the same as with one process, up to rounding, for any number of ranks;
--check shows this.  The data are the 1,797 real images of scikit-learn's
`load_digits`: 8 x 8 pixels, ten classes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

try:
    from sklearn.datasets import load_digits
except ImportError:
    sys.exit("train_digits.py needs scikit-learn: pip install scikit-learn")

import distlite as dist

PIXELS, HIDDEN, CLASSES = 64, 64, 10
TEST_IMAGES = 360
MOMENTUM = 0.9
NEEDED_ACCURACY = 0.95
# The first is set by distlite run and torchrun, the others by mpirun.
LAUNCHED = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


class Data:
    """This rank's share of the images: every world_size-th, from its rank on."""

    def __init__(self, rank: int, world_size: int) -> None:
        images, labels = load_digits(return_X_y=True)
        # Shuffled in the same way on every rank, split in two, and distributed.
        order = np.random.default_rng(seed=0).permutation(len(labels))
        images, labels = images[order] / 16.0, labels[order]
        self.rank, self.world_size = rank, world_size
        self.test_count = TEST_IMAGES
        self.train_count = len(labels) - TEST_IMAGES
        self.test_images = images[:TEST_IMAGES][rank::world_size]
        self.test_labels = labels[:TEST_IMAGES][rank::world_size]
        self.train_images = images[TEST_IMAGES:][rank::world_size]
        self.train_labels = labels[TEST_IMAGES:][rank::world_size]

    def batches(
        self, epoch: int, size: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
        """Yields, for each batch of an epoch, this rank's images and labels, and the
        size of the whole batch.

        Batches are the same for any number of ranks.  The number of this rank's images
        in a batch varies, and may be 0.
        """
        order = np.random.default_rng(seed=(1, epoch)).permutation(self.train_count)
        for start in range(0, self.train_count, size):
            batch = order[start : start + size]
            mine = batch[batch % self.world_size == self.rank] // self.world_size
            yield self.train_images[mine], self.train_labels[mine], len(batch)


class Model:
    """Two layers.  All parameters lie in one array, so that one call sends them all."""

    def __init__(self, seed: int) -> None:
        self.parameters = np.zeros(
            PIXELS * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES, dtype=np.float64
        )
        random = np.random.default_rng(seed)
        weights_1, _, weights_2, _ = self.layers(self.parameters)
        weights_1[:] = random.normal(scale=PIXELS**-0.5, size=weights_1.shape)
        weights_2[:] = random.normal(scale=HIDDEN**-0.5, size=weights_2.shape)

    @staticmethod
    def layers(flat: np.ndarray) -> list[np.ndarray]:
        """Returns views of a flat array: weights and bias of each layer."""
        shapes = [(PIXELS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,)]
        ends = np.cumsum([np.prod(shape) for shape in shapes])
        parts = np.split(flat, ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    def forward(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the hidden layer and the probability of each class."""
        weights_1, bias_1, weights_2, bias_2 = self.layers(self.parameters)
        hidden = np.tanh(images @ weights_1 + bias_1)
        scores = hidden @ weights_2 + bias_2
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        return hidden, scores / scores.sum(axis=1, keepdims=True)

    def gradient(
        self, images: np.ndarray, labels: np.ndarray, gradient: np.ndarray
    ) -> float:
        """Writes the *summed* gradient over some images; returns their summed loss."""
        hidden, probabilities = self.forward(images)
        rows = np.arange(len(labels))
        loss = -np.log(probabilities[rows, labels]).sum()
        error = probabilities
        error[rows, labels] -= 1.0
        _, _, weights_2, _ = self.layers(self.parameters)
        error_hidden = (error @ weights_2.T) * (1.0 - hidden**2)
        weights_1_out, bias_1_out, weights_2_out, bias_2_out = self.layers(gradient)
        weights_1_out[:] = images.T @ error_hidden
        bias_1_out[:] = error_hidden.sum(axis=0)
        weights_2_out[:] = hidden.T @ error
        bias_2_out[:] = error.sum(axis=0)
        return float(loss)


def train(model: Model, data: Data, options: argparse.Namespace) -> Iterator[float]:
    """Trains epoch by epoch; yields the mean loss of each."""
    # One place more than there are parameters: the loss is sent with the gradient.
    buffer = np.zeros(model.parameters.size + 1)
    gradient = buffer[:-1]
    velocity = np.zeros_like(model.parameters)
    for epoch in range(options.epochs):
        epoch_loss = 0.0
        for images, labels, count in data.batches(epoch, options.batch_size):
            buffer[-1] = model.gradient(images, labels, gradient)
            if data.world_size > 1:
                dist.all_reduce(buffer, op=dist.ReduceOp.SUM)
            epoch_loss += buffer[-1]
            # Sums over all ranks, divided by the size of the whole batch, are exact
            # for uneven shares, too; an average of the ranks' averages is not.
            velocity *= MOMENTUM
            velocity -= options.learning_rate / count * gradient
            model.parameters += velocity
        yield epoch_loss / data.train_count


def accuracy(model: Model, data: Data) -> float:
    """Returns the accuracy on the test images, of which each rank classifies its
    own."""
    _, probabilities = model.forward(data.test_images)
    right = np.array([np.sum(probabilities.argmax(axis=1) == data.test_labels)])
    dist.all_reduce(right)
    return float(right[0]) / data.test_count


def same_everywhere(parameters: np.ndarray) -> bool:
    """Returns whether every rank has exactly rank 0's parameters."""
    reference = parameters.copy()
    dist.broadcast(reference, src=0)
    is_same = np.array([np.array_equal(reference, parameters)], dtype=np.int32)
    dist.all_reduce(is_same, op=dist.ReduceOp.MIN)
    return bool(is_same[0])


def show_progress(losses: Iterable[float], epochs: int) -> Iterator[float]:
    """Yields the same losses; shows a progress bar on a terminal, else lines."""
    try:
        from rich.console import Console
        from rich.progress import Progress, TextColumn
    except ImportError:
        is_terminal = False
    else:
        is_terminal = Console().is_terminal
    if not is_terminal:
        for epoch, loss in enumerate(losses, start=1):
            print(f"epoch {epoch:2}/{epochs}  loss {loss:.4f}", flush=True)
            yield loss
        return
    columns = [*Progress.get_default_columns(), TextColumn("loss {task.fields[loss]}")]
    with Progress(*columns) as progress:
        task = progress.add_task("training", total=epochs, loss="")
        for loss in losses:
            progress.update(task, advance=1, loss=f"{loss:.4f}")
            yield loss


def plot(losses: list[float], file: Path) -> None:
    """Draws the loss by epoch."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("--plot needs matplotlib: pip install matplotlib", file=sys.stderr)
        return
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(range(1, len(losses) + 1), losses, marker=".")
    axes.set(title="Training on handwritten digits")
    axes.set(xlabel="epoch", ylabel="mean loss of an image", yscale="log")
    axes.grid(which="both", alpha=0.3)
    figure.savefig(file, dpi=120)
    print(f"loss curve: {file}")


@contextmanager
def process_group() -> Iterator[tuple[int, int]]:
    """Joins the default group; yields this process's rank and the number of ranks."""
    if any(name in os.environ for name in LAUNCHED):
        dist.init_process_group()  # the launcher has set what it needs
    else:
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield dist.get_rank(), dist.get_world_size()
    finally:
        dist.destroy_process_group()


def parse() -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description="Train on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=64, help="of all ranks")
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument(
        "--check",
        action="store_true",
        help="train again in one process and compare the parameters",
    )
    parser.add_argument("--save", type=Path, metavar="FILE.npy", help="parameters")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="loss by epoch")
    return parser.parse_args()


def run(options: argparse.Namespace, rank: int, world_size: int) -> list[str]:
    """Trains and checks the result; returns what is wrong with it."""
    data = Data(rank, world_size)
    # Ranks begin with different parameters, as they would from random seeds of their
    # own: the broadcast is what makes them agree.
    model = Model(seed=rank)
    dist.broadcast(model.parameters, src=0)

    epochs = train(model, data, options)
    if rank == 0:
        epochs = show_progress(epochs, options.epochs)
    start = time.perf_counter()
    losses = list(epochs)  # trains
    seconds = time.perf_counter() - start

    problems = []
    if not same_everywhere(model.parameters):
        problems.append("the ranks' parameters differ")
    reached = accuracy(model, data)
    if reached < NEEDED_ACCURACY:
        problems.append(f"test accuracy {reached:.4f} is below {NEEDED_ACCURACY}")
    if rank != 0:
        return problems

    print(f"{world_size} ranks, {options.epochs} epochs in {seconds:.2f} s")
    print(f"test accuracy {reached:.4f}")
    if options.save:
        np.save(options.save, model.parameters)
    if options.plot:
        plot(losses, options.plot)
    if options.check:
        problems += check(model, options)
    if not problems:
        print("parameters equal on every rank")
    return problems


def check(model: Model, options: argparse.Namespace) -> list[str]:
    """Trains in this process alone, on the same batches, and compares."""
    alone = Model(seed=0)
    for _ in train(alone, Data(rank=0, world_size=1), options):
        pass
    largest = np.abs(model.parameters - alone.parameters).max()
    if not np.allclose(model.parameters, alone.parameters, rtol=1e-6, atol=1e-9):
        return [f"parameters differ from a single process's by {largest:.1e}"]
    print(f"parameters equal to a single process's within {largest:.1e}")
    return []


def main() -> int:
    """Returns the exit code, 1 if the result is wrong."""
    options = parse()
    with process_group() as (rank, world_size):
        problems = run(options, rank, world_size)
        for problem in problems if rank == 0 else []:
            print(f"train_digits: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
