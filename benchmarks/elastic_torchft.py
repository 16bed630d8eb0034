# SPDX-License-Identifier: BSD-3-Clause
"""Replicas of torchft that lose one, for elastic_beside.py: `elastic_torchft.py RANKS
FILE SETTINGS`, where the settings are "default", "example" or "short".

    pip install torchft-nightly torch==2.13.0 numpy     700 MB with torch for CPUs

Each replica is one process with gloo, forked from one that has imported torch.
"""

from __future__ import annotations

import logging
import sys
from datetime import timedelta
from typing import Any

import torch
from elastic_peer import EVENT, FORK, REST, die, note
from torch.distributed import TCPStore
from torchft import Manager, ProcessGroupGloo
from torchft.coordination import LighthouseServer

# "default": of the program torchft_lighthouse, whose class has another join timeout.
# "example": what its README starts the Lighthouse with, and its train_ddp.py has.
# "short": no least values are documented.  The timeouts of the Lighthouse are the
# shortest of its own tests, and gloo's one with which eight replicas on two cores still
# begin.
LIGHTHOUSE = {
    "default": dict(heartbeat_timeout_ms=5000, join_timeout_ms=60_000),
    "example": dict(heartbeat_timeout_ms=5000, join_timeout_ms=10_000),
    "short": dict(heartbeat_timeout_ms=100, join_timeout_ms=100, quorum_tick_ms=10),
}
MANAGER = {
    "default": {},
    "example": {"timeout": timedelta(seconds=30)},
    "short": {"heartbeat_interval": timedelta(milliseconds=10)},
}
GLOO = {
    "default": {},
    "example": {"timeout": timedelta(seconds=5)},
    "short": {"timeout": timedelta(milliseconds=250)},
}


def serve(ranks: int, settings: str, pipe: Any) -> None:
    """The Lighthouse, with the least number of replicas of torchft's README."""
    server = LighthouseServer("127.0.0.1:0", 1, **LIGHTHOUSE[settings])
    pipe.send(server.address().rpartition(":")[2])
    pipe.recv()


def live(number: int, ranks: int, port: str, file: str, settings: str) -> None:
    """Works until some steps after a replica was lost."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        ProcessGroupGloo(**GLOO[settings]),
        load_state_dict=lambda state: None,
        state_dict=dict,
        min_replica_size=1,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=f"http://127.0.0.1:{port}",
        replica_id=f"replica{number}",
        hostname="127.0.0.1",
        **MANAGER[settings],
    )
    full, after = 0, 0
    while after < REST:
        manager.start_quorum()
        is_full = manager.num_participants() == ranks
        if is_full and full >= EVENT and number == ranks - 1:
            die(file)
        manager.allreduce(torch.zeros(256)).wait()
        if not manager.should_commit():
            continue
        full += is_full
        if full >= EVENT and not is_full:
            after += 1
            if after == 1:
                note(file, "first")


def main() -> None:
    ranks, file, settings = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    logging.disable(logging.ERROR)
    here, there = FORK.Pipe()
    server = FORK.Process(target=serve, args=(ranks, settings, there), daemon=True)
    server.start()
    words = (here.recv(), file, settings)
    replicas = [
        FORK.Process(target=live, args=(number, ranks, *words), daemon=True)
        for number in range(ranks)
    ]
    for replica in replicas:
        replica.start()
    for replica in replicas:
        replica.join()


if __name__ == "__main__":
    main()
