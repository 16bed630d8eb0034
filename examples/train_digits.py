# SPDX-License-Identifier: BSD-3-Clause
"""Data-parallel training in plain NumPy: handwritten digits, any number of ranks.

    distlite --nproc-per-node 4 examples/train_digits.py
    torchrun --nproc-per-node 4 examples/train_digits.py     # works as well

Every rank keeps a share of the images and a copy of the network.  A step takes one
*global* batch: each rank computes the gradient of the images of that batch which it
owns, one all_reduce adds the gradients of all ranks up, and everybody makes the same
step.  So the result does not depend on the number of ranks, up to rounding, and all
copies of the network stay equal to the last bit; the program checks both.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from sklearn.datasets import load_digits

import distlite as dist

SEED = 7
TEST_SHARE = 5  # one image in five is kept for the test
HIDDEN = 64
BATCH_SIZE = 64
LEARNING_RATE = 0.2
MOMENTUM = 0.9
WANTED_ACCURACY = 0.95


class Network:
    """64 pixels, a hidden layer, 10 digits.  All parameters are views into one vector,
    so that a gradient is one array and its reduction one all_reduce."""

    shapes = ((64, HIDDEN), (HIDDEN,), (HIDDEN, 10), (10,))

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.parameters = np.zeros(sum(int(np.prod(shape)) for shape in self.shapes))
        self.gradient = np.zeros_like(self.parameters)
        self.velocity = np.zeros_like(self.parameters)
        for weights in self.views(self.parameters)[::2]:
            weights[:] = random.normal(0, 1 / np.sqrt(weights.shape[0]), weights.shape)

    def views(self, vector: np.ndarray) -> list[np.ndarray]:
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        parts = np.split(vector, ends[:-1])
        return [
            part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)
        ]

    def forward(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Activations of the hidden layer, and the log-probabilities of the digits."""
        w1, b1, w2, b2 = self.views(self.parameters)
        hidden = np.maximum(images @ w1 + b1, 0)
        scores = hidden @ w2 + b2
        scores -= scores.max(axis=1, keepdims=True)
        return hidden, scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))

    def add_gradient(self, images: np.ndarray, digits: np.ndarray) -> float:
        """Fill `gradient` with the sum over these images; the sum of their losses."""
        hidden, log_probabilities = self.forward(images)
        own = np.arange(len(digits)), digits
        error = np.exp(log_probabilities)
        error[own] -= 1
        w2 = self.views(self.parameters)[2]
        error_hidden = (error @ w2.T) * (hidden > 0)
        dw1, db1, dw2, db2 = self.views(self.gradient)
        np.matmul(images.T, error_hidden, out=dw1)
        np.matmul(hidden.T, error, out=dw2)
        error_hidden.sum(axis=0, out=db1)
        error.sum(axis=0, out=db2)
        return -float(log_probabilities[own].sum())

    def step(self) -> None:
        self.velocity *= MOMENTUM
        self.velocity -= LEARNING_RATE * self.gradient
        self.parameters += self.velocity

    def accuracy(self, images: np.ndarray, digits: np.ndarray) -> float:
        return float((self.forward(images)[1].argmax(axis=1) == digits).mean())


class Data:
    """The images, the same split everywhere; a rank trains on every size-th of them."""

    def __init__(self, rank: int, size: int) -> None:
        digits = load_digits()
        order = np.random.default_rng(SEED).permutation(len(digits.target))
        test = order[::TEST_SHARE]
        train = np.setdiff1d(order, test)
        self.test = digits.data[test] / 16, digits.target[test]
        self.count = len(train)
        self.rank, self.size = rank, size
        self.images = digits.data[train[rank::size]] / 16
        self.digits = digits.target[train[rank::size]]

    def batches(self, epoch: int) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
        """This rank's images and digits of every global batch, and the batch's size."""
        order = np.random.default_rng((SEED, epoch)).permutation(self.count)
        for start in range(0, self.count, BATCH_SIZE):
            batch = order[start : start + BATCH_SIZE]
            mine = batch[batch % self.size == self.rank] // self.size
            yield self.images[mine], self.digits[mine], len(batch)


