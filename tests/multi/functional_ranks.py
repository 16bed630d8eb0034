# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of collectives that return their results."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from collective_ranks import error_of

import distlite as dist
from distlite import functional

DTYPES: list[Any] = ["f8", "i4", "c8", ml_dtypes.bfloat16]


def of_rank(rank: int, dtype: Any) -> np.ndarray:
    """Not contiguous, and not to be written to."""
    array = np.asarray(np.arange(24).reshape(2, 3, 4) % 5 + rank, dtype)[:, :, ::2]
    array.flags.writeable = False
    return array


def check(found: np.ndarray, expected: np.ndarray) -> None:
    assert type(found) is np.ndarray
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def everything() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    last = size - 1
    for dtype in DTYPES:
        x = of_rank(rank, dtype)
        all_of_them = np.stack([of_rank(r, dtype) for r in range(size)])
        total = sum(all_of_them[1:], all_of_them[0])
        check(functional.all_reduce(x), total)
        check(functional.all_gather(x), all_of_them)
        check(functional.all_gather(x[0, 0, 0]), all_of_them[:, 0, 0, 0])
        reduced = functional.reduce(x, last)
        gathered = functional.gather(x, group_dst=last)
        if rank == last:
            check(reduced, total)
            check(gathered, all_of_them)
        else:
            assert reduced is gathered is None
        numbers = functional.gather(x[0, 0, 0], group_dst=last)
        if rank == last:
            check(numbers, all_of_them[:, 0, 0, 0])
        rows = np.stack([x + r for r in range(size)])
        check(
            functional.reduce_scatter(rows, dist.ReduceOp.SUM),
            total + np.asarray(rank * size, dtype),
        )
        theirs = [of_rank(r, dtype) + np.asarray(rank, dtype) for r in range(size)]
        check(functional.all_to_all(rows), np.stack(theirs))
        for dim in range(-3, 3):
            joined = np.concatenate(list(all_of_them), axis=dim)
            check(functional.all_gather_single(x, dim), joined)
            whole = np.concatenate([x + np.asarray(r, dtype) for r in range(size)], dim)
            parts = np.split(
                sum(
                    [whole + np.asarray(r - rank, dtype) for r in range(size)],
                    0 * whole,
                ),
                size,
                dim,
            )
            check(functional.reduce_scatter_single(whole, scatter_dim=dim), parts[rank])
        # Rank r sends r + to rows to rank `to`.
        counts = [rank + to for to in range(size)]
        sent = np.full((sum(counts), 2), rank, dtype)
        check(
            functional.all_to_all_single(sent, counts, counts),
            np.repeat(np.arange(size), counts)[:, None].repeat(2, 1).astype(dtype),
        )
        check(functional.all_to_all_single(rows), np.stack(theirs))
    check(x, of_rank(rank, dtype))  # as before
    for call, told in (
        (lambda: functional.all_gather_single(1.5), "no dimension 0"),
        (lambda: functional.all_gather_single(x, 3), "no dimension 3"),
        (lambda: functional.all_gather_single(x, -4), "no dimension -4"),
        (lambda: functional.all_to_all_single(np.float64(1)), "no dimension 0"),
        (
            lambda: functional.reduce_scatter_single(
                np.ones((2, 2 * size + 1)), scatter_dim=1
            ),
            f"cannot be divided into {size} equal parts",
        ),
    ):
        assert size == 1 or told in error_of(call), (told, error_of(call))


