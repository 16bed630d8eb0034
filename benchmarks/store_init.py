# SPDX-License-Identifier: BSD-3-Clause
"""Stores at scale: the two experiments of PyTorch's tutorial on its libuv store.

(a) how long N clients take to join a store, and (b) how long a barrier over them takes;
also how much memory and processor time the server uses.  Ours and torch's servers get
the same load from the same program (store_load.c), in turns.

    python benchmarks/store_init.py            everything, about ten minutes
    python benchmarks/store_init.py --quick    up to 4,000 clients, one minute
"""

from __future__ import annotations

import argparse
import resource
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import plots
from measure import (
    Target,
    alternate,
    find_torch_python,
    median,
    ratio,
    report,
    table,
    write_json,
)
from processes import Load, Server, build_load, enter_own_network

OURS = ["distlite libuv", "distlite epoll"]
TORCHS = ["torch libuv", "torch legacy"]
SIZES = [1000, 2000, 4000, 8000, 16000]
QUICK_SIZES = [1000, 2000, 4000]
# torch's legacy server takes half a minute per experiment above this.
SLOW_ABOVE = 4000
GET_CLIENTS, GET_COUNT, VALUE_SIZE = 256, 200_000, 64
SPARE_FILES = 100


@dataclass(frozen=True)
class Run:
    """One server, one number of clients; times in seconds."""

    kind: str
    clients: int
    join: float
    barrier: float
    barrier_op: float
    join_cpu: float
    idle_mib: float
    loaded_mib: float

    @property
    def both(self) -> float:
        """What the targets are about."""
        return self.join + self.barrier


@dataclass(frozen=True)
class Gets:
    """One server and many reads of one value."""

    kind: str
    per_second: float
    cpu_microseconds: float  # of the server, per get


def run_once(kind: str, clients: int, python: str) -> Run:
    """Both experiments, with a fresh server."""
    with Server(kind, python) as server:
        idle_mib, cpu = server.resident_mib(), server.cpu_seconds()
        with Load(build_load(), server.port) as load:
            join = load.do(f"connect {clients}")
            join_cpu = server.cpu_seconds() - cpu
            loaded_mib = server.resident_mib()
            barrier = load.do("barrier one")
            barrier_op = load.do("barrier_op two")
    return Run(kind, clients, join, barrier, barrier_op, join_cpu, idle_mib, loaded_mib)


def get_once(kind: str, count: int, python: str) -> Gets:
    """Measures gets in a closed loop: every client has one outstanding request."""
    with Server(kind, python) as server, Load(build_load(), server.port) as load:
        load.do(f"connect {GET_CLIENTS}")
        load.do(f"store {VALUE_SIZE}")
        load.do(f"get {count // 10}")
        cpu = server.cpu_seconds()
        seconds = load.do(f"get {count}")
        cpu = server.cpu_seconds() - cpu
    return Gets(kind, count / seconds, cpu / count * 1e6)


def measure(
    options: argparse.Namespace, kinds: Sequence[str], torch_python: str | None
) -> tuple[list[Run], list[Gets]]:
    """All of it, in turns."""
    runs, gets = [], []
    pythons = {k: torch_python if k in TORCHS else sys.executable for k in kinds}
    for round_number, kind in alternate(options.rounds, kinds):
        say(f"get: {kind}, round {round_number + 1}")
        gets.append(get_once(kind, options.gets, pythons[kind]))
    for clients in options.sizes:
        for round_number, kind in alternate(options.rounds, kinds):
            is_slow = kind == "torch legacy" and clients > SLOW_ABOVE
            if is_slow and round_number >= options.slow_rounds:
                continue
            say(f"{clients} clients: {kind}, round {round_number + 1}")
            runs.append(run_once(kind, clients, pythons[kind]))
    say("")
    return runs, gets


