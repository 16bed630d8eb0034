# SPDX-License-Identifier: BSD-3-Clause
"""The benchmark of many hosts, with few of them."""

from __future__ import annotations

import importlib
import signal
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from launching import launched, processes_of, wait_until

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
        cells = module.cells_of(op, HOSTS, options)
        took = dict(module.run(side, programs[side], HOSTS, cells, options))
        assert {cell.rpartition(":")[0] for cell in cells} <= set(took)
        assert min(took.values()) > 0


def measured(module, options, op="all_reduce"):
    """What distlite's ranks measure, by cell."""
    found = defaultdict(lambda: defaultdict(list))
    programs = {"distlite": sys.executable}
    module.measure_op(op, HOSTS, programs, options, found)
    return {cell: sides["distlite"] for cell, sides in found.items()}


def test_a_side_that_does_not_end_loses_the_rest_of_that_operation(benchmark, capfd):
    module, options = benchmark
    options.patience, options.rounds = 0.001, 2
    assert measured(module, options)["all_reduce:8"] == ["> 0.001 s"]
    told = capfd.readouterr()
    assert "3 hosts, all_reduce 8 B, distlite: > 0.001 s" in told.out
    assert "distlite, 3 hosts: > 0.001 s" in told.err


def test_a_side_keeps_what_it_measured_before_it_failed(benchmark, monkeypatch):
    module, options = benchmark
    options.rounds = 1
    program = 'echo "{\\"barrier:0\\": 1.5}"; echo "{\\"all_reduce:8\\": 2}"; exit 1'
    command = ["sh", "-c", program]
    monkeypatch.setattr(module, "command_of", lambda *_: command)
    found = measured(module, options)
    assert found == {
        "barrier:0": [1.5],
        "all_reduce:8": [2],
        "all_reduce:65536": ["failed"],
    }


def test_arrays_that_fill_the_memory_are_left_out(benchmark, monkeypatch):
    module, options = benchmark
    monkeypatch.setattr(module, "MEMORY", 2 * 4 * HOSTS * 65535)
    assert module.cells_of("all_to_all", HOSTS, options) == ["all_to_all:8:2"]
    assert len(module.cells_of("broadcast", HOSTS, options)) == len(SIZES)


def test_the_table_says_which_sides_are_missing_or_did_not_end(benchmark):
    module, _ = benchmark
    cells = {"barrier:0": {"distlite": [1.0], "openmpi5": [1234.0, "> 60 s"]}}
    line = module.summary({"2": cells}).splitlines()[-1]
    assert line == "| barrier | 1 / - / > 60 s |"
    assert module.result_text(1234.0) == "1,230"


def test_its_ranks_end_with_it():
    command = [sys.executable, str(BENCHMARKS / "hosts_many.py")]
    with launched(["--hosts", HOSTS], command=command) as (process, token):
        assert f"{HOSTS} hosts, init" in process.stdout.readline()
        assert len(processes_of(token)) > HOSTS
        process.terminate()
        assert process.wait() == 128 + signal.SIGTERM
        wait_until(lambda: not processes_of(token))
