# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of training.  Does not import pytest: every rank pays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from group_ranks import init

import distlite
from distlite.data_parallel import GradientReducer

SHAPES = {
    "first": (40, 30),
    "bias": (30,),
    "scale": (),
    "none": (0, 4),
    "last": (30, 7),
}
KILO = 1 / 1024


def parameters_of(rank: int, dtype: str = "float64") -> dict[str, np.ndarray]:
    return {name: np.full(shape, rank, dtype) for name, shape in SHAPES.items()}


def gradient_of(rank: int, name: str, step: int) -> np.ndarray:
    """Different for every rank, parameter, step and place."""
    shape = SHAPES[name]
    count = int(np.prod(shape))
    start = 1 + rank * 1000 + step * 77 + 13 * list(SHAPES).index(name)
    return (start + np.arange(count, dtype=np.float64)).reshape(shape)


def mean_of(world_size: int, name: str, step: int) -> np.ndarray:
    return sum(gradient_of(r, name, step) for r in range(world_size)) / world_size


def backward(rank: int, step: int) -> Iterator[tuple[str, np.ndarray]]:
    for name in reversed(SHAPES):
        yield name, gradient_of(rank, name, step)


def error_of(call: Any, *arguments: Any, **named: Any) -> tuple[str, str]:
    try:
        call(*arguments, **named)
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


