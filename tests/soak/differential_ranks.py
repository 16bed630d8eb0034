# SPDX-License-Identifier: BSD-3-Clause
"""Random programs: all ranks make up the same one from a seed, run their parts of it,
and compare what they get with NumPy's, bit for bit.

Choices that all ranks have to share come from `World.shared`, those that each may make
as it likes (strides, order and way of waiting) from `World.own`.
"""

from __future__ import annotations

import functools
import os
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import ml_dtypes
import numpy as np
from collective_ranks import (
    COMPLEX,
    FOLDS,
    HALVES,
    INTEGERS,
    mix_instruction_sets,
    operands as exact_operands,
)

import distlite

MOVED = [*INTEGERS, "bool", "float16", "float32", "float64", "complex64", "complex128"]
MOVED += ["S3", "M8[s]", "i4,f8", "longdouble", "(3,)u1,i2", "V5"]
REAL = [*HALVES, "float32", "float64"]
SHORT = [*HALVES, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
# Around the sizes at which another way is taken, of lines, pockets, slots and rings.
COUNTS = [0, 1, 2, 3, 5, 8, 17, 63, 64, 65, 255, 511, 513, 1023, 1025, 2047, 2049]
LARGE = [4095, 4097, 8193, 16385, 32769, 65537]
HUGE = [200_003, 300_007]
OBJECT_SIZES = [0, 1, 40, 700, 9000, 100_000]
PENDING = 12


@dataclass
class Group:
    handle: Any  # None is the world
    ranks: list[int]

    def __len__(self) -> int:
        return len(self.ranks)


@dataclass
class Pending:
    """An operation under way, or dropped, and how to look at what it left."""

    name: str
    group: Group
    work: Any
    check: Callable[[], None]
    has_future: bool = True


class World:
    def __init__(self, rank: int, size: int, seed: int, hosts: list[int]) -> None:
        self.rank, self.size, self.seed, self.hosts = rank, size, seed, hosts
        self.shared = random.Random(f"{seed}")
        self.own = random.Random(f"{seed}/{rank}")
        self.groups = [Group(None, list(range(size)))]
        self.pending: list[Pending] = []
        # Then ranks have to agree on shapes.
        self.is_compared = distlite.get_debug_level() == distlite.DebugLevel.DETAIL
        self.step = 0

    def count(self, lists: bool = False) -> int:
        kind = self.shared.random()
        if kind > (0.99 if lists else 0.96):
            return self.shared.choice(LARGE if lists else HUGE)
        return self.shared.choice(LARGE if kind > 0.9 and not lists else COUNTS)

    def data(self, dtype: Any, count: int, *key: int) -> np.ndarray:
        """Bytes that anybody can have again by the key."""
        kind = np.dtype(dtype)
        make = np.random.default_rng([self.seed, self.step, *key])
        if kind.kind in "Mm":
            return make.integers(0, 1 << 40, count).astype(kind)
        if kind == np.dtype("bool"):
            return make.integers(0, 2, count).astype(bool)
        if kind.kind in "fc":
            return make.integers(-99, 99, count).astype(kind)
        return np.frombuffer(make.bytes(count * kind.itemsize), kind).copy()

    def place(self, values: np.ndarray) -> np.ndarray:
        """The same values in memory of any shape, as this rank likes."""
        count = len(values)
        how = self.own.randrange(8)
        if how == 0 and count:
            room = np.zeros(count * 3, values.dtype)[1::3]
        elif how == 1 and count:
            room = np.zeros(count, values.dtype)[::-1]
        elif how == 2 and count:
            raw = np.zeros(values.nbytes + 16, np.uint8)[5 : 5 + values.nbytes]
            aligned = values.dtype.itemsize == 1
            room = raw.view(values.dtype) if aligned else np.empty_like(values)
        elif how == 3 and count % 2 == 0 and count and not self.is_compared:
            room = np.zeros((count // 2, 2), values.dtype).T.reshape(2, count // 2)
            room[...] = values.reshape(room.shape)
            return room
        elif how == 4:
            room = distlite.shared_zeros(count, values.dtype)
        else:
            room = np.empty_like(values)
        room[...] = values
        return room

    def empty(self, like: np.ndarray) -> np.ndarray:
        room = self.place(like)
        room[...] = np.zeros((), like.dtype)
        return room


def same(left: Any, right: Any) -> bool:
    """To the bit; a NaN is one, whatever its sign and payload."""
    mine, other = np.asarray(left).reshape(-1), np.asarray(right).reshape(-1)
    if mine.tobytes() == other.tobytes():
        return True
    if mine.dtype != other.dtype or mine.shape != other.shape:
        return False
    if mine.dtype == np.dtype("longdouble"):
        return bool((mine == other).all())
    if mine.dtype.kind == "c":
        part = mine.real.dtype
        return same(mine.view(part), other.view(part))
    if mine.dtype.kind not in "fV" or mine.dtype.names:
        return False
    with np.errstate(invalid="ignore"):
        is_nan = np.isnan(mine) & np.isnan(other)
    return bool(mine[~is_nan].tobytes() == other[~is_nan].tobytes())


def require(is_right: bool, what: str) -> None:
    if not is_right:
        raise AssertionError(what)


def expect(left: Any, right: Any, what: str) -> None:
    if same(left, right):
        return
    mine, other = np.asarray(left).reshape(-1), np.asarray(right).reshape(-1)
    text = f"{what}: {mine.dtype} x {len(mine)} instead of {other.dtype} x {len(other)}"
    if mine.shape == other.shape and mine.dtype == other.dtype:
        with np.errstate(invalid="ignore"):
            wrong = np.flatnonzero(
                [a.tobytes() != b.tobytes() for a, b in zip(mine, other, strict=True)]
            )
        at = wrong[0]
        text += f"; {len(wrong)} differ, the first at {at}: {mine[at]!r}, {other[at]!r}"
    raise AssertionError(text)


# -- Reductions


def reduction(world: World) -> tuple[Any, str, float]:
    """dtype, op, and the factor of PREMUL_SUM by rank."""
    kind = world.shared.random()
    if kind < 0.5:
        dtype = world.shared.choice(REAL)
        ops = ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "PREMUL_SUM"]
    elif kind < 0.6:
        dtype, ops = world.shared.choice(SHORT[2:]), ["SUM", "MIN", "MAX"]
    elif kind < 0.7:
        dtype, ops = world.shared.choice(COMPLEX), ["SUM", "AVG", "PRODUCT"]
    else:
        dtype = world.shared.choice([*INTEGERS, "bool"])
        ops = ["SUM", "MIN", "MAX", "PRODUCT", "BAND", "BOR", "BXOR"]
    return np.dtype(dtype), world.shared.choice(ops), world.shared.choice([0.5, 0.3, 3])


def operands(
    world: World, size: int, count: int, dtype: Any, op: str, salt: int
) -> list[np.ndarray]:
    """Of floating-point types any numbers, whose sums depend on their order."""
    if dtype not in [np.dtype(each) for each in REAL] and not (
        dtype.kind == "c" and op != "PRODUCT"
    ):
        return [np.roll(each, salt) for each in exact_operands(size, count, dtype)]
    found = []
    for rank in range(size):
        make = np.random.default_rng([world.seed, world.step, salt, rank])
        values = make.standard_normal(count)
        if dtype.kind == "c":
            values = values + 1j * make.standard_normal(count)
        elif count and world.step % 7 == 0:
            values[make.integers(count)] = make.choice([np.nan, np.inf, -np.inf])
        found.append(values.astype(dtype))
    return found


def folded(
    hosts: list[int],
    group: Group,
    op: str,
    inputs: list[np.ndarray],
    factor: float,
) -> np.ndarray:
    """Each host in the order of its ranks, then the hosts in that of their lowest;
    short types in float32, rounded once."""
    dtype = inputs[0].dtype
    is_short = dtype in [np.dtype(each) for each in SHORT]
    fold = FOLDS["SUM" if op in ("PREMUL_SUM", "AVG") else op]
    parts: dict[int, np.ndarray] = {}
    with np.errstate(all="ignore"):
        for rank, each in zip(group.ranks, inputs, strict=True):
            wide = each.astype("float32") if is_short else each
            if op == "PREMUL_SUM":
                scale = wide.dtype.type(factor * (1 + rank % 2))
                wide = (wide * scale).astype(dtype).astype(wide.dtype)
            host = hosts[rank]
            parts[host] = fold(parts[host], wide) if host in parts else wide
        first, *rest = parts.values()
        total = first
        for part in rest:
            total = fold(total, part)
        if op == "AVG":
            real = total.real.dtype
            total = (total.view(real) / real.type(len(inputs))).view(total.dtype)
        return np.asarray(total).astype(dtype)


def chosen_op(world: World, op: str, factor: float) -> Any:
    if op == "PREMUL_SUM":
        return distlite.ReduceOp.PREMUL_SUM(factor * (1 + world.rank % 2))
    return getattr(distlite.ReduceOp, op)


Step = tuple[Callable[[bool], Any], Callable[[], None]]


def all_reduce(world: World, group: Group) -> Step:
    dtype, op, factor = reduction(world)
    inputs = operands(world, len(group), world.count(), dtype, op, 0)
    tensor = world.place(inputs[group.ranks.index(world.rank)])

    def check() -> None:
        right = folded(world.hosts, group, op, inputs, factor)
        expect(tensor, right, f"all_reduce {op}")

    chosen = chosen_op(world, op, factor)
    return lambda later: distlite.all_reduce(tensor, chosen, group.handle, later), check


def reduce(world: World, group: Group) -> Step:
    dtype, op, factor = reduction(world)
    root = world.shared.randrange(len(group))
    inputs = operands(world, len(group), world.count(), dtype, op, 0)
    mine = group.ranks.index(world.rank)
    tensor = world.place(inputs[mine])

    def check() -> None:
        is_root = mine == root
        right = (
            folded(world.hosts, group, op, inputs, factor) if is_root else inputs[mine]
        )
        expect(tensor, right, f"reduce {op}")

    chosen = chosen_op(world, op, factor)
    return (
        lambda later: distlite.reduce(
            tensor, None, chosen, group.handle, later, group_dst=root
        ),
        check,
    )


def scan(world: World, group: Group) -> Step:
    """In the order of the ranks, on whatever hosts they are."""
    dtype, op, factor = reduction(world)
    op = "SUM" if op == "AVG" else op
    name = world.shared.choice(["scan", "exscan"])
    mine = group.ranks.index(world.rank)
    inputs = operands(world, len(group), world.count(), dtype, op, 0)
    tensor = world.place(inputs[mine])
    count = mine + (name == "scan")
    before = Group(group.handle, group.ranks[:count])

    def check() -> None:
        right = inputs[mine]
        if count:
            right = folded([0] * world.size, before, op, inputs[:count], factor)
        expect(tensor, right, f"{name} {op}")

    chosen, call = chosen_op(world, op, factor), getattr(distlite, name)
    return lambda later: call(tensor, chosen, group.handle, later), check


def reduce_scatter(world: World, group: Group) -> Step:
    dtype, op, factor = reduction(world)
    size, mine = len(group), group.ranks.index(world.rank)
    form = world.shared.choice(["list", "uneven", "single", "in place"])
    count = world.count(lists=True)
    counts = [count + 3 * r if form == "uneven" else count for r in range(size)]
    # By block, then by rank.
    inputs = [operands(world, size, counts[r], dtype, op, r) for r in range(size)]
    own = [inputs[r][mine] for r in range(size)]
    chosen = chosen_op(world, op, factor)
    output = world.empty(own[mine])
    if form in ("list", "uneven"):
        blocks = [world.place(each) for each in own]

        def start(later: bool) -> Any:
            return distlite.reduce_scatter(output, blocks, chosen, group.handle, later)

    else:
        whole = np.stack(own)
        if form == "in place":
            output = whole[mine]

        def start(later: bool) -> Any:
            return distlite.reduce_scatter_single(
                output, whole, chosen, group.handle, later
            )

    def check() -> None:
        right = folded(world.hosts, group, op, inputs[mine], factor)
        expect(output, right, f"reduce_scatter {form} {op}")

    return start, check


def all_reduce_coalesced(world: World, group: Group) -> Step:
    dtype, op, factor = reduction(world)
    number = world.shared.randrange(1, 5)
    sizes = [world.count(lists=True) for _ in range(number)]
    inputs = [
        operands(world, len(group), count, dtype, op, i)
        for i, count in enumerate(sizes)
    ]
    mine = group.ranks.index(world.rank)
    tensors = [world.place(each[mine]) for each in inputs]

    def check() -> None:
        for tensor, each in zip(tensors, inputs, strict=True):
            right = folded(world.hosts, group, op, each, factor)
            expect(tensor, right, f"all_reduce_coalesced {op}")

    chosen = chosen_op(world, op, factor)
    return (
        lambda later: distlite.all_reduce_coalesced(
            tensors, chosen, group.handle, later
        ),
        check,
    )


def by_function(world: World, group: Group) -> Step:
    """Functions of NumPy, and pairs of a value and an index, in the order of ranks."""
    size, mine = len(group), group.ranks.index(world.rank)
    name = world.shared.choice(["all_reduce", "reduce", "scan", "exscan"])
    what = world.shared.choice(["logaddexp", "gcd", "maximum", "MINLOC", "MAXLOC"])
    count = world.count(lists=True)
    kind = {"logaddexp": "float64", "gcd": "int64", "maximum": "M8[s]"}.get(what)
    root = world.shared.randrange(size)
    if kind is None:
        pair = np.dtype([("value", "f4"), ("index", "i8")])
        inputs = [world.data(pair, count, rank) for rank in range(size)]
        for each in inputs:
            each["value"] = np.arange(count) % 7 - each["index"] % 5
    else:
        inputs = [world.data(kind, count, rank) for rank in range(size)]
    tensor = world.place(inputs[mine])

    def fold(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        if kind is not None:
            return getattr(np, what)(left, right)
        values = (left["value"], right["value"])
        is_better = np.less(*values) if what == "MINLOC" else np.greater(*values)
        is_first = (values[0] == values[1]) & (left["index"] <= right["index"])
        return np.where(is_better | is_first, left, right)

    def check() -> None:
        used = inputs
        if name in ("scan", "exscan"):
            used = inputs[: mine + (name == "scan")]
        if name == "reduce" and mine != root:
            used = []
        right = inputs[mine]
        if used:
            right = used[0]
            for each in used[1:]:
                right = fold(right, each)
        expect(tensor, right, f"{name} by {what}")

    op = getattr(np, what) if kind is not None else getattr(distlite.ReduceOp, what)
    if name == "reduce":
        return (
            lambda later: distlite.reduce(
                tensor, None, op, group.handle, later, group_dst=root
            ),
            check,
        )
    call = getattr(distlite, name)
    return lambda later: call(tensor, op, group.handle, later), check


# -- What is moved


def broadcast(world: World, group: Group) -> Step:
    root = world.shared.randrange(len(group))
    values = world.data(world.shared.choice(MOVED), world.count(), root)
    is_root = group.ranks[root] == world.rank
    tensor = world.place(values) if is_root else world.empty(values)
    return (
        lambda later: distlite.broadcast(
            tensor, None, group.handle, later, group_src=root
        ),
        lambda: expect(tensor, values, "broadcast"),
    )


def counts_of(world: World, group: Group) -> list[int]:
    count = world.count(lists=True)
    step = world.shared.choice([0, 0, 1, 7])
    return [count + step * r for r in range(len(group))]


def all_gather(world: World, group: Group) -> Step:
    dtype, mine = world.shared.choice(MOVED), group.ranks.index(world.rank)
    form = world.shared.choice(["list", "single", "stacked", "in place"])
    counts = counts_of(world, group)
    if form != "list":
        counts = [counts[0]] * len(group)
    every = [world.data(dtype, count, r) for r, count in enumerate(counts)]
    given = world.place(every[mine])
    if form == "list":
        outputs: Any = [world.empty(each) for each in every]
        function: Any = distlite.all_gather
    else:
        flat = world.empty(np.concatenate(every)) if form == "single" else None
        outputs = flat if flat is not None else np.zeros_like(np.stack(every))
        function = distlite.all_gather_single
        if form == "in place":
            outputs[mine] = every[mine]
            given = outputs[mine]
        elif outputs.ndim > 1 or given.ndim > 1:
            outputs, given = np.zeros_like(np.stack(every)), every[mine].copy()

    def check() -> None:
        left = outputs
        if form == "list":
            left = np.concatenate([each.reshape(-1) for each in outputs])
        expect(left, np.concatenate(every), f"all_gather {form}")
        expect(given, every[mine], "input of all_gather")

    return lambda later: function(outputs, given, group.handle, later), check


def gather(world: World, group: Group) -> Step:
    dtype, mine = world.shared.choice(MOVED), group.ranks.index(world.rank)
    root = world.shared.randrange(len(group))
    counts = counts_of(world, group)
    every = [world.data(dtype, count, r) for r, count in enumerate(counts)]
    given = world.place(every[mine])
    outputs = [world.empty(each) for each in every] if mine == root else None
    function = distlite.gather if len(set(counts)) == 1 else distlite.gather_v

    def check() -> None:
        for output, each in zip(outputs or [], every, strict=mine == root):
            expect(output, each, "gather")

    return (
        lambda later: function(
            given, outputs, None, group.handle, later, group_dst=root
        ),
        check,
    )


def scatter(world: World, group: Group) -> Step:
    dtype, mine = world.shared.choice(MOVED), group.ranks.index(world.rank)
    root = world.shared.randrange(len(group))
    counts = counts_of(world, group)
    every = [world.data(dtype, count, r) for r, count in enumerate(counts)]
    inputs = [world.place(each) for each in every] if mine == root else None
    output = world.empty(every[mine])
    function = distlite.scatter if len(set(counts)) == 1 else distlite.scatter_v
    return (
        lambda later: function(
            output, inputs, None, group.handle, later, group_src=root
        ),
        lambda: expect(output, every[mine], "scatter"),
    )


def all_to_all(world: World, group: Group) -> Step:
    dtype, size = world.shared.choice(MOVED), len(group)
    mine = group.ranks.index(world.rank)
    count, step = world.count(lists=True), world.shared.choice([0, 1, 5])
    flat = world.shared.random() < 0.5
    counts = [[count + step * (i * 2 + j) for j in range(size)] for i in range(size)]
    blocks = [
        [world.data(dtype, counts[i][j], i, j) for j in range(size)]
        for i in range(size)
    ]
    outgoing = blocks[mine]
    expected = [blocks[i][mine] for i in range(size)]
    if flat:
        whole = np.concatenate(outgoing)
        room = np.zeros_like(np.concatenate(expected))
        splits: list[Any] = [None, None]
        if step:
            splits = [[len(e) for e in expected], [len(o) for o in outgoing]]

        def start(later: bool) -> Any:
            return distlite.all_to_all_single(room, whole, *splits, group.handle, later)

        def check() -> None:
            expect(room, np.concatenate(expected), "all_to_all_single")

        return start, check
    inputs = [world.place(each) for each in outgoing]
    outputs = [world.empty(each) for each in expected]

    def check_list() -> None:
        for output, each in zip(outputs, expected, strict=True):
            expect(output, each, "all_to_all")

    return (
        lambda later: distlite.all_to_all(outputs, inputs, group.handle, later),
        check_list,
    )


def barrier(world: World, group: Group) -> Step:
    return lambda later: distlite.barrier(group.handle, later), lambda: None


COLLECTIVES = [
    all_reduce,
    all_reduce,
    by_function,
    reduce,
    scan,
    reduce_scatter,
    all_reduce_coalesced,
    broadcast,
    all_gather,
    gather,
    scatter,
    all_to_all,
    barrier,
]


# -- Objects


def any_object(world: World, *key: int) -> Any:
    """Nested, with arrays of any size; the same for whoever has the key."""
    make = random.Random(f"{world.seed}/{world.step}/{key}")

    def inner(depth: int) -> Any:
        kind = make.randrange(8 if depth else 5)
        if kind == 0:
            return make.choice([None, True, 1 << 70, -5, 2.5, "é" * 9, b"\0" * 30])
        if kind in (1, 2):
            size = make.choice(OBJECT_SIZES)
            return np.arange(size, dtype=make.choice(["i2", "f4", "u1"]))
        if kind in (3, 4):
            return "x" * make.choice(OBJECT_SIZES)
        members = [inner(depth - 1) for _ in range(make.randrange(4))]
        if kind == 5:
            return tuple(members)
        return {f"k{i}": v for i, v in enumerate(members)} if kind == 6 else members

    return inner(3)


def same_object(left: Any, right: Any) -> bool:
    if isinstance(right, np.ndarray):
        return isinstance(left, np.ndarray) and (
            left.dtype == right.dtype and same(left, right)
        )
    if type(left) is not type(right):
        return False
    if isinstance(right, dict):
        return list(left) == list(right) and all(
            same_object(left[name], right[name]) for name in right
        )
    if isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(same_object, left, right))
    return bool(left == right)


def objects(world: World, group: Group) -> None:
    size, mine = len(group), group.ranks.index(world.rank)
    root = world.shared.randrange(size)
    every = [any_object(world, r) for r in range(size)]
    kind = world.shared.randrange(5)
    left: Any
    right: Any = every
    if kind == 0:
        left = [None] * size
        distlite.all_gather_object(left, every[mine], group.handle)
    elif kind == 1:
        left = [None] * size if mine == root else None
        distlite.gather_object(every[mine], left, None, group.handle, group_dst=root)
        right = every if mine == root else None
    elif kind == 2:
        left = list(every) if mine == root else [None] * size
        distlite.broadcast_object_list(left, None, group.handle, group_src=root)
    elif kind == 3:
        left = [None]
        given = list(every) if mine == root else None
        distlite.scatter_object_list(left, given, None, group.handle, group_src=root)
        right = [every[mine]]
    else:
        dtype = [world.shared.choice(MOVED) for _ in range(size)]
        arrays = [world.data(dtype[r], world.count(lists=True), r) for r in range(size)]
        left = distlite.all_gather_arrays(arrays[mine], group.handle)
        right = arrays
    require(same_object(left, right), f"objects of kind {kind}")


# -- Messages


def messages(world: World, group: Group) -> list[Pending]:
    """Any number between any two, of several tags, in any order that matches."""
    size, mine = len(group), group.ranks.index(world.rank)
    if size == 1:
        return []
    sends: list[tuple[int, int, int, np.ndarray]] = []
    for number in range(world.shared.randrange(1, 3 * size)):
        source, target = world.shared.sample(range(size), 2)
        is_any = world.shared.random() < 0.2
        tag = world.step * 100 + (50 + number if is_any else world.shared.randrange(3))
        dtype = world.shared.choice(MOVED)
        values = world.data(dtype, world.count(lists=True), number)
        sends.append((source, target, tag, values))
    todo: list[tuple[str, int, int, np.ndarray]] = []
    for source, target, tag, values in sends:
        if source == mine:
            todo.append(("send", target, tag, values))
        elif target == mine:
            todo.append(("recv", source, tag, values))
    # Between two ranks those of one tag come in the order of sending.
    ordered = list(todo)
    world.own.shuffle(ordered)
    lanes: dict[tuple[str, int, int], list[Any]] = {}
    for each in todo:
        lanes.setdefault(each[:3], []).append(each)
    return [
        message(world, group, *lanes[(kind, peer, tag)].pop(0))
        for kind, peer, tag, _ in ordered
    ]


def message(
    world: World, group: Group, kind: str, peer: int, tag: int, values: np.ndarray
) -> Pending:
    name = f"{kind} with rank {group.ranks[peer]}, tag {tag}"
    if kind == "send":
        sent = world.place(values)
        work = distlite.isend(sent, None, group.handle, tag, group_dst=peer)
        return Pending(name, group, work, lambda: expect(sent, values, name), False)
    is_any = tag % 100 >= 50
    room = world.empty(values)
    found = None if is_any else peer
    work = distlite.irecv(room, None, group.handle, tag, group_src=found)
    assert work is not None

    def check() -> None:
        expect(room, values, name)
        require(work.source_rank() == peer, f"{name}: from {work.source_rank()}")

    return Pending(name, group, work, check, False)


def probed(world: World, group: Group) -> None:
    """Some messages from one rank, which another one looks at before it takes them."""
    size, mine = len(group), group.ranks.index(world.rank)
    if size == 1:
        return
    source, target = world.shared.sample(range(size), 2)
    dtype = world.shared.choice([*INTEGERS, "float16", "complex128", "M8[s]"])
    every = [
        world.data(dtype, world.count(lists=True), i)
        for i in range(world.shared.randrange(1, 5))
    ]
    for number, values in enumerate(every) if mine == source else ():
        tag = world.step * 100 + 90 + number
        sent = world.place(values)
        work = distlite.isend(sent, None, group.handle, tag, group_dst=target)
        name = f"send to rank {group.ranks[target]}, which looks, tag {tag}"
        check = functools.partial(expect, sent, values, name)
        world.pending.append(Pending(name, group, work, check, False))
    order = list(range(len(every))) if mine == target else []
    world.own.shuffle(order)
    for number in order:
        tag = world.step * 100 + 90 + number
        looks_for = world.own.choice([None, source])
        found = distlite.probe(None, group.handle, tag, group_src=looks_for)
        assert found is not None
        room = found.empty()
        expect(room.dtype.str, every[number].dtype.str, "dtype of a message")
        distlite.recv(room, None, group.handle, tag, group_src=source)
        expect(room, every[number], f"message of tag {tag} that was looked for")


def neighbours(world: World, group: Group) -> None:
    """A grid of the group, in which each rank tells its neighbours its number."""
    mine = group.ranks.index(world.rank)
    wraps = world.shared.random() < 0.5
    grid = distlite.Cartesian((0, 0), wraps, group.handle)
    assert grid is not None
    count = world.count(lists=True)
    every = [world.data("float32", count, rank) for rank in range(len(group))]
    places = len(grid.neighbours)
    output = np.zeros((places, count), np.float32)
    grid.neighbor_all_gather(output, world.place(every[mine]).reshape(count))
    for place, peer in enumerate(grid.neighbours):
        right = np.zeros(count, np.float32) if peer is None else every[peer]
        expect(output[place], right, f"neighbour {place} of {grid.dims}")
    distlite.destroy_process_group(grid.group)


def message_objects(world: World, group: Group) -> None:
    size, mine = len(group), group.ranks.index(world.rank)
    if size == 1:
        return
    source, target = world.shared.sample(range(size), 2)
    right = [any_object(world, i) for i in range(2)]
    if mine == source:
        distlite.send_object_list(list(right), None, group.handle, group_dst=target)
    elif mine == target:
        left = [None, None]
        distlite.recv_object_list(left, None, group.handle, group_src=source)
        require(same_object(left, right), "recv_object_list")


def crossing_objects(world: World, group: Group) -> None:
    """Lists between any ranks in any order, beside arrays: small ones
    are sent before the first is received, others by a thread."""
    size, mine = len(group), group.ranks.index(world.rank)
    if size == 1:
        return
    is_small = world.shared.random() < 0.5 and len({*world.hosts}) == 1
    routes = [
        world.shared.sample(range(size), 2)
        for _ in range(world.shared.randrange(2, 4 * size))
    ]

    def right(number: int) -> list[Any]:
        return [number, f"{routes[number]}" if is_small else any_object(world, number)]

    def send() -> None:
        for number, (source, target) in enumerate(routes):
            if source == mine:
                sent = right(number)
                distlite.send_object_list(sent, None, group.handle, group_dst=target)

    tag = world.step * 100 + 80
    following = np.array([mine, world.step])
    work = distlite.isend(
        following, None, group.handle, tag, group_dst=(mine + 1) % size
    )
    assert work is not None
    sender = threading.Thread(target=send)
    if is_small:
        send()
    else:
        sender.start()
    for number, (source, target) in enumerate(routes):
        if target == mine:
            left = [None, None]
            distlite.recv_object_list(left, None, group.handle, group_src=source)
            require(same_object(left, right(number)), "a list that crosses others")
            distlite.iprobe(None, group.handle, group_src=None)
    array = np.zeros(2, np.int64)
    distlite.recv(array, None, group.handle, tag)
    expect(array, np.array([(mine - 1) % size, world.step]), "an array beside lists")
    if not is_small:
        sender.join()
    work.wait()


# -- Refused, on all ranks, before anything is sent


def aliases(world: World, group: Group) -> None:
    size, mine = len(group), group.ranks.index(world.rank)
    if size == 1:
        return
    array = np.arange(8.0)
    calls: list[Callable[[], Any]] = [
        lambda: distlite.all_gather([array] * size, array + 1, group.handle),
        lambda: distlite.all_to_all(
            [array[i : i + 2] for i in range(size)],
            [np.ones(2) for _ in range(size)],
            group.handle,
        ),
        lambda: distlite.all_gather_single(np.ones(3 * size)[1:], array, group.handle),
        lambda: distlite.all_reduce(np.broadcast_to(array[:1], 8), group=group.handle),
        lambda: distlite.reduce_scatter(
            array[:2], [array[1:3] for _ in range(size)], group=group.handle
        ),
    ]
    call = world.shared.choice(calls)
    try:
        call()
    except ValueError:
        require(same(array, np.arange(8.0)), "an array of a call that was refused")
        return
    raise AssertionError(f"rank {mine} was not refused: {calls.index(call)}")


# -- The program

# What ends with the step.
TALKS = [objects, objects, objects, message_objects, probed, probed]
TALKS += [neighbours, crossing_objects, crossing_objects]


def finish(world: World, pending: Pending) -> None:
    """Waits in one of the ways that there are."""
    work = pending.work
    how = world.own.randrange(4)
    if work is not None:
        is_future = not isinstance(work, distlite.Work)
        if how == 0 and not is_future:
            work.wait(timedelta(seconds=50))
        elif how == 1 and pending.has_future:
            (work if is_future else work.get_future()).wait()
        else:
            work.wait()
    try:
        pending.check()
    except AssertionError as error:
        raise AssertionError(f"{pending.name}: {error}") from None


def finish_some(world: World, most: int) -> None:
    """In any order, until at most so many are left that can be waited for."""
    while len([each for each in world.pending if each.work is not None]) > most:
        waiting = [each for each in world.pending if each.work is not None]
        chosen = world.own.choice(waiting)
        world.pending.remove(chosen)
        finish(world, chosen)


def finish_in(world: World, group: Group) -> None:
    """All of a group, whose dropped works have ended with the barrier."""
    if any(each.group is group for each in world.pending):
        for each in [each for each in world.pending if each.group is group]:
            if each.work is not None:
                world.pending.remove(each)
                finish(world, each)
    distlite.barrier(group.handle)
    for each in [each for each in world.pending if each.group is group]:
        world.pending.remove(each)
        finish(world, each)


def regroup(world: World) -> None:
    if len(world.groups) > 4:
        group = world.groups.pop(world.shared.randrange(1, len(world.groups)))
        if world.rank in group.ranks:
            finish_in(world, group)
            distlite.destroy_process_group(group.handle)
        return
    ranks = world.shared.sample(
        range(world.size), world.shared.randrange(1, world.size + 1)
    )
    if world.shared.random() < 0.7:
        sort = world.shared.random() < 0.5
        handle = distlite.new_group(ranks, sort_ranks=sort)
        world.groups.append(Group(handle, sorted(ranks) if sort else ranks))
        return
    ranks.sort()
    handle = distlite.split_group(None, [ranks])
    world.groups.append(Group(handle, ranks))


def take_step(world: World) -> None:
    kind = world.shared.random()
    if kind < 0.03:
        regroup(world)
        return
    group = world.shared.choice(world.groups)
    is_member = world.rank in group.ranks
    if kind < 0.75:
        step = world.shared.choice(COLLECTIVES)
        later = world.shared.random() < 0.4
        salt = world.shared.random()
        world.shared.seed(f"{world.seed}/{world.step}/{salt}")
        if is_member:
            start, check = step(world, group)
            work = start(later)
            drop = (
                later and step is not all_reduce_coalesced and world.own.random() < 0.2
            )
            pending = Pending(step.__name__, group, None if drop else work, check)
            if later:
                world.pending.append(pending)
            else:
                finish(world, Pending(step.__name__, group, None, check))
    elif kind < 0.85:
        salt = world.shared.random()
        world.shared.seed(f"{world.seed}/{world.step}/{salt}")
        if is_member:
            world.shared.choice(TALKS)(world, group)
    elif kind < 0.97:
        salt = world.shared.random()
        world.shared.seed(f"{world.seed}/{world.step}/{salt}")
        if is_member:
            world.pending += messages(world, group)
    else:
        salt = world.shared.random()
        world.shared.seed(f"{world.seed}/{world.step}/{salt}")
        if is_member:
            aliases(world, group)
    # Whoever is in the group has drawn more numbers than the others.
    world.shared.seed(f"{world.seed}/after/{world.step}")


def run_program(
    rank: int,
    world_size: int,
    init_method: str,
    seed: int,
    host_of: list[int],
    steps: int,
) -> int:
    os.environ["DISTLITE_HOST_HINT"] = f"host{host_of[rank]}"
    mix_instruction_sets(rank)
    distlite.init_process_group(
        "gloo",
        init_method=init_method,
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=60),
    )
    world = World(rank, world_size, seed, host_of)
    for world.step in range(1, steps + 1):
        try:
            take_step(world)
            finish_some(world, world.own.randrange(PENDING))
        except Exception as error:
            text = f"step {world.step} of seed {seed}, hosts {host_of}: {error}"
            raise AssertionError(text) from error
    for group in world.groups:
        if rank in group.ranks:
            finish_in(world, group)
    distlite.destroy_process_group()
    return world.step
