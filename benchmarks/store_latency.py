# SPDX-License-Identifier: BSD-3-Clause
"""Times of calls from Python, beside torch: calls on a TCPStore whose server is in
another process, joining a group of four ranks, and `import distlite`.

Each library runs in processes of its own, of the same interpreter, and all take turns,
so that other load of the machine affects them alike. distlite runs four times: plain,
with TCP only, with a token, and with TLS whose key is made of the token. The processor
time of its servers is measured as well.

    python benchmarks/store_latency.py [--quick]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

from measure import (
    Target,
    alternate,
    find_torch_python,
    has_module,
    median,
    ratio,
    report,
    table,
    write_json,
)
from processes import FOLDER, Process, Server, enter_own_network

WORLD_SIZE = 4
JOIN_ROUNDS = 15
IMPORT_ROUNDS = 15
AFTER_NUMPY = "numpy distlite"
# Nanoseconds from the order to join to the common start.
START_DELAY_NS = 50_000_000
# By URL, three of torch's ranks are refused by the first one's store, which is not
# there yet, and try again later: the second way leaves that out.
WAYS_TO_JOIN = {
    f"init_process_group, {WORLD_SIZE} ranks": "url",
    f"init_process_group, {WORLD_SIZE} ranks, store there": "store",
}
# The settings of each side of the comparison; the first word is the library.
TOKEN = {"DISTLITE_TOKEN": "of a benchmark, and no secret"}
SETTINGS = {
    "distlite": {},
    "distlite TCP": {"DISTLITE_STORE_UNIX": "0"},
    "distlite token": TOKEN,
    "distlite TLS": {**TOKEN, "DISTLITE_TLS": "psk"},
    "torch": {},
}
# Of torch's time.
LIMITS = {
    "get 64 B": 0.7,
    "set + get 1 MiB": 0.4,
    "multi_set + multi_get 100 keys": 0.5,
    "add": 0.8,
    "check": 0.8,
    f"init_process_group, {WORLD_SIZE} ranks": 0.3,
}

# Median microseconds by what was timed and by library.
Times = dict[str, dict[str, float]]


def medians(found: Mapping[str, Mapping[str, Sequence[float]]]) -> Times:
    """Over the rounds."""
    return {
        name: {library: median(times) for library, times in sides.items()}
        for name, sides in found.items()
    }


def peer(python: str, library: str, *role: object) -> Process:
    """See latency_peer.py."""
    name = library.split()[0]
    words = [python, str(FOLDER / "latency_peer.py"), name, *map(str, role)]
    return Process(words, SETTINGS[library])


def time_calls(
    python: str, libraries: Sequence[str], rounds: int
) -> tuple[Times, Times]:
    """Calls from one client process: their times, and the servers' for a round of
    them."""
    found = defaultdict(lambda: defaultdict(list))
    spent = defaultdict(lambda: defaultdict(list))
    with contextlib.ExitStack() as stack:
        servers, peers, names = {}, {}, []
        for library in libraries:
            kind = f"{library.split()[0]} libuv"
            server = stack.enter_context(Server(kind, python, SETTINGS[library]))
            client = stack.enter_context(peer(python, library, "call", server.port))
            servers[library], peers[library] = server, client
            names = json.loads(client.hear())
        for name in names:
            for _, library in alternate(rounds, libraries):
                before = servers[library].cpu_seconds()
                peers[library].tell(name)
                found[name][library].append(float(peers[library].hear()))
                after = servers[library].cpu_seconds()
                spent[name][library].append((after - before) * 1e6)
    return medians(found), medians(spent)


def time_joining(python: str, libraries: Sequence[str], rounds: int) -> Times:
    """Measures the time from a common start until the last rank is in the group."""
    found = defaultdict(lambda: defaultdict(list))
    with contextlib.ExitStack() as stack:
        ranks = {
            library: [
                stack.enter_context(peer(python, library, "join", rank, WORLD_SIZE))
                for rank in range(WORLD_SIZE)
            ]
            for library in libraries
        }
        for process in (p for processes in ranks.values() for p in processes):
            process.hear()
        for name, way in WAYS_TO_JOIN.items():
            for _, library in alternate(rounds, libraries):
                found[name][library].append(join_once(ranks[library], way))
    return medians(found)


def join_once(ranks: Sequence[Process], way: str) -> float:
    """Microseconds."""
    port = free_port()
    for rank in ranks:
        rank.tell(f"{way} {port}")
    for rank in ranks:
        rank.hear()
    start = time.monotonic_ns() + START_DELAY_NS
    for rank in ranks:
        rank.tell(str(start))
    ends = [int(rank.hear()) for rank in ranks]
    for rank in ranks:
        rank.tell("leave")
    for rank in ranks:
        rank.hear()
    return (max(ends) - start) / 1e3


def free_port() -> int:
    """Returns a free port below the range of ephemeral ports."""
    for port in range(20000 + os.getpid() % 4096, 32000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port")


IMPORT = """
import sys, time

