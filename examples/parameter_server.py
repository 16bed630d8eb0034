# SPDX-License-Identifier: BSD-3-Clause
# %% [markdown]
"""A parameter server: rank 0 has the parameters, the other ranks send it gradients.

    distlite run -n 4 examples/parameter_server.py
    distlite run -n 4 examples/parameter_server.py --plot parameter_server.png

The server receives from any rank and answers with its latest parameters, so that a slow
worker delays nobody.  Its gradients are those of older parameters, though."""

# %%
import argparse
import time
from importlib.util import find_spec

import numpy as np

import distlite as dist

FEATURES, BATCH, RATE = 20, 64, 0.3


def true_weights() -> np.ndarray:
    return np.random.default_rng(1).normal(size=FEATURES)


def serve(gradients: int) -> list[tuple[int, float]]:
    """Returns who sent each gradient, and the loss after it."""
    weights, gradient = np.zeros(FEATURES), np.empty(FEATURES)
    inputs = np.random.default_rng(0).normal(size=(1000, FEATURES))
    labels = inputs @ true_weights() > 0
    history: list[tuple[int, float]] = []
    workers = dist.get_world_size() - 1
    while workers:
        worker = dist.recv(gradient)  # from any rank
        if len(history) < gradients:
            weights -= RATE * gradient
            margins = np.where(labels, 1, -1) * (inputs @ weights)
            history.append((worker, float(np.logaddexp(0, -margins).mean())))
        is_last = len(history) == gradients
        workers -= is_last
        dist.send(np.append(weights, is_last), dst=worker)
    return history


def work(pause: float) -> None:
    """Sends gradients until the server says that it has enough."""
    random = np.random.default_rng(100 + dist.get_rank())
    answer, gradient = np.empty(FEATURES + 1), np.zeros(FEATURES)
    while True:
        dist.send(gradient, dst=0)
        dist.recv(answer, src=0)
        if answer[-1]:
            return
        inputs = random.normal(size=(BATCH, FEATURES))
        labels = inputs @ true_weights() > 0
        error = 1 / (1 + np.exp(-inputs @ answer[:-1])) - labels
        gradient = inputs.T @ error / BATCH
        time.sleep(pause)  # stands for a larger model, or a slower machine


# %%
def plot(history: list[tuple[int, float]], file: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.add_subplot()
    workers, losses = map(np.array, zip(*history, strict=True))
    for worker in np.unique(workers):
        (at,) = np.nonzero(workers == worker)
        label = f"rank {worker}: {len(at)} gradients"
        axes.plot(at, losses[at], ".", markersize=4, label=label)
    axes.set(xlabel="gradients", ylabel="loss")
    axes.legend()
    figure.savefig(file, dpi=120)


# %%
def main(picture: str | None = None, gradients: int = 600) -> None:
    with dist.process_group():
        if dist.get_rank() != 0:
            work(pause=0.002 * dist.get_rank() ** 2)
            return
        history = serve(gradients)
        first, last = history[0][1], history[-1][1]
        print(f"loss {first:.3f}, after {len(history)} gradients {last:.3f}")
        if picture:
            plot(history, picture)


# %%
if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gradients", type=int, default=600)
    parser.add_argument("--plot", metavar="FILE.png")
    options = parser.parse_args()
    if options.plot and not find_spec("matplotlib"):
        raise SystemExit("--plot needs matplotlib: pip install matplotlib")
    main(options.plot, options.gradients)
