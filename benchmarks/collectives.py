# SPDX-License-Identifier: BSD-3-Clause
"""All collectives on one host, beside torch gloo, MPIs and plain memory access.

    python benchmarks/collectives.py            everything, about two hours
    python benchmarks/collectives.py --quick    2 ranks, four sizes, under a minute

Each peer in turn runs in fresh processes, round after round.  What counts is the median
of the rounds in which the cores of ranks 0 and 1 were placed alike, near each other or
far, before and after (placement.py); the best of them is in parentheses.  A size is
that of the larger array of a rank, input or output.  The newest MPIs take part where
mpis.py has made their environments, beside those of the system.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import plots
from collectives_peer import SHAPES
from measure import (
    KIB,
    MIB,
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
from placement import CHANGED, FAR, NEAR
from ranks import Runner, find_runners, measure_in_turns

MPIS = ["openmpi5", "mpich5", "intelmpi", "openmpi", "mpich"]
PEERS = ["distlite", *MPIS, "torch", "memory"]
BEST = "best MPI"
MODES = ["sync", "async"]
# Powers of eight, and the sizes of the targets.
SIZES = [8, 64, 512, KIB, 4 * KIB, 32 * KIB, 64 * KIB, 256 * KIB]
SIZES += [MIB, 2 * MIB, 16 * MIB, 100 * MIB]
QUICK_SIZES = [8, KIB, 64 * KIB, MIB]
RANKS = [1, 2, 4, 8]
ROUNDS = 5
CELL_SECONDS, QUICK_CELL_SECONDS = 0.1, 0.005
SMALL = 64 * KIB


class Cell(NamedTuple):
    """What one number belongs to."""

    ranks: int
    op: str
    mode: str
    size: int
    cores: str = ""  # near, far or changed; nothing with one rank


# Microseconds by peer.
Times = dict[Cell, dict[str, float]]


class Goal(NamedTuple):
    """A limit of our time over a peer's in the cells that it covers."""

    what: str
    peer: str
    limit: float
    covers: Callable[[Cell], bool]


def covers_all_reduce(size: int, cell: Cell) -> bool:
    """Between two ranks."""
    return cell[:2] == (2, "all_reduce") and cell.size == size


def is_small_exchange(cell: Cell) -> bool:
    """Returns whether the call takes longer than the exchange of the data."""
    return cell.ranks == 2 and cell.op in ("all_reduce", "barrier") and cell.size <= KIB


def is_other_op(cell: Cell) -> bool:
    """Returns whether the operation has no target of its own."""
    return cell.ranks == 2 and cell.op not in ("all_reduce", "barrier")


def is_crowded(cell: Cell) -> bool:
    """Returns whether there are more ranks than cores."""
    return cell.ranks in (4, 8)


ALL_REDUCE_LIMITS = {SMALL: 0.9, MIB: 0.6, 16 * MIB: 0.6, 100 * MIB: 0.35}
WORST_GOALS = [
    Goal("2 ranks, all_reduce and barrier to 1 KiB", "openmpi", 0.6, is_small_exchange),
    *(
        Goal(
            f"2 ranks, all_reduce of {size_text(size)}",
            "openmpi",
            limit,
            partial(covers_all_reduce, size),
        )
        for size, limit in ALL_REDUCE_LIMITS.items()
    ),
    Goal("2 ranks, other ops", "openmpi", 1.0, is_other_op),
    Goal("4 and 8 ranks", "openmpi", 1.0, is_crowded),
    Goal("2 ranks, near cores", BEST, 1.0, lambda c: c[:1] + c[4:] == (2, NEAR)),
    Goal("2 ranks, far cores", BEST, 1.0, lambda c: c[:1] + c[4:] == (2, FAR)),
    Goal("to 64 KiB", "torch", 0.1, lambda c: c.ranks > 1 and c.size <= SMALL),
    Goal("above 64 KiB", "torch", 0.4, lambda c: c.ranks > 1 and c.size > SMALL),
]
MEAN_GOALS = [
    Goal("2 ranks, other ops, geometric mean", "openmpi", 0.7, is_other_op),
    Goal("4 and 8 ranks, geometric mean", "openmpi", 0.8, is_crowded),
    Goal("2 ranks, geometric mean", BEST, 0.7, lambda c: c.ranks == 2),
]
ASYNC_LIMIT = 2.0


