# SPDX-License-Identifier: BSD-3-Clause
"""The variables that each rank finds set: torchrun's names and meanings."""

from __future__ import annotations

import os
from collections.abc import Mapping

from distlite.launch.cores import usable_cores
from distlite.launch.options import Options

# The descriptor of the bound socket that rank 0's store is to serve on; its port is
# MASTER_PORT.
LISTEN_FD = "DISTLITE_LISTEN_FD"


def job_environment(options: Options, port: int) -> dict[str, str]:
    """What is the same on every rank of this node."""
    environment = dict(os.environ)
    environment.pop(LISTEN_FD, None)
    environment.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    cores_per_rank = max(1, usable_cores() // options.nproc_per_node)
    environment.setdefault("OMP_NUM_THREADS", str(cores_per_rank))
    environment.update(
        WORLD_SIZE=str(options.world_size),
        LOCAL_WORLD_SIZE=str(options.nproc_per_node),
        GROUP_RANK=str(options.node_rank),
        GROUP_WORLD_SIZE=str(options.nnodes),
        ROLE_NAME=options.role,
        ROLE_WORLD_SIZE=str(options.world_size),
        MASTER_ADDR=options.master_addr,
        MASTER_PORT=str(port),
        TORCHELASTIC_RUN_ID=os.urandom(16).hex() if options.nnodes == 1 else "none",
        TORCHELASTIC_RESTART_COUNT="0",
        TORCHELASTIC_MAX_RESTARTS="0",
        TORCHELASTIC_USE_AGENT_STORE="False",
        TORCHELASTIC_SIGNALS_TO_HANDLE="SIGTERM,SIGINT,SIGHUP,SIGQUIT",
    )
    return environment


def rank_environment(
    job: Mapping[str, str], options: Options, local_rank: int, listen_fd: int | None
) -> dict[str, str]:
    """The job's variables and one rank's own."""
    rank = str(options.rank(local_rank))
    environment = dict(job, RANK=rank, ROLE_RANK=rank, LOCAL_RANK=str(local_rank))
    if listen_fd is not None:
        environment[LISTEN_FD] = str(listen_fd)
    return environment
