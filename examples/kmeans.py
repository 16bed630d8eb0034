# SPDX-License-Identifier: BSD-3-Clause
# %% [markdown]
"""k-means of points in a memory-mapped file, of which each rank reads its part.

    distlite run -n 4 examples/kmeans.py
    distlite run -n 4 examples/kmeans.py --points 10000000 --plot kmeans.png

A step sums the points of each cluster on every rank, and one `all_reduce` adds the sums
up.  No rank ever has the whole file in its memory."""

# %%
import argparse
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import distlite as dist

CLUSTERS, STEPS, CHUNK = 5, 40, 65536


def write(file: Path, count: int) -> None:
    """Writes points around random centres, a chunk at a time."""
    random = np.random.default_rng(7)
    centres = random.uniform(-6, 6, (CLUSTERS, 2))
    points = np.lib.format.open_memmap(file, "w+", np.float64, (count, 2))
    for start in range(0, count, CHUNK):
        part = points[start : start + CHUNK]
        part[...] = random.normal(centres[random.integers(CLUSTERS, size=len(part))])


def nearest(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Returns the number of the nearest centre of each point."""
    distances = np.sum((points[:, None] - centres) ** 2, axis=2)
    return np.asarray(np.argmin(distances, axis=1))


def step(mine: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Returns the means of the points that are nearest to each centre."""
    sums = np.zeros((CLUSTERS, 3))  # x, y, and how many points
    for start in range(0, len(mine), CHUNK):
        part = mine[start : start + CHUNK]
        cluster = nearest(part, centres)
        for axis, weights in enumerate((part[:, 0], part[:, 1], None)):
            sums[:, axis] += np.bincount(cluster, weights, CLUSTERS)
    dist.all_reduce(sums)
    return sums[:, :2] / np.maximum(sums[:, 2:], 1)


# %%
def plot(points: np.ndarray, paths: np.ndarray, file: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4), layout="constrained")
    axes = figure.add_subplot()
    shown = points[:: max(1, len(points) // 5000)]
    x, y = shown.T
    axes.scatter(x, y, s=2, c=nearest(shown, paths[-1]), cmap="tab10", alpha=0.4)
    for path in paths.swapaxes(0, 1):
        axes.plot(*path.T, color="black", marker=".", linewidth=1)
        axes.plot(*path[-1], "k*", markersize=10)
    figure.savefig(file, dpi=80)


# %%
def main(picture: str | None = None, count: int = 200_000) -> None:
    with tempfile.TemporaryDirectory() as folder, dist.process_group():
        rank, size = dist.get_rank(), dist.get_world_size()
        file = [Path(folder, "points.npy")]
        dist.broadcast_object_list(file, src=0)
        if rank == 0:
            write(file[0], count)
        dist.barrier()
        points = np.load(file[0], mmap_mode="r")
        mine = points[len(points) * rank // size : len(points) * (rank + 1) // size]
        paths = [np.array(points[:CLUSTERS])]
        while len(paths) < STEPS:
            paths.append(step(mine, paths[-1]))
            if np.allclose(paths[-1], paths[-2], atol=1e-3):
                break
        if rank == 0:
            centres = ", ".join(f"({x:.2f} {y:.2f})" for x, y in paths[-1])
            print(f"{len(points)} points, {len(paths) - 1} steps: {centres}")
            if picture:
                plot(points, np.array(paths), picture)
        dist.barrier()  # the file goes away with rank 0's folder


# %%
if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=200_000)
    parser.add_argument("--plot", metavar="FILE.png")
    options = parser.parse_args()
    if options.plot and not find_spec("matplotlib"):
        raise SystemExit("--plot needs matplotlib: pip install matplotlib")
    main(options.plot, options.points)