def ratios(times: Times, goal: Goal) -> dict[Cell, float]:
    """Returns the ratios of the synchronous cells that the goal covers and both have
    measured."""
    found = {
        cell: ratio(sides.get("distlite"), sides.get(goal.peer))
        for cell, sides in times.items()
        if cell.mode == "sync" and goal.covers(cell)
    }
    return {cell: value for cell, value in found.items() if value is not None}


def async_ratios(times: Times) -> dict[Cell, float]:
    """Returns distlite's asynchronous over synchronous times for small sizes."""
    found = {
        cell: ratio(
            sides.get("distlite"),
            times.get(cell._replace(mode="sync"), {}).get("distlite"),
        )
        for cell, sides in times.items()
        if cell.mode == "async" and cell.ranks > 1 and cell.size <= SMALL
    }
    return {cell: value for cell, value in found.items() if value is not None}


def worst(what: str, limit: float, found: Mapping[Cell, float]) -> Target:
    """Returns a target for the largest ratio, with its cell."""
    if not found:
        return Target(what, limit, None)
    cell = max(found, key=found.__getitem__)
    where = f"{cell.op} {size_text(cell.size)}, {cell.ranks} ranks {cell.cores}"
    return Target(f"{what}: {where}", limit, found[cell])


def targets_of(times: Times) -> list[Target]:
    """Returns the targets."""
    targets = [
        worst(f"{goal.what}, over {goal.peer}", goal.limit, ratios(times, goal))
        for goal in WORST_GOALS
    ]
    for goal in MEAN_GOALS:
        found = list(ratios(times, goal).values())
        mean = statistics.geometric_mean(found) if found else None
        targets.append(Target(f"{goal.what}, over {goal.peer}", goal.limit, mean))
    targets.append(worst("async over sync", ASYNC_LIMIT, async_ratios(times)))
    return targets


def cells_of(peer: str, options: argparse.Namespace) -> list[tuple[str, str, int]]:
    """Returns the cells that a peer runs."""
    if peer == "memory":
        return [("all_reduce", "sync", size) for size in options.sizes]
    return [
        (op, mode, size)
        for op in options.ops
        for size in ([0] if op == "barrier" else options.sizes)
        for mode in options.modes
    ]


def measure_all(
    runners: Sequence[Runner], options: argparse.Namespace
) -> dict[Cell, dict[str, list[float]]]:
    """Every round's microseconds."""
    found = defaultdict(lambda: defaultdict(list))
    cells = partial(cells_of, options=options)
    for ranks, peer, said in measure_in_turns(
        runners, options, "collectives_peer.py", cells
    ):
        op, mode, size, cores, microseconds = said
        found[Cell(ranks, op, mode, size, cores)][peer].append(microseconds)
    return found


def with_best(times: Times) -> Times:
    """Adds the fastest of the MPIs.  Times between two placements are left out."""
    added = {}
    for cell, sides in sorted(times.items()):
        mpis = [sides[peer] for peer in MPIS if peer in sides]
        best = {BEST: min(mpis)} if mpis else {}
        if cell.cores != CHANGED:
            added[cell] = {**sides, **best}
    return added


def print_behind(times: Times) -> None:
    """Prints the cells in which an MPI is faster."""
    rows = [
        [cell.ranks, cell.op, cell.mode, size_text(cell.size), cell.cores, ours, best]
        for cell, sides in times.items()
        if (ours := sides.get("distlite")) and (best := sides.get(BEST)) and ours > best
    ]
    header = ["ranks", "op", "mode", "size", "cores", "distlite us", f"{BEST} us"]
    print("behind", table(header, rows), sep="\n", end="\n\n")


def print_tables(times: Times, found: Found, peers: Sequence[str]) -> None:
    """One for each number of ranks and placement: microseconds, and ours over each
    peer's."""
    others = [peer for peer in [*peers, BEST] if peer != "distlite"]
    header = ["op", "mode", "size", *(f"{peer} us" for peer in peers)]
    header += [f"/ {peer}" for peer in others]
    for ranks, cores in sorted({(cell.ranks, cell.cores) for cell in times}):
        rows = [
            [cell.op, cell.mode, size_text(cell.size)]
            + [median_and_best(found[cell].get(peer)) for peer in peers]
            + [ratio(sides.get("distlite"), sides.get(peer)) for peer in others]
            for cell, sides in times.items()
            if (cell.ranks, cell.cores) == (ranks, cores)
        ]
        title = f"{ranks} ranks, {cores} cores" if cores else f"{ranks} ranks"
        print(title, table(header, rows), sep="\n", end="\n\n")


