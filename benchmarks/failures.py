# SPDX-License-Identifier: BSD-3-Clause
"""The time from the death of a rank, or from a deadline, to the others' exceptions.

    python benchmarks/failures.py            3 to 64 ranks, some minutes
    python benchmarks/failures.py --hosts 64 256   a pretended host for each rank
    python benchmarks/failures.py --quick    3 ranks, one round

One rank is killed while all others wait for it, or does not come until their deadline
has passed.  The time of a round is that of its median rank and that of its slowest one.
The folder of the recordings is empty, or has those of 1,000 ranks that were killed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import plots
from failures_peer import DEADLINE, HOST, HOSTS, KILL
from measure import Target, find_torch_python, median, report, table, write_json
from processes import FOLDER
from ranks import Runner, find_runners

PEERS = ["distlite", "torch"]
RANKS = [3, 8, 16, 64]
KINDS = [KILL, DEADLINE]
STALE = 1000
ROUNDS = 10
PATIENCE = 900
# Milliseconds.
MEDIAN_LIMIT, WORST_LIMIT, DEADLINE_LIMIT = 50, 150, 50
# The median, by the most hosts that it holds for.
HOSTS_LIMITS = {64: 150, 256: 500}


class Cell(NamedTuple):
    """What is measured."""

    peer: str
    kind: str
    ranks: int
    stale: int
    place: str


# The milliseconds of all surviving ranks, and how many of them name the rank at fault,
# of each round.
Found = dict[Cell, list[tuple[list[float], int]]]


def measure_cell(
    runner: Runner, cell: Cell, folder: str
) -> list[tuple[list[float], int]]:
    """One round, with recordings in `folder`.  Says so if it could not be measured."""
    words = [cell.peer, str(cell.ranks), cell.kind, str(cell.stale), "1", cell.place]
    try:
        done = subprocess.run(
            [runner.python, str(FOLDER / "failures_peer.py"), *words],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env={
                **os.environ,
                "DISTLITE_RUNTIME_DIR": folder,
                "GLOO_SOCKET_IFNAME": "lo",
                "TORCH_CPP_LOG_LEVEL": "ERROR",
            },
        )
    except subprocess.TimeoutExpired:
        print(f"{cell}: out of time")
        return []
    if done.returncode != 0:
        print(f"{cell}: {done.stderr[-2000:]}")
    rounds = [json.loads(line) for line in done.stdout.splitlines()]
    return [(each["ms"], each["named"]) for each in rounds]


def measure_all(runners: Sequence[Runner], cells: Sequence[Cell], rounds: int) -> Found:
    """Round after round, of which each has every cell once.

    So all peers meet the same moments of the machine.  Cells among stale recordings
    share them.  Ctrl-C keeps what has been measured.
    """
    found: Found = {}
    place = "/dev/shm" if os.path.isdir("/dev/shm") else None
    folders = {
        count: tempfile.mkdtemp(prefix="distlite-benchmark-", dir=place)
        for count in {cell.stale for cell in cells}
    }
    try:
        for number in range(rounds):
            for cell in cells:
                print(f"round {number + 1}:", *cell, file=sys.stderr)
                runner = next(r for r in runners if r.peer == cell.peer)
                times = measure_cell(runner, cell, folders[cell.stale])
                found.setdefault(cell, []).extend(times)
    except KeyboardInterrupt:
        print("interrupted: the table has what there is", file=sys.stderr)
    finally:
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)
    return found


def cells_of(
    runners: Sequence[Runner],
    rank_counts: Sequence[int],
    host_counts: Sequence[int],
    stale: int,
) -> list[Cell]:
    """In the order of the table."""
    if host_counts:
        return [
            Cell(runner.peer, KILL, hosts, 0, HOSTS)
            for hosts in host_counts
            for runner in runners
        ]
    return [
        Cell(runner.peer, kind, ranks, count, HOST)
        for ranks in rank_counts
        for kind in KINDS
        for runner in runners
        for count in (sorted({0, stale}) if runner.peer == "distlite" else [0])
    ]


def numbers(
    rounds: Sequence[tuple[list[float], int]],
) -> tuple[float | None, float | None]:
    """The median and the worst over all ranks of all rounds."""
    times = [time for ranks, _ in rounds for time in ranks]
    return median(times), max(times, default=None)


def print_table(found: Found) -> None:
    """A row per cell."""
    rows = [
        [
            *cell,
            len(rounds),
            *numbers(rounds),
            median(max(ranks) for ranks, _ in rounds),
            min((named for _, named in rounds), default=None),
        ]
        for cell, rounds in found.items()
    ]
    header = ["peer", "what", "ranks", "stale recordings", "place", "rounds"]
    header += ["median ms", "worst", "slowest rank", "least that name it"]
    print(table(header, rows), end="\n\n")


def draw(found: Found, path: Path) -> None:
    """The median and the worst time by the number of ranks."""
    panels = defaultdict(lambda: defaultdict(dict))
    for cell, rounds in found.items():
        name = f"{cell.peer}, {cell.stale} stale recordings"
        for what, number in zip(("median", "worst"), numbers(rounds), strict=True):
            if number is not None:
                line = name if cell.stale else cell.peer
                panels[f"{cell.kind}: {what}"][line][cell.ranks] = number
    plots.draw(path, panels, x_label="ranks", y_label="milliseconds")


def targets_of(found: Found) -> list[Target]:
    """What must be reached."""
    targets = []
    for cell, rounds in found.items():
        if cell.peer != "distlite":
            continue
        middle, worst = numbers(rounds)
        what = f"{cell.kind}, {cell.ranks} ranks, {cell.stale} stale"
        if cell.place == HOSTS:
            most = min((h for h in HOSTS_LIMITS if h >= cell.ranks), default=256)
            limit = HOSTS_LIMITS[most]
            named = min(named for _, named in rounds) if rounds else 0
            what = f"{cell.kind}, {cell.ranks} hosts"
            targets.append(Target(f"{what}: median", limit, middle, "ms"))
            unnamed = cell.ranks - 1 - named
            targets.append(Target(f"{what}: without the name", 0, unnamed, "ranks"))
        elif cell.kind == KILL:
            targets.append(Target(f"{what}: median", MEDIAN_LIMIT, middle, "ms"))
            targets.append(Target(f"{what}: worst", WORST_LIMIT, worst, "ms"))
        else:
            targets.append(Target(f"{what}: worst", DEADLINE_LIMIT, worst, "ms"))
    return targets


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Failures, beside torch's gloo.")
    parser.add_argument("--quick", action="store_true", help="see that it works")
    parser.add_argument("--ranks", nargs="+", type=int)
    parser.add_argument(
        "--hosts", nargs="+", type=int, default=[], help="instead: a rank on each"
    )
    parser.add_argument("--stale", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS)
    parser.add_argument("--torch-python", help="an interpreter with torch")
    plots.add_option(parser, "failures")
    options = parser.parse_args()
    options.ranks = options.ranks or ([3] if options.quick else RANKS)
    options.rounds = options.rounds or (1 if options.quick else ROUNDS)
    if options.stale is None:
        options.stale = 50 if options.quick else STALE
    return options


def main() -> int:
    """Exit code 1 if a target was missed."""
    options = parse()
    runners = find_runners(options.peers, find_torch_python(options.torch_python))
    cells = cells_of(runners, options.ranks, options.hosts, options.stale)
    found = measure_all(runners, cells, options.rounds)
    print_table(found)
    targets = targets_of(found)
    print(report(targets), end="\n\n")
    rows = [
        {
            **cell._asdict(),
            "ms": [times for times, _ in rounds],
            "named": [named for _, named in rounds],
        }
        for cell, rounds in found.items()
    ]
    print(f"results: {write_json('failures', {'cells': rows}, targets)}")
    draw(found, options.plot)
    return int(any(target.verdict == "FAIL" for target in targets))


if __name__ == "__main__":
    sys.exit(main())
