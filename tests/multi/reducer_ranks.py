# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of reductions without a kernel: see test_reducers.py."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
from collective_ranks import error_of
from group_ranks import init
from operations import wait_until_ahead

import distlite
from distlite import ReduceOp

# Whole arrays on every rank, shares that do not divide, and many chunks.
COUNTS = (0, 1, 7, 3000, 40_001)
Fold = Callable[[np.ndarray, np.ndarray], np.ndarray]


def same(left: np.ndarray, right: np.ndarray) -> bool:
    """To the bit, but for padding."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if left.dtype == np.longdouble:
        return bool(np.array_equal(left, right))
    if left.dtype.names is None:
        return left.tobytes() == right.tobytes()
    return all(same(left[name], right[name]) for name in left.dtype.names)


def join(rank: int, world_size: int, init_method: str, places: str) -> None:
    """`places`: by rank, who shares a host; or the backend mpi."""
    if places == "mpi":
        distlite.init_process_group("mpi")
        return
    if len(set(places)) > 1:
        os.environ["DISTLITE_HOST_HINT"] = f"host {places[rank]}"
    init(rank, world_size, init_method)


def wrong_in_place(
    function: Callable[..., Any],
    array: np.ndarray,
    right: np.ndarray,
    *args: Any,
    op: Any,
) -> list[str]:
    """Of every other element of an array, read backwards, later; and at once."""
    strided = np.zeros((2 * len(array), *array.shape[1:]), array.dtype)[::-2]
    strided[:] = array
    function(strided, *args, op=op, async_op=True).wait()
    plain = array.copy()
    function(plain, *args, op=op)
    is_right = same(plain, right) and same(strided, right)
    return [] if is_right else [function.__name__]


def wrong_scatters(inputs: list[np.ndarray], op: Any, fold: Fold) -> list[str]:
    rank, size = distlite.get_rank(), distlite.get_world_size()
    lists = [inputs[(rank + r) % size] for r in range(size)]
    right = reduce(fold, [inputs[(i + rank) % size] for i in range(size)])
    single, blocks = np.zeros_like(right), np.zeros_like(right)
    distlite.reduce_scatter_single(single, np.concatenate(lists), op)
    distlite.reduce_scatter(blocks, lists, op)
    uneven = np.zeros_like(inputs[0][: rank + 1])
    distlite.reduce_scatter(uneven, [inputs[rank][: r + 1] for r in range(size)], op)
    whole = reduce(fold, inputs)
    is_right = same(single, right) and same(blocks, right)
    wrong = [] if is_right else ["reduce_scatter"]
    return wrong + ([] if same(uneven, whole[: rank + 1]) else ["reduce_scatter_v"])


def wrong_reductions(
    make: Callable[[int, int], np.ndarray],
    fold: Fold,
    op: Any,
    counts: Sequence[int] = COUNTS,
) -> list[Any]:
    """The calls whose results are not those of a loop over the ranks, to the bit."""
    rank, size = distlite.get_rank(), distlite.get_world_size()
    wrong: list[Any] = []
    for count in counts:
        inputs = [make(r, count) for r in range(size)]
        mine, whole, root = inputs[rank], reduce(fold, inputs), size - 1
        kept = whole if rank == root else mine
        upto, before = inputs[: rank + 1], inputs[:rank] or inputs[:1]
        found = [
            *wrong_in_place(distlite.all_reduce, mine, whole, op=op),
            *wrong_in_place(distlite.reduce, mine, kept, root, op=op),
            *wrong_in_place(distlite.scan, mine, reduce(fold, upto), op=op),
            *wrong_in_place(distlite.exscan, mine, reduce(fold, before), op=op),
            *wrong_scatters(inputs, op, fold),
        ]
        wrong += [(name, count) for name in found]
    return wrong


PAIR = np.dtype([("value", "f8"), ("index", "i4")])
PADDED = np.dtype([("value", "f8"), ("index", "i4")], align=True)
SHORT = np.dtype([("value", "i2"), ("index", "u8")])
HALF = np.dtype([("value", "f2"), ("index", "i8")])


def records(dtype: np.dtype) -> Callable[[int, int], np.ndarray]:
    """Few values, so that many tie; with NaN, where the type has any."""

    def make(rank: int, count: int) -> np.ndarray:
        random = np.random.default_rng(rank)
        array = np.zeros(count, dtype)
        array["value"] = random.integers(-2, 3, count)
        array["index"] = random.integers(0, 5, count)
        if dtype["value"].kind == "f":
            array["value"][random.integers(0, 8, count) == 0] = np.nan
        return array

    return make


def rows(dtype: str) -> Callable[[int, int], np.ndarray]:
    def make(rank: int, count: int) -> np.ndarray:
        pairs = records(PAIR)(rank, count)
        if dtype[0] == "i":
            pairs["value"] = np.nan_to_num(pairs["value"])
        return np.stack([pairs["value"], pairs["index"]], 1).astype(dtype)

    return make


def better(is_max: bool) -> Fold:
    """As MPI has it, and np.argmax of NaN."""

    def fold(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        is_record = left.dtype.names is not None
        low, high = (
            (each["value"], each["index"]) if is_record else (each[:, 0], each[:, 1])
            for each in (left, right)
        )
        one, other = np.isnan(low[0]), np.isnan(high[0])
        beats = low[0] > high[0] if is_max else low[0] < high[0]
        ties = (low[0] == high[0]) | (one & other)
        takes = (one & ~other) | (beats & ~other) | (ties & (low[1] <= high[1]))
        return np.where(takes if is_record else takes[:, None], left, right)

    return fold


def locations(
    rank: int, world_size: int, init_method: str, places: str, counts: Any = COUNTS
) -> list[Any]:
    join(rank, world_size, init_method, places)
    wrong: list[Any] = []
    for op, is_max in ((ReduceOp.MAXLOC, True), (ReduceOp(ReduceOp.MINLOC), False)):
        makes = [records(dtype) for dtype in (PAIR, PADDED, SHORT, HALF)]
        makes += [rows(dtype) for dtype in ("float64", "float32", "int64")]
        for i, make in enumerate(makes):
            few = counts if i == 0 else (7, 3000)
            found = wrong_reductions(make, better(is_max), op, few)
            wrong += [(str(op), i, *each) for each in found]
    distlite.destroy_process_group()
    return wrong


def refused_locations(
    rank: int, world_size: int, init_method: str, places: str
) -> list[str]:
    """What is wrong on its own, and then what differs between the ranks."""
    join(rank, world_size, init_method, places)
    op = ReduceOp.MAXLOC
    three = np.zeros(2, [("a", "f8"), ("b", "i8"), ("c", "i8")])
    bad: list[np.ndarray] = [
        np.ones(3),
        np.ones((2, 3)),
        three,
        np.zeros((2, 2), "complex64"),
        np.zeros(2, [("value", ">f8"), ("index", "i8")]),
        np.zeros(2, [("value", "f8"), ("index", "f4")]),
        np.zeros(2, [("value", "M8[s]"), ("index", "i8")]),
    ]
    found = [error_of(distlite.all_reduce, array, op) for array in bad]
    mine = np.zeros(3, PAIR)
    other = np.zeros(3, PADDED if rank else PAIR)
    for array, chosen in (
        (mine, ReduceOp.MINLOC if rank else op),
        (np.zeros((3, 2), "f4" if rank else "f8"), op),
        (other, op),
    ):
        group = distlite.new_group()
        found.append(error_of(distlite.all_reduce, array, chosen, group=group))
    return found


def numbers(dtype: str) -> Callable[[int, int], np.ndarray]:
    """Values whose results tell in which order they were combined."""

    def make(rank: int, count: int) -> np.ndarray:
        values = np.random.default_rng(rank).standard_normal(count)
        return (values * 100).astype(dtype)

    return make


digits = np.frompyfunc(lambda left, right: left * 0.5 + right, 2, 1)

SIGNATURE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p
)


@SIGNATURE
def halved_sum(left: int, right: int, count: int, context: int) -> None:
    """Of float64; the context is a factor."""
    kind = ctypes.c_double * count
    low, high = np.array(kind.from_address(left)), kind.from_address(right)
    factor = ctypes.c_double.from_address(context).value
    np.asarray(high)[:] = low * factor + np.asarray(high)


def functions(
    rank: int, world_size: int, init_method: str, places: str, counts: Any = COUNTS
) -> list[Any]:
    join(rank, world_size, init_method, places)
    halved = ReduceOp.from_c(halved_sum, "halved", ctypes.c_double(0.5))
    cases: list[tuple[Any, str, Fold]] = [
        (np.subtract, "float64", np.subtract),
        (np.hypot, "float32", np.hypot),
        (np.logaddexp, "longdouble", np.logaddexp),
        (np.maximum, "M8[s]", np.maximum),
        (np.gcd, "int32", np.gcd),
        (digits, "float64", lambda left, right: left * 0.5 + right),
        (halved, "float64", lambda left, right: left * 0.5 + right),
    ]
    wrong: list[Any] = []
    for i, (op, dtype, fold) in enumerate(cases):
        few = counts if i == 0 else (7, 9000)
        found = wrong_reductions(numbers(dtype), fold, op, few)
        wrong += [(i, *each) for each in found]
    distlite.destroy_process_group()
    return wrong


def failing(
    rank: int, world_size: int, init_method: str, places: str
) -> dict[str, Any]:
    """A function that raises on the last rank; all calls go on in the same group."""
    join(rank, world_size, init_method, places)
    found: dict[str, Any] = {}

    def fail(left: float, right: float) -> float:
        if rank == world_size - 1:
            raise LookupError("no such sum")
        return left + right

    op = np.frompyfunc(fail, 2, 1)
    for count in (3, 20_000):
        array = np.full(count, rank + 1.0)
        for name in ("all_reduce", "scan"):
            try:
                getattr(distlite, name)(array, op)
            except distlite.DistBackendError as error:
                found[f"{name} {count}"] = str(error), repr(error.__cause__)
        work = distlite.all_reduce(array, op, async_op=True)
        found[f"later {count}"] = error_of(work.wait)
        found[f"kept {count}"] = bool((array == rank + 1.0).all())
    found["after"] = np.ones(1)
    distlite.all_reduce(found["after"])

    def stop(left: float, right: float) -> float:
        raise KeyboardInterrupt if rank == 0 else ValueError("also here")

    try:
        distlite.all_reduce(np.ones(2), np.frompyfunc(stop, 2, 1))
    except BaseException as error:
        found["stopped"] = f"{type(error).__name__}: {error}"
    return found


def arithmetic(
    rank: int, world_size: int, init_method: str, places: str
) -> dict[str, Any]:
    """An overflow in a small array, and in the middle of a large one."""
    import warnings

    join(rank, world_size, init_method, places)
    found: dict[str, Any] = {}
    for count in (1, 70_001):
        array = np.ones(count)
        array[count // 2] = 1e200
        with np.errstate(over="raise"):
            found[f"raises {count}"] = error_of(distlite.all_reduce, array, np.multiply)
        found[f"kept {count}"] = array[count // 2]
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            distlite.all_reduce(array, np.multiply)
        found[f"warned {count}"] = {str(each.message) for each in seen}
        found[f"result {count}"] = array[count // 2], array[0] if count > 1 else 1
    return found


def refused_functions(
    rank: int, world_size: int, init_method: str, places: str
) -> list[str]:
    """What is wrong on its own, and then what differs between the ranks."""
    join(rank, world_size, init_method, places)
    x = np.ones(3)
    found = [
        error_of(distlite.all_reduce, np.arange(3), np.logaddexp),
        error_of(distlite.all_reduce, x, np.divmod),
        error_of(distlite.all_reduce, x, np.matmul),
        error_of(distlite.all_reduce, x, max),
        error_of(distlite.all_reduce, np.zeros(2, "i4,i4"), np.add),
        error_of(ReduceOp.from_c, "f"),
        error_of(ReduceOp.from_c, max),
        error_of(ReduceOp.from_c, 0),
    ]
    own = np.frompyfunc(max if rank else min, 2, 1)
    for op in (np.hypot if rank else np.add, ReduceOp.SUM if rank else np.fmin, own):
        group = distlite.new_group()
        found.append(error_of(distlite.all_reduce, x.copy(), op, group=group))
    arrays = [np.full((2, 2), rank + 1.0), np.full((1, 2), 2.0 + rank)]
    distlite.all_reduce_coalesced(arrays, np.multiply)
    found.append(str([array.tolist() for array in arrays]))
    return found


def killed(
    rank: int, world_size: int, init_method: str, places: str, count: int
) -> str:
    """What the others are told when the last rank dies while they wait."""
    join(rank, world_size, init_method, places)
    distlite.barrier()
    if rank == world_size - 1:
        wait_until_ahead(set(range(world_size - 1)))
        os.kill(os.getpid(), signal.SIGKILL)
    told = error_of(distlite.all_reduce, np.zeros((count, 2)), ReduceOp.MAXLOC)
    path = init_method.removeprefix("file://")
    distlite.FileStore(path, world_size).barrier("told", world_size - 1, 60)
    return told
