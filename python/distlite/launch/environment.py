# SPDX-License-Identifier: BSD-3-Clause
"""The variables that each rank finds set: torchrun's names and meanings."""

from __future__ import annotations

import os
from collections.abc import Mapping

from distlite.launch.cores import usable_cores
from distlite.launch.options import Options

# The relay of the host, by which its stores use a server (distlite.store_relay()).
RELAY = "DISTLITE_STORE_RELAY"
# Where the stores of a server go on when it is lost.
STANDBY = "DISTLITE_STORE_STANDBY"
# What elastic.join() takes as sizes, and whether it is to wait as a spare.
ELASTIC_SIZE, ELASTIC_SPARE = "DISTLITE_ELASTIC_SIZE", "DISTLITE_ELASTIC_SPARE"


class Place:
    """A node's place in its job; by default that of the only node."""

    def __init__(self, run_id: str, port: int, counts: list[int], node: int = 0):
        # torchrun's default, after which the job's folder is named.
        is_named = run_id != "none" or len(counts) > 1
        self.run_id = run_id if is_named else os.urandom(16).hex()
        self.port = port
        self.node, self.nodes = node, len(counts)
        self.world_size = sum(counts)
        self.first_rank = sum(counts[:node])


def may_relay(environment: Mapping[str, str]) -> bool:
    """Returns whether the launcher may start a relay: the user has none, and has not
    forbidden the Unix sockets of stores; and the store has one address, because a relay
    would wait too long for a host that is lost."""
    has_two = environment.get(RELAY) or environment.get(STANDBY)
    return not has_two and environment.get("DISTLITE_STORE_UNIX") != "0"


def job_environment(options: Options, place: Place, attempt: int) -> dict[str, str]:
    """Returns the variables that are the same on every rank of this node."""
    environment = dict(os.environ)
    if options.token is not None:
        environment["DISTLITE_TOKEN"] = options.token
    if options.tls is not None:
        environment["DISTLITE_TLS"] = options.tls
    environment.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    cores_per_rank = max(1, usable_cores() // options.nproc_per_node)
    environment.setdefault("OMP_NUM_THREADS", str(cores_per_rank))
    environment.update(
        WORLD_SIZE=str(place.world_size),
        LOCAL_WORLD_SIZE=str(options.nproc_per_node),
        GROUP_RANK=str(place.node),
        GROUP_WORLD_SIZE=str(place.nodes),
        ROLE_NAME=options.role,
        ROLE_WORLD_SIZE=str(place.world_size),
        MASTER_ADDR=options.address,
        MASTER_PORT=str(place.port),
        TORCHELASTIC_RUN_ID=place.run_id,
        TORCHELASTIC_RESTART_COUNT=str(attempt),
        TORCHELASTIC_MAX_RESTARTS=str(options.max_restarts),
        TORCHELASTIC_USE_AGENT_STORE="True",
        TORCHELASTIC_SIGNALS_TO_HANDLE=",".join(options.signals),
    )
    if options.goes_on:
        sizes = (options.nnodes, options.max_nodes)
        least, most = (each * options.nproc_per_node for each in sizes)
        is_spare = 0 <= place.node - options.nnodes < options.spares
        environment[ELASTIC_SIZE] = f"{least}:{most}"
        environment[ELASTIC_SPARE] = str(int(is_spare))
    return environment


def rank_environment(
    job: Mapping[str, str], options: Options, place: Place, local_rank: int
) -> dict[str, str]:
    """Returns the job's variables and those of one rank."""
    rank = str(place.first_rank + local_rank)
    environment = dict(job, RANK=rank, ROLE_RANK=rank, LOCAL_RANK=str(local_rank))
    if options.has_virtual_local_rank:
        environment["LOCAL_RANK"] = "0"
        shown = environment.get("CUDA_VISIBLE_DEVICES")
        own = str(local_rank) if shown is None else shown.split(",")[local_rank]
        environment["CUDA_VISIBLE_DEVICES"] = own.strip()
    return environment
