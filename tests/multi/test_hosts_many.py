# SPDX-License-Identifier: BSD-3-Clause
"""The benchmark of many hosts, with few of them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
HOSTS = 3
SIZES = ["8", "65536"]


@pytest.fixture
def benchmark(monkeypatch):
    """Its module, and its options for a short run."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("hosts_many")
    words = ["--sizes", *SIZES, "--calls", "2", "--patience", "60"]
    monkeypatch.setattr(sys, "argv", ["hosts_many.py", *words])
    return module, module.parse()


@pytest.mark.parametrize("side", ["distlite", "openmpi5", "hosts_many_loop"])
def test_each_side_measures_the_cells(benchmark, side):
    module, options = benchmark
    programs = module.find_programs(options)
    if side not in programs:
        pytest.skip("its environment is made by benchmarks/mpis.py")
    # Ranks of MPI spin, and take each other's cores.
    for op in module.OPS if side == "distlite" else ["all_reduce"]:
        took = module.run(side, programs[side], HOSTS, op, options)
        assert {f"{op}:{size}" for size in SIZES} <= set(took)
        assert min(took.values()) > 0


def test_a_side_that_does_not_end_loses_that_operation(benchmark, capfd):
    module, options = benchmark
    options.patience = 0.01
    assert module.run("distlite", sys.executable, HOSTS, "barrier", options) == {}
    assert "distlite, 3 hosts, barrier: ran out of time" in capfd.readouterr().err


def test_the_table_has_a_dash_for_each_side_that_is_missing(benchmark):
    module, _ = benchmark
    cells = {"barrier:0": {"distlite": [1.0], "openmpi5": [1234.0]}}
    line = module.summary({"2": cells}).splitlines()[-1]
    assert line == "| barrier | 1 / - / 1,230 |"
