# SPDX-License-Identifier: BSD-3-Clause
"""The examples of docstrings, run by two ranks, which are threads.

Each rank runs every line.  What it prints has to be what is shown; one of the ranks may
also print nothing, as in `if rank == 0:`.  `np`, `dist`, `rank` and, where the example
makes the group, `store` and an `address` are given.
"""

from __future__ import annotations

import doctest
import inspect
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from ports import reserve_port
from public_names import public

import distlite as dist
from distlite import testing

WORLD_SIZE = 2
ADDRESS = f"127.0.0.1:{reserve_port()}"
# Examples that begin before there is a default group.
BEGINNINGS = {
    "destroy_process_group",
    "init_process_group",
    "is_initialized",
    "process_group",
    "ProcessGroupGloo",
    "rendezvous",
    "StatelessGroup",
    "stateless_group",
}

# An example that asks whether there is one must not load it into this process for good.
LIBRARIES = ("MPI", "NCCL", "UCC")

# Examples that make their own ranks.
ALONE = ("notebook_launcher", "run.", "spawn.", "testing.")


def own_members(owner: type) -> Iterator[tuple[str, Any]]:
    for name in vars(owner):
        if not name.startswith("_"):
            yield name, getattr(owner, name)


def documented() -> Iterator[tuple[str, str]]:
    """Name and docstring of all that is public, methods included."""
    for name, value in public():
        yield name, inspect.getdoc(value) or ""
        if isinstance(value, type):
            for member, method in own_members(value):
                if inspect.isroutine(method) or isinstance(method, property):
                    yield f"{name}.{member}", inspect.getdoc(method) or ""


EXAMPLES = [
    pytest.param(name, text, id=name)
    for name, text in documented()
    if "Example:\n" in text
]


class Output(threading.local):
    """What the calling thread's example has printed."""

    def __init__(self) -> None:
        self.lines: list[str] = []


output = Output()


def show(value: object) -> None:
    if value is not None:
        output.lines.append(repr(value))


def print_lines(*values: object, sep: str = " ") -> None:
    output.lines.append(sep.join(map(str, values)))


def run(example: doctest.Example, names: dict[str, Any]) -> None:
    output.lines = []
    shown = example.want
    try:
        exec(compile(example.source, "<example>", "single"), names)
    except Exception as error:
        if example.exc_msg is None:
            raise
        output.lines = traceback.format_exception_only(error)
        shown = example.exc_msg
    got = "\n".join(output.lines)
    if got:
        same = doctest.OutputChecker().check_output(
            shown, f"{got}\n", doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        )
        assert same, f">>> {example.source}prints\n{got}\nand not\n{shown}"


def has_no_group(name: str) -> bool:
    return name in BEGINNINGS or name.startswith("elastic.")


def run_all(name: str, text: str, store: dist.Store | None, rank: int) -> set[int]:
    """The lines that have printed something."""
    names = {"np": np, "dist": dist, "rank": rank, "print": print_lines}
    if has_no_group(name):
        names["store"] = store
        names["address"] = ADDRESS
    has_printed = set()
    for example in doctest.DocTestParser().get_examples(text, name):
        run(example, names)
        if output.lines:
            has_printed.add(example.lineno)
    return has_printed


@pytest.fixture(scope="module", autouse=True)
def display() -> Iterator[None]:
    before = sys.displayhook
    sys.displayhook = show
    yield
    sys.displayhook = before


class Worlds:
    """One world for all examples that have a default group, until one fails."""

    def __init__(self) -> None:
        self.ranks: testing.Ranks | None = None

    def run(self, name: str, text: str) -> set[int]:
        if name.startswith(ALONE):
            return run_all(name, text, dist.HashStore(), 0)
        if has_no_group(name):
            with testing.world(WORLD_SIZE, backend=None, timeout=20) as ranks:
                return set().union(*ranks.run(run_all, name, text, dist.HashStore()))
        if self.ranks is None:
            self.ranks = testing.world(WORLD_SIZE, timeout=20)
        try:
            return set().union(*self.ranks.run(run_all, name, text, None))
        except AssertionError as error:
            ranks, self.ranks = self.ranks, None
            ranks.__exit__(type(error), error, error.__traceback__)
            raise


@pytest.fixture(scope="module")
def worlds() -> Iterator[Worlds]:
    made = Worlds()
    yield made
    if made.ranks is not None:
        with made.ranks:
            pass


@pytest.mark.parametrize(("name", "text"), EXAMPLES)
def test_examples(
    name: str, text: str, worlds: Worlds, monkeypatch: pytest.MonkeyPatch
):
    for variable in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(variable, raising=False)
    for library in LIBRARIES:
        monkeypatch.setenv(f"DISTLITE_{library}_LIBRARY", "/nowhere/library.so")
    printed = worlds.run(name, text)
    for example in doctest.DocTestParser().get_examples(text, name):
        if example.want:
            assert example.lineno in printed, f"{example.source!r} prints nothing"
