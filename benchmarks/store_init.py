# SPDX-License-Identifier: BSD-3-Clause
"""Stores at scale: the two experiments of PyTorch's tutorial on its libuv store.

(a) how long N clients take to join a store, and to check in as the ranks of a process
group, and (b) how long a barrier over them takes; also how much memory and processor
time the server uses.  Ours and torch's servers get the same load from the same program
(store_load.c), in turns.  With a relay for every eight clients, as on hosts of eight
ranks, there may be more clients than a process has descriptors.

    python benchmarks/store_init.py            everything, about ten minutes
    python benchmarks/store_init.py --quick    up to 4,000 clients, one minute
"""

from __future__ import annotations

import argparse
import contextlib
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
from processes import RELAY_CLIENTS, Load, Relays, Server, enter_own_network

DIRECT = ["distlite libuv", "distlite epoll"]
RELAYED = "distlite relays"
OURS = [*DIRECT, RELAYED]
TORCHS = ["torch libuv", "torch legacy"]
SIZES = [1024, 4096, 16384, 49152, 98304]
QUICK_SIZES = SIZES[:2]
# torch's legacy server takes minutes per experiment above this.
SLOW_ABOVE = 4096
GET_CLIENTS, GET_COUNT, VALUE_SIZE = 256, 200_000, 64
# A server leaves an eighth of its descriptors to the program.
SERVER_SHARE = 7 / 8


@dataclass(frozen=True)
class Run:
    """One server, one number of clients; times in seconds."""

    kind: str
    clients: int
    relays: float  # until all of them were connected
    join: float
    check_in: float
    barrier: float
    barrier_op: float
    cpu: float  # of the server, for joining, checking in and the first barrier
    idle_mib: float
    loaded_mib: float

    @property
    def init(self) -> float:
        """What a process group does before its first call."""
        return self.join + self.check_in

    @property
    def all(self) -> float:
        """What the targets are about."""
        return self.init + self.barrier

    @property
    def client_kib(self) -> float:
        """The server's memory for a client, with its connection and its key."""
        return (self.loaded_mib - self.idle_mib) * 1024 / self.clients


@dataclass(frozen=True)
class Gets:
    """One server and many reads of one value."""

    kind: str
    per_second: float
    cpu_microseconds: float  # of the server, per get


def run_once(kind: str, clients: int, python: str) -> Run:
    """All experiments, with a fresh server."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(start_server(kind, python))
        idle_mib, seconds, sockets = server.resident_mib(), 0.0, None
        if kind == RELAYED:
            relays = stack.enter_context(Relays(server.port, clients))
            seconds, sockets = relays.connect(), relays.sockets
        load = Load(server.port, clients, ours=kind in OURS, sockets=sockets)
        stack.enter_context(load)
        cpu = server.cpu_seconds()
        times = [load.connect(), load.do("check_in one"), load.do("barrier two")]
        cpu = server.cpu_seconds() - cpu
        barrier_op = load.do("barrier_op three")
        mib = server.resident_mib()
    return Run(kind, clients, seconds, *times, barrier_op, cpu, idle_mib, mib)


def start_server(kind: str, python: str) -> Server:
    """Relays use the default one."""
    return Server("distlite libuv" if kind == RELAYED else kind, python)


def get_once(kind: str, count: int, python: str) -> Gets:
    """Measures gets in a closed loop: every client has one outstanding request."""
    ours = kind in OURS
    with (
        Server(kind, python) as server,
        Load(server.port, GET_CLIENTS, ours=ours) as load,
    ):
        load.connect()
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
    for round_number, kind in alternate(options.rounds, [*without_relays(kinds)]):
        say(f"get: {kind}, round {round_number + 1}")
        gets.append(get_once(kind, options.gets, pythons[kind]))
    for clients in options.sizes:
        fitting = [kind for kind in kinds if fits(kind, clients)]
        for round_number, kind in alternate(options.rounds, fitting):
            is_slow = kind == "torch legacy" and clients > SLOW_ABOVE
            if is_slow and round_number >= options.slow_rounds:
                continue
            say(f"{clients} clients: {kind}, round {round_number + 1}")
            runs.append(run_once(kind, clients, pythons[kind]))
    say("")
    return runs, gets


def without_relays(kinds: Sequence[str]) -> list[str]:
    """Those to which clients connect directly."""
    return [kind for kind in kinds if kind != RELAYED]


def fits(kind: str, clients: int) -> bool:
    """Whether the limit of open files allows so many clients."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = clients // RELAY_CLIENTS if kind == RELAYED else clients
    return connections <= files * SERVER_SHARE


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

    def most(self, kind: str) -> int:
        """The largest number of clients that a kind of server had."""
        return max((r.clients for r in self._runs if r.kind == kind), default=0)

    def growth(self, field: str, kind: str) -> float | None:
        """Time per client with the most clients, over that with the fewest."""
        least, most = self.sizes[0], self.most(kind)
        times = ratio(self.of(field, kind, most), self.of(field, kind, least))
        return ratio(times, most / least)


