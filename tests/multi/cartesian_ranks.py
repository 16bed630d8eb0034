# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of grids: see test_cartesian.py."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import numpy as np
from collective_ranks import error_of
from reducer_ranks import join

import distlite


def grids(
    rank: int, world_size: int, init_method: str, places: str
) -> list[tuple[Any, ...]]:
    """Coordinates, ranks and neighbours of grids of several shapes."""
    join(rank, world_size, init_method, places)
    found: list[tuple[Any, ...]] = []
    for dims, periods in (
        ((2, 3), (True, False)),
        ((0, 2), False),
        ((6,), True),
        ((1, 2, 2), True),
        ((0, 0, 1), False),
    ):
        part = distlite.split(0 if rank < (math.prod(dims) or 6) else None)
        if part is None:
            found.append((None,))
            continue
        grid = distlite.Cartesian(dims, periods, part)
        assert grid.rank_of(grid.coords) == grid.group.rank() == rank
        assert grid.coords_of(rank) == grid.coords
        found.append((grid.dims, grid.coords, grid.neighbours, exchanged(grid)))
    return found


def exchanged(grid: distlite.Cartesian) -> list[Any]:
    """What came from each place: the sender, and the sender's place that it used."""
    rank, count = grid.group.rank(), 2 * len(grid.dims)
    gathered = np.full((count, 2), -1.0)
    grid.neighbor_all_gather(gathered, np.array([rank, 0.5]))
    sizes = [place + 1 for place in range(count)]
    inputs = [np.full(size, 100.0 * rank + place) for place, size in enumerate(sizes)]
    outputs: list[Any] = [np.full(sizes[place ^ 1], -1.0) for place in range(count)]
    for place, peer in enumerate(grid.neighbours):
        outputs[place] = None if peer is None else outputs[place]
    works = grid.neighbor_all_to_all(outputs, inputs, async_op=True)
    assert works is not None
    for work in works:
        work.wait()
    found: list[Any] = []
    for place, peer in enumerate(grid.neighbours):
        if peer is None:
            assert (gathered[place] == -1).all()
            found.append(None)
        else:
            assert gathered[place].tolist() == [peer, 0.5]
            assert set(outputs[place]) == {100.0 * peer + (place ^ 1)}
            found.append(peer)
    return found


def halos(
    rank: int, world_size: int, init_method: str, places: str
) -> list[tuple[Any, ...]]:
    """The cases in which the margins are not those of the whole array, padded."""
    join(rank, world_size, init_method, places)
    wrong: list[tuple[Any, ...]] = []
    for dims, wraps, width in (
        ((2, 2), (False, False), 1),
        ((2, 2), (True, True), 2),
        ((4, 1), (False, True), 1),
        ((1, 4), (True, False), 2),
    ):
        grid = distlite.Cartesian(dims, wraps)
        whole = np.arange(8.0 * 12 * 3).reshape(8, 12, 3)
        margins = [(width, width)] * 2 + [(0, 0)]
        padded = np.pad(whole, margins)
        for axis in range(2):
            if wraps[axis]:
                padded = wrapped(padded, axis, width)
        height, breadth = 8 // dims[0], 12 // dims[1]
        top, left = grid.coords[0] * height, grid.coords[1] * breadth
        cut = np.s_[top : top + height + 2 * width, left : left + breadth + 2 * width]
        cells = np.zeros_like(padded[cut])
        inner = np.s_[width:-width, width:-width]
        cells[inner] = padded[cut][inner]
        grid.exchange_halos(cells, width)
        if not (cells == padded[cut]).all():
            wrong.append((dims, wraps, width))
    return wrong


def wrapped(array: np.ndarray, axis: int, width: int) -> np.ndarray:
    """The margins along one axis filled from the other end."""
    moved = np.moveaxis(array.copy(), axis, 0)
    moved[:width], moved[-width:] = moved[-2 * width : -width], moved[width : 2 * width]
    return np.moveaxis(moved, 0, axis)


def wrong_calls(
    rank: int, world_size: int, init_method: str, places: str
) -> dict[str, str]:
    join(rank, world_size, init_method, places)
    make = distlite.Cartesian
    found = {
        "large": error_of(make, (2, 2)),
        "small": error_of(make, 1),
        "undivided": error_of(make, (3, 0)),
        "negative": error_of(make, (-1, 2)),
        "none": error_of(make, ()),
        "periods": error_of(make, (2,), (True, False)),
        "no bool": error_of(make, (2,), (1,)),
        "no number": error_of(make, (2.0,)),
        "differing": error_of(make, (2, 1) if rank else (1, 2)),
    }
    grid = make(2)
    found |= {
        "rank": error_of(grid.coords_of, 2),
        "coords": error_of(grid.rank_of, (0, 0)),
        "dimension": error_of(grid.shift, 1),
        "outputs": error_of(grid.neighbor_all_gather, [None], np.ones(1)),
        "missing": error_of(grid.neighbor_all_gather, [None, None], np.ones(1)),
        "thin": error_of(grid.exchange_halos, np.ones(5), 2),
    }
    distlite.barrier()
    return found


def failing(
    rank: int, world_size: int, init_method: str, places: str
) -> dict[str, Any]:
    """Arrays that do not fit, and a neighbour that does not come; the grid goes on."""
    join(rank, world_size, init_method, places)
    grid = distlite.Cartesian(2, True)
    found: dict[str, Any] = {}
    got = np.zeros((2, 3))
    sent = [np.full(3, rank + 1.0), np.full(4 if rank == 1 else 3, rank + 1.0)]
    found["long"] = error_of(grid.neighbor_all_to_all, got, sent)
    distlite.barrier()
    grid.neighbor_all_gather(got, np.full(3, rank + 1.0))
    found["after"] = got.tolist()
    distlite.barrier()
    if rank == 0:
        grid.group.set_timeout(timedelta(seconds=0.2))
        before = got.copy()
        found["late"] = error_of(grid.neighbor_all_gather, got, np.zeros(3))
        found["kept"] = bool((got == before).all())
    distlite.barrier()
    return found
