# SPDX-License-Identifier: BSD-3-Clause
# %% [markdown]
"""
Data-parallel training: each rank learns from its share of handwritten digits.

    distlite run -n 4 examples/digits.py
    distlite run -n 4 examples/digits.py --plot digits.png

In each step a rank computes the gradient of its own images, and one `all_reduce` adds
up the gradients of all ranks, so that every rank takes the same step.  The network has
one layer, whose weights are pictures of the digits.  `pip install scikit-learn` brings
the images.
"""

# %%
from __future__ import annotations

import argparse
from importlib.util import find_spec

import numpy as np

try:
    from sklearn.datasets import load_digits
except ImportError:
    raise SystemExit("digits.py needs scikit-learn: pip install scikit-learn") from None

import distlite as dist

STEPS, RATE, TEST = 300, 1.0, 397


def gradient(
    weights: np.ndarray, images: np.ndarray, labels: np.ndarray
) -> tuple[float, np.ndarray]:
    """Returns the loss and its gradient, summed over the images."""
    scores = np.exp(images @ weights)
    scores /= scores.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(scores[rows, labels]).sum()
    scores[rows, labels] -= 1
    return float(loss), images.T @ scores


def train(images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """Returns the weights, and the mean loss of all ranks in each step."""
    weights = np.zeros((images.shape[1], 10))
    losses = []
    for _ in range(STEPS):
        loss, change = gradient(weights, images, labels)
        sums = np.append(change, [loss, len(labels)])
        dist.all_reduce(sums)
        weights -= RATE * sums[:-2].reshape(weights.shape) / sums[-1]
        losses.append(sums[-2] / sums[-1])
    return weights, losses


# %%
def plot(weights: np.ndarray, losses: list[float], file: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3))
    axes = figure.add_axes(
        (0.13, 0.17, 0.34, 0.78), xlabel="step", ylabel="loss", yscale="log"
    )
    axes.plot(losses)
    for digit in range(10):
        each = figure.add_subplot(2, 10, digit + 6 + 5 * (digit // 5))
        each.imshow(weights[:-1, digit].reshape(8, 8), cmap="RdBu_r")
        each.set(title=str(digit), xticks=[], yticks=[])
    figure.savefig(file, dpi=120)


# %%
def main(picture: str | None = None) -> None:
    images, labels = load_digits(return_X_y=True)
    images = np.column_stack([images / 16, np.ones(len(images))])  # the last: a bias
    with dist.process_group():
        rank, size = dist.get_rank(), dist.get_world_size()
        mine = slice(TEST + rank, None, size)
        weights, losses = train(images[mine], labels[mine])
        guesses = (images[rank:TEST:size] @ weights).argmax(axis=1)
        right = np.sum(guesses == labels[rank:TEST:size], keepdims=True)
        dist.all_reduce(right)
        if rank == 0:
            print(f"loss {losses[0]:.3f}, after {STEPS} steps {losses[-1]:.3f}")
            print(f"{right[0]} of {TEST} other images are recognised")
            if picture:
                plot(weights, losses, picture)


# %%
if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="FILE.png")
    options = parser.parse_args()
    if options.plot and not find_spec("matplotlib"):
        raise SystemExit("--plot needs matplotlib: pip install matplotlib")
    main(options.plot)