def resident():
    with open("/proc/self/status") as status:
        (kib,) = (line.split()[1] for line in status if line.startswith("VmRSS:"))
    return int(kib)

for name in sys.argv[1:]:
    before, start = resident(), time.perf_counter()
    __import__(name)
    seconds = time.perf_counter() - start
print(seconds * 1e3, (resident() - before) / 1024)
"""


def time_imports(python: str, rounds: int) -> dict[str, tuple[float, float]]:
    """Median milliseconds and MiB that the last of some imports costs, in fresh
    interpreters."""
    found = defaultdict(list)
    for _, names in alternate(rounds, ["numpy", "distlite", AFTER_NUMPY]):
        words = [python, "-c", IMPORT, *names.split()]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        found[names].append(tuple(map(float, done.stdout.split())))
    return {
        names: (median(t for t, _ in costs), median(m for _, m in costs))
        for names, costs in found.items()
    }


def targets_of(
    times: Times, imports: Mapping[str, tuple[float, float]]
) -> list[Target]:
    """What must be reached."""
    targets = [
        Target(f"{name}, over torch", limit, over_torch(times[name]))
        for name, limit in LIMITS.items()
    ]
    more_time, more_memory = imports[AFTER_NUMPY]
    return [
        *targets,
        Target("import distlite after numpy", 30, more_time, "ms"),
        Target("memory of it", 6, more_memory, "MiB"),
    ]


def over_torch(sides: Mapping[str, float]) -> float | None:
    """None without torch."""
    return ratio(sides["distlite"], sides.get("torch"))


def print_tables(
    times: Times, spent: Times, imports: Mapping[str, tuple[float, float]]
) -> None:
    """Medians of everything."""
    rows = [
        (
            name,
            sides["distlite"],
            sides.get("torch"),
            over_torch(sides),
            over_torch(spent[name]) if name in spent else None,
        )
        for name, sides in times.items()
    ]
    head = ["call", "distlite us", "torch us", "ratio", "server's ratio"]
    print(table(head, rows), end="\n\n")
    sides_of_ours = [side for side in SETTINGS if side != "torch"]
    rows = [
        (
            name,
            *(sides[side] for side in sides_of_ours),
            ratio(sides["distlite TCP"], sides["distlite"]),
            ratio(sides["distlite token"], sides["distlite"]),
            ratio(sides["distlite TLS"], sides["distlite"]),
        )
        for name, sides in times.items()
    ]
    units = ["plain us", "TCP us", "token us", "TLS us"]
    head = ["call", *units, "TCP / plain", "token / plain", "TLS / plain"]
    print(table(head, rows), end="\n\n")
    rows = [(names.replace(" ", ", then "), *cost) for names, cost in imports.items()]
    print(table(["import of", "the last one's ms", "MiB"], rows), end="\n\n")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Latencies from Python, beside torch.")
    parser.add_argument("--quick", action="store_true", help="few rounds")
    parser.add_argument("--rounds", type=int, help="of the calls")
    parser.add_argument("--torch-python", help="an interpreter with torch and distlite")
    options = parser.parse_args()
    options.rounds = options.rounds or (5 if options.quick else 30)
    return options


def main() -> int:
    """Exit code 1 if a target was missed."""
    options = parse()
    python = find_torch_python(options.torch_python)
    libraries = list(SETTINGS)
    if python is None or not has_module(python, "distlite"):
        print("no interpreter has both torch and distlite: distlite alone")
        python = sys.executable
        libraries.remove("torch")
    if not enter_own_network():
        print("not root: torch's look-ups of peers are part of its times")
    times, spent = time_calls(python, libraries, options.rounds)
    times |= time_joining(python, libraries, 5 if options.quick else JOIN_ROUNDS)
    imports = time_imports(python, 5 if options.quick else IMPORT_ROUNDS)
    targets = targets_of(times, imports)
    print_tables(times, spent, imports)
    print(report(targets), end="\n\n")
    results = {"microseconds": times, "server": spent, "imports": imports}
    print(f"results: {write_json('store_latency', results, targets)}")
    return int(any(target.verdict == "FAIL" for target in targets))


if __name__ == "__main__":
    sys.exit(main())
