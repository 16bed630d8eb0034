# SPDX-License-Identifier: BSD-3-Clause
# %% [markdown]
"""A parallel sort: the numbers of all ranks, in order from the first rank to the last.

    distlite run -n 4 examples/sort.py
    distlite run -n 4 examples/sort.py --plot sort.png

Each rank sorts its own numbers.  Samples of all ranks determine which range belongs to
which rank, and one `all_to_all`, whose blocks differ in size, brings every number to
its rank.
"""

# %%
from __future__ import annotations

import argparse
from importlib.util import find_spec

import numpy as np

import distlite as dist

COUNT = 200_000  # of each rank


def sort(mine: np.ndarray) -> np.ndarray:
    """Returns this rank's part of the sorted numbers of all ranks."""
    size = dist.get_world_size()
    mine = np.sort(mine)
    samples = np.empty((size, size), mine.dtype)
    middles = (2 * np.arange(size) + 1) * len(mine) // (2 * size)
    dist.all_gather_single(samples, mine[middles])
    # Every size-th of all samples is the upper end of a rank's range.
    ends = np.sort(samples, axis=None)[size::size]
    blocks = np.split(mine, np.searchsorted(mine, ends))
    counts = np.empty(size, np.int64)
    dist.all_to_all_single(counts, np.array([len(block) for block in blocks]))
    received = [np.empty(count, mine.dtype) for count in counts]
    dist.all_to_all(received, blocks)
    return np.sort(np.concatenate(received))


# %%
def plot(before: list[np.ndarray], after: list[np.ndarray], file: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3), layout="constrained")
    for column, (title, parts) in enumerate({"before": before, "after": after}.items()):
        axes = figure.add_subplot(1, 2, column + 1)
        start = 0
        for rank, part in enumerate(parts):
            shown = part[:: max(1, len(part) // 400)]
            at = start + np.arange(len(shown))
            axes.plot(at, shown, ".", markersize=2, label=f"rank {rank}")
            start += len(shown)
        axes.set(title=title, xticks=[])
    axes.legend(markerscale=5, fontsize="small")
    figure.savefig(file, dpi=120)


# %%
def main(picture: str | None = None) -> None:
    with dist.process_group():
        rank, size = dist.get_rank(), dist.get_world_size()
        mine = np.random.default_rng(rank).normal(rank % 2, 1, COUNT)
        part = sort(mine)
        before, after = dist.all_gather_arrays(mine), dist.all_gather_arrays(part)
        if rank == 0:
            expected = np.sort(np.concatenate(before))
            if not np.array_equal(np.concatenate(after), expected):
                raise SystemExit("the numbers are not in order")
            share = max(map(len, after)) / COUNT
            print(
                f"{size * COUNT} numbers in order, largest part {share:.2f} of the mean"
            )
            if picture:
                plot(before, after, picture)


# %%
if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="FILE.png")
    options = parser.parse_args()
    if options.plot and not find_spec("matplotlib"):
        raise SystemExit("--plot needs matplotlib: pip install matplotlib")
    main(options.plot)
