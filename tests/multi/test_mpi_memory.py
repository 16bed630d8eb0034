# SPDX-License-Identifier: BSD-3-Clause
"""The mpi backend of groups whose ranks share memory, which then moves all data."""

import time

import mpi_ranks
import pytest
from doubles_build import mpi_double
from test_mpi import check_death, launchers, run, start
from workers import SOON, rank_outcomes, run_ranks

SHARED = {"DISTLITE_MPI_SHARED_MEMORY": "1"}
# Whatever needs a communicator fails.
WITHOUT_MPI = {**SHARED, "DOUBLE_MPI_FAIL": "MPI_Comm_create_group"}
WITH_MPI = "MPI_Comm_create_group failed"

__all__ = ["run"]  # a fixture


def run_shared(name, size, **options):
    env = mpi_double(**WITHOUT_MPI)
    return run_ranks(mpi_ranks.call, size, env=env, name=name, **options)


@pytest.mark.parametrize("size", [2, 3])
def test_a_few_of_everything_without_mpi(size):
    for result in run_shared("first_steps", size):
        assert all(result) and len(result) >= 8


@pytest.mark.slow
def test_every_collective_without_mpi():
    assert run_shared("grids", 3) == [[]] * 3


@launchers
def test_a_few_of_everything_with_an_mpi(run, launcher):
    for result in run(launcher, 2, "first_steps", **SHARED):
        assert all(result) and len(result) == 9


def test_it_is_the_default():
    env = {**mpi_double(**WITHOUT_MPI), "DISTLITE_MPI_SHARED_MEMORY": ""}
    for result in run_ranks(mpi_ranks.call, 2, env=env, name="first_steps"):
        assert all(result)


def test_its_ranks_are_proved():
    """What first_steps() exchanges are also objects, which never go over MPI."""
    for mpi in (WITHOUT_MPI, {}):
        env = mpi_double(**mpi, DISTLITE_OBJECTS="proved")
        for result in run_ranks(mpi_ranks.call, 2, env=env, name="first_steps"):
            assert all(result)


def test_groups_made_out_of_groups():
    first, second, third = run_shared("regrouped", 3)
    assert first == [6, 4, 4]
    assert second == [6, 2, 2]
    assert third == [6, 4, 4]


@pytest.mark.parametrize(
    "variable", ["DISTLITE_MPI_SHARED_MEMORY", "DISTLITE_HOST_HINT"]
)
def test_all_ranks_have_to_share_it(variable):
    """A group of which they do not uses MPI, on all ranks."""
    env = mpi_double(**WITHOUT_MPI)
    for said in run_ranks(mpi_ranks.apart, 2, env=env, variable=variable):
        assert WITH_MPI in said


def test_a_setting_that_cannot_be_is_refused():
    env = mpi_double(DISTLITE_MPI_SHARED_MEMORY="perhaps")
    for said in run_ranks(mpi_ranks.call, 2, env=env, name="mismatched"):
        assert "DISTLITE_MPI_SHARED_MEMORY must be 1 or 0" in said


@pytest.mark.parametrize("what", ["barrier", "recv", "window", "nothing"])
def test_the_dead_are_named(what):
    env = mpi_double(**WITHOUT_MPI)
    survivor, dead = rank_outcomes(
        mpi_ranks.call, 2, env=env, name="death", words=[what]
    )
    check_death(what, *survivor.value)
    assert survivor.is_good, survivor.describe()
    assert not dead.is_good


def test_who_comes_after_a_rank_gave_up_is_told():
    first, second = run_shared("latecomers", 2)
    assert "timed out after 300ms: waiting for rank 1 (pid" in first["timeout"]
    assert first["interrupt"] == "KeyboardInterrupt"
    for how in ("timeout", "interrupt", "abort"):
        assert "rank 0 (pid" in second[how]
    assert second["seconds"] < SOON
    assert first["then"] == second["then"] == 3.0


@launchers
@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["one_dies"], ["one_is_killed", "barrier"], ["one_is_killed", "receive"]]
)
def test_a_rank_that_fails_ends_the_job(launcher, words):
    began = time.monotonic()
    status, out, err = start(launcher, 2, *words, **SHARED)
    assert status != 0
    assert "survived" not in out
    assert words != ["one_dies"] or "[rank1]: ValueError: on purpose" in err
    assert time.monotonic() - began < 60


@launchers
@pytest.mark.slow
@pytest.mark.parametrize("how", ["destroy", "exit"])
def test_a_rank_that_leaves_is_named_at_once(run, launcher, how, tmp_path):
    folder = str(tmp_path)
    start(launcher, 2, "one_leaves", how, TEST_MPI_RESULTS=folder, **SHARED)
    waiting = mpi_ranks.json.loads((tmp_path / "0").read_text())
    for call in ("barrier", "receive"):
        assert "rank 1 (pid" in waiting[call]
    assert waiting["seconds"] < SOON
