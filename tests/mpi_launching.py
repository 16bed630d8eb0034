# SPDX-License-Identifier: BSD-3-Clause
"""Runs MPI's launchers for the tests of the mpi backend."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from doubles_build import OVER_MPI

RANKS = str(Path(__file__).parent / "multi" / "mpi_ranks.py")
# What other launchers, or the settings of another MPI, may have left here.
FOREIGN = (
    *("OMPI_", "PMI_", "PMIX_", "PRTE_", "I_MPI_", "MPIR_", "UCX_", "FI_"),
    *("RANK", "WORLD_SIZE", "MASTER_", "LOCAL_RANK"),
)


def run_launcher(
    command: Sequence[str],
    variables: Mapping[str, str],
    *,
    seconds: float,
    dropped: tuple[str, ...] = (),
) -> tuple[int, str, str]:
    """The job's status, output and errors; it is killed when it takes longer.

    MPI moves all data, unless `variables` say otherwise.  Variables that begin with one
    of `dropped` or FOREIGN are not passed on."""
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith((*FOREIGN, *dropped))
    }
    with subprocess.Popen(
        command,
        env={**environment, **OVER_MPI, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, out, err


def results_of(folder: Path, size: int) -> list[Any]:
    """What each rank of RANKS wrote to TEST_MPI_RESULTS, by rank."""
    return [json.loads((folder / str(rank)).read_text()) for rank in range(size)]
