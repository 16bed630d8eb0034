# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of many hosts of a rank each, or more, beside torch's gloo and Open MPI.

    python benchmarks/hosts_many.py                      8 to 128 hosts
    python benchmarks/hosts_many.py --hosts 32 --ranks-per-host 8
    python benchmarks/hosts_many.py --quick              8 hosts, one round

The hosts are pretended: their ranks are forked processes of this machine, which talk
over the loopback interface, and Open MPI's, for which mpis.py has made an environment,
those of its launcher.  The libraries take turns; what counts is the slowest rank, and
the median of the rounds, in milliseconds.  "loop" is a program that does only what an
all_reduce or a broadcast on this machine has to do (hosts_many_loop.c).

Each time is printed when it is known.  A cell that does not end within `--patience` is
"> 60 s" of its library, whose larger arrays are left out then, as are cells whose
arrays would fill the memory.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
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
OPS = [
    "barrier",
    "all_reduce",
    "broadcast",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
]
SIZES = [8, KIB, 64 * KIB, MIB, 16 * MIB]
MPI = "openmpi5"
MODULES = {"distlite": "distlite", "torch": "torch.distributed", MPI: "mpi4py"}
LOOP = "hosts_many_loop"
LOOP_OPS = ["all_reduce", "broadcast"]
# The arrays of a rank, in sizes of the cell, with the copies that libraries make.
ARRAYS = {"broadcast": 1, "all_reduce": 2}
MOST_ARRAYS = 4
MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
# Milliseconds, or why there are none.
Result = float | str
# Of each round, by cell and side.
Found = dict[str, dict[str, list[Result]]]
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
        "--patience", type=float, default=60, help="seconds for each cell, and to join"
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--torch", help="an interpreter with torch")
    options = parser.parse_args()
    if options.quick:
        options.hosts, options.rounds = [8], 1
    return options


def fits(op: str, size: int, ranks: int) -> bool:
    """Whether the arrays of all ranks leave half of the memory to others."""
    return ARRAYS.get(op, MOST_ARRAYS) * size * ranks <= MEMORY // 2


def cells_of(op: str, ranks: int, options: argparse.Namespace) -> list[str]:
    """The peer's cells: fewer calls of larger arrays."""

    def calls_of(size: int) -> int:
        return min(options.calls, 20 if size <= KIB else 5 if size <= MIB else 2)

    sizes = [0] if op == "barrier" else options.sizes
    return [f"{op}:{n}:{calls_of(n)}" for n in sizes if fits(op, n, ranks)]


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
    side: str,
    program: str,
    hosts: int,
    cells: Sequence[str],
    options: argparse.Namespace,
) -> Iterator[tuple[str, Result]]:
    """Yields milliseconds by cell when they are known; of the first cell that a side
    does not end, why."""
    awaited = [cell.rpartition(":")[0] for cell in cells]
    why = "failed"
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [*command_of(side, program, hosts, options), ",".join(cells)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            # Nothing is read ahead of what select() tells of.
            bufsize=0,
            env={**os.environ, **(mpi_environment(MPI) if side == MPI else {})},
            process_group=0,
        )
        try:
            for line in lines_of(process, options.patience):
                for cell, took in json.loads(line).items():
                    awaited = [other for other in awaited if other != cell]
                    yield cell, took
            if process.poll() is None:
                why = f"> {options.patience:g} s"
        finally:
            end_group(process)
        if process.returncode != 0:
            log.seek(0)
            said = log.read().decode(errors="replace")[-2000:]
            print(f"{side}, {hosts} hosts: {why} {said}", file=sys.stderr)
    if awaited:
        yield awaited[0], why


def lines_of(process: subprocess.Popen, patience: float) -> Iterator[bytes]:
    """What the process prints, until it ends or prints nothing for so many seconds."""
    while select.select([process.stdout], [], [], patience)[0]:
        line = process.stdout.readline()
        if not line:
            process.wait()
            return
        yield line


