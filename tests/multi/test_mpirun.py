# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that an MPI's own launcher starts, without a word about addresses."""

import os
import shutil
import subprocess
import sys

import pytest

SCRIPT = """
import numpy as np
import distlite as dist
for _ in range(2):
    dist.init_process_group("gloo")
    total = np.array([dist.get_rank() + 1.0])
    dist.all_reduce(total)
    dist.destroy_process_group()
print(f"{dist.get_node_local_rank()} {total[0]:g}\\n", end="")
"""


@pytest.mark.parametrize(
    ("program", "options"),
    [
        ("mpirun.openmpi", ["--allow-run-as-root", "--oversubscribe"]),
        ("mpirun.mpich", []),
    ],
)
def test_ranks_of_an_mpi_find_each_other(tmp_path, program, options):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    ours = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK")
    environment = {k: v for k, v in os.environ.items() if k not in ours}
    result = subprocess.run(
        [program, *options, "-n", "2", sys.executable, "-c", SCRIPT],
        env={**environment, "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == ["0 3", "1 3"]
    assert not [name for name in os.listdir(tmp_path) if name.startswith("distlite")]
