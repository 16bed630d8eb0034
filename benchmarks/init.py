# SPDX-License-Identifier: BSD-3-Clause
"""The time and memory that a job takes before and after its work, beside other
libraries.

    python benchmarks/init.py            1, 2, 4 and 8 ranks, some minutes
    python benchmarks/init.py --quick    2 ranks, one round

The time of a step is that of its slowest rank, the memory the mean of the ranks, and
all of it the median of the rounds.  The step init begins when all ranks have imported
distlite or torch.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
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

PEERS = ["distlite", "openmpi", "mpich", "torch"]
TOTAL, MEMORY = "import to the first result", "memory"
STEPS = ["import", "init", "first all_reduce", TOTAL, "new_group", "destroy"]
STEPS += ["stateless_group", MEMORY]
RANKS = [1, 2, 4, 8]
ROUNDS = 7
PATIENCE = 300
TARGET_RANKS, TARGET_LIMIT = 8, 0.1

# Milliseconds, or MiB, by step and peer, for each number of ranks.
Costs = dict[int, dict[str, dict[str, float]]]


def run_once(runner: Runner, ranks: int) -> dict[str, float]:
    """Each step's cost; nothing if a rank failed."""
    lines = runner.run("init_peer.py", ranks, [], PATIENCE)
    told = [json.loads(line) for line in lines]
    if len(told) < ranks:
        return {}
    costs = {step: max(t[step] for t in told) for step in STEPS if step in told[0]}
    costs[MEMORY] = statistics.mean(t[MEMORY] for t in told)
    # The first rank is already waiting when the last one's interpreter has started.
    first, last = min(t["start"] for t in told), max(t["end"] for t in told)
    return {**costs, TOTAL: (last - first) * 1e3}


def measure_all(
    runners: Sequence[Runner], rank_counts: Sequence[int], rounds: int
) -> Costs:
    """Medians over the rounds."""
    by_name = {runner.peer: runner for runner in runners}
    found = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for ranks in rank_counts:
        for number, peer in alternate(rounds, list(by_name)):
            print(f"{ranks} ranks, round {number + 1}: {peer}", file=sys.stderr)
            for step, cost in run_once(by_name[peer], ranks).items():
                found[ranks][step][peer].append(cost)
    return {
        ranks: {
            step: {peer: median(costs) for peer, costs in steps[step].items()}
            for step in STEPS
            if step in steps
        }
        for ranks, steps in found.items()
    }


def print_tables(costs: Costs, peers: Sequence[str]) -> None:
    """One for each number of ranks."""
    others = [peer for peer in peers if peer != "distlite"]
    header = ["step", "", *peers, *(f"/ {peer}" for peer in others)]
    for ranks, steps in costs.items():
        rows = [
            [step, "MiB per rank" if step == MEMORY else "ms"]
            + [sides.get(peer) for peer in peers]
            + [ratio(sides.get("distlite"), sides.get(peer)) for peer in others]
            for step, sides in steps.items()
        ]
        print(f"{ranks} ranks", table(header, rows), sep="\n", end="\n\n")


def draw(costs: Costs, path: Path) -> None:
    """Each step's time by the number of ranks."""
    panels = defaultdict(lambda: defaultdict(dict))
    for ranks, steps in costs.items():
        for step, sides in steps.items():
            for peer, cost in sides.items() if step != MEMORY else ():
                panels[step][peer][ranks] = cost
    plots.draw(path, panels, x_label="ranks", y_label="milliseconds")


def targets_of(costs: Costs) -> list[Target]:
    """What must be reached."""
    sides: Mapping[str, float] = costs.get(TARGET_RANKS, {}).get(TOTAL, {})
    what = f"{TARGET_RANKS} ranks, {TOTAL}, over torch"
    return [
        Target(what, TARGET_LIMIT, ratio(sides.get("distlite"), sides.get("torch")))
    ]


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Start and end, beside other libraries."
    )
    parser.add_argument("--quick", action="store_true", help="see that it works")
    parser.add_argument("--ranks", nargs="+", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS)
    parser.add_argument("--torch-python", help="an interpreter with torch")
    plots.add_option(parser, "init")
    options = parser.parse_args()
    options.ranks = options.ranks or ([2] if options.quick else RANKS)
    options.rounds = options.rounds or (1 if options.quick else ROUNDS)
    return options


def main() -> int:
    """Exit code 1 if a target was missed."""
    options = parse()
    runners = find_runners(options.peers, find_torch_python(options.torch_python))
    costs = measure_all(runners, options.ranks, options.rounds)
    print_tables(costs, [runner.peer for runner in runners])
    targets = targets_of(costs)
    print(report(targets), end="\n\n")
    print(f"results: {write_json('init', {'costs': costs}, targets)}")
    draw(costs, options.plot)
    return int(any(target.verdict == "FAIL" for target in targets))


if __name__ == "__main__":
    sys.exit(main())
