# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of all collectives; each returns what was wrong."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from group_ranks import init

import distlite
from distlite import ReduceOp

Case = tuple[str, bool]  # what it is, whether it is right
Call = Callable[..., None]

MOVED = ("float32", "int64", "bool", "complex128", "float16", "S3", "M8[s]", "i4,f8")
COUNTS = (0, 1, 3, 1001)
LARGE = 300_007
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
HALVES: list[Any] = ["float16", ml_dtypes.bfloat16]
EIGHTHS: list[Any] = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
FLOATS: list[Any] = ["float32", "float64"]
COMPLEX: list[Any] = ["complex64", "complex128"]


def sync(function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    assert function(*args, **kwargs) is None


def later(function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    work = function(*args, **kwargs, async_op=True)
    assert work.wait() is True
    assert work.is_success()


def moved(rank: int, count: int, dtype: Any) -> np.ndarray:
    """Other values for every rank."""
    return ((np.arange(count) * 5 + rank * 3) % 89).astype(dtype)


def same(left: Any, right: Any) -> bool:
    return np.asarray(left).tobytes() == np.asarray(right).tobytes()


def gathers(rank: int, size: int, count: int, dtype: Any, call: Call) -> Iterator[Case]:
    all_of = [moved(r, count, dtype) for r in range(size)]
    mine = all_of[rank].copy()
    outputs = [np.empty(count, dtype) for _ in range(size)]
    call(distlite.all_gather, outputs, mine)
    yield "all_gather", same(outputs, all_of)
    for shape in ((size * count,), (size, count)):
        whole = np.zeros(shape, dtype)
        call(distlite.all_gather_single, whole, mine)
        yield "all_gather_single", same(whole, all_of)
    in_place = np.zeros((size, count), dtype)
    in_place[rank] = mine
    call(distlite.all_gather_into_tensor, in_place, in_place[rank])
    yield "all_gather_single in place", same(in_place, all_of)
    for root in range(size):
        outputs = [np.empty(count, dtype) for _ in range(size)]
        given = outputs if rank == root else [None, []][root % 2]
        call(distlite.gather, mine, given, dst=root)
        yield "gather", rank != root or same(outputs, all_of)
        for shape in ((size * count,), (size, count)):
            whole = np.zeros(shape, dtype) if rank == root else None
            call(distlite.gather_single, mine, whole, dst=root)
            yield "gather_single", whole is None or same(whole, all_of)
    yield "inputs", same(mine, all_of[rank])


def scatters(
    rank: int, size: int, count: int, dtype: Any, call: Call
) -> Iterator[Case]:
    for root in range(size):
        output = moved(rank, count, dtype)
        output.flags.writeable = rank != root
        call(distlite.broadcast, output, src=root)
        yield "broadcast", same(output, moved(root, count, dtype))
        blocks = [moved(root * 7 + r, count, dtype) for r in range(size)]
        output = np.zeros(count, dtype)
        given = blocks if rank == root else [None, []][root % 2]
        call(distlite.scatter, output, given, group_src=root)
        yield "scatter", same(output, blocks[rank])
    outgoing = [moved(rank * 9 + r, count, dtype) for r in range(size)]
    expected = [moved(r * 9 + rank, count, dtype) for r in range(size)]
    incoming = [np.zeros(count, dtype) for _ in range(size)]
    call(distlite.all_to_all, incoming, outgoing)
    yield "all_to_all", same(incoming, expected)
    whole = np.zeros(size * count, dtype)
    call(distlite.all_to_all_single, whole, np.concatenate(outgoing))
    yield "all_to_all_single", same(whole, expected)


def uneven(rank: int, size: int, count: int, dtype: Any, call: Call) -> Iterator[Case]:
    counts = [(count + r * 3) % (count + 2) for r in range(size)]
    all_of = [moved(r, counts[r], dtype) for r in range(size)]
    empty = [np.zeros(n, dtype) for n in counts]
    call(distlite.all_gather, empty, all_of[rank])
    yield "all_gather_v", all(map(same, empty, all_of))
    root = count % size
    empty = [np.zeros(n, dtype) for n in counts]
    is_root = rank == root
    call(distlite.gather_v, all_of[rank], empty if is_root else None, dst=root)
    yield "gather_v", not is_root or all(map(same, empty, all_of))
    output = np.zeros(counts[rank], dtype)
    call(distlite.scatter_v, output, all_of if is_root else None, src=root)
    yield "scatter_v", same(output, all_of[rank])
    # Rank i sends i + j elements to rank j.
    outgoing = [moved(rank * 9 + r, rank + r, dtype) for r in range(size)]
    expected = [moved(r * 9 + rank, r + rank, dtype) for r in range(size)]
    incoming = [np.zeros(rank + r, dtype) for r in range(size)]
    call(distlite.all_to_all, incoming, outgoing)
    yield "uneven all_to_all", all(map(same, incoming, expected))
    flat = np.zeros(sum(map(len, expected)), dtype)
    splits = [rank + r for r in range(size)]
    call(distlite.all_to_all_single, flat, np.concatenate(outgoing), splits, splits)
    yield "all_to_all_single with splits", same(flat, np.concatenate(expected))


def movement_grid(rank: int, world_size: int, init_method: str) -> list[Any]:
    """Collectives that move elements: every dtype, count and form."""
    init(rank, world_size, init_method)
    wrong = []
    cases = [(dtype, count) for dtype in MOVED for count in COUNTS]
    for turn, (dtype, count) in enumerate([*cases, ("float32", LARGE)]):
        for call in (sync, later) if turn % 4 == 1 or count == 3 else (sync,):
            for form in (gathers, scatters, uneven):
                for kind, is_right in form(rank, world_size, count, dtype, call):
                    if not is_right:
                        wrong.append((kind, dtype, count, call.__name__))
    distlite.destroy_process_group()
    return wrong


def operands(size: int, count: int, dtype: Any) -> list[np.ndarray]:
    """One array per rank, exact in every dtype; what wraps around, wraps."""
    numbers = [(np.arange(count) * 7 + r * 13) % 11 - 3 for r in range(size)]
    if dtype == "bool":
        return [values % 3 == 0 for values in numbers]
    if dtype in COMPLEX:
        return [(values + 1j * (values % 5)).astype(dtype) for values in numbers]
    return [np.asarray(values, np.int64).astype(dtype) for values in numbers]


FOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "SUM": np.add,
    "AVG": np.add,
    "PRODUCT": np.multiply,
    "MIN": np.minimum,
    "MAX": np.maximum,
    "BAND": np.bitwise_and,
    "BOR": np.bitwise_or,
    "BXOR": np.bitwise_xor,
}


def folded(op: str, inputs: list[np.ndarray]) -> np.ndarray:
    """Short floating-point types in float32, rounded once."""
    dtype = inputs[0].dtype
    is_short = dtype in [np.dtype(each) for each in HALVES + EIGHTHS]
    wide = [np.array(each, "float32") if is_short else each for each in inputs]
    total = wide[0]
    with np.errstate(over="ignore"):
        for each in wide[1:]:
            total = FOLDS[op](total, each)
    if op == "AVG":
        # Not complex by complex, which rounds otherwise.
        total = (
            total.view(total.real.dtype) / total.real.dtype.type(len(inputs))
        ).view(total.dtype)
    return total.astype(dtype)


def pairs() -> list[tuple[Any, str]]:
    sums = ["SUM", "MIN", "MAX"]
    return [
        *((dtype, op) for dtype in HALVES + FLOATS for op in [*sums, "AVG", "PRODUCT"]),
        *((dtype, op) for dtype in EIGHTHS for op in sums),
        *((dtype, op) for dtype in COMPLEX for op in ("SUM", "AVG", "PRODUCT")),
        *(
            (dtype, op)
            for dtype in [*INTEGERS, "bool"]
            for op in [*sums, "PRODUCT", "BAND", "BOR", "BXOR"]
        ),
    ]


def reductions(
    rank: int,
    inputs: list[np.ndarray],
    op: str,
    call: Call,
    same: Callable[[Any, Any], bool] = same,
) -> Iterator[Case]:
    size, count = len(inputs), len(inputs[0])
    expected = folded(op, inputs)
    chosen = getattr(ReduceOp, op)
    tensor = inputs[rank].copy()
    call(distlite.all_reduce, tensor, chosen)
    yield "all_reduce", same(tensor, expected)
    root = count % size
    tensor = inputs[rank].copy()
    call(distlite.reduce, tensor, root, chosen)
    yield "reduce", same(tensor, expected if rank == root else inputs[rank])
    for function, behind in ((distlite.scan, 1), (distlite.exscan, 0)):
        if op != "AVG":
            tensor = inputs[rank].copy()
            call(function, tensor, chosen)
            before = inputs[: rank + behind] or inputs[:1]
            yield function.__name__, same(tensor, folded(op, before))
    # Block r of rank i is input (i + r) % size, shifted by r elements.
    blocks = [np.roll(inputs[(rank + r) % size], r) for r in range(size)]
    sources = [np.roll(inputs[(i + rank) % size], rank) for i in range(size)]
    output = np.zeros_like(inputs[0])
    call(distlite.reduce_scatter, output, blocks, chosen)
    yield "reduce_scatter", same(output, folded(op, sources))
    output = np.zeros_like(inputs[0])
    call(distlite.reduce_scatter_single, output, np.concatenate(blocks), chosen)
    yield "reduce_scatter_single", same(output, folded(op, sources))
    stacked = np.stack(blocks)
    call(distlite.reduce_scatter_tensor, stacked[rank], stacked, chosen)
    yield "reduce_scatter in place", same(stacked[rank], folded(op, sources))


def mix_instruction_sets(rank: int) -> None:
    """Before the first reduction of the process, which chooses for all of them."""
    has = Path("/proc/cpuinfo").read_text().split()
    flags = {"avx2": "avx2", "avx512": "avx512vl"}
    sets = ["base", *(name for name, flag in flags.items() if flag in has)]
    os.environ["DISTLITE_SIMD"] = sets[rank % len(sets)]


def rounded(rank: int, size: int, dtype: Any, op: str) -> Iterator[Case]:
    """Results that no rank can have without rounding have the same bits everywhere."""
    for count in (1, 5, 40, 5000, 65_537):
        index = np.arange(count)
        own = 1 + 1 / (3 + index + rank) + 1j / (5 + index * (rank + 1))
        array = (own if dtype in COMPLEX else own.real).astype(dtype)
        distlite.all_reduce(array, getattr(ReduceOp, op))
        others = [np.empty_like(array) for _ in range(size)]
        distlite.all_gather(others, array)
        yield "rounded", all(same(array, other) for other in others)


def reduction_grid(rank: int, world_size: int, init_method: str) -> list[Any]:
    """Collectives that combine elements: every dtype, op and count."""
    mix_instruction_sets(rank)
    init(rank, world_size, init_method)
    wrong = []
    inexact = [
        ("float32", "SUM"),
        ("float64", "AVG"),
        *((d, "PRODUCT") for d in COMPLEX),
    ]
    for dtype, op in inexact:
        for kind, is_right in rounded(rank, world_size, dtype, op):
            if not is_right:
                wrong.append((kind, dtype, op, 0, "sync"))
    cases = [(*pair, count) for pair in pairs() for count in (0, 1, 3, 67)]
    large = [(dtype, "SUM", LARGE) for dtype in ("float32", "int64", HALVES[1])]
    large += [("float64", "AVG", 1000), ("int32", "MAX", 65_537)]
    # The dtypes and ops have no part in what numbers of ranks there are.
    chosen = [*(cases if world_size in (2, 4) else cases[::7]), *large]
    for turn, (dtype, op, count) in enumerate(chosen):
        inputs = operands(world_size, count, dtype)
        call = (sync, later)[turn % 5 == 0]
        for kind, is_right in reductions(rank, inputs, op, call):
            if not is_right:
                wrong.append((kind, str(dtype), op, count, call.__name__))
    distlite.destroy_process_group()
    return wrong


def special_values(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    """By case what the calls left, or the error of those that are refused."""
    init(rank, world_size, init_method)
    found: dict[str, Any] = {}
    bits = np.frombuffer(bytes([rank + 1, 0, 2]), np.uint8).copy()
    distlite.all_reduce(bits.view(bool))
    found["bool sum"] = bits.tolist()
    for dtype, small in (("float16", 0.0004), (ml_dtypes.bfloat16, 0.003)):
        name = np.dtype(dtype).name
        # Alone too small to change what is there, together not.
        tensor = np.array([1.0 if rank == 0 else small], dtype)
        distlite.all_reduce(tensor)
        found[name] = float(tensor[0])
        for op in ("MIN", "MAX"):
            nan = np.array([np.nan if rank == 1 else 3.0], dtype)
            distlite.all_reduce(nan, getattr(ReduceOp, op))
            found[name, op] = float(nan[0])
    scaled = np.ones(3)
    distlite.all_reduce(scaled, ReduceOp.PREMUL_SUM(0.5 * (rank + 1)))
    found["PREMUL_SUM"] = scaled.tolist()
    for dtype, op in (("int32", "AVG"), ("bool", "AVG"), ("float32", "BAND")):
        tensor = np.ones(2, dtype)
        for name, call in refused(tensor, world_size).items():
            found[dtype, op, name] = error_of(call, getattr(ReduceOp, op))
        found[dtype, op, "left"] = tensor.tolist()
    found["complex MAX"] = error_of(distlite.all_reduce, np.ones(2, "c8"), ReduceOp.MAX)
    distlite.barrier()
    distlite.destroy_process_group()
    return found


def refused(tensor: np.ndarray, size: int) -> dict[str, Callable[[Any], object]]:
    inputs = [tensor.copy() for _ in range(size)]
    return {
        "all_reduce": lambda op: distlite.all_reduce(tensor, op),
        "async": lambda op: distlite.all_reduce(tensor, op, async_op=True),
        "reduce": lambda op: distlite.reduce(tensor, 0, op),
        "reduce_scatter": lambda op: distlite.reduce_scatter(tensor, inputs, op),
    }


def error_of(call: Callable[..., object], *args: Any, **kwargs: Any) -> str:
    try:
        call(*args, **kwargs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def wrong_calls(rank: int, world_size: int, init_method: str) -> dict[str, str]:
    """Errors that every rank finds by itself; then the group still works."""
    init(rank, world_size, init_method)
    one, two, read_only = np.ones(1), np.ones((2, 2)), np.ones(1)
    read_only.flags.writeable = False
    d, f = distlite, np.ones(1, np.float32)
    found = {
        "tuple": error_of(d.all_gather, (one, two), one),
        "element": error_of(d.all_gather, [one, 5], one),
        "length": error_of(d.all_gather, [one] * 3, one),
        "sizes": error_of(d.all_gather, [np.ones(3), np.ones(3)], one),
        "dtypes": error_of(d.all_gather, [f.copy(), f.copy()], one),
        "twice": error_of(d.all_gather, [one, one], one),
        "read-only": error_of(d.all_gather, [read_only, np.ones(1)], one),
        "whole": error_of(d.all_gather_single, np.ones(3), one),
        "cut": error_of(d.all_to_all_single, np.ones(3), np.ones(3)),
        "splits": error_of(d.all_to_all_single, two, two + 0, [1, 2], [1, 1]),
        "split count": error_of(d.all_to_all_single, two, two + 0, [2], [1, 1]),
        "scalar": error_of(d.reduce_scatter_single, one, np.array(1.0)),
        "no root": error_of(d.reduce, one),
        "two roots": error_of(d.reduce, one, 0, group_dst=0),
        "far root": error_of(d.reduce, one, 9),
        "root's list": error_of(d.gather, one, [one, two] if rank == 1 else None),
        "scatter list": error_of(d.scatter, one, [one, two] if rank == 1 else None),
        "objects": error_of(d.all_gather_arrays, np.array([None])),
        "mask": error_of(d.all_gather_arrays, np.ma.masked_array([1], [True])),
        "op": error_of(d.all_reduce, one, "sum"),
        "group": error_of(d.all_reduce, one, group=5),
    }
    distlite.all_reduce(one)
    found["then"] = str(one[0])
    distlite.destroy_process_group()
    return found


def unknown_arrays(rank: int, world_size: int, init_method: str) -> list[Any]:
    """all_gather_arrays of an array that only its own rank knows; coalesced forms."""
    init(rank, world_size, init_method)
    arrays: list[Any] = [
        np.arange(6.0).reshape(2, 3)[:, ::2],
        np.array(7, ml_dtypes.bfloat16),
        np.zeros((0, 4), "complex64"),
        np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")]),
    ]
    gathered = distlite.all_gather_arrays(arrays[rank])
    tensors = [np.full(n, float(rank)) for n in (1, 3)]
    assert distlite.all_reduce_coalesced(tensors) is None
    future = distlite.all_reduce_coalesced(tensors, ReduceOp.MAX, async_op=True)
    summed = future.wait()
    outputs = [[np.zeros(n) for n in (1, 3)] for _ in range(world_size)]
    inputs = [np.full(n, float(rank)) for n in (1, 3)]
    future = distlite.all_gather_coalesced(outputs, inputs, async_op=True)
    assert future.wait() is outputs
    distlite.destroy_process_group()
    return [gathered, summed, outputs]