def end_group(process: subprocess.Popen) -> None:
    """Ends the ranks as well, or the launcher, which ends them."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
    process.stdout.close()


def size_of(cell: str) -> int:
    """Its bytes; 0 if it has none."""
    return int(f"{cell}:0".split(":")[1])


def name_of(cell: str) -> str:
    op, size = cell.partition(":")[0], size_of(cell)
    return f"{op} {size_text(size)}" if size else op


def result_of(results: Sequence[Result]) -> Result | None:
    """The median of the rounds, unless one has none."""
    times = [result for result in results if not isinstance(result, str)]
    whys = [result for result in results if isinstance(result, str)]
    return whys[0] if whys else median(times)


def result_text(result: Result | None) -> str:
    """Three digits, such as 1,320 or 0.0182."""
    if result is None or isinstance(result, str):
        return result or "-"
    return f"{float(f'{result:.3g}'):,g}"


def ratio_of(ours: Result | None, theirs: Result | None) -> float | None:
    if isinstance(ours, str) or isinstance(theirs, str):
        return None
    return ratio(ours, theirs)


def summary(everything: dict[str, Found]) -> str:
    """The table of docs/performance.md: a row for each cell, and a column for each
    number of hosts, with the times of distlite, of gloo and of Open MPI."""
    cells = list(dict.fromkeys(cell for found in everything.values() for cell in found))
    rows = [["", *(f"{hosts} hosts" for hosts in everything)]]
    rows.append(["---"] * len(rows[0]))
    for cell in cells:
        row = [name_of(cell)]
        for found in everything.values():
            sides = found.get(cell, {})
            results = [result_of(sides.get(side, [])) for side in MODULES]
            row.append(" / ".join(result_text(result) for result in results))
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


def measure_op(
    op: str,
    hosts: int,
    programs: dict[str, str],
    options: argparse.Namespace,
    found: Found,
) -> None:
    """Adds to `found`.  Each operation has ranks of its own in each round, so that one
    that does not end takes no other's cells."""
    cells = cells_of(op, hosts * options.ranks_per_host, options)
    sides = [side for side in programs if side != LOOP or op in LOOP_OPS]
    left = dict.fromkeys(sides, cells)
    for _, side in alternate(options.rounds, sides):
        if not left[side]:
            continue
        for cell, result in run(side, programs[side], hosts, left[side], options):
            text = result_text(result)
            print(f"{hosts} hosts, {name_of(cell)}, {side}: {text}", flush=True)
            found[cell][side].append(result)
            if isinstance(result, str):
                left[side] = [c for c in cells if size_of(c) < size_of(cell)]


def show(hosts: int, found: Found, options: argparse.Namespace) -> None:
    rows = []
    for cell, by_side in found.items():
        results = [result_of(by_side[side]) for side in (*MODULES, LOOP)]
        ratios = [ratio_of(results[0], theirs) for theirs in results[1:]]
        rows.append([name_of(cell), *results, *ratios])
    print(f"\n{hosts} hosts of {options.ranks_per_host}")
    sides = ["torch gloo", "Open MPI", "loop"]
    header = ["milliseconds", "distlite", *sides, *(f"of {s}'s" for s in sides)]
    print(table(header, rows))


def main() -> None:
    # Ended in the middle of a cell, it ends the ranks as well.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    options = parse()
    programs = find_programs(options)
    everything = {}
    for hosts in options.hosts:
        found: Found = defaultdict(lambda: defaultdict(list))
        for op in options.ops:
            measure_op(op, hosts, programs, options, found)
        show(hosts, found, options)
        everything[str(hosts)] = found
    print(
        f"\nmilliseconds of distlite / torch's gloo / Open MPI\n\n{summary(everything)}"
    )
    print(f"results: {write_json('hosts_many', {'hosts': everything}, [])}")


if __name__ == "__main__":
    main()
