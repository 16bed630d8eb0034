# SPDX-License-Identifier: BSD-3-Clause
"""Members in a simulated world: some seeds, their traces, and planted faults."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import elastic_world

from distlite.elastic import ledger

SEEDS = 50


def test_members_keep_the_guarantees() -> None:
    for seed in range(20):
        elastic_world.run_seed(seed)


def test_a_seed_has_one_trace() -> None:
    for seed in range(3):
        assert elastic_world.run_seed(seed) == elastic_world.run_seed(seed)


def _forgets_the_step(real: Callable[..., Any]) -> Callable[..., Any]:
    def record(turn: Any, *rest: Any) -> Any:
        made = real(turn, *rest)
        return made and replace(made, done=turn.last.done)

    return record


def _no_majority(real: Callable[..., Any]) -> Callable[..., Any]:
    def proposal(turn: Any, *rest: Any) -> Any:
        turn.majority = 0
        return real(turn, *rest)

    return proposal


# A planted fault is a function of a class, what makes another one of it, and the seed
# from which on it is looked for.
Planted = tuple[type, str, Callable[[Callable[..., Any]], Callable[..., Any]], int]
PLANTED: dict[str, Planted] = {
    "who has not come yet is lost": (
        ledger._Turn,
        "_have_ended",
        lambda real: lambda *rest: True,
        0,
    ),
    "stable ranks are those of the order": (
        ledger._Turn,
        "_ranks",
        lambda real: lambda turn, stays, size: list(range(size)),
        0,
    ),
    "nobody reads who has seen the success of a step": (
        ledger._Turn,
        "_record",
        _forgets_the_step,
        0,
    ),
    "who has dropped the result of a step has its state": (
        ledger.Arrival,
        "lacks",
        lambda real: lambda *rest: False,
        120,
    ),
    "a minority goes on in another store": (
        ledger._Turn,
        "_proposal",
        _no_majority,
        830,
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_of_members_is_found(name: str) -> None:
    kind, function, planted, first = PLANTED[name]
    changed = planted(getattr(kind, function))
    with (
        mock.patch.object(kind, function, changed),
        pytest.raises(elastic_world.Wrong),
    ):
        for seed in range(first, first + SEEDS):
            elastic_world.run_seed(seed)
