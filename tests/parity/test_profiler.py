# SPDX-License-Identifier: BSD-3-Clause
"""The events of torch's profilers: those that gloo makes, and those of distlite."""

from __future__ import annotations

import json
from typing import Any

import pytest
from workers import run_ranks

pytest.importorskip("torch", reason="torch, to compare with, is not installed")

import profiled_ranks
from profiled_ranks import PROFILERS, PROGRAMS

# Processes that import torch take their time.
pytestmark = pytest.mark.limit(200)

NAMES = (
    "averages",
    "exported",
    "without shapes",
    "elsewhere",
    "only looked at",
    "by future",
)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> list[dict[str, Any]]:
    """What each rank found, by backend."""
    folder = str(tmp_path_factory.mktemp("profiles"))
    return run_ranks(profiled_ranks.profile, 2, timeout=180, folder=folder)


def as_of(backend: str, found: Any) -> Any:
    """What was found with gloo, by the names of another backend."""
    return json.loads(json.dumps(found).replace('"gloo:', f'"{backend}:'))


def assert_like_gloo(ranks: list[dict[str, Any]], name: str) -> None:
    for found in ranks:
        assert found["gloo"][name], "gloo made no event"
        assert found["own"][name] == found["gloo"][name]
        assert found["distlite"][name] == as_of("distlite", found["gloo"][name])


@pytest.mark.parametrize("kind", PROFILERS)
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_operation_is_the_event_that_it_is_with_gloo(ranks, name, is_async, kind):
    assert_like_gloo(ranks, f"{name} {is_async} {kind}")


@pytest.mark.parametrize("name", NAMES)
def test_events_are_shown_as_those_of_gloo(ranks, name):
    assert_like_gloo(ranks, name)


def test_an_event_has_the_name_and_the_shapes_of_the_operation(ranks):
    expected = [["gloo:all_reduce", [[4, 3]], True, True, 1]]
    for found in ranks:
        assert found["own"]["all_reduce False profiler"] == expected


def test_an_operation_that_fails_has_its_event_too(ranks):
    said, events = ranks[0]["own"]["of a failure"]
    assert said == ["DistBackendError"] * 2
    assert events == [["gloo:all_reduce", [[1]], True, True, 1]] * 2


def test_arrays_of_numpy_make_no_events(ranks):
    for found in ranks:
        assert found["own"]["of numpy"] == []


def test_operations_that_gloo_carries_out_as_others_have_their_own_names(ranks):
    for found in ranks:
        assert [row[:2] for row in found["own"]["of own operations"]] == [
            ["gloo:reduce_scatter", [[3], [3]]],
            ["gloo:reduce_scatter", [[6]]],
        ]
