# SPDX-License-Identifier: BSD-3-Clause
"""Messages on one host, beside torch gloo and MPIs.

    python benchmarks/messages.py            some minutes
    python benchmarks/messages.py --quick    2 ranks, 8 bytes, some seconds

Peers take turns as in collectives.py.  `posts_16` begins 16 receives and 16 sends, then
waits for each; `batch_16` passes operations that were made before to
batch_isend_irecv(), and `new_batch_16` makes them as well.  MPIs call Irecv, Isend and
Waitall for all three.  `loop` is messages_loop.c, between two ranks: only the copies
through shared memory, of the parts and with the stores that are the fastest.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from collectives import BEST, MPIS, median_and_best, with_best
from measure import (
    KIB,
    Found,
    Target,
    add_call_options,
    find_torch_python,
    is_warm_loop,
    medians,
    ratio,
    report,
    save_cells,
    size_text,
    table,
)
from messages_peer import COUNTS
from ranks import Runner, find_runners, measure_in_turns

LOOP = "loop"
PEERS = ["distlite", *MPIS, "torch", LOOP]
SIZES = [8, KIB, 4 * KIB, 16 * KIB, 64 * KIB]
ROUNDS = 5
CELL_SECONDS, QUICK_CELL_SECONDS = 0.05, 0.005
LIMIT = 0.9


class Cell(NamedTuple):
    """What one number belongs to."""

    ranks: int
    op: str
    size: int
    cores: str  # near, far or changed


def measure_all(
    runners: Sequence[Runner], options: argparse.Namespace
) -> dict[Cell, dict[str, list[float]]]:
    """Every round's microseconds."""
    found = defaultdict(lambda: defaultdict(list))
    cells = [(op, size) for op in options.ops for size in options.sizes]
    for ranks, peer, said in measure_in_turns(
        runners, options, "messages_peer.py", lambda _: cells
    ):
        op, size, cores, microseconds = said
        found[Cell(ranks, op, size, cores)][peer].append(microseconds)
    return found


def print_tables(found: Found, peers: Sequence[str]) -> None:
    """One for each number of ranks and placement: microseconds, and ours over the best
    MPI's and over the loop's."""
    times = with_best(medians(found))
    header = ["op", "size", *(f"{peer} us" for peer in peers), f"/ {BEST}", f"/ {LOOP}"]
    for ranks, cores in sorted({(cell.ranks, cell.cores) for cell in times}):
        rows = [
            [cell.op, size_text(cell.size)]
            + [median_and_best(found[cell].get(peer)) for peer in peers]
            + [ratio(sides.get("distlite"), sides.get(other)) for other in (BEST, LOOP)]
            for cell, sides in times.items()
            if (cell.ranks, cell.cores) == (ranks, cores)
        ]
        print(f"{ranks} ranks, {cores} cores", table(header, rows), sep="\n")
        print()


def targets_of(found: Found) -> list[Target]:
    """One for each cell that has an MPI's number."""
    return [
        Target(
            f"{cell.ranks} ranks {cell.cores}, {cell.op} {size_text(cell.size)}",
            LIMIT,
            value,
        )
        for cell, sides in with_best(medians(found)).items()
        if (value := ratio(sides.get("distlite"), sides.get(BEST))) is not None
    ]


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Messages, beside other libraries.")
    parser.add_argument("--quick", action="store_true", help="see that it works")
    parser.add_argument("--ops", nargs="+", choices=COUNTS, default=list(COUNTS))
    parser.add_argument("--sizes", nargs="+", type=int, help="bytes")
    parser.add_argument("--ranks", nargs="+", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS)
    parser.add_argument("--seconds", type=float, help="for each cell")
    parser.add_argument(
        "--written",
        action="store_true",
        help="write the sources before each call, as programs do",
    )
    add_call_options(parser)
    parser.add_argument("--torch-python", help="an interpreter with torch")
    options = parser.parse_args()
    options.sizes = options.sizes or ([8] if options.quick else SIZES)
    options.ranks = options.ranks or ([2] if options.quick else [2, 4])
    options.rounds = options.rounds or (1 if options.quick else ROUNDS)
    seconds = QUICK_CELL_SECONDS if options.quick else CELL_SECONDS
    options.seconds = options.seconds or seconds
    return options


def main() -> int:
    """Exit code 1 if a target was missed; a quick run is too short to tell."""
    options = parse()
    runners = find_runners(options.peers, find_torch_python(options.torch_python))
    found = measure_all(runners, options)
    print_tables(found, [runner.peer for runner in runners])
    if not is_warm_loop(options):
        return 0
    targets = targets_of(found)
    print(report(targets), end="\n\n")
    save_cells("messages", found, targets)
    missed = any(target.verdict == "FAIL" for target in targets)
    return int(missed and not options.quick)


if __name__ == "__main__":
    sys.exit(main())
