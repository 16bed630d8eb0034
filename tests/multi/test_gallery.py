# SPDX-License-Identifier: BSD-3-Clause
"""The short programs of examples/ come to the results that they print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from launching import launch

EXAMPLES = Path(__file__).parents[2] / "examples"
SHORT = (
    *("heat", "sort", "kmeans", "parameter_server", "evolution"),
    *("digits", "ddp"),
)
LINES = 100


def output_of(name: str, ranks: int, *arguments: object) -> str:
    words = ["--nproc-per-node", ranks, EXAMPLES / name, *arguments]
    result = launch(words, timeout=50)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("name", SHORT)
def test_an_example_is_short(name: str):
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < LINES


@pytest.mark.parametrize("ranks", [1, 3])
def test_numbers_are_sorted(ranks: int):
    assert f"{ranks * 200_000} numbers in order" in output_of("sort.py", ranks)


def test_the_number_of_ranks_does_not_change_the_clusters():
    alone, several = (
        output_of("kmeans.py", ranks, "--points", 20_001) for ranks in (1, 3)
    )
    assert "20001 points" in alone and alone == several


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_any_number_of_ranks_learns_the_same(ranks: int):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    said = output_of("digits.py", ranks)
    assert "after 300 steps 0.157" in said and "373 of 397" in said


def test_workers_bring_the_loss_down():
    said = output_of("parameter_server.py", 3, "--gradients", 200)
    first, last = map(float, re.findall(r"0\.\d+", said))
    assert first > 0.6 and last < 0.25


def test_actors_learn_although_one_dies():
    result = subprocess.run(
        [sys.executable, EXAMPLES / "evolution.py"],
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert result.returncode == 0, result.stderr
    first, last = map(
        int, re.findall(r"mean score (\d+), at the end (\d+)", result.stdout)[0]
    )
    assert first < 100 and last > 200
