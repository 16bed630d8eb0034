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


DTYPES = {
    "numbers": ("float32", "int32"),
    "units": ("datetime64[s]", "datetime64[ms]"),
    "records": ("another dtype (#", "{b: float32 at 0, a: int32 at 4, 8 bytes}"),
}


def check_dtypes(first, second):
    for name, (sent, taken) in DTYPES.items():
        for count in (3, 200_000):
            text = second[f"{name} {count}"]
            assert f": the message of rank 0 has dtype {sent}" in text
            assert text.endswith(f", but the receive of rank 1 expects {taken}")
            assert second[f"{name} {count} is kept"]
    for count in (3, 200_000):
        assert f"rank 0 of {count * 8} bytes does not fit" in second[f"long {count}"]
        assert second[f"right {count}"] == [True] * 4
    # MPI tells a sender nothing of what became of a message.
    assert set(first.values()) == {"no error"}


@pytest.mark.parametrize("family", FAMILIES)
def test_messages_of_other_dtypes(family):
    env = mpi_double(*FAMILIES[family], DISTLITE_MPI_PIECE="65536")
    check_dtypes(*run_ranks(mpi_ranks.call, 2, env=env, name="dtypes"))


@all_when_slow
def test_messages_of_other_dtypes_with_an_mpi(run, launcher):
    check_dtypes(*run(launcher, 2, "dtypes"))


@pytest.mark.parametrize("size", [2, 3])
def test_large_messages_both_ways_in_one_call(size):
    """MPI receives large contents only once somebody looks for their head."""
    env = mpi_double()
    assert run_ranks(mpi_ranks.call, size, env=env, name="exchanges") == [0] * size


@launchers
@pytest.mark.slow
def test_large_messages_both_ways_in_one_call_with_an_mpi(run, launcher):
    assert run(launcher, 3, "exchanges") == [0] * 3


@all_when_slow
def test_large_messages_have_tags_of_their_own(run, launcher):
    assert run(launcher, 2, "many_large") == [True, True]


@pytest.mark.parametrize("family", FAMILIES)
def test_tags_where_mpi_has_few(family):
    """The stand-in's end where MPI allows a library to end."""
    env = mpi_double(*FAMILIES[family])
    first, second = run_ranks(mpi_ranks.call, 2, env=env, name="tags")
    assert second["object"] == 100_000
    for found in (first, second):
        assert found["right"]
        assert "tags from 0 to 32766 here (MPI_TAG_UB of " in found["error"]


@all_when_slow
def test_tags_up_to_what_every_mpi_has(run, launcher):
    first, second = run(launcher, 2, "tags")
    assert second["object"] == 100_000
    for found in (first, second):
        assert found["right"]
        assert "tags from 0 to " in found["error"]


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
@pytest.mark.parametrize("size", [2, 4])
def test_who_only_sends_runs_ahead_and_hears_of_differences(run, launcher, size):
    for rank, found in enumerate(run(launcher, size, "ahead", is_left=True)):
        assert found["came"] and found["seconds"] < 20
        assert "broadcast(3 x float64, from rank 0)" in found["text"]
        assert "rank 1 called broadcast(4 x float64, from rank 0)" in found["text"]
        assert found["then"] == (size if rank == size - 1 else 1)


@pytest.mark.slow
@launchers
def test_failures_name_the_ranks_and_leave_other_groups_whole(run, launcher):
    first, second = run(launcher, 2, "failures", is_left=True)
    both = "rank 0 called all_reduce(3 x float64, SUM), rank 1 called barrier()"
    for found in (first, second):
        assert both in found["mismatch"]
        assert "group 1 is broken" in found["again"] and both in found["again"]
        assert found["then"] == "2.0"
        assert re.search(r"tags from 0 to \d+ here \(MPI_TAG_UB of ", found["tag"])
    assert "timed out after 300ms on rank 0 of 2" in first["late"]
    assert "nothing was received from rank 1;" in first["late"]
    assert first["took"] == "True"
    assert "group 3 was aborted" in first["abort"]
    late = "recv in group 4 on rank 0 timed out after 300ms: rank 1 has not sent"
    assert late in first["receive"]
    assert "24 bytes does not fit into the 8 bytes of rank 0's array" in first["long"]


