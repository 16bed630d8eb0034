# SPDX-License-Identifier: BSD-3-Clause
"""``distlite doctor``: whether this job's hosts can work together, and how well.

Under a launcher every rank takes part; without one, the command starts some ranks on
this host.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import distlite as dist
from distlite.launch.arguments import Parser
from distlite.tools import links
from distlite.tools.diagnosis import Diagnosis
from distlite.tools.facts import facts_of
from distlite.tools.store_facts import stats_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the subcommand; returns 0 if there are no errors, apart from
    warnings."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.nproc_per_node < 1:
        parser.error(f"--nproc-per-node {options.nproc_per_node}: not 1 or more")
    try:
        timeout = timedelta(seconds=options.timeout)
    except (ValueError, OverflowError):
        parser.error(f"--timeout must be a number of seconds, not {options.timeout}")
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        if not os.environ.get(name, "0").isdecimal():
            parser.error(f"{name}={os.environ[name]}: not a number")
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return _run_launched(options, timeout)
    return _run_alone(options, timeout)


def _parser() -> Parser:
    parser = Parser(
        "distlite doctor",
        "Check addresses, connections, limits, cores and libraries of this host or, "
        "under a launcher, of all hosts of a job. Launchers: distlite run --no-python "
        "distlite doctor, or any that sets RANK, WORLD_SIZE, MASTER_ADDR and "
        "MASTER_PORT.",
    )
    parser.add_argument(
        "-n",
        "--nproc-per-node",
        type=int,
        default=2,
        metavar="N",
        help="number of ranks to start without a launcher",
    )
    parser.add_argument("--json", action="store_true", help="write JSON")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="file that rank 0 writes instead of stdout",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=30.0,
        metavar="S",
        help="seconds to wait for the other ranks",
    )
    return parser


def _run_launched(options: argparse.Namespace, timeout: timedelta) -> int:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    try:
        answers = dist.rendezvous("env://", rank, size, timeout=timeout)
        store, rank, size = next(answers)
    except (RuntimeError, ValueError) as error:
        print(f"distlite doctor: rank {rank} of {size}: {error}", file=sys.stderr)
        return 1
    store.set_timeout(timeout)
    return _examine(store, (rank, size), options)


def _run_alone(options: argparse.Namespace, timeout: timedelta) -> int:
    size = options.nproc_per_node
    store = dist.TCPStore("127.0.0.1", 0, size, True, timeout, wait_for_workers=False)
    shared = {
        **os.environ,
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
    }
    command = [sys.executable, "-m", "distlite.tools.doctor"]
    command += ["--timeout", str(options.timeout)]
    others = [
        subprocess.Popen(command, env={**shared, "RANK": str(r), "LOCAL_RANK": str(r)})
        for r in range(1, size)
    ]
    os.environ["LOCAL_WORLD_SIZE"] = str(size)
    try:
        return _examine(store, (0, size), options)
    finally:
        for process in others:
            try:
                process.wait(options.timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _examine(
    store: dist.Store, who: tuple[int, int], options: argparse.Namespace
) -> int:
    rank, size = who
    is_first_here = os.environ.get("LOCAL_RANK", "0") == "0"
    facts = facts_of(rank, _local_end(), is_first_here)
    listener = links.listen(facts["addresses"]["chosen"])
    facts["listens"] = None if listener is None else listener.getsockname()[:2]
    store = dist.PrefixStore("distlite doctor", store)
    try:
        everybody = links.exchange(store, "facts", who, facts)
        tried, problem = _try_links(store, who, everybody, options.timeout)
        served = stats_of(store) if rank == 0 else None
        links.leave(store, who)
    except (dist.DistStoreError, dist.DistNetworkError) as error:
        print(f"distlite doctor: rank {rank} of {size}: {error}", file=sys.stderr)
        return 1
    finally:
        if listener is not None:
            listener.close()
    diagnosis = Diagnosis(everybody, tried, problem, served)
    if rank == 0 and options.output is None:
        diagnosis.write(options.json, sys.stdout)
    elif rank == 0:
        with open(options.output, "w", encoding="utf-8") as file:
            diagnosis.write(options.json, file)
    return 1 if any(diagnosis.errors()) else 0


def _try_links(
    store: dist.Store, who: tuple[int, int], everybody: list[Any], timeout: float
) -> tuple[list[Any], str | None]:
    """Returns what all ranks have found of their links, and why there is no group."""
    rank, size = who
    peers = [sum(pair) - rank for pair in links.pairs_of(size) if rank in pair]
    mine: list[dict[str, Any]] = [
        {
            "from": rank,
            "to": peer,
            "same_host": everybody[peer]["stack"] == everybody[rank]["stack"],
            **links.connect(everybody[peer]["listens"]),
        }
        for peer in peers
    ]
    # No rank makes the group before all have tried to connect.
    links.exchange(store, "tried", who, None)
    problem = None
    try:
        dist.init_process_group(
            "gloo", store=store, rank=rank, world_size=size, timeout=timeout
        )
        links.measure(who, mine)
    except (RuntimeError, ValueError) as error:
        problem = str(error)
    found = links.exchange(store, "measured", who, [problem, mine])
    if dist.is_initialized():
        dist.destroy_process_group()
    problems = [text for text, _ in found if text is not None]
    return [x for _, part in found for x in part], next(iter(problems), None)


def _local_end() -> str | None:
    """Returns the local address of a connection to the store, if the store is or may be
    on another host."""
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if host is None or port is None:
        return None
    try:
        with socket.create_connection((host, int(port)), 3.0) as connection:
            return str(connection.getsockname()[0])
    except (OSError, ValueError):
        return None


if __name__ == "__main__":
    sys.exit(main())
