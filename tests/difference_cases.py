# SPDX-License-Identifier: BSD-3-Clause
"""The programs behind the table of docs/differences.md, one for each row.

Each takes `torch.distributed` or distlite, with a default group of one rank, the arrays
that go with it, and an empty folder.  What it returns or raises is what the table says.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

DIFFERENCES = Path(__file__).parents[1] / "docs" / "differences.md"
SOON = timedelta(milliseconds=100)
CASES: dict[str, Callable[[Any, Any, Path], object]] = {}
Case = Callable[[Any, Any, Path], object]


def case(row: str) -> Callable[[Case], Case]:
    def keep(function: Case) -> Case:
        CASES[row] = function
        return function

    return keep


def rows() -> dict[str, list[str]]:
    """Returns the columns of torch and of distlite by the first column."""
    text = DIFFERENCES.read_text().split("## At a glance\n")[1].split("\n## ")[0]
    table = [line for line in text.splitlines() if line.startswith("| ")][1:]
    cells = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table]
    return {first: rest for first, *rest in cells}


def outcome(row: str, dist: Any, array: Any, folder: Path) -> str:
    """Returns the outcome as in the table: the value, or the name of the error."""
    try:
        return f"`{CASES[row](dist, array, folder)!r}`"
    except Exception as error:
        return f"`{type(error).__name__}`"


def server(dist: Any, **options: Any) -> Any:
    return dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=SOON * 20, **options)


@case("`all_reduce` of int16")
def _(dist: Any, array: Any, folder: Path) -> object:
    x = array([3], "int16")
    dist.all_reduce(x)
    return x.tolist()


@case("`all_reduce` of integers with `AVG`")
def _(dist: Any, array: Any, folder: Path) -> object:
    x = array([3], "int64")
    dist.all_reduce(x, dist.ReduceOp.AVG)
    return x.tolist()


@case("`broadcast(x, src=9)`, which is no rank")
def _(dist: Any, array: Any, folder: Path) -> object:
    return dist.broadcast(array([1], "int64"), src=9)


@case("`new_group([])`")
def _(dist: Any, array: Any, folder: Path) -> object:
    return dist.new_group([])


@case("`get_process_group_ranks(-100)`")
def _(dist: Any, array: Any, folder: Path) -> object:
    return dist.get_process_group_ranks(-100)


@case("`group.allreduce([x, y])`, two arrays of a rank")
def _(dist: Any, array: Any, folder: Path) -> object:
    x, y = array([1], "float32"), array([2], "float32")
    dist.group.WORLD.allreduce([x, y]).wait()
    return x.tolist() + y.tolist()


@case("`group.allreduce([])`")
def _(dist: Any, array: Any, folder: Path) -> object:
    return dist.group.WORLD.allreduce([]).wait()


@case("`group.broadcast(x, root=9)`")
def _(dist: Any, array: Any, folder: Path) -> object:
    return dist.group.WORLD.broadcast(array([1], "int64"), root=9).wait()


@case("`group.scatter([y], [[x, x]])`, an array too many")
def _(dist: Any, array: Any, folder: Path) -> object:
    x, y = array([1], "int64"), array([0], "int64")
    return dist.group.WORLD.scatter([y], [[x, x]]).wait()


@case("`group.gather([[y]], [x])` of another size")
def _(dist: Any, array: Any, folder: Path) -> object:
    x, y = array([1], "int64"), array([0, 0], "int64")
    return dist.group.WORLD.gather([[y]], [x]).wait()


@case("`group.allreduce_coalesced([])`")
def _(dist: Any, array: Any, folder: Path) -> object:
    return dist.group.WORLD.allreduce_coalesced([]).wait()


@case("`all_reduce_coalesced` of two dtypes")
def _(dist: Any, array: Any, folder: Path) -> object:
    x, y = array([1], "float32"), array([2], "int64")
    dist.all_reduce_coalesced([x, y])
    return x.tolist() + y.tolist()


@case("`all_gather_coalesced([y], [x])`, outputs in no lists")
def _(dist: Any, array: Any, folder: Path) -> object:
    x, y = array([1], "int64"), array([[0]], "int64")
    dist.all_gather_coalesced([y], [x])
    return y.tolist()


@case("`all_gather` of complex numbers into a real array")
def _(dist: Any, array: Any, folder: Path) -> object:
    y = array([[0, 0]], "float32")
    dist.all_gather([y], array([1 + 2j], "complex64"))
    return y.tolist()


@case("`all_to_all_single` of a transposed array")
def _(dist: Any, array: Any, folder: Path) -> object:
    y = array([[0, 0], [0, 0]], "int64")
    dist.all_to_all_single(y, array([[1, 2], [3, 4]], "int64").T)
    return y.tolist()


@case("`ReduceOp.SUM == ReduceOp(ReduceOp.SUM)`")
def _(dist: Any, array: Any, folder: Path) -> object:
    member = dist.ReduceOp.SUM
    return member == dist.ReduceOp(member)


@case("`ProcessGroupGloo.create_device`")
def _(dist: Any, array: Any, folder: Path) -> object:
    return hasattr(dist.ProcessGroupGloo, "create_device")


@case("`ReduceOp.RedOpType(77)`")
def _(dist: Any, array: Any, folder: Path) -> object:
    return bool(dist.ReduceOp.RedOpType(77))


@case("`await work`")
def _(dist: Any, array: Any, folder: Path) -> object:
    work = dist.all_reduce(array([1], "int64"), async_op=True)
    work.wait()
    return hasattr(work, "__await__")


@case("`broadcast_object_list([])`")
def _(dist: Any, array: Any, folder: Path) -> object:
    return dist.broadcast_object_list([], src=0)


@case("port 70000 of a `TCPStore`")
def _(dist: Any, array: Any, folder: Path) -> object:
    return dist.TCPStore("127.0.0.1", 70000)


@case("a `TCPStore` at 127.0.0.1, asked at 127.0.0.2")
def _(dist: Any, array: Any, folder: Path) -> object:
    store = server(dist)
    other = dist.TCPStore("127.0.0.2", store.port, timeout=SOON * 10)
    return other.add("n", 1)


@case("`add` to a value of a `TCPStore` that is text")
def _(dist: Any, array: Any, folder: Path) -> object:
    store = server(dist)
    store.set("key", "text")
    return store.add("key", 1)


@case("`queue_push` with `use_libuv=False`")
def _(dist: Any, array: Any, folder: Path) -> object:
    store = server(dist, use_libuv=False)
    store.queue_push("queue", "item")
    return store.queue_len("queue")


@case("`list_keys` with a name that is not UTF-8")
def _(dist: Any, array: Any, folder: Path) -> object:
    store = server(dist)
    store.set(b"\xff", "")
    return store.list_keys()


@case("`store[key]`")
def _(dist: Any, array: Any, folder: Path) -> object:
    store = dist.HashStore()
    store.set("key", "value")
    return store["key"]


@case("`wait` for a key that a `FileStore` never gets")
def _(dist: Any, array: Any, folder: Path) -> object:
    return dist.FileStore(str(folder / "file"), 1).wait(["key"], SOON)


@case("mode of a `FileStore`'s new file")
def _(dist: Any, array: Any, folder: Path) -> object:
    before = os.umask(0o022)
    try:
        store = dist.FileStore(str(folder / "file"), 1)
        store.set("key", "value")
        return stat.filemode((folder / "file").stat().st_mode)
    finally:
        os.umask(before)


@case("`FileStore.delete_key` of an absent key")
def _(dist: Any, array: Any, folder: Path) -> object:
    return dist.FileStore(str(folder / "file"), 1).delete_key("key")