def targets_of(medians: Medians) -> list[Target]:
    """What must be reached."""

    def against(field: str, ours: str, theirs: str) -> float | None:
        most = medians.most(theirs)
        return ratio(medians.of(field, ours, most), medians.of(field, theirs, most))

    gets = ratio(
        medians.of_gets("cpu_microseconds", "distlite libuv"),
        medians.of_gets("cpu_microseconds", "torch libuv"),
    )
    targets = [Target("server CPU per get, libuv over torch libuv", 0.8, gets)]
    for ours, theirs, limit in (
        ("distlite libuv", "torch libuv", 1.0),
        ("distlite epoll", "torch legacy", 0.1),
        (RELAYED, "torch libuv", 1.0),
    ):
        what = (
            f"init and barrier of {medians.most(theirs)} clients, {ours} over {theirs}"
        )
        targets.append(Target(what, limit, against("all", ours, theirs)))
    for kind in OURS:
        # Linear, with a tolerance for the larger working set.
        most = medians.most(kind)
        what = f"{kind}: time per client, {most} over {medians.sizes[0]}"
        targets.append(Target(what, 1.5, medians.growth("all", kind)))
        memory = medians.of("client_kib", kind, most)
        what = f"{kind}: memory per client of {most}"
        targets.append(Target(what, 1.5, memory, "KiB"))
    most = max(SIZES)
    what = f"{RELAYED}: init and barrier of {most} clients"
    return [*targets, Target(what, 12, medians.of("all", RELAYED, most), "s")]


def print_tables(medians: Medians, kinds: Sequence[str]) -> None:
    """Medians of everything."""
    header = ["get: server", "per second", "server CPU us"]
    fields = ("per_second", "cpu_microseconds")
    rows = [
        (kind, *(medians.of_gets(field, kind) for field in fields))
        for kind in without_relays(kinds)
    ]
    print(table(header, rows), end="\n\n")
    columns = {
        "relays": "relays s",
        "join": "join s",
        "check_in": "check-in s",
        "barrier": "barrier s",
        "barrier_op": "BARRIER s",
        "all": "init+barrier s",
        "cpu": "server CPU s",
        "loaded_mib": "MiB",
        "client_kib": "KiB per client",
    }
    rows = [
        (kind, clients, *(medians.of(field, kind, clients) for field in columns))
        for clients in medians.sizes
        for kind in kinds
        if medians.of("all", kind, clients) is not None
    ]
    print(table(["server", "clients", *columns.values()], rows), end="\n\n")


def draw(medians: Medians, kinds: Sequence[str], path: Path) -> None:
    """A panel per experiment, a line per server."""
    panels = {}
    fields = {"join and check-in": "init", "barrier": "barrier"}
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


def raise_limit() -> int:
    """Allows as many open files as possible."""
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    return limit


def main() -> int:
    """Exit code 1 if a target was missed."""
    options = parse()
    limit = raise_limit()
    if not fits(RELAYED, options.sizes[-1]):
        print(f"the limit of {limit} open files leaves out the largest sizes")
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
