# SPDX-License-Identifier: BSD-3-Clause
"""Launchers of many nodes: how long they take to meet, and what they ask of the store.

Each node is what `distlite run` has for it (distlite.launch.nodes), with a connection
and beats of its own; a few processes share all of them, and no ranks are started.
Those of a process share a thread (stub_launchers.py): with a thread for each, what one
measures is how they take turns in the interpreter.

    python benchmarks/launchers.py                         100 to 10,000 nodes
    python benchmarks/launchers.py --nodes 1000 --steady 10
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from measure import Target, report, table, write_json
from processes import Process, answers, enter_own_network, parts
from stub_launchers import Hub, take_over

import distlite
from distlite.launch.nodes import Nodes
from distlite.launch.options import Options

NODES = [100, 1000, 5000, 10000]
PROCESS_NODES = 5000  # each has three descriptors
# Of each process so many are on their way in at once: beyond the 4,096 that may be in
# the server's backlog, it is the kernel's retries that one would measure.
JOINING_LIMIT = 1000
PATIENCE = 600
LIMITS = {"meet": 10.0, "requests": 2.0}


@dataclass(frozen=True)
class Run:
    """One job."""

    nodes: int
    meet: float  # seconds until all have their places
    ready: float  # and until they know that all are ready for the first attempt
    meet_requests: float  # of a node
    requests: float  # of a node, in a second of the steady state
    server_cpu: float  # share of a core, in the steady state
    cpu: float  # of all nodes


class Crowd:
    """The nodes of one process, all but the first one of the job on greenlets."""

    def __init__(self, first: int, size: int, total: int, port: int) -> None:
        # Collections would walk through all nodes' objects again and again.
        gc.disable()
        self._range, self._total, self._port = range(first, first + size), total, port
        self._nodes: list[Nodes] = []
        self._hub = Hub()
        if first > 0:
            take_over(self._hub)

    def meet(self) -> None:
        """All of them come, and wait for each other."""
        for node in self._range:
            self._hub.run(lambda: self._hub.joining < JOINING_LIMIT)
            options = Options()
            options.address, options.port = "127.0.0.1", self._port
            options.node_rank, options.nnodes = node, self._total
            options.max_nodes, options.join_timeout = self._total, PATIENCE
            options.nproc_per_node = 8
            self._nodes.append(Nodes(options))
        self._wait(lambda node: node.place is not None)

    def begin(self) -> None:
        """All of them become ready."""
        for node in self._nodes:
            node.begin(0)
        self._wait(Nodes.are_ready)

    def check(self) -> None:
        """No node is taken for lost."""
        for node in self._nodes:
            if (text := node.take_failure(0)) is not None:
                raise RuntimeError(text)

    def lines(self) -> Iterator[str]:
        """The lines of standard input, between which the nodes go on."""
        while True:
            self._hub.run(lambda: bool(select.select([sys.stdin], [], [], 0)[0]))
            if not (line := sys.stdin.readline()):
                return
            yield line.strip()

    def _wait(self, condition: Callable[[Nodes], bool]) -> None:
        for node in self._nodes:
            self._hub.run(lambda node=node: condition(node) or node.is_over)
        self.check()


def serve(first: int, size: int, total: int, port: int) -> None:
    """Obeys lines; see Crowd."""
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    crowd = Crowd(first, size, total, port)
    print("ready", flush=True)
    for command in crowd.lines():
        try:
            getattr(crowd, command)()
            print("ok", flush=True)
        except RuntimeError as error:
            print(f"error {error}", flush=True)
    # Those that end in order would wait for each other.
    sys.stdout.close()
    os._exit(0)


def run_once(nodes: int, steady: float) -> Run:
    """One job; its first node, which serves the store, has a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, str(Path(__file__)), "--crowd"]
    begins = [
        (0, 1),
        *(
            (1 + i * PROCESS_NODES, size)
            for i, size in enumerate(parts(nodes - 1, PROCESS_NODES))
        ),
    ]
    crowds = [
        Process([*words, *map(str, (first, size, nodes, port))])
        for first, size in begins
    ]
    try:
        for crowd in crowds:
            crowd.hear()
        start = time.perf_counter()
        answers(crowds, "meet")
        meet = time.perf_counter() - start
        with distlite.TCPStore("127.0.0.1", port) as store:
            met = store.stats()["requests"]
            start = time.perf_counter()
            answers(crowds, "begin")
            ready = time.perf_counter() - start
            asked, spent = store.stats()["requests"], [c.cpu_seconds() for c in crowds]
            time.sleep(steady)
            asked = store.stats()["requests"] - asked
            spent = [c.cpu_seconds() - s for c, s in zip(crowds, spent, strict=True)]
        answers(crowds, "check")
    finally:
        for crowd in crowds:
            crowd.end_input()
        for crowd in crowds:
            crowd.__exit__(None, None, None)
    return Run(
        *(nodes, meet, ready, met / nodes, asked / nodes / steady),
        *(spent[0] / steady, sum(spent[1:]) / steady),
    )


def main() -> int:
    """Exit code 1 if a target was missed."""
    parser = argparse.ArgumentParser(description="Launchers of many nodes.")
    parser.add_argument("--nodes", type=int, nargs="+", default=NODES)
    parser.add_argument("--steady", type=float, default=10.0, help="seconds")
    parser.add_argument("--crowd", type=int, nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.crowd:
        serve(*options.crowd)
    enter_own_network()
    runs = [run_once(nodes, options.steady) for nodes in options.nodes]
    columns = list(Run.__dataclass_fields__)
    print(table(columns, [[getattr(r, c) for c in columns] for r in runs]), end="\n\n")
    most = runs[-1]
    targets = [
        Target(f"{field} of {most.nodes} nodes", limit, getattr(most, field))
        for field, limit in LIMITS.items()
    ]
    print(report(targets), end="\n\n")
    results = {"runs": [asdict(run) for run in runs]}
    print(f"results: {write_json('launchers', results, targets)}")
    return int(any(target.verdict == "FAIL" for target in targets))


if __name__ == "__main__":
    sys.exit(main())
