# SPDX-License-Identifier: BSD-3-Clause
"""Ranks of an MPI with ULFM that lose one, for elastic_beside.py: `mpiexec --with-ft
ulfm -n RANKS python elastic_ulfm.py FILE`.

    python benchmarks/mpis.py       Open MPI of PyPI, which has ULFM, and mpi4py 4.1
"""

from __future__ import annotations

import os
import sys

import numpy as np
from elastic_peer import EVENT, REST, die, note
from mpi4py import MPI


def main() -> None:
    """Works until some steps after a rank was lost."""
    file, comm = sys.argv[1], MPI.COMM_WORLD.Dup()
    x, done, after = np.zeros(256), np.zeros(1, np.int64), 0
    is_last = comm.rank == comm.size - 1
    while after < REST:
        if is_last and done[0] == EVENT:
            die(file)
        try:
            comm.Allreduce(MPI.IN_PLACE, x)
        except MPI.Exception:
            comm.Revoke()
            comm = comm.Shrink()
            # Back to the last step that all of them have completed.
            comm.Allreduce(MPI.IN_PLACE, done, MPI.MIN)
            continue
        done += 1
        if comm.size < MPI.COMM_WORLD.size:
            after += 1
            if after == 1:
                note(file, "first")
    comm.Barrier()
    os._exit(0)  # MPI_Finalize may wait for the rank that is dead


if __name__ == "__main__":
    main()
