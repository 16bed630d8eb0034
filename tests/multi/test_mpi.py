# SPDX-License-Identifier: BSD-3-Clause
"""The mpi backend under the launchers that are here."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import mpi_ranks
import pytest
from doubles_build import build, mpi_double
from launching import launch
from mpi_launching import RANKS, results_of, run_launcher
from workers import SOON, rank_outcomes, run_ranks

# By launcher: its options, and the library of that MPI as the system knows it.
LAUNCHERS = {
    "mpirun.openmpi": ["--allow-run-as-root", "--oversubscribe"],
    "mpirun.mpich": [],
}
SONAMES = {"mpirun.openmpi": "libmpi.so.40", "mpirun.mpich": "libmpich.so.12"}

launchers = pytest.mark.parametrize("launcher", LAUNCHERS)
# What hardly depends on the MPI: each start of a job takes a second of processor time.
all_when_slow = pytest.mark.parametrize(
    "launcher",
    [pytest.param("mpirun.openmpi", marks=pytest.mark.slow), "mpirun.mpich"],
)


def start(launcher, size, *words, seconds=100, script=RANKS, **extra):
    if shutil.which(launcher) is None:
        pytest.skip(f"{launcher} is not installed")
    command = [launcher, *LAUNCHERS[launcher], "-n", str(size), sys.executable, script]
    return run_launcher([*command, *words], extra, seconds=seconds)


@pytest.fixture
def run(tmp_path):
    """What each rank found, by rank.  With `is_left` a launcher may call it a failure
    that an operation is left to MPI, which is not finalized then."""

    def run_all(launcher, size, *words, is_left=False, **extra):
        folder = str(tmp_path)
        status, _, err = start(launcher, size, *words, TEST_MPI_RESULTS=folder, **extra)
        assert is_left or status == 0, err
        return results_of(tmp_path, size)

    return run_all


FAMILIES = {"Open MPI": (), "MPICH": ("-DMPICH",), "the standard": ("-DSTANDARD",)}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_few_of_everything_with_each_binary_interface(family):
    """The stand-in: also for what is not installed."""
    env = mpi_double(*FAMILIES[family])
    for result in run_ranks(mpi_ranks.call, 2, env=env, name="first_steps"):
        assert all(result) and len(result) == 9


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_collective_with_each_binary_interface(family):
    for piece in ({}, {"DISTLITE_MPI_PIECE": "65536"}):
        env = mpi_double(*FAMILIES[family], **piece)
        assert run_ranks(mpi_ranks.call, 3, env=env, name="grids") == [[]] * 3


def test_a_world_of_one_in_a_job_of_two_is_refused():
    """As under distlite run, of which MPI knows nothing: not two silent worlds."""
    alone = {"DISTLITE_MPI_LIBRARY": str(build("mpi_double"))}
    for text in run_ranks(mpi_ranks.call, 2, env=alone, name="mismatched"):
        assert text.startswith("DistBackendError: ")
        assert "WORLD_SIZE=2 asks for a group of 2, but MPI's world has 1 rank;" in text
        assert "mpirun -n 2 python script.py" in text


def test_a_size_that_is_not_that_of_the_world_is_refused():
    env = mpi_double()
    for text in run_ranks(mpi_ranks.call, 2, env=env, name="missized"):
        assert "world_size=3 asks for a group of 3, but MPI's world has 2 ranks" in text


@all_when_slow
def test_a_job_of_two_with_a_size_of_one_is_refused(run, launcher):
    """RANK and WORLD_SIZE are left over from elsewhere."""
    for text in run(launcher, 2, "mismatched", RANK="0", WORLD_SIZE="1"):
        assert "WORLD_SIZE=1 asks for a group of 1, but MPI's world has 2 ranks" in text
        assert "unset RANK and WORLD_SIZE" in text


@all_when_slow
def test_an_example_under_mpirun_has_all_ranks(launcher):
    words = ["--check", "--backends", "gloo", "mpi"]
    script = str(Path(__file__).parents[2] / "examples" / "multiple_groups.py")
    status, out, err = start(launcher, 2, *words, script=script)
    assert status == 0, err
    for name in ("gloo", "mpi"):
        # Two ranks write at a time: a text stays whole, its line may not.
        assert f"all ranks, for {name}, {name}: sum 3" in out
    assert "every sum is right" in out


def test_an_example_under_another_launcher_does_without_mpi():
    script = Path(__file__).parents[2] / "examples" / "multiple_groups.py"
    words = ["--nproc-per-node", 2, script, "--check", "--backends", "mpi"]
    result = launch(words, env=mpi_double(), timeout=100)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    text = "mpi is here, but mpirun has not started the ranks: gloo in its place"
    assert f"[rank0]: {text}" in lines
    assert "[rank0]: all ranks, for mpi, gloo: sum 3" in lines


@pytest.mark.parametrize("piece", [4096, 4111, 5003, 8191])
def test_pieces_of_odd_sizes(piece):
    env = mpi_double(DISTLITE_MPI_PIECE=piece)
    assert run_ranks(mpi_ranks.call, 2, env=env, name="around_pieces") == [[]] * 2


@pytest.mark.slow
def test_a_thread_level_that_is_too_low_is_refused():
    env = mpi_double(DOUBLE_MPI_THREADS=2)
    for text in run_ranks(mpi_ranks.call, 2, env=env, name="mismatched"):
        assert "MPI was started but grants a thread level below" in text
        assert "MPI_THREAD_MULTIPLE (2 of 3)" in text


@launchers
def test_a_few_of_everything(run, launcher):
    for result in run(launcher, 2, "first_steps"):
        assert all(result) and len(result) == 9


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
@pytest.mark.parametrize("size", [2, 3])
def test_orders_of_what_does_not_divide(run, launcher, size):
    assert run(launcher, size, "orders") == [[True] * 12] * size
    piece = {"DISTLITE_MPI_PIECE": "4096"}
    assert run(launcher, size, "orders", **piece) == [[True] * 12] * size


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
    first, second = run(launcher, 2, "failures", is_left=True)
    both = "rank 0 called all_reduce(3 x float64, SUM), rank 1 called barrier()"
    for found in (first, second):
        assert both in found["mismatch"]
        assert "group 1 is broken" in found["again"] and both in found["again"]
        assert found["then"] == "2.0"
    assert "timed out after 300ms: waiting for rank 1 (pid" in first["late"]
    assert first["took"] == "True"
    assert "group 3 was aborted" in first["abort"]


def check_latecomers(first, second):
    assert "timed out after 300ms: waiting for rank 1 (pid" in first["timeout"]
    assert first["interrupt"] == "KeyboardInterrupt"
    for how in ("timeout", "interrupt", "abort"):
        assert "rank 0 (pid" in second[how]
    assert second["seconds"] < SOON
    assert first["then"] == second["then"] == 3.0


@pytest.mark.parametrize("family", FAMILIES)
def test_who_comes_after_a_rank_gave_up_is_told(family):
    env = mpi_double(*FAMILIES[family])
    check_latecomers(*run_ranks(mpi_ranks.call, 2, env=env, name="latecomers"))


@all_when_slow
def test_who_comes_after_a_rank_gave_up_is_told_by_mpi(run, launcher):
    check_latecomers(*run(launcher, 2, "latecomers", is_left=True))


@pytest.mark.slow
@launchers
def test_a_rank_that_fails_ends_the_job(launcher):
    status, _, err = start(launcher, 2, "one_dies")
    assert status != 0
    assert "[rank1]: ValueError: on purpose" in err


@pytest.mark.slow
@launchers
@pytest.mark.parametrize("what", ["barrier", "large", "receive"])
def test_a_rank_that_is_killed_ends_the_job(launcher, what):
    """The launcher sees to it, long before any timeout of ours."""
    began = time.monotonic()
    status, out, _ = start(launcher, 2, "one_is_killed", what)
    assert status != 0
    assert "survived" not in out
    assert time.monotonic() - began < 90


DEATHS = ["barrier", "monitored_barrier", "recv", "irecv", "send", "window", "nothing"]


def check_death(what, said, seconds):
    assert seconds < 20
    if what == "nothing":
        assert said == "nothing"
    else:
        assert re.search(r"DistBackendError: .*rank 1 \(pid \d+", said, re.DOTALL)
        assert "exited or was killed" in said


@pytest.mark.parametrize("what", DEATHS)
def test_who_knows_of_a_death_does_not_wait_in_mpi_s_end(what):
    env = mpi_double()
    survivor, dead = rank_outcomes(
        mpi_ranks.call, 2, env=env, name="death", words=[what]
    )
    check_death(what, *survivor.value)
    assert survivor.is_good, survivor.describe()
    assert not dead.is_good


@pytest.mark.slow
@pytest.mark.parametrize("what", DEATHS)
def test_who_knows_of_a_death_ends_under_mpirun(tmp_path, what):
    """Where the launcher lets the others go on."""
    if shutil.which("mpirun.openmpi") is None:
        pytest.skip("mpirun.openmpi is not installed")
    options = [*LAUNCHERS["mpirun.openmpi"], "-enable-recovery", "-n", "2"]
    command = ["mpirun.openmpi", *options, sys.executable, RANKS, "death", what]
    run_launcher(command, {"TEST_MPI_RESULTS": str(tmp_path)}, seconds=60)
    check_death(what, *json.loads((tmp_path / "0").read_text()))


@pytest.mark.slow
@launchers
@pytest.mark.parametrize("how", ["destroy", "exit"])
def test_a_rank_that_leaves_is_named_by_who_waits(tmp_path, launcher, how):
    # The launcher may call it a failure that MPI was not ended.
    start(launcher, 2, "one_leaves", how, TEST_MPI_RESULTS=str(tmp_path))
    waiting = json.loads((tmp_path / "0").read_text())
    for call in ("barrier", "receive"):
        assert "rank 1 (pid" in waiting[call]
    assert waiting["seconds"] < SOON


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


@pytest.fixture
def mpi4py_for(tmp_path):
    """The environment in which mpi4py uses that launcher's library."""

    def prepare(launcher):
        if importlib.util.find_spec("mpi4py") is None:
            pytest.skip("mpi4py is not installed")
        environment = {}
        if launcher == "mpirun.mpich":
            # mpi4py's wheels know both, and MPICH's by the name of its own build.
            folder = tmp_path / "lib"
            folder.mkdir()
            (folder / "libmpi.so.12").symlink_to(_path_of(SONAMES[launcher]))
            environment = {"MPI4PY_MPIABI": "mpich", "LD_LIBRARY_PATH": str(folder)}
        code = "from mpi4py import MPI; print(MPI.Get_library_version())"
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=30,
        )
        expected = "Open MPI" if launcher == "mpirun.openmpi" else "MPICH"
        if not done.stdout.startswith(expected):
            pytest.skip(f"mpi4py here is not for {launcher}")
        return environment

    return prepare


