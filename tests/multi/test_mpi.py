# SPDX-License-Identifier: BSD-3-Clause
"""The mpi backend under the launchers that are here."""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import distlite
from distlite import _C

SCRIPT = str(Path(__file__).parent / "mpi_ranks.py")
# By launcher: its options, and the library of that MPI as the system knows it.
LAUNCHERS = {
    "mpirun.openmpi": ["--allow-run-as-root", "--oversubscribe"],
    "mpirun.mpich": [],
}
SONAMES = {"mpirun.openmpi": "libmpi.so.40", "mpirun.mpich": "libmpich.so.12"}
# What other launchers may have left here.
FOREIGN = ("OMPI_", "PMI_", "PMIX_", "RANK", "WORLD_SIZE", "MASTER_", "LOCAL_RANK")

launchers = pytest.mark.parametrize("launcher", LAUNCHERS)


def start(launcher, size, *words, seconds=100, **extra):
    if shutil.which(launcher) is None:
        pytest.skip(f"{launcher} is not installed")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
    command = [launcher, *LAUNCHERS[launcher], "-n", str(size), sys.executable, SCRIPT]
    with subprocess.Popen(
        [*command, *words],
        env={**environment, **extra},
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


@pytest.fixture
def run(tmp_path):
    """What each rank found, by rank."""

    def run_all(launcher, size, *words, **extra):
        folder = str(tmp_path)
        status, _, err = start(launcher, size, *words, TEST_MPI_RESULTS=folder, **extra)
        assert status == 0, err
        return [json.loads((tmp_path / str(rank)).read_text()) for rank in range(size)]

    return run_all


@launchers
def test_a_few_of_everything(run, launcher):
    for result in run(launcher, 2, "first_steps"):
        assert all(result) and len(result) == 8


@launchers
@pytest.mark.slow
def test_a_few_of_everything_with_four(run, launcher):
    for result in run(launcher, 4, "first_steps"):
        assert all(result)


@pytest.mark.slow
@launchers
@pytest.mark.parametrize("size", [1, 2, 4])
def test_every_collective_beside_numpy(run, launcher, size):
    assert run(launcher, size, "grids", seconds=240) == [[]] * size


@pytest.mark.slow
@launchers
def test_what_is_too_large_for_one_call_goes_in_pieces(run, launcher):
    piece = {"DISTLITE_MPI_PIECE": "65536"}
    assert run(launcher, 2, "grids", seconds=240, **piece) == [[]] * 2
    for result in run(launcher, 2, "first_steps", **piece):
        assert all(result)


@pytest.mark.slow
@launchers
def test_special_values(run, launcher):
    for found in run(launcher, 4, "specials"):
        assert found["bool sum"] == [1, 0, 1]
        assert found["bfloat16"] == 1 + 2**-7
        assert found["PREMUL_SUM"] == [5.0] * 3
        nan = found["('float16', 'MIN')"]
        assert nan != nan


@pytest.mark.slow
@launchers
def test_failures_name_the_ranks_and_leave_other_groups_whole(run, launcher):
    first, second = run(launcher, 2, "failures")
    both = "rank 0 called all_reduce(3 x float64, SUM), rank 1 called barrier()"
    for found in (first, second):
        assert both in found["mismatch"]
        assert "group 1 is broken" in found["again"] and both in found["again"]
        assert found["then"] == "2.0"
        assert "tags go from 0 to 268435454" in found["tag"]
    assert "timed out after 300ms on rank 0 of 2" in first["late"]
    assert "nothing was heard of rank 1;" in first["late"]
    assert first["took"] == "True"
    assert "group 3 was aborted" in first["abort"]
    assert "recv in group 4 on rank 0 timed out after 300ms" in first["receive"]
    assert "runcate" in first["long"]


@pytest.mark.slow
@launchers
def test_a_rank_that_fails_ends_the_job(launcher):
    status, _, err = start(launcher, 2, "one_dies")
    assert status != 0
    assert "[rank1]: ValueError: on purpose" in err


@pytest.mark.slow
@launchers
def test_a_launcher_of_another_mpi_is_told(run, launcher):
    other = next(each for each in LAUNCHERS if each != launcher)
    if shutil.which(other) is None:
        pytest.skip(f"{other} is not installed")
    variables = {"DISTLITE_MPI_LIBRARY": SONAMES[other]}
    for found in run(launcher, 2, "mismatched", **variables):
        assert "has started 2 ranks" in found
        assert "sees a world of 1" in found
        assert "DISTLITE_MPI_LIBRARY" in found


@pytest.mark.slow
@launchers
@pytest.mark.parametrize("first", ["mpi4py", "distlite"])
def test_beside_mpi4py(run, launcher, first):
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed")
    if not _mpi4py_is_for(launcher):
        pytest.skip(f"mpi4py here is not for {launcher}")
    assert run(launcher, 2, "with_mpi4py", first) == [[True] + [3.0] * 6] * 2


def _mpi4py_is_for(launcher):
    code = "from mpi4py import MPI; print(MPI.Get_library_version())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100
    )
    return done.stdout.startswith(
        "Open MPI" if launcher == "mpirun.openmpi" else "MPICH"
    )


def test_whether_there_is_an_mpi(monkeypatch, tmp_path):
    code = "import distlite; print(distlite.is_mpi_available())"
    command = [sys.executable, "-c", code]
    nothing = {**os.environ, "DISTLITE_MPI_LIBRARY": str(tmp_path / "libmpi.so")}
    done = subprocess.run(
        command, env=nothing, capture_output=True, text=True, timeout=100
    )
    assert done.stdout == "False\n", done.stderr
    if distlite.is_mpi_available():
        text, path = _C._mpi_library()
        assert text and os.path.exists(path)


def test_what_is_looked_for_is_told(tmp_path):
    code = "import distlite; distlite.init_process_group('mpi')"
    nothing = {**os.environ, "DISTLITE_MPI_LIBRARY": str(tmp_path / "libmpi.so")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=nothing,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert "Distributed package doesn't have MPI built in; MPI cannot be loaded: " in (
        done.stderr
    )
