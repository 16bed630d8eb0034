# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of many hosts of a rank each, or more, beside torch's gloo and Open MPI.

    python benchmarks/hosts_many.py                      8 to 128 hosts, half an hour
    python benchmarks/hosts_many.py --hosts 32 --ranks-per-host 8
    python benchmarks/hosts_many.py --quick              8 hosts, one round

The hosts are pretended: their ranks are forked processes of this machine, which talk
over the loopback interface, and Open MPI's, for which mpis.py has made an environment,
those of its launcher.  The libraries take turns; what counts is the slowest rank, and
the median of the rounds, in milliseconds.  "loop" is a program that does only what an
all_reduce or a broadcast on this machine has to do (hosts_many_loop.c).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from measure import (
    KIB,
    MIB,
    alternate,
    find_torch_python,
    median,
    ratio,
    size_text,
    table,
    write_json,
)
from processes import build
from ranks import MPI_LAUNCHERS, find_python, mpi_environment

PEER = str(Path(__file__).with_name("hosts_many_peer.py"))
OPS = ["all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all"]
SIZES = [8, KIB, 64 * KIB, MIB, 16 * MIB]
MPI = "openmpi5"
MODULES = {"distlite": "distlite", "torch": "torch.distributed", MPI: "mpi4py"}
LOOP = "hosts_many_loop"
# Memory is shared by no hosts, and ranks that wait let those run that share their core.
OVER_TCP = {
    "pml": "ob1",
    "btl": "tcp,self",
    "btl_tcp_if_include": "lo",
    "coll": "^sm,han",
    "mpi_yield_when_idle": "1",
}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, nargs="*", default=[8, 32, 64, 128])
    parser.add_argument("--ranks-per-host", type=int, default=1)
    parser.add_argument("--ops", nargs="*", default=OPS, choices=OPS)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="bytes")
    parser.add_argument("--calls", type=int, default=20, help="most of a cell")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--patience", type=float, default=600, help="seconds for an operation's cells"
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--torch", help="an interpreter with torch")
    options = parser.parse_args()
    if options.quick:
        options.hosts, options.rounds = [8], 1
    return options


def cells_of(op: str, options: argparse.Namespace) -> str:
    """The peer's cells: fewer calls of larger arrays."""

    def calls_of(size: int) -> int:
        return min(options.calls, 20 if size <= KIB else 5 if size <= MIB else 2)

    sizes = [0] if op == "barrier" else options.sizes
    return ",".join(f"{op}:{size}:{calls_of(size)}" for size in sizes)


def command_of(
    side: str, program: str, hosts: int, options: argparse.Namespace
) -> list[str]:
    """How a side is started, up to the cells."""
    if side == LOOP:
        return [program, str(hosts)]
    words = [program, PEER, MODULES[side], str(hosts), str(options.ranks_per_host)]
    if side != MPI:
        return words
    names = [word for name in OVER_TCP for word in ("--mca", name, OVER_TCP[name])]
    ranks = str(hosts * options.ranks_per_host)
    return [*MPI_LAUNCHERS[MPI], *names, "-np", ranks, *words]


def run(
    side: str, program: str, hosts: int, op: str, options: argparse.Namespace
) -> dict[str, float]:
    """Milliseconds by cell; nothing if a rank failed or time ran out.

    Each operation has ranks of its own, so that one that does not end takes no other's
    cells."""
    process = subprocess.Popen(
        [*command_of(side, program, hosts, options), cells_of(op, options)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(mpi_environment(MPI) if side == MPI else {})},
        process_group=0,
    )
    try:
        said, why = process.communicate(timeout=options.patience)
    except subprocess.TimeoutExpired:
        print(f"{side}, {hosts} hosts, {op}: ran out of time", file=sys.stderr)
        return {}
    finally:
        if process.poll() is None:
            # The ranks as well, or the launcher, which ends them.
            os.killpg(process.pid, signal.SIGTERM)
            process.communicate()
    if process.returncode != 0:
        print(f"{side}, {hosts} hosts, {op}: {why[-2000:]}", file=sys.stderr)
        return {}
    return json.loads(said.splitlines()[-1])


def name_of(cell: str) -> str:
    op, _, size = cell.partition(":")
    return f"{op} {size_text(int(size))}" if size and size != "0" else op


def time_text(time: float | None) -> str:
    """Three digits, such as 1,320 or 0.0182."""
    return f"{float(f'{time:.3g}'):,g}" if time else "-"


def summary(everything: dict[str, dict[str, dict[str, list[float]]]]) -> str:
    """The table of docs/performance.md: a row for each cell, and a column for each
    number of hosts, with the times of distlite, of gloo and of Open MPI."""
    cells = list(dict.fromkeys(cell for found in everything.values() for cell in found))
    rows = [["", *(f"{hosts} hosts" for hosts in everything)]]
    rows.append(["---"] * len(rows[0]))
    for cell in cells:
        row = [name_of(cell)]
        for found in everything.values():
            sides = found.get(cell, {})
            times = [median(sides.get(side, [])) for side in MODULES]
            row.append(" / ".join(time_text(time) for time in times))
        rows.append(row)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def find_programs(options: argparse.Namespace) -> dict[str, str]:
    """The interpreters of the libraries that are installed, and the loop."""
    found = {
        "distlite": sys.executable,
        "torch": find_torch_python(options.torch),
        MPI: find_python(MPI, None),
        LOOP: str(build(LOOP)) if options.ranks_per_host == 1 else None,
    }
    return {side: program for side, program in found.items() if program}


def main() -> None:
    options = parse()
    programs = find_programs(options)
    everything = {}
    for hosts in options.hosts:
        found: dict[str, dict[str, list[float]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for op in ["barrier", *options.ops]:
            for _, side in alternate(options.rounds, list(programs)):
                took = run(side, programs[side], hosts, op, options)
                for cell, value in took.items():
                    found[cell][side].append(value)
        rows = []
        for cell, by_side in found.items():
            times = [median(by_side[side]) for side in (*MODULES, LOOP)]
            rows.append(
                [name_of(cell), *times, *(ratio(times[0], t) for t in times[1:])]
            )
        print(f"\n{hosts} hosts of {options.ranks_per_host}")
        sides = ["torch gloo", "Open MPI", "loop"]
        header = ["milliseconds", "distlite", *sides, *(f"of {s}'s" for s in sides)]
        print(table(header, rows))
        everything[str(hosts)] = {cell: dict(sides) for cell, sides in found.items()}
    print(
        f"\nmilliseconds of distlite / torch's gloo / Open MPI\n\n{summary(everything)}"
    )
    print(f"results: {write_json('hosts_many', {'hosts': everything}, [])}")


if __name__ == "__main__":
    main()