@contextmanager
def progress(epochs: int, is_shown: bool) -> Iterator:
    """A function to call after each epoch: a bar on a terminal, lines elsewhere."""
    if not is_shown:
        yield lambda *numbers: None
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        console = None
    else:
        console = Console()
    if console is None or not console.is_terminal:

        def show(epoch: int, loss: float, accuracy: float) -> None:
            text = f"loss {loss:.4f}, test accuracy {accuracy:.3f}"
            print(f"epoch {epoch:2}/{epochs}: {text}", flush=True)

        yield show
        return
    with Progress(console=console) as bar:
        task = bar.add_task("training", total=epochs)

        def advance(epoch: int, loss: float, accuracy: float) -> None:
            text = f"loss {loss:.4f}, test accuracy {accuracy:.3f}"
            bar.update(task, completed=epoch, description=text)

        yield advance


def train(network: Network, data: Data, epochs: int, is_shown: bool) -> float:
    """Train in step with the other ranks, if there are any; the final test accuracy."""
    accuracy = 0.0
    with progress(epochs, is_shown) as show:
        for epoch in range(1, epochs + 1):
            loss = np.zeros(1)
            for images, digits, batch_size in data.batches(epoch):
                loss += network.add_gradient(images, digits)
                if data.size > 1:
                    dist.all_reduce(network.gradient)
                network.gradient /= batch_size
                network.step()
            if data.size > 1:
                dist.all_reduce(loss)
            accuracy = network.accuracy(*data.test)
            show(epoch, loss.item() / data.count, accuracy)
    return accuracy


def copies_differ(network: Network) -> bool:
    """Whether any rank's parameters differ from rank 0's, in any bit."""
    of_first = network.parameters.copy()
    dist.broadcast(of_first, src=0)
    differs = np.array([not np.array_equal(of_first, network.parameters)], np.int32)
    dist.all_reduce(differs, dist.ReduceOp.MAX)
    return bool(differs[0])


def differs_from_one_process(network: Network, epochs: int) -> bool:
    """Whether training alone, on the same global batches, ends somewhere else."""
    alone = Network(SEED)
    train(alone, Data(0, 1), epochs, is_shown=False)
    furthest = np.abs(alone.parameters - network.parameters).max()
    print(f"furthest parameter from a single process's: {furthest:.1e}", flush=True)
    return not np.allclose(alone.parameters, network.parameters, rtol=1e-6, atol=1e-9)


def run(options: argparse.Namespace) -> list[str]:
    """Train; what went wrong."""
    rank, size = dist.get_rank(), dist.get_world_size()
    # Only rank 0's start counts: the others get it by broadcast.
    network = Network(SEED + rank)
    dist.broadcast(network.parameters, src=0)
    dist.barrier()
    start = time.perf_counter()
    accuracy = train(network, Data(rank, size), options.epochs, rank == 0)
    seconds = time.perf_counter() - start
    faults = []
    if copies_differ(network):
        faults.append("the ranks' parameters differ")
    if accuracy < WANTED_ACCURACY:
        faults.append(f"a test accuracy of {accuracy:.3f} is below {WANTED_ACCURACY}")
    if rank == 0:
        print(
            f"{size} ranks, {seconds:.1f} s: test accuracy {accuracy:.3f}", flush=True
        )
        if options.check and differs_from_one_process(network, options.epochs):
            faults.append("a single process ends with other parameters")
        if options.save:
            np.save(options.save, network.parameters)
    dist.barrier()
    return faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument(
        "--check", action="store_true", help="compare with training in one process"
    )
    parser.add_argument("--save", help="write the parameters to this .npy file")
    options = parser.parse_args()
    dist.init_process_group()
    faults = run(options)
    dist.destroy_process_group()
    if faults:
        sys.exit("; ".join(faults))


if __name__ == "__main__":
    main()
