# SPDX-License-Identifier: BSD-3-Clause
# %% [markdown]
"""Heat spreads over a plate, of which each rank has a rectangle.

    distlite run -n 4 examples/heat.py
    distlite run -n 4 examples/heat.py --plot heat.png

Before each step the ranks exchange the margins of their rectangles with their
neighbours.  At the end rank 0 compares the whole plate with one that a single process
computes.
"""

# %%
from __future__ import annotations

import argparse
from importlib.util import find_spec

import numpy as np

import distlite as dist

ROWS, COLUMNS, STEPS = 48, 64, 300


def spread(cells: np.ndarray) -> None:
    """Makes one step of all cells except those of the margins."""
    inner = cells[1:-1, 1:-1]
    around = cells[:-2, 1:-1] + cells[2:, 1:-1] + cells[1:-1, :-2] + cells[1:-1, 2:]
    inner += 0.2 * (around - 4 * inner)


def plate() -> np.ndarray:
    """Returns a cold plate with a hot corner, inside a margin that stays cold."""
    cells = np.zeros((ROWS + 2, COLUMNS + 2))
    cells[1:10, 1:20] = 100
    return cells


# %%
def plot(cells: np.ndarray, dims: tuple[int, ...], file: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.add_subplot(xticks=[], yticks=[])
    axes.imshow(cells, cmap="inferno")
    for row in range(1, dims[0]):
        axes.axhline(row * ROWS / dims[0] - 0.5, color="white", linewidth=0.5)
    for column in range(1, dims[1]):
        axes.axvline(column * COLUMNS / dims[1] - 0.5, color="white", linewidth=0.5)
    figure.savefig(file, dpi=120)


# %%
def main(picture: str | None = None) -> None:
    dist.init_process_group()
    grid = dist.Cartesian((0, 0))
    height, width = ROWS // grid.dims[0], COLUMNS // grid.dims[1]
    top, left = grid.coords[0] * height, grid.coords[1] * width
    cells = plate()[top : top + height + 2, left : left + width + 2].copy()
    for _ in range(STEPS):
        grid.exchange_halos(cells)
        spread(cells)
    parts = np.empty((dist.get_world_size(), height, width))
    dist.all_gather_single(parts, np.ascontiguousarray(cells[1:-1, 1:-1]))
    if dist.get_rank() == 0:
        alone = plate()
        for _ in range(STEPS):
            spread(alone)
        whole = parts.reshape(*grid.dims, height, width).swapaxes(1, 2)
        whole = whole.reshape(ROWS, COLUMNS)
        error = abs(whole - alone[1:-1, 1:-1]).max()
        print(f"{grid.dims[0]} x {grid.dims[1]} ranks, largest error {error:.1g}")
        if error > 1e-9:
            raise SystemExit(1)
        if picture:
            plot(whole, grid.dims, picture)
    dist.destroy_process_group()


# %%
if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="FILE.png")
    options = parser.parse_args()
    if options.plot and not find_spec("matplotlib"):
        raise SystemExit("--plot needs matplotlib: pip install matplotlib")
    main(options.plot)
