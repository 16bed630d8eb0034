# SPDX-License-Identifier: BSD-3-Clause
"""A group for each pair of ranks, and many small operations on each, beside torch.

    python benchmarks/pairs.py            1 to 8 ranks, some minutes
    python benchmarks/pairs.py --quick    2 and 3 ranks, few operations, one round

Every rank carries out 1,024 all_reduce of 10x10 float32 on each of its groups, one
after the other, then all begun at once.  Times are those of the slowest rank, and
medians of rounds in fresh processes, which the libraries take by turns.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
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
from ranks import Runner, find_runners

PEERS = ["distlite", "torch"]
STEPS = ["new_group", "sync", "async"]
TITLES = {
    "new_group": "making all groups",
    "sync": "1,024 all_reduce on each",
    "async": "the same, begun at once",
}
RANKS = [1, 2, 3, 4, 5, 6, 7, 8]
REPEATS = 1024
ROUNDS = 5
PATIENCE = 600
TARGET_RANKS = 4
LIMITS = {"new_group": 0.1, "sync": 0.01}

# Seconds by ranks, step and peer.
Times = dict[int, dict[str, dict[str, float | None]]]


def run_once(runner: Runner, ranks: int, repeats: int) -> dict[str, float]:
    """Each step's seconds on the slowest rank; nothing if a rank failed."""
    lines = runner.run("pairs_peer.py", ranks, [str(repeats)], PATIENCE)
    told = [json.loads(line) for line in lines]
    if len(told) < ranks:
        return {}
    return {step: max(each[step] for each in told) for step in STEPS}


def measure_all(runners: Sequence[Runner], options: argparse.Namespace) -> Times:
    """Medians over the rounds."""
    by_name = {runner.peer: runner for runner in runners}
    found = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for ranks in options.ranks:
        for number, peer in alternate(options.rounds, list(by_name)):
            print(f"{ranks} ranks, round {number + 1}: {peer}", file=sys.stderr)
            times = run_once(by_name[peer], ranks, options.repeats)
            for step, seconds in times.items():
                found[ranks][step][peer].append(seconds)
    return {
        ranks: {
            step: {peer: median(times) for peer, times in sides.items()}
            for step, sides in steps.items()
        }
        for ranks, steps in found.items()
    }


def print_tables(times: Times, peers: Sequence[str]) -> None:
    """One for each step, by ranks."""
    for step in STEPS:
        rows = []
        for ranks, steps in times.items():
            sides = steps[step]
            seconds = [sides.get(peer) for peer in peers]
            share = ratio(sides.get("distlite"), sides.get("torch"))
            rows.append([f"{ranks}", ranks * (ranks - 1) // 2, *seconds, share])
        header = ["ranks", "pairs", *(f"{peer}, s" for peer in peers), "/ torch"]
        print(TITLES[step], table(header, rows), sep="\n", end="\n\n")


def targets_of(times: Times) -> list[Target]:
    """What must be reached."""
    found = times.get(TARGET_RANKS, {})
    return [
        Target(
            f"{TARGET_RANKS} ranks, {TITLES[step]}, over torch",
            limit,
            ratio(
                found.get(step, {}).get("distlite"), found.get(step, {}).get("torch")
            ),
        )
        for step, limit in LIMITS.items()
    ]


def draw(times: Times, peers: Sequence[str], path: Path) -> None:
    """Seconds by ranks, a panel for each step."""
    panels = {
        TITLES[step]: {
            peer: {
                ranks: seconds
                for ranks, steps in times.items()
                if (seconds := steps[step].get(peer))
            }
            for peer in peers
        }
        for step in STEPS
    }
    plots.draw(path, panels, x_label="ranks", y_label="seconds")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="A group for each pair of ranks.")
    parser.add_argument("--quick", action="store_true", help="see that it works")
    parser.add_argument("--ranks", nargs="+", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--repeats", type=int, help="all_reduce on each group")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS)
    parser.add_argument("--torch-python", help="an interpreter with torch")
    plots.add_option(parser, "pairs")
    options = parser.parse_args()
    options.ranks = options.ranks or ([2, 3] if options.quick else RANKS)
    options.rounds = options.rounds or (1 if options.quick else ROUNDS)
    options.repeats = options.repeats or (16 if options.quick else REPEATS)
    return options


def main() -> int:
    """Exit code 1 if a target was missed."""
    options = parse()
    runners = find_runners(options.peers, find_torch_python(options.torch_python))
    times = measure_all(runners, options)
    peers = [runner.peer for runner in runners]
    print_tables(times, peers)
    targets = targets_of(times)
    print(report(targets), end="\n\n")
    print(f"results: {write_json('pairs', {'seconds': times}, targets)}")
    draw(times, peers, options.plot)
    return int(any(target.verdict == "FAIL" for target in targets))


if __name__ == "__main__":
    sys.exit(main())
