# SPDX-License-Identifier: BSD-3-Clause
"""What a call costs from Python, beside torch.

Times of TCPStore calls against a server in another process; of ``import distlite`` over
``import numpy``; of ``init_process_group`` over four ranks.  Each library runs in
processes of its own and both alternate, so that a busy machine meets them alike.

    python benchmarks/store_latency.py
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from measure import (
    Target,
    enter_quiet_network,
    median,
    table,
    targets_table,
    write_json,
)

MODULES = {"distlite": "distlite", "torch": "torch.distributed"}
WORLD_SIZE = 4
MEGABYTE = 1 << 20
REPLY_LIMIT = 120  # seconds a worker may take for anything it is asked

# Bounds on distlite's median over torch's.
LIMITS = {
    "get 64 B": 0.7,
    "set + get 1 MiB": 0.4,
    "multi_set + multi_get, 100 keys": 0.5,
}


def cases(store: Any) -> dict[str, tuple[int, Callable[[], Any]]]:
    """Calls to time, and how many of each make a round."""
    small, large = "v" * 64, "v" * MEGABYTE
    keys = [f"multi{i}" for i in range(100)]
    values = [small] * 100
    store.set("small", small)
    store.set("counter", "0")

    def set_get() -> None:
        store.set("large", large)
        store.get("large")

    def multi() -> None:
        store.multi_set(keys, values)
        store.multi_get(keys)

    def queue() -> None:
        store.queue_push("queue", small)
        store.queue_pop("queue")

    return {
        "set 64 B": (200, lambda: store.set("small", small)),
        "get 64 B": (200, lambda: store.get("small")),
        "set + get 1 MiB": (20, set_get),
        "multi_set + multi_get, 100 keys": (50, multi),
        "add": (200, lambda: store.add("counter", 1)),
        "check": (200, lambda: store.check(["small"])),
        "wait": (200, lambda: store.wait(["small"])),
        "compare_set": (200, lambda: store.compare_set("small", small, small)),
        "num_keys": (200, store.num_keys),
        "queue_push + queue_pop": (200, queue),
    }


def serve(library: str) -> None:
    """Process of a server: prints its port, lives until its input closes."""
    module = __import__(MODULES[library], fromlist=["TCPStore"])
    store = module.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    print(store.port, flush=True)
    sys.stdin.read()


def work(library: str, port: int) -> None:
    """Process of a client: times the case that each line of its input names."""
    module = __import__(MODULES[library], fromlist=["TCPStore"])
    store = module.TCPStore("127.0.0.1", port, wait_for_workers=False)
    table_of_cases = cases(store)
    print(json.dumps(list(table_of_cases)), flush=True)
    for line in sys.stdin:
        count, call = table_of_cases[line.strip()]
        call()
        times = []
        for _ in range(count):
            start = perf_counter_ns()
            call()
            times.append(perf_counter_ns() - start)
        print(json.dumps(median(times)), flush=True)


def join(library: str, rank: int) -> None:
    """Process of a rank: joins the group at the address in each line of its input."""
    module = __import__(MODULES[library], fromlist=["init_process_group"])
    print("ready", flush=True)
    for line in sys.stdin:
        arguments = {"rank": rank, "world_size": WORLD_SIZE}
        start = perf_counter_ns()
        module.init_process_group("gloo", init_method=line.strip(), **arguments)
        print(perf_counter_ns() - start, flush=True)
        sys.stdin.readline()
        module.destroy_process_group()
        print("left", flush=True)


@contextlib.contextmanager
def process(role: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """This program in another role, talking by lines; killed at the end."""
    command = [sys.executable, __file__, "--role", role, *map(str, arguments)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def tell(child: subprocess.Popen[str], line: str) -> None:
    print(line, file=child.stdin, flush=True)


def hear(child: subprocess.Popen[str]) -> str:
    line = child.stdout.readline()
    if not line:
        raise SystemExit("a worker process ended early")
    return line.strip()


def measure_calls(libraries: list[str], rounds: int) -> dict[str, dict[str, float]]:
    """Median nanoseconds of each call, by library."""
    times: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with contextlib.ExitStack() as stack:
        workers = {}
        for library in libraries:
            server = stack.enter_context(process("serve", library))
            worker = stack.enter_context(process("work", library, hear(server)))
            names = json.loads(hear(worker))
            workers[library] = worker
        for _ in range(rounds):
            for name in names:
                for library, worker in workers.items():
                    tell(worker, name)
                    times[name][library].append(json.loads(hear(worker)))
    return {
        name: {library: median(found) for library, found in sides.items()}
        for name, sides in times.items()
    }


def measure_init(libraries: list[str], rounds: int) -> dict[str, float]:
    """Median nanoseconds until the slowest of four ranks is in the group."""
    times = defaultdict(list)
    with contextlib.ExitStack() as stack:
        ranks = {
            library: [
                stack.enter_context(process("join", library, rank))
                for rank in range(WORLD_SIZE)
            ]
            for library in libraries
        }
        for children in ranks.values():
            for child in children:
                hear(child)
        for _ in range(rounds):
            for library, children in ranks.items():
                times[library].append(join_once(children))
    return {library: median(found) for library, found in times.items()}


def join_once(children: list[subprocess.Popen[str]]) -> int:
    url = f"tcp://127.0.0.1:{free_port()}"
    for child in children:
        tell(child, url)
    slowest = max(int(hear(child)) for child in children)
    for child in children:
        tell(child, "leave")
    for child in children:
        hear(child)
    return slowest


def free_port() -> int:
    """Below the ephemeral range: no outgoing connection takes it meanwhile."""
    import socket

    first_ephemeral = int(
        Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]
    )
    start = first_ephemeral - 1 - os.getpid() % 4096
    for port in range(start, 1024, -1):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise SystemExit("no free port")


IMPORT_CODE = """
import resource, sys, time
start = time.perf_counter_ns()
for name in sys.argv[1:]:
    __import__(name)