def numbers() -> dict[str, str]:
    rank, size = dist.get_rank(), dist.get_world_size()
    last, triangle = size - 1, size * (size + 1) // 2
    results: list[tuple[Any, Any]] = [
        (functional.all_reduce(rank + 1), triangle),
        (functional.all_reduce(rank + 0.5), triangle - size / 2),
        (functional.all_reduce(1j), size * 1j),
        (functional.all_reduce(True), size),
        (functional.all_reduce(rank == 0, dist.ReduceOp.MAX), 1),
        (functional.all_reduce(0.5, dist.ReduceOp.AVG), 0.5),
        (functional.scan(rank), rank * (rank + 1) // 2),
        (functional.exscan(1), max(rank, 1)),
        (functional.reduce(-(2**63) + size - 1 if rank == 0 else -1), None),
        (functional.broadcast(2.5 if rank == last else None, last), 2.5),
        (functional.broadcast(True if rank == last else None, last), True),
        (functional.scatter([*range(size)] if rank == 0 else None), rank),
        (functional.sendrecv(rank, (rank + 1) % size, (rank - 1) % size), rank - 1),
    ]
    if rank == 0:
        results[8] = (results[8][0], -(2**63))
        results[-1] = (results[-1][0], last)
    for found, expected in results:
        assert type(found) is type(expected)
        assert found == expected
    check(functional.all_gather(rank), np.arange(size))
    gathered = functional.gather(1.5)
    if rank == 0:
        check(gathered, np.full(size, 1.5))
    return {
        "large": error_of(functional.all_reduce, 2**63),
        "rows": error_of(functional.all_to_all, 3),
        "blocks": error_of(functional.scatter, [1, 2.0][:size] if rank == 0 else None),
        "differ": error_of(functional.all_reduce, 1 if rank == 0 else 1.0),
    }


def unknown_shapes() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    arrays: list[Any] = [
        of_rank(1, ml_dtypes.bfloat16),
        np.zeros((0, 4), "complex64"),
        np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")]),
        np.array("2026-11-23", "M8[D]"),
        np.ones(3, [("a" * 600, "u1")]),  # its description is longer than a head
        np.arange(300_000.0),
    ]
    for array in arrays:
        for source in range(size):
            found = functional.broadcast(array if rank == source else None, source)
            assert (found is array) == (rank == source)
            check(found, array)
        check(functional.sendrecv(array, (rank + 1) % size, (rank - 1) % size), array)
    blocks = [np.arange(r) for r in range(size)]
    for source in range(size):
        mine = functional.scatter(blocks if rank == source else None, source)
        check(mine, np.arange(rank))
    check(functional.scatter(np.eye(size) if rank == 0 else None), np.eye(size)[rank])
    if rank == 0:
        for _ in range(1, size):
            found = functional.recv(tag=5)
            assert found.shape == (found[0],)
    else:
        functional.send(np.full(rank, rank), 0, tag=5)


def objects() -> list[str]:
    """Small objects, and such as have no room in the first exchange; and what is wrong
    is told on all ranks that get objects."""
    rank, size = dist.get_rank(), dist.get_world_size()
    last = size - 1
    for each in ({"rank": 1.5}, ["x" * 2000], {"a": np.arange(30000.0)}):
        all_of_them = [[r, each] for r in range(size)]
        for safe in (False, True):
            got = functional.broadcast_object(
                all_of_them if rank == last else None, last, safe=safe
            )
            assert repr(got) == repr(all_of_them)
            assert (got is all_of_them) == (rank == last)
            got = functional.all_gather_object([rank, each], safe=safe)
            assert repr(got) == repr(all_of_them)
            found = functional.gather_object([rank, each], group_dst=last, safe=safe)
            assert repr(found) == repr(all_of_them if rank == last else None)
            got = functional.scatter_object(
                all_of_them if rank == 0 else None, safe=safe
            )
            assert repr(got) == repr([rank, each])
        if rank == 0 < last:
            functional.send_object(each, last)
        elif rank == last > 0:
            assert repr(functional.recv_object(0)) == repr(each)

    def bad() -> None: ...

    calls = [
        lambda: functional.broadcast_object(bad if rank == 0 else 1),
        lambda: functional.all_gather_object(bad if rank == 0 else 1),
        lambda: functional.gather_object(bad if rank == 0 else 1),
        lambda: functional.scatter_object([bad] * size if rank == 0 else None),
        lambda: functional.scatter_object([1] if rank == 0 else None),
    ]
    return [error_of(call) for call in calls]


def in_a_part() -> None:
    """Ranks 2 and 0 of three, in this order."""
    part = dist.new_group([2, 0], use_local_synchronization=False)
    if dist.get_rank() == 1:
        message = error_of(functional.all_reduce, np.ones(1), group=part)
        assert message == (
            "ValueError: functional.all_reduce: this process is not a member of the "
            "group, and would have no result"
        )
        for name in ("broadcast", "all_gather", "gather", "scatter", "send", "recv"):
            call = getattr(functional, f"{name}_object")
            assert f"functional.{name}_object: this" in error_of(call, 1, group=part)
        return
    rank = dist.get_rank(part)
    assert functional.all_gather_object(rank, part) == [0, 1]
    found = functional.gather_object(rank, 0, part)
    assert found == ([0, 1] if dist.get_rank() == 0 else None)
    x = np.array([rank])
    check(functional.broadcast(x, 2, part), np.array([dist.get_group_rank(part, 2)]))
    check(functional.broadcast(x, group=part, group_src=1), np.array([1]))
    if rank == 0:
        functional.send(x, group=part, group_dst=1)
    else:
        check(functional.recv(group=part), np.array([0]))


def mistakes() -> dict[str, str]:
    """Each leaves the group whole."""
    rank = dist.get_rank()
    masked = np.ma.masked_array([1, 2], [True, False])
    found = {
        "list": error_of(functional.all_reduce, [1, 2]),
        "masked": error_of(functional.all_reduce, masked),
        "masked source": error_of(functional.broadcast, masked if rank == 0 else None),
        "rows": error_of(functional.all_to_all, np.ones(3)),
        "no rows": error_of(functional.reduce_scatter, np.array(1)),
        "broadcast": error_of(functional.broadcast, "text" if rank == 1 else None, 1),
        "blocks": error_of(functional.scatter, [np.ones(1)] if rank == 0 else None),
        "dtypes": error_of(
            functional.scatter, [np.ones(1), np.arange(1)] if rank == 0 else None
        ),
        "objects": error_of(
            functional.broadcast, np.array([None]) if rank == 0 else None
        ),
        "far": error_of(functional.send, np.ones(1), 9),
        "group": error_of(functional.all_reduce, np.ones(1), group=5),
    }
    if rank == 0:
        dist.send(np.ones(512, np.uint8), 1)
        found["not an array"] = ""
    else:
        found["not an array"] = error_of(functional.recv, 0)
    check(functional.all_reduce(np.array([rank])), np.array([1]))
    return found
