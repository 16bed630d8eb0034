# SPDX-License-Identifier: BSD-3-Clause
"""The mpi backend with the MPIs of PyPI, over each of their networks that works without
special hardware.  `make test-mpis` makes an environment for each in .venv-mpis and runs
this; each is started by its own mpiexec, as its users do."""

from pathlib import Path

import pytest
from mpi_launching import RANKS, results_of, run_launcher
from test_mpi import DEATHS, check_latecomers

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".venv-mpis"
# Each environment has its own.
OURS = ("DISTLITE_", "PYTHONPATH")

AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
NO_SHARED_MEMORY = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self"}
UCX = {
    "OMPI_MCA_pml": "ucx",
    "OMPI_MCA_pml_ucx_tls": "any",
    "OMPI_MCA_pml_ucx_devices": "any",
    "UCX_TLS": "tcp,self",
}
ABI = str(ENVIRONMENTS / "mpich" / "lib" / "libmpi_abi.so.1")
# By name: the environment, and variables.
NETWORKS = {
    "Open MPI": ("openmpi", AS_ROOT),
    "Open MPI over UCX": ("openmpi", {**AS_ROOT, **UCX}),
    "MPICH": ("mpich", {}),
    "MPICH by the MPI-5 ABI": (
        "mpich",
        {"DISTLITE_MPI_LIBRARY": ABI},
    ),
    "MPICH over libfabric": (
        "mpich",
        {"MPIR_CVAR_CH4_NETMOD": "ofi", **NO_SHARED_MEMORY},
    ),
    "MPICH over UCX": (
        "mpich",
        {
            "MPIR_CVAR_CH4_NETMOD": "ucx",
            "MPIR_CVAR_NOLOCAL": "1",
            "UCX_TLS": "tcp,self",
        },
    ),
    "Intel MPI": ("impi-rt", {"I_MPI_FABRICS": "shm"}),
    "Intel MPI over libfabric": (
        "impi-rt",
        {"I_MPI_FABRICS": "ofi", "I_MPI_OFI_PROVIDER": "tcp"},
    ),
}

pytestmark = [
    pytest.mark.mpis,
    pytest.mark.parametrize("network", NETWORKS),
]


@pytest.fixture
def run(tmp_path):
    """What each rank found, by rank; as in test_mpi.py."""

    def run_all(network, size, *words, is_left=False, **extra):
        name, variables = NETWORKS[network]
        folder = ENVIRONMENTS / name / "bin"
        assert (folder / "mpiexec").exists(), "make mpis makes the environments"
        crowd = ["--oversubscribe"] if name == "openmpi" else []
        command = [str(folder / "mpiexec"), *crowd, "-n", str(size)]
        status, _, err = run_launcher(
            [*command, str(folder / "python"), RANKS, *words],
            {**variables, "TEST_MPI_RESULTS": str(tmp_path), **extra},
            seconds=150,
            dropped=OURS,
        )
        assert is_left or status == 0, err
        return results_of(tmp_path, size)

    return run_all


def test_every_collective_beside_numpy(run, network):
    assert run(network, 2, "grids") == [[]] * 2


def test_every_collective_in_pieces(run, network):
    piece = {"DISTLITE_MPI_PIECE": "5003"}
    names = ["around_pieces", "orders", "specials"]
    for found in run(network, 3, "several", *names, **piece):
        assert found["around_pieces"] == []
        assert all(found["orders"])
        assert found["specials"]["bool sum"] == [1, 0, 1]
        assert found["specials"]["PREMUL_SUM"] == [3.0] * 3


def test_a_few_of_everything_and_who_gives_up(run, network):
    names = ["first_steps", "latecomers", "windows"]
    first, second = run(network, 2, "several", *names, is_left=True)
    for found in (first, second):
        assert all(found["first_steps"])
    check_latecomers(first["latecomers"], second["latecomers"])
    assert sorted(first["windows"] + second["windows"]) == list(range(200))


@pytest.mark.parametrize("what", DEATHS)
def test_a_rank_that_is_killed_keeps_nobody(network, what):
    """Some launchers end the others, too."""
    name, variables = NETWORKS[network]
    folder = ENVIRONMENTS / name / "bin"
    crowd = ["--oversubscribe", "--enable-recovery"]
    command = [str(folder / "mpiexec"), *(crowd if name == "openmpi" else [])]
    command += ["-n", "2", str(folder / "python"), RANKS, "death", what]
    run_launcher(command, variables, seconds=60, dropped=OURS)
