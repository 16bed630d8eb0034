# SPDX-License-Identifier: BSD-3-Clause
"""Our launcher runs torch's scripts, and torchrun runs ours."""

import subprocess
import sys
from pathlib import Path

import pytest
from launching import launch, write_script

pytest.importorskip("torch", reason="torch, to compare with, is not installed")

# Processes that import torch take their time.
pytestmark = pytest.mark.limit(300)
TIMEOUT = 140

TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
DIGITS = Path(__file__).parents[2] / "examples" / "train_digits.py"

SUM_WITH_TORCH = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
tensor = torch.ones(3) * (dist.get_rank() + 1)
dist.all_reduce(tensor)
print(tensor.tolist())
dist.destroy_process_group()
"""
RECORD = """
if sys.argv[1] == "torch":
    from torch.distributed.elastic.multiprocessing.errors import record
else:
    from distlite.launch import record
@record
def main():
    raise LookupError("the cause")
if rank == 1:
    sys.stderr = open(os.devnull, "w")
    main()
time.sleep(600)
"""
SHOW_VARIABLES = """
for name in sorted(os.environ):
    # In one piece each: torchrun's ranks write to one pipe as they come.
    os.write(1, f"rank {rank} {name}={os.environ[name]}\n".encode())
"""


@pytest.mark.parametrize("use_libuv", ["0", "1"])
def test_a_torch_script_runs_under_our_launcher(tmp_path, use_libuv):
    script = write_script(tmp_path, SUM_WITH_TORCH)
    result = launch(
        ["--nproc-per-node", 3, script], env={"USE_LIBUV": use_libuv}, timeout=TIMEOUT
    )
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == [
        f"[rank{rank}]: [6.0, 6.0, 6.0]" for rank in range(3)
    ]


@pytest.mark.parametrize("options", [["--standalone"], []])
def test_the_example_runs_under_torchrun(options):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    words = [*options, "--nproc-per-node", 3, DIGITS, "--check"]
    result = launch(words, command=TORCHRUN, timeout=TIMEOUT)
    assert result.returncode == 0, result.stderr
    assert "parameters equal on every rank" in result.stdout


def variables(output, prefix):
    """By rank; what the program's own start adds is left out."""
    ranks = {0: {}, 1: {}}
    for line in output.splitlines():
        _, rank, variable = line.removeprefix(prefix).split(" ", 2)
        name, _, value = variable.partition("=")
        ranks[int(rank)][name] = value
    return ranks


def test_ranks_find_the_variables_that_torchrun_sets(tmp_path):
    script = write_script(tmp_path, SHOW_VARIABLES)
    words = ["--nproc-per-node", 2, "--role", "trainer", script]
    settings = {"stderr": subprocess.DEVNULL, "timeout": TIMEOUT}
    theirs = launch(words, command=TORCHRUN, **settings)
    ours = launch(words, **settings)
    their_ranks, our_ranks = variables(theirs.stdout, ""), {}
    for rank in range(2):
        lines = [
            line.removeprefix(f"[rank{rank}]: ")
            for line in ours.stdout.splitlines()
            if line.startswith(f"[rank{rank}]: ")
        ]
        our_ranks[rank] = variables("\n".join(lines), "")[rank]
    # Chosen anew by each launch; and the file that a failed rank describes itself in.
    differing = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"}
    differing |= {"LAUNCH_TEST_TOKEN", "TORCHELASTIC_ERROR_FILE"}
    for rank in range(2):
        expected = their_ranks[rank]
        assert expected.keys() <= our_ranks[rank].keys()
        for name in expected.keys() - differing:
            assert our_ranks[rank][name] == expected[name], name


def test_what_torch_records_is_in_our_report(tmp_path):
    script = write_script(tmp_path, RECORD)
    result = launch(["--nproc-per-node", 2, script, "torch"], timeout=TIMEOUT)
    assert result.returncode == 1
    assert "rank 1 failed first: exit code 1" in result.stderr
    assert "LookupError: the cause\n" in result.stderr


def test_what_we_record_is_in_torchruns_report(tmp_path):
    script = write_script(tmp_path, RECORD)
    result = launch(
        ["--nproc-per-node", 2, script, "ours"], command=TORCHRUN, timeout=TIMEOUT
    )
    assert result.returncode == 1
    assert "Root Cause (first observed failure)" in result.stderr
    assert "LookupError: the cause\n" in result.stderr