@pytest.mark.parametrize("family", FAMILIES)
def test_messages_may_be_pending_at_exit(family):
    """The double aborts when it is finalized with any."""
    env = mpi_double(*FAMILIES[family])
    assert run_ranks(mpi_ranks.call, 2, env=env, name="pending") == ["left"] * 2


@all_when_slow
def test_messages_may_be_pending_at_exit_of_mpi(launcher, tmp_path):
    variables = {"TEST_MPI_RESULTS": str(tmp_path), "MALLOC_CHECK_": "3"}
    status, _, err = start(launcher, 2, "pending", **variables)
    assert status == 0, err
    # UCX below MPICH: requests that would be written to after they are freed.
    assert "was not returned" not in err


def check_sent_in_vain(first, second):
    for how in ("sync", "async", "gaps"):
        # Over some networks MPI takes a large array before it is received.
        late = "send in group 1 on rank 0 timed out after 300ms: rank 1 has not taken"
        assert first[how] == "no error" or late in first[how]
    assert second == {"1": True, "2": True, "3": True}


def check_from_any_rank(found):
    assert found["came before"] == [1, 1.0]
    assert found["in order"] == [1.0, 2.0, 3.0, 4.0, 50.0]
    assert "timed out after 100ms" in found["too short"]
    assert "rank 1 of 24 bytes does not fit" in found["too long"]
    late = "recv in group 1 on rank 0 timed out after 200ms: no rank has sent"
    assert late in found["late"]
    assert found["then"] == [1, 6.0]


@pytest.mark.parametrize("family", FAMILIES)
def test_receives_from_any_rank(family):
    """The double loses what a posted receive from any source finds there."""
    env = mpi_double(*FAMILIES[family])
    found, _ = run_ranks(mpi_ranks.call, 2, env=env, name="from_any_rank")
    check_from_any_rank(found)


@all_when_slow
def test_receives_from_any_rank_with_mpi(run, launcher):
    found, _ = run(launcher, 2, "from_any_rank")
    check_from_any_rank(found)


def test_what_was_sent_until_an_interrupt_keeps_its_memory():
    assert run_ranks(mpi_ranks.call, 2, env=mpi_double(), name="interrupted_send") == [
        True,
        True,
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_what_was_sent_in_vain_keeps_its_memory(family):
    env = mpi_double(*FAMILIES[family])
    check_sent_in_vain(*run_ranks(mpi_ranks.call, 2, env=env, name="sent_in_vain"))


@all_when_slow
def test_what_was_sent_in_vain_keeps_its_memory_with_mpi(run, launcher):
    check_sent_in_vain(*run(launcher, 2, "sent_in_vain"))


def check_latecomers(first, second):
    assert "timed out after 300ms on rank 0 of 2" in first["timeout"]
    assert first["interrupt"] == "KeyboardInterrupt"
    assert "wait timeout after 300ms" in first["new group"]
    assert "rank 0 gave up: all_reduce #1 in group 1 timed out" in second["timeout"]
    assert "rank 0 gave up: interrupted" in second["interrupt"]
    assert "rank 0 gave up: group 3 was aborted" in second["abort"]
    assert "rank 0 gave up: " in second["new group"]
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
    assert waiting["barrier"].startswith("DistBackendError")
    assert "timed out after 500ms" in waiting["barrier"]
    assert "nothing was received from rank 1;" in waiting["barrier"]
    assert "timed out after 500ms" in waiting["receive"]
    assert waiting["seconds"] < 1 + SOON


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
    for text in found.values():
        assert "MPI has been finalized in this process (MPI_Finalize)" in text


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
