# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of many hosts of one rank each, or more, beside torch's gloo.

    python benchmarks/hosts_many.py                      8 to 128 hosts, half an hour
    python benchmarks/hosts_many.py --hosts 32 --ranks-per-host 8
    python benchmarks/hosts_many.py --quick              8 hosts, one round

The hosts are pretended: their ranks are forked processes of this machine, which talk
over the loopback interface.  Both libraries take turns; what counts is the slowest
rank, and the median of the rounds, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
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

PEER = str(Path(__file__).with_name("hosts_many_peer.py"))
OPS = ["all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all"]
SIZES = [8, KIB, 64 * KIB, MIB, 16 * MIB]
PATIENCE = 600
MODULES = {"distlite": "distlite", "torch": "torch.distributed"}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, nargs="*", default=[8, 32, 64, 128])
    parser.add_argument("--ranks-per-host", type=int, default=1)
    parser.add_argument("--ops", nargs="*", default=OPS, choices=OPS)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="bytes")
    parser.add_argument("--calls", type=int, default=20, help="most of a cell")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--torch", help="an interpreter with torch")
    options = parser.parse_args()
    if options.quick:
        options.hosts, options.rounds = [8], 1
    return options


def cells_of(options: argparse.Namespace) -> str:
    """The peer's cells: fewer calls of larger arrays."""

    def calls_of(size: int) -> int:
        return min(options.calls, 20 if size <= KIB else 5 if size <= MIB else 2)

    sized = [
        f"{op}:{size}:{calls_of(size)}" for op in options.ops for size in options.sizes
    ]
    return ",".join([f"barrier:0:{calls_of(0)}", *sized])


def run(python: str, module: str, hosts: int, options: argparse.Namespace) -> dict:
    """Milliseconds by cell; nothing if a rank failed or time ran out."""
    words = [python, PEER, module, str(hosts), str(options.ranks_per_host)]
    try:
        done = subprocess.run(
            [*words, cells_of(options)],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return {}
    if done.returncode != 0:
        print(done.stderr[-2000:], file=sys.stderr)
        return {}
    return json.loads(done.stdout.splitlines()[-1])


def name_of(cell: str) -> str:
    op, _, size = cell.partition(":")
    return f"{op} {size_text(int(size))}" if size and size != "0" else op


def summary(everything: dict[str, dict[str, dict[str, list[float]]]]) -> str:
    """The table of docs/performance.md: a row for each cell, and a column for each
    number of hosts, with distlite's time and gloo's."""
    cells = list(dict.fromkeys(cell for found in everything.values() for cell in found))
    rows = [["", *(f"{hosts} hosts" for hosts in everything)]]
    rows.append(["---"] * len(rows[0]))
    for cell in cells:
        row = [name_of(cell)]
        for found in everything.values():
            sides = found.get(cell, {})
            ours, theirs = (median(sides.get(side, [])) for side in MODULES)
            row.append(f"{ours:.3g} / {theirs:.3g}" if ours and theirs else "-")
        rows.append(row)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    options = parse()
    pythons = {"distlite": sys.executable, "torch": find_torch_python(options.torch)}
    sides = [side for side, python in pythons.items() if python]
    everything = {}
    for hosts in options.hosts:
        found: dict[str, dict[str, list[float]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for _, side in alternate(options.rounds, sides):
            took = run(pythons[side], MODULES[side], hosts, options)
            for cell, value in took.items():
                found[cell][side].append(value)
        rows = []
        for cell, by_side in found.items():
            ours, theirs = (median(by_side[side]) for side in ("distlite", "torch"))
            rows.append([name_of(cell), ours, theirs, ratio(ours, theirs)])
        print(f"\n{hosts} hosts of {options.ranks_per_host}")
        print(table(["milliseconds", "distlite", "torch gloo", "ratio"], rows))
        everything[str(hosts)] = {cell: dict(sides) for cell, sides in found.items()}
    print(f"\nmilliseconds of distlite / of torch's gloo\n\n{summary(everything)}")
    print(f"results: {write_json('hosts_many', {'hosts': everything}, [])}")


if __name__ == "__main__":
    main()