def say(text: str) -> None:
    """Shows the progress on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[2K{text}", end="", file=sys.stderr, flush=True)


class Medians:
    """The medians of all runs of a kind of server with a number of clients."""

    def __init__(self, runs: Sequence[Run], gets: Sequence[Gets]) -> None:
        self._runs, self._gets = runs, gets
        self.sizes = sorted({run.clients for run in runs})

    def of(self, field: str, kind: str, clients: int) -> float | None:
        """None if there was no such run."""
        chosen = (r for r in self._runs if (r.kind, r.clients) == (kind, clients))
        return median(getattr(run, field) for run in chosen)

    def of_gets(self, field: str, kind: str) -> float | None:
        """None if there was no such run."""
        return median(getattr(g, field) for g in self._gets if g.kind == kind)

    def growth(self, field: str, kind: str) -> float | None:
        """Time per client with the most clients, over that with the fewest."""
        least, most = self.sizes[0], self.sizes[-1]
        times = ratio(self.of(field, kind, most), self.of(field, kind, least))
        return ratio(times, most / least)


def targets_of(medians: Medians) -> list[Target]:
    """What must be reached."""
    most = medians.sizes[-1]

    def against(field: str, ours: str, theirs: str) -> float | None:
        return ratio(medians.of(field, ours, most), medians.of(field, theirs, most))

    gets = ratio(
        medians.of_gets("cpu_microseconds", "distlite libuv"),
        medians.of_gets("cpu_microseconds", "torch libuv"),
    )
    fast = against("both", "distlite libuv", "torch libuv")
    slow = against("both", "distlite epoll", "torch legacy")
    what = f"join and barrier of {most} clients,"
    targets = [
        Target("server CPU per get, libuv over torch libuv", 0.8, gets),
        Target(f"{what} libuv over torch libuv", 1.0, fast),
        Target(f"{what} epoll over torch legacy", 0.1, slow),
    ]
    for kind in OURS:
        # Linear, with a tolerance for the larger working set.
        what = f"{kind}: time per client, {most} over {medians.sizes[0]}"
        targets.append(Target(what, 1.5, medians.growth("both", kind)))
        memory = medians.of("loaded_mib", kind, most)
        what = f"{kind}: memory with {most} clients"
        targets.append(Target(what, 40, memory, "MiB"))
    return targets


def print_tables(medians: Medians, kinds: Sequence[str]) -> None:
    """Medians of everything."""
    header = ["get: server", "per second", "server CPU us"]
    fields = ("per_second", "cpu_microseconds")
    rows = [(k, *(medians.of_gets(field, k) for field in fields)) for k in kinds]
    print(table(header, rows), end="\n\n")
    fields = ("join", "barrier", "barrier_op", "join_cpu", "idle_mib", "loaded_mib")
    units = ("join s", "barrier s", "BARRIER s", "join CPU s", "idle MiB", "MiB")
    rows = [
        (kind, clients, *(medians.of(field, kind, clients) for field in fields))
        for clients in medians.sizes
        for kind in kinds
    ]
    print(table(["server", "clients", *units], rows), end="\n\n")


def draw(medians: Medians, kinds: Sequence[str], path: Path) -> None:
    """A panel per experiment, a line per server."""
    panels = {}
    fields = {"clients join": "join", "barrier": "barrier"}
    for title, field in fields.items():
        lines = {}
        for kind in kinds:
            points = {n: medians.of(field, kind, n) for n in medians.sizes}
            lines[kind] = {n: t for n, t in points.items() if t is not None}
        panels[title] = lines
    plots.draw(path, panels, x_label="clients", y_label="seconds")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Stores at scale.")
    parser.add_argument("--quick", action="store_true", help="few clients, few rounds")
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N")
    parser.add_argument("--rounds", type=int)
    parser.add_argument(
        "--slow-rounds",
        type=int,
        default=1,
        help=f"of torch's legacy server above {SLOW_ABOVE} clients",
    )
    parser.add_argument("--gets", type=int, default=GET_COUNT)
    parser.add_argument("--kinds", nargs="+", choices=OURS + TORCHS, metavar="KIND")
    parser.add_argument("--torch-python", help="an interpreter that has torch")
    plots.add_option(parser, "store_init")
    options = parser.parse_args()
    options.sizes = sorted(options.sizes or (QUICK_SIZES if options.quick else SIZES))
    options.rounds = options.rounds or (1 if options.quick else 3)
    return options


def allowed_sizes(sizes: Sequence[int]) -> list[int]:
    """Returns the sizes that the limit of open files allows, which is raised as far as
    possible."""
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    allowed = [size for size in sizes if size + SPARE_FILES <= limit]
    if len(allowed) < len(sizes):
        print(f"the limit of {limit} open files leaves only {allowed} clients")
    return allowed


def main() -> int:
    """Exit code 1 if a target was missed."""
    options = parse()
    options.sizes = allowed_sizes(options.sizes)
    torch_python = find_torch_python(options.torch_python)
    kinds = options.kinds or OURS + (TORCHS if torch_python else [])
    if torch_python is None:
        print("torch is not installed: ours alone")
    if not enter_own_network():
        print(
            "not root, so in the common network: torch's servers look up every client, "
            "and a slow resolver would slow them down"
        )
    runs, gets = measure(options, kinds, torch_python)
    medians = Medians(runs, gets)
    targets = targets_of(medians)
    print_tables(medians, kinds)
    print(report(targets), end="\n\n")
    results = {"runs": [asdict(r) for r in runs], "gets": [asdict(g) for g in gets]}
    print(f"results: {write_json('store_init', results, targets)}")
    draw(medians, kinds, options.plot)
    return int(any(target.verdict == "FAIL" for target in targets))


if __name__ == "__main__":
    sys.exit(main())
