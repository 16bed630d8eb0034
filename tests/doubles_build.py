# SPDX-License-Identifier: BSD-3-Clause
"""Builds the stand-ins for libraries of machines that are not here.

    env = nccl_doubles()
    run_ranks(function, 2, env=env)

They lie in build/doubles, where no loader looks: only the variables that name a library
lead there.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from c_build import emulated

# Ranks of one host use MPI to reach each other, not memory that they share.
OVER_MPI = {"DISTLITE_MPI_SHARED_MEMORY": "0"}
ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "doubles"


def build(name: str, *flags: str) -> Path:
    """The library made of tests/doubles/<name>.c."""
    source = ROOT / "tests" / "doubles" / f"{name}.c"
    folder = FOLDER / emulated()
    target = folder / f"lib{name}{''.join(flags)}.so"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sources = [source, *source.parent.glob("*.h")]
        newest = max(path.stat().st_mtime for path in sources)
        if not target.exists() or target.stat().st_mtime < newest:
            made = target.with_suffix(".new")
            own = shlex.split(os.environ.get("CC", "gcc"))
            command = [
                *([f"{emulated()}-linux-gnu-gcc"] if emulated() else own),
                *("-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra"),
                *("-fPIC", "-shared", "-pthread", *flags, str(source)),
                # Thread sanitizers take what glibc does for later ones for a race.
                "-ftls-model=initial-exec",
                *("-o", str(made), "-ldl", "-lm"),
            ]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
            made.rename(target)
    return target


def nccl_doubles(*flags: str, **settings: object) -> dict[str, str]:
    """The environment in which NCCL and the CUDA runtime are the doubles.

    `flags`: -DOLD, -DANCIENT.  `settings`: of the doubles, as DOUBLE_CUDA_DEVICES=1.
    """
    return {
        "DISTLITE_NCCL_LIBRARY": str(build("nccl_double", *flags)),
        "DISTLITE_CUDART_LIBRARY": str(build("cudart_double")),
        **{name: str(value) for name, value in settings.items()},
    }


def ucc_double(*flags: str, **settings: object) -> dict[str, str]:
    """The environment in which UCC is the double.

    `flags`: -DOLD, -DANCIENT, -DNEXT.  `settings`: of the double.
    """
    return {
        "DISTLITE_UCC_LIBRARY": str(build("ucc_double", *flags)),
        **{name: str(value) for name, value in settings.items()},
    }


def mpi_double(*flags: str, **settings: object) -> dict[str, str]:
    """The environment in which MPI is the double, for the ranks of one job, and moves
    all data, as between hosts.

    `flags`: -DMPICH or -DSTANDARD, else it is an Open MPI.  `settings`: of the double.
    """
    job, name = tempfile.mkstemp(prefix="distlite-mpi-")
    os.close(job)
    atexit.register(Path(name).unlink, missing_ok=True)
    return {
        "DISTLITE_MPI_LIBRARY": str(build("mpi_double", *flags)),
        "DOUBLE_MPI_JOB": name,
        **OVER_MPI,
        **{name: str(value) for name, value in settings.items()},
    }


def change_double(library: str, **settings: object) -> None:
    """Changes settings of a double that this process has loaded; "": back to none.

    `library`: the variable that names it, as DISTLITE_NCCL_LIBRARY.
    """
    double = ctypes.CDLL(os.environ[library])
    for name, value in settings.items():
        double.double_change(f"{name}={value}".encode())
