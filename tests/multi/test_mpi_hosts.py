# SPDX-License-Identifier: BSD-3-Clause
"""The mpi backend on two hosts, which are network namespaces of this machine."""

import shlex
import shutil
import sys

import netns
import pytest
from mpi_launching import RANKS, results_of, run_launcher

LAUNCHER = "mpirun.openmpi"
# Open MPI's choice of networks, without which it tries those that are not there.
WORDS = ["--allow-run-as-root", "--bind-to", "none"]
WORDS += ["--mca", "oob_tcp_if_include", "eth0", "--mca", "btl_tcp_if_include", "eth0"]
WORDS += ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]


def agent_for(hosts, path):
    """Writes a script that is called like ssh: options, the host, the command."""
    lines = ["#!/bin/sh", 'while [ "${1#-}" != "$1" ]; do shift; done']
    lines += ['host="$1"', "shift", 'case "$host" in']
    for host in hosts:
        enter = shlex.join(host.command(["sh", "-c"]))
        lines.append(f'{host.address}) exec {enter} "$*" ;;')
    path.write_text("\n".join([*lines, "esac", "exit 1", ""]))
    path.chmod(0o755)
    return str(path)


def test_ranks_on_two_hosts_find_each_other(tmp_path):
    """Only MPI has told them where rank 0 is, whose server both of them reach."""
    if shutil.which(LAUNCHER) is None:
        pytest.skip(f"{LAUNCHER} is not installed")
    netns.skip_unless_possible()
    with netns.Network(2, ipv6=False) as network:
        network.name_hosts_as_debian(tmp_path)
        agent = agent_for(network.hosts, tmp_path / "agent")
        places = ",".join(f"{host.address}:1" for host in network.hosts)
        words = [*WORDS, "--mca", "plm_rsh_agent", agent, "--host", places, "-n", "2"]
        for name in ("PYTHONPATH", "TEST_MPI_RESULTS"):
            words += ["-x", name]
        command = [LAUNCHER, *words, sys.executable, RANKS, "first_steps"]
        status, _, err = run_launcher(
            network.hosts[0].command(command),
            {"TEST_MPI_RESULTS": str(tmp_path)},
            seconds=100,
        )
        assert status == 0, err
        for result in results_of(tmp_path, 2):
            assert all(result) and len(result) == 9