took = time.perf_counter_ns() - start
print(took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def import_cost(*modules: str) -> tuple[int, int]:
    """Nanoseconds and KiB of a fresh interpreter."""
    command = [sys.executable, "-c", IMPORT_CODE, *modules]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    took, kib = map(int, done.stdout.split())
    return took, kib


def measure_import(rounds: int) -> dict[str, float]:
    """What distlite adds to a program that has NumPy: milliseconds and MiB."""
    extra_time, extra_memory = [], []
    for _ in range(rounds):
        alone, both = import_cost("numpy"), import_cost("numpy", "distlite")
        extra_time.append((both[0] - alone[0]) / 1e6)
        extra_memory.append((both[1] - alone[1]) / 1024)
    return {"ms": median(extra_time), "mib": median(extra_memory)}


def has_torch() -> bool:
    probe = [sys.executable, "-c", "import torch.distributed"]
    return subprocess.run(probe, capture_output=True).returncode == 0


def report(calls: dict, init: dict, imports: dict) -> None:
    rows = []
    found = []
    sides = {**calls, f"init_process_group, {WORLD_SIZE} ranks": init}
    for name, times in sides.items():
        ours, theirs = times["distlite"] / 1e3, times.get("torch", 0) / 1e3
        ratio = ours / theirs if theirs else float("nan")
        rows.append((name, ours, theirs, ratio))
        if theirs and name in LIMITS:
            found.append(Target(f"{name}, of torch's", ratio, LIMITS[name]))
    if "torch" in init:
        ratio = init["distlite"] / init["torch"]
        found.append(Target("init_process_group, of torch's", ratio, 0.3))
    found.append(Target("import over numpy", imports["ms"], 30, " ms"))
    found.append(Target("memory over numpy", imports["mib"], 6, " MiB"))
    print(table(("call", "distlite us", "torch us", "ratio"), rows))
    print()
    print(targets_table(found))
    content = {"calls": calls, "init": init, "import": imports}
    print(f"\nnumbers: {write_json('store_latency', content)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--role", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        role, library, *rest = options.role
        roles = {"serve": serve, "work": work, "join": join}
        roles[role](library, *map(int, rest))
        return
    enter_quiet_network()
    libraries = ["distlite", "torch"] if has_torch() else ["distlite"]
    if "torch" not in libraries:
        print("torch is not installed: distlite alone")
    calls = measure_calls(libraries, options.rounds)
    init = measure_init(libraries, max(15, options.rounds // 2))
    report(calls, init, measure_import(options.rounds))


if __name__ == "__main__":
    main()