def median_and_best(values: Sequence[float] | None) -> str | None:
    """Of the rounds."""
    return f"{statistics.median(values):.3g} ({min(values):.3g})" if values else None


def curves(
    times: Times, x_name: str, y_of: Callable[[Cell, float], float]
) -> dict[str, dict[int, float]]:
    """Returns a line per peer through the given cells, without 0, which has no
    logarithm."""
    lines = defaultdict(dict)
    for cell, sides in times.items():
        for peer, microseconds in sides.items():
            if x := getattr(cell, x_name):
                lines[peer][x] = y_of(cell, microseconds)
    return {peer: dict(sorted(points.items())) for peer, points in lines.items()}


def draw(times: Times, path: Path) -> None:
    """Latency and bandwidth by size, for each number of ranks, and time by ranks: each
    a file, named after `path`."""
    views = {
        "latency": ("microseconds", lambda cell, us: us),
        "bandwidth": ("GB/s", lambda cell, us: cell.size / us / 1e3),
    }
    sync = {cell: sides for cell, sides in times.items() if cell.mode == "sync"}
    for ranks in sorted({cell.ranks for cell in sync}):
        for view, (label, y_of) in views.items():
            panels = panels_of(
                {cell: sides for cell, sides in sync.items() if cell.ranks == ranks},
                lambda cell: f"{cell.op}, {count_text(cell.ranks)} {cell.cores}",
                partial(curves, x_name="size", y_of=y_of),
            )
            plots.draw_sizes(named(path, f"{view}_{ranks}"), panels, y_label=label)
    draw_scaling(sync, named(path, "scaling"))


def named(path: Path, what: str) -> Path:
    """Returns the path of one of several pictures."""
    return path.with_stem(f"{path.stem}_{what}")


def count_text(ranks: int) -> str:
    """1 rank, 2 ranks."""
    return f"{ranks} rank" if ranks == 1 else f"{ranks} ranks"


def draw_scaling(sync: Times, path: Path) -> None:
    """all_reduce and barrier by the number of ranks."""
    if len({cell.ranks for cell in sync}) < 2:
        return
    panels = panels_of(
        {cell: s for cell, s in sync.items() if cell.op in ("all_reduce", "barrier")},
        lambda cell: f"{cell.op} {size_text(cell.size)} {cell.cores}",
        partial(curves, x_name="ranks", y_of=lambda cell, us: us),
    )
    plots.draw(path, panels, x_label="ranks", y_label="microseconds")


def panels_of(
    times: Times,
    title_of: Callable[[Cell], str],
    lines_of: Callable[[Times], dict[str, dict[int, float]]],
) -> dict[str, dict[str, dict[int, float]]]:
    """Cells by title, and each title's lines; no panel without any."""
    by_title = defaultdict(dict)
    for cell, sides in times.items():
        by_title[title_of(cell)][cell] = sides
    panels = {title: lines_of(some) for title, some in by_title.items()}
    return {title: lines for title, lines in panels.items() if lines}


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Collectives, beside other libraries.")
    parser.add_argument("--quick", action="store_true", help="see that it works")
    parser.add_argument("--ops", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--sizes", nargs="+", type=int, help="bytes")
    parser.add_argument("--ranks", nargs="+", type=int)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
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
    plots.add_option(parser, "collectives")
    options = parser.parse_args()
    options.sizes = options.sizes or (QUICK_SIZES if options.quick else SIZES)
    options.ranks = options.ranks or ([2] if options.quick else RANKS)
    options.rounds = options.rounds or (1 if options.quick else ROUNDS)
    seconds = QUICK_CELL_SECONDS if options.quick else CELL_SECONDS
    options.seconds = options.seconds or seconds
    return options


def main() -> int:
    """Exit code 1 if a target was missed; a quick run is too short to tell."""
    options = parse()
    runners = find_runners(options.peers, find_torch_python(options.torch_python))
    found = measure_all(runners, options)
    times = with_best(medians(found))
    print_tables(times, found, [runner.peer for runner in runners])
    print_behind(times)
    if not is_warm_loop(options):
        return 0
    targets = targets_of(times)
    print(report(targets), end="\n\n")
    save_cells("collectives", found, targets)
    draw(times, options.plot)
    missed = any(target.verdict == "FAIL" for target in targets)
    return int(missed and not options.quick)


if __name__ == "__main__":
    sys.exit(main())