def _path_of(soname):
    code = f"import ctypes; ctypes.CDLL('{soname}')"
    code += "; print(open('/proc/self/maps').read())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30
    )
    paths = [line.split()[-1] for line in done.stdout.splitlines() if line]
    found = [path for path in paths if Path(path).name.startswith(soname)]
    if not found:
        pytest.skip(f"{soname} is not installed")
    return found[0]


def check_ended(found):
    assert "MPI has been finalized in this process (MPI_Finalize)" in found


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_calls_mpi_once_another_part_of_the_program_ends_it(family):
    """The double aborts when it is asked for messages by then."""
    env = mpi_double(*FAMILIES[family])
    for found in run_ranks(mpi_ranks.call, 2, env=env, name="ended_in_c"):
        check_ended(found)


@pytest.mark.slow
@launchers
def test_after_the_end_of_mpi_all_calls_say_so(run, mpi4py_for, launcher):
    for found in run(launcher, 2, "ended", **mpi4py_for(launcher)):
        check_ended(found)


@pytest.mark.slow
@launchers
@pytest.mark.parametrize("first", ["mpi4py", "distlite"])
def test_beside_mpi4py(run, mpi4py_for, launcher, first):
    """Whoever comes first; MPI is ended once, or the launcher would complain."""
    found = run(launcher, 2, "with_mpi4py", first, **mpi4py_for(launcher))
    assert found == [[True] + [3.0] * 6] * 2


@pytest.mark.slow
@launchers
def test_mpi4py_with_a_lower_thread_level_is_told(run, mpi4py_for, launcher):
    for text in run(launcher, 2, "after_a_lower_level", **mpi4py_for(launcher)):
        assert "MPI was started by another part of the program with a thread " in text
        assert "below MPI_THREAD_MULTIPLE (1 of 3)" in text


WHETHER = """
from distlite import _C, is_mpi_available
print(is_mpi_available())
if is_mpi_available():
    print(*_C._mpi_library(), sep="\\n")
"""


def test_whether_there_is_an_mpi(tmp_path):
    """In processes of their own: one that has loaded a library keeps it."""
    nothing = {"DISTLITE_MPI_LIBRARY": str(tmp_path / "libmpi.so")}
    for changes in ({}, nothing):
        done = subprocess.run(
            [sys.executable, "-c", WHETHER],
            env={**os.environ, **changes},
            capture_output=True,
            text=True,
            timeout=100,
        )
        is_there, *library = done.stdout.splitlines()
        assert is_there in ("False" if changes else "True", "False"), done.stderr
        if is_there == "True":
            text, path = library
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