def three(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    """What three ranks show, in one start of processes."""
    init(rank, world_size, init_method)
    averages(rank, world_size)
    found = {"unused": unused(rank, world_size), "group": in_subgroups(rank)}
    distlite.destroy_process_group()
    return found


def two(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    """What two ranks show."""
    init(rank, world_size, init_method)
    found = {
        "differences": differences(rank, world_size),
        "rebuilding": rebuilding(rank, world_size),
    }
    without_reduction(rank, world_size)
    distlite.destroy_process_group()
    return found


def averages(rank: int, world_size: int) -> None:
    """Gradients in all places where they may be, in buckets of all sizes."""
    for cap in (25, 4 * KILO, KILO / 100):
        parameters = parameters_of(rank)
        reducer = GradientReducer(parameters, bucket_cap_mb=cap)
        assert all((array == 0).all() for array in parameters.values())
        for step in range(3):
            in_ready(reducer, rank, world_size, step)
        given_before(rank, world_size, cap)
        in_place(rank, world_size, cap)
    adding_up(rank, world_size)
    several_dtypes(rank, world_size)


def in_ready(reducer: Any, rank: int, world_size: int, step: int) -> None:
    gradients = dict(backward(rank, step))
    for name, gradient in gradients.items():
        reducer.ready(name, gradient)
    reducer.finish()
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, mean_of(world_size, name, step))


def given_before(rank: int, world_size: int, cap: float) -> None:
    """As lists, in memory that is not contiguous."""
    parameters = list(parameters_of(rank).values())
    gradients = [np.zeros(shape, order="F") for shape in SHAPES.values()]
    reducer = GradientReducer(parameters, gradients, bucket_cap_mb=cap)
    for step in range(2):
        for number, name in reversed(list(enumerate(SHAPES))):
            gradients[number][...] = gradient_of(rank, name, step)
            reducer.ready(number)
        reducer.finish()
        for gradient, name in zip(gradients, SHAPES, strict=True):
            np.testing.assert_allclose(gradient, mean_of(world_size, name, step))


def in_place(rank: int, world_size: int, cap: float) -> None:
    """In the buckets themselves, in an order that nobody expects."""
    reducer = GradientReducer(parameters_of(rank), bucket_cap_mb=cap)
    arrays = reducer.gradients if rank == 0 else None
    for step in range(2):
        names = list(SHAPES)[step:] + list(SHAPES)[:step]
        for name in names:
            reducer.gradients[name][...] = gradient_of(rank, name, step)
            reducer.ready(name)
        reducer.finish()
        for name in SHAPES:
            expected = mean_of(world_size, name, step)
            np.testing.assert_allclose(reducer.gradients[name], expected)
            if arrays is not None:
                assert reducer.gradients[name] is arrays[name]


def adding_up(rank: int, world_size: int) -> None:
    reducer = GradientReducer([np.ones(3)], average=False)
    gradient = np.full(3, rank + 1.0)
    reducer.ready(0, gradient)
    reducer.finish()
    assert gradient.tolist() == [sum(range(1, world_size + 1))] * 3


def several_dtypes(rank: int, world_size: int) -> None:
    """One bucket cannot have them all."""
    dtypes = ["float32", "float64", "float32", "float16", "complex64", "float64"]
    parameters = [np.ones(5, dtype) for dtype in dtypes]
    reducer = GradientReducer(parameters)
    gradients = [np.full(5, rank + i, dtype) for i, dtype in enumerate(dtypes)]
    for number in reversed(range(len(dtypes))):
        reducer.ready(number, gradients[number])
    reducer.finish()
    middle = (world_size - 1) / 2
    for number, gradient in enumerate(gradients):
        assert gradient.dtype == dtypes[number]
        assert gradient.tolist() == [middle + number] * 5
    assert sorted(names_of(reducer)) == [(2, 0), (3,), (4,), (5, 1)]


def differences(rank: int, world_size: int) -> list[tuple[str, str]]:
    """Errors of a constructor where the last rank has something else."""
    is_odd = rank == world_size - 1
    right = parameters_of(rank)
    wrong = [
        {**right, "bias": np.zeros(31)},
        {**right, "bias": np.zeros(30, np.float32)},
        {("bios" if name == "bias" else name): a for name, a in right.items()},
        {name: array for name, array in right.items() if name != "last"},
        {**right, "more": np.zeros(1)},
    ]
    errors = [error_of(GradientReducer, each if is_odd else right) for each in wrong]
    cap = 5 if is_odd else 25
    errors.append(error_of(GradientReducer, right, bucket_cap_mb=cap))
    # And the group is as good as before.
    GradientReducer(right)
    return errors


def unused(rank: int, world_size: int) -> list[tuple[str, str]]:
    """Some ranks, or all, have no gradient of some parameters."""
    reducer = GradientReducer(parameters_of(rank), bucket_cap_mb=4 * KILO)
    mine = {"scale", "last"} if rank == 1 else {"scale"} if rank == 2 else set()
    for name in SHAPES:
        if name not in mine:
            reducer.ready(name, gradient_of(rank, name, 0))
    errors = [error_of(reducer.finish)]
    in_ready(reducer, rank, world_size, 1)

    finding = GradientReducer(parameters_of(rank), find_unused=True)
    left_out(finding, rank, world_size)
    assert finding.unused == ("first",)
    in_ready(finding, rank, world_size, 2)
    assert finding.unused == ()
    finding.finish()
    assert finding.unused == tuple(SHAPES)
    given_and_left_out(rank, world_size)
    return errors


def left_out(reducer: Any, rank: int, world_size: int) -> None:
    """Nobody has the first, and only rank 0 the last."""
    gradients = {}
    for name, gradient in backward(rank, 5):
        if name != "first" and (name != "last" or rank == 0):
            gradients[name] = gradient
            reducer.ready(name, gradient)
    reducer.finish()
    expected = gradient_of(0, "last", 5) / world_size
    np.testing.assert_allclose(reducer.gradients["last"], expected)
    assert (reducer.gradients["first"] == 0).all()
    for name in gradients.keys() - {"last"}:
        np.testing.assert_allclose(gradients[name], mean_of(world_size, name, 5))


def given_and_left_out(rank: int, world_size: int) -> None:
    given = {name: np.full(shape, 9.0) for name, shape in SHAPES.items()}
    reducer = GradientReducer(parameters_of(rank), given, find_unused=True)
    if rank == 0:
        given["last"][...] = 8.0
        reducer.ready("last")
    reducer.finish()
    np.testing.assert_allclose(given["last"], 8.0 / world_size)
    assert (given["first"] == 9).all()


def rebuilding(rank: int, world_size: int) -> list[Any]:
    """Names by bucket before and after a first step in the order of the parameters."""
    reducers = [
        GradientReducer(parameters_of(rank), bucket_cap_mb=2 * KILO) for _ in range(2)
    ]
    if rank == 1:
        assert reducers[1].gradients
    found = []
    for reducer in reducers:
        for step in range(3):
            found.append(names_of(reducer))
            # Only rank 0's order counts.
            names = list(SHAPES) if rank == 0 else list(reversed(SHAPES))
            gradients = {name: gradient_of(rank, name, step) for name in names}
            for name in names:
                reducer.ready(name, gradients[name])
            reducer.finish()
            for name in names:
                expected = mean_of(world_size, name, step)
                np.testing.assert_allclose(gradients[name], expected)
    return found


def names_of(reducer: Any) -> tuple[Any, ...]:
    """The keys of the parameters of each bucket."""
    return tuple(
        tuple(each.key for each in bucket.parameters) for bucket in reducer._buckets
    )


def without_reduction(rank: int, world_size: int) -> None:
    """Steps in no_sync() are added up, and reduced with the next one."""
    total = np.zeros(4)
    reducer = GradientReducer({"w": np.zeros(4)}, {"w": total})
    for step in range(3):
        with reducer.no_sync():
            total += rank + step
            reducer.ready("w")
            reducer.finish()
            assert (total == (step + 1) * rank + sum(range(step + 1))).all()
    total += rank + 3
    reducer.ready("w")
    reducer.finish()
    middle = (world_size - 1) / 2
    assert (total == 4 * middle + 6).all()


def in_subgroups(rank: int) -> Any:
    """Two ranks reduce in a group of their own; the third is not in it."""
    group = distlite.new_group([1, 2])
    if rank == 0:
        found = error_of(GradientReducer, [np.ones(2)], group=group)
    else:
        parameter = np.full(2, float(rank))
        reducer = GradientReducer([parameter], group=group)
        gradient = np.full(2, 10.0 * rank)
        reducer.ready(0, gradient)
        found = error_of(reducer.finish)
        assert parameter.tolist() == [1, 1]
        assert gradient.tolist() == [15, 15]
        wrong = error_of(GradientReducer, [np.ones(rank)], group=group)
        assert "float64[2] on rank 2" in wrong[1]
    return found
