# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that Slurm or an MPI has started."""

import os
import re
import subprocess
import sys
from datetime import timedelta

import pytest

import distlite
from distlite import cluster
from distlite.cluster import expand, find_member

LIMIT = timedelta(seconds=60)
SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_JOB_ID": "1234567",
    "SLURM_STEP_ID": "2",
    "SLURM_STEP_NODELIST": "gpu[07-09,12]",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}
MPICH = {
    "PMI_RANK": "2",
    "PMI_SIZE": "4",
    "MPI_LOCALRANKID": "0",
    "MPI_LOCALNRANKS": "2",
}
OURS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@pytest.fixture
def environment(monkeypatch):
    """Without a launcher's variables; sets those of a test."""
    for name in os.environ:
        if name in OURS or name.startswith(("SLURM_", "OMPI_", "PMI_", "MV2_", "MPI_")):
            monkeypatch.delenv(name)

    def set_all(variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_all


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("login", ["login"]),
        ("a,b-1,c", ["a", "b-1", "c"]),
        ("gpu[07-09,12]", ["gpu07", "gpu08", "gpu09", "gpu12"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("a[1-2]-ib[0,3],z", ["a1-ib0", "a1-ib3", "a2-ib0", "a2-ib3", "z"]),
    ],
)
def test_lists_of_hosts(text, names):
    assert expand(text) == names


def test_a_task_of_slurm():
    member = find_member(SLURM)
    assert (member.rank, member.world_size, member.local_rank) == (5, 8, 1)
    assert member.address() == "gpu07"
    assert member.port() == 15000 + (1234567 + 2) % 15000
    # srun -n 6 within a job of 8 tasks
    assert find_member({**SLURM, "SLURM_STEP_NUM_TASKS": "6"}).world_size == 6
    alone = find_member({**SLURM, "SLURM_STEP_NODELIST": "gpu07"})
    assert alone.address() == "127.0.0.1"


@pytest.mark.parametrize(
    ("variables", "expected"), [(OPEN_MPI, (1, 4, 1)), (MPICH, (2, 4, 0))]
)
def test_ranks_of_an_mpi(variables, expected):
    # Under Slurm, too: its tasks are then the daemons that have started the ranks.
    for environment in (variables, {**SLURM, **variables}):
        member = find_member(environment)
        assert (member.rank, member.world_size, member.local_rank) == expected


def test_no_launcher():
    assert find_member({"SLURM_NTASKS": "4", "HOME": "/"}) is None


def test_an_mpi_on_several_hosts_needs_an_address(environment):
    environment(MPICH)
    with pytest.raises(ValueError, match=r"PMI_RANK.* set MASTER_ADDR to that host"):
        next(distlite.rendezvous("env://", timeout=LIMIT))
    environment({"MASTER_ADDR": "127.0.0.1"})
    with pytest.raises(ValueError, match="variable MASTER_PORT expected, but not set"):
        next(distlite.rendezvous("env://", timeout=LIMIT))


def test_what_is_missing_is_named(environment):
    environment({"SLURM_PROCID": "0"})
    with pytest.raises(ValueError, match="SLURM_NTASKS must be a number, but is ''"):
        next(distlite.rendezvous("env://", timeout=LIMIT))


def test_rank_and_its_company_go_first(environment):
    environment({**OPEN_MPI, "RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": "0"})
    environment({"MASTER_ADDR": "127.0.0.1"})
    assert next(distlite.rendezvous("env://", timeout=LIMIT))[1:] == (0, 1)


def test_a_slurm_job_of_one_task(environment, monkeypatch):
    environment({**SLURM, "SLURM_PROCID": "0", "SLURM_NTASKS": "1"})
    environment({"SLURM_STEP_NODELIST": "anywhere", "MASTER_PORT": "0"})
    store, rank, world_size = next(distlite.rendezvous("env://", timeout=LIMIT))
    assert (rank, world_size, store.host) == (0, 1, "127.0.0.1")
    assert distlite.get_node_local_rank() == 1


MEET = """
import os, sys
import distlite
store, rank, size = next(distlite.rendezvous("env://"))
store.set(f"from {rank}", "x")
store.wait([f"from {r}" for r in range(size)])
again, _, _ = next(distlite.rendezvous("env://"))
assert again.get(f"from {size - 1 - rank}") == b"x"
again.barrier("over", size)
# In one piece: the other rank writes to the same pipe.
os.write(1, b"%d %d\\n" % (rank, size))
"""
WRAPPER = """
import os, subprocess, sys
ranks = []
for rank in range(2):
    variables = {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2"}
    variables |= {"OMPI_COMM_WORLD_LOCAL_RANK": str(rank)}
    variables |= {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    # As users do: a shell between the launcher and the program.
    words = ["sh", "-c", '"$0" -c "$1"; exit $?', sys.executable, sys.argv[1]]
    ranks.append(subprocess.Popen(words, env={**os.environ, **variables}))
assert [rank.wait() for rank in ranks] == [0, 0]
"""


def test_ranks_of_one_host_meet_without_an_address(environment, tmp_path):
    environment({"TMPDIR": str(tmp_path)})
    words = [sys.executable, "-c", WRAPPER, MEET]
    result = subprocess.run(words, capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == ["0 2", "1 2"]
    assert list(tmp_path.iterdir()) == []


def test_rank_0_is_waited_for_until_the_timeout(environment, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "_ports", {})
    environment({**OPEN_MPI, "TMPDIR": str(tmp_path)})
    limit = timedelta(seconds=0.1)
    text = r"rank 1 of 4 \(Open MPI\) waited 0.1 s for rank 0"
    with pytest.raises(distlite.DistStoreError, match=text) as caught:
        next(distlite.rendezvous("env://", timeout=limit))
    path = re.search(r"say so in (.*)\)$", str(caught.value)).group(1)
    assert os.path.dirname(path) == str(tmp_path)
