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

SEEDS = 300


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


# A planted fault is a function of _Turn and what makes another one of it.
PLANTED: dict[str, tuple[str, Callable[[Callable[..., Any]], Callable[..., Any]]]] = {
    "who has not come yet is lost": (
        "_have_ended",
        lambda real: lambda *rest: True,
    ),
    "stable ranks are those of the order": (
        "_ranks",
        lambda real: lambda turn, stays, size: list(range(size)),
    ),
    "nobody reads who has seen the success of a step": ("_record", _forgets_the_step),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_of_members_is_found(name: str) -> None:
    function, planted = PLANTED[name]
    changed = planted(getattr(ledger._Turn, function))
    with (
        mock.patch.object(ledger._Turn, function, changed),
        pytest.raises(elastic_world.Wrong),
    ):
        for seed in range(SEEDS):
            elastic_world.run_seed(seed)
