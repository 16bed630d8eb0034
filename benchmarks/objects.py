# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of Python objects on one host, beside torch gloo and several MPIs.

    python benchmarks/objects.py            everything, about ten minutes
    python benchmarks/objects.py --quick    one round without the largest arrays

Each peer in turn runs in fresh processes, round after round; what counts is the median
of the rounds.  distlite-safe is distlite in safe mode.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import plots
from collectives import MPIS
from measure import (
    KIB,
    MIB,
    Target,
    add_call_options,
    find_torch_python,
    is_warm_loop,
    medians,
    ratio,
    report,
    save_cells,
    table,
)
from objects_peer import OPS
from ranks import Runner, find_python, find_runners, measure_in_turns

PEERS = ["distlite", "distlite-safe", *MPIS, "torch"]
SIZES = [KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB]
LARGE = f"array:{64 * MIB}"
ITEMS = ["dict", "list:1000", *(f"array:{size}" for size in SIZES)]
QUICK_ITEMS = ["dict", "list:1000", f"array:{64 * KIB}"]
RANKS = [2, 4]
ROUNDS = 5
CELL_SECONDS, QUICK_CELL_SECONDS = 0.3, 0.01


class Cell(NamedTuple):
    """What one number belongs to."""

    ranks: int
    op: str
    item: str


# Microseconds by peer.
Times = dict[Cell, dict[str, float]]

GOALS = [
    (Cell(2, "broadcast", "dict"), "openmpi", 4.0),
    (Cell(2, "broadcast", "dict"), "torch", 0.05),
    (Cell(2, "broadcast", LARGE), "openmpi", 0.3),
    (Cell(2, "broadcast", LARGE), "torch", 0.3),
    (Cell(2, "all_gather", LARGE), "openmpi", 0.3),
    (Cell(2, "all_gather", LARGE), "torch", 0.3),
]


def targets_of(times: Times) -> list[Target]:
    """What must be reached, of what was asked for."""
    found = []
    for cell, peer, limit in GOALS:
        sides = times.get(cell, {})
        what = f"{cell.op} of {cell.item}, {cell.ranks} ranks, over {peer}"
        value = ratio(sides.get("distlite"), sides.get(peer))
        found.append(Target(what, limit, value))
    return found


def measure_all(
    runners: Sequence[Runner], options: argparse.Namespace
) -> dict[Cell, dict[str, list[float]]]:
    """Every round's microseconds."""
    found = defaultdict(lambda: defaultdict(list))
    cells = [(op, item) for op in options.ops for item in options.items]
    for ranks, peer, said in measure_in_turns(
        runners, options, "objects_peer.py", lambda _: cells
    ):
        op, item, microseconds = said
        found[Cell(ranks, op, item)][peer].append(microseconds)
    return found


def print_table(times: Times, peers: Sequence[str]) -> None:
    """Microseconds, and ours over each peer's."""
    others = [peer for peer in peers if peer != "distlite"]
    header = ["op", "item", "ranks", *(f"{peer} us" for peer in peers)]
    header += [f"/ {peer}" for peer in others]
    rows = [
        [cell.op, cell.item, cell.ranks]
        + [sides.get(peer) for peer in peers]
        + [ratio(sides.get("distlite"), sides.get(peer)) for peer in others]
        for cell, sides in times.items()
    ]
    print(table(header, rows), end="\n\n")


def draw(times: Times, path: Path) -> None:
    """Time by the size of an array, for each op and number of ranks."""
    panels = defaultdict(lambda: defaultdict(dict))
    for cell, sides in times.items():
        kind, _, size = cell.item.partition(":")
        if kind == "array":
            for peer, microseconds in sides.items():
                panels[f"{cell.op}, {cell.ranks} ranks"][peer][int(size)] = microseconds
    plots.draw_sizes(path, panels)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Objects, beside other libraries.")
    parser.add_argument("--quick", action="store_true", help="see that it works")
    parser.add_argument("--ops", nargs="+", choices=OPS, default=OPS)
    parser.add_argument("--items", nargs="+", help="dict, list:COUNT, array:BYTES")
    parser.add_argument("--ranks", nargs="+", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS)
    parser.add_argument("--seconds", type=float, help="for each cell")
    add_call_options(parser)
    parser.add_argument("--torch-python", help="an interpreter with torch")
    plots.add_option(parser, "objects")
    options = parser.parse_args()
    options.items = options.items or (QUICK_ITEMS if options.quick else ITEMS)
    options.ranks = options.ranks or ([2] if options.quick else RANKS)
    options.rounds = options.rounds or (1 if options.quick else ROUNDS)
    seconds = QUICK_CELL_SECONDS if options.quick else CELL_SECONDS
    options.seconds = options.seconds or seconds
    return options


def runners_of(options: argparse.Namespace) -> list[Runner]:
    """Safe mode is another peer, of the same interpreter."""
    torch_python = find_torch_python(options.torch_python)
    plain = [peer for peer in options.peers if peer != "distlite-safe"]
    runners = find_runners(plain, torch_python)
    if "distlite-safe" in options.peers:
        python = find_python("distlite", torch_python)
        runners += [Runner("distlite-safe", python)] if python else []
    return runners


def main() -> int:
    """Exit code 1 if a target was missed; a quick run is too short to tell."""
    options = parse()
    runners = runners_of(options)
    found = measure_all(runners, options)
    times = medians(found)
    print_table(times, [runner.peer for runner in runners])
    if not is_warm_loop(options):
        return 0
    targets = targets_of(times)
    print(report(targets), end="\n\n")
    save_cells("objects", found, targets)
    draw(times, options.plot)
    missed = any(target.verdict == "FAIL" for target in targets)
    return int(missed and not options.quick)


if __name__ == "__main__":
    sys.exit(main())
