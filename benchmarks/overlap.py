# SPDX-License-Identifier: BSD-3-Clause
"""How much of the communication GradientReducer hides behind the backward pass.

    python benchmarks/overlap.py            # --quick: fewer steps

A step with overlap takes, at best, as long as the longer of its two halves: computing,
and communication.  Four kinds of steps take turns: computing alone, communication
alone, one after the other, and overlapped; of each the median counts.  Two ranks, and
two kinds of computing:

- "waiting": an accelerator computes, and the rank's core waits.  This is what overlap
  is for, and what the target is about: communication has a core to itself.
- "numpy": the rank computes on its own core.  With as many ranks as cores,
  communication through shared memory needs the very cores that compute, so that there
  is little to win; it is measured to show that, and has no target.

On a busy machine the medians depend on its other load, which is in the file with the
results.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import plots
from measure import Target, median, ratio, report, table, write_json
from ranks import Runner

KINDS = ("waiting", "numpy")
RATIOS = (0.25, 0.5, 1.0, 2.0, 4.0)
RANKS = 2
# Of the longer half.
LIMIT = 1.1
SECONDS = 600.0


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Overlap of the backward pass.")
    parser.add_argument("--quick", action="store_true", help="fewer steps and ratios")
    parser.add_argument("--mebibytes", type=int, default=256, help="of all gradients")
    plots.add_option(parser, "overlap")
    return parser.parse_args()


def measure_all(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each kind of computing and each ratio."""
    runner = Runner("distlite", sys.executable)
    rounds = 9 if options.quick else 25
    ratios = (0.5, 1.0, 2.0) if options.quick else RATIOS
    found = []
    for kind in KINDS:
        words = [kind, options.mebibytes, rounds, *ratios]
        lines = runner.run("overlap_peer.py", RANKS, [*map(str, words)], SECONDS)
        found += [row_of(json.loads(line)) for line in lines]
    return found


def row_of(told: dict[str, Any]) -> dict[str, Any]:
    """Medians in seconds, and how far the step is from the longer half."""
    row = {way: median(times) for way, times in told["seconds"].items()}
    longer = max(row["compute"], row["communication"])
    return {
        "kind": told["kind"],
        "ratio": told["ratio"],
        **row,
        "of the longer half": ratio(row["overlapped"], longer),
        "without overlap": ratio(row["one after the other"], longer),
    }


def targets_of(rows: list[dict[str, Any]]) -> list[Target]:
    """One for each ratio of the kind that overlap is for."""
    return [
        Target(
            f"step of the longer half, computing {row['ratio']:g} x communication",
            LIMIT,
            row["of the longer half"],
        )
        for row in rows
        if row["kind"] == "waiting"
    ]


def print_table(rows: list[dict[str, Any]]) -> None:
    """Milliseconds, and ratios."""
    times = ("compute", "communication", "one after the other", "overlapped")
    parts = ("without overlap", "of the longer half")
    cells = [
        [
            f"{row['kind']} {row['ratio']:g}",
            *(row[name] * 1e3 for name in times),
            *(row[name] for name in parts),
        ]
        for row in rows
    ]
    header = [
        "computing",
        *(f"{name} ms" for name in times),
        "/ longer, without",
        "/ longer, with",
    ]
    print(table(header, cells), end="\n\n")


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """By how long computing takes, a panel for each kind."""
    panels = {
        f"computing: {kind}": {
            line: {
                round(row["ratio"] * 100): row[name]
                for row in rows
                if row["kind"] == kind
            }
            for line, name in (
                ("one after the other", "without overlap"),
                ("overlapped", "of the longer half"),
            )
        }
        for kind in KINDS
    }
    labels = {"x_label": "computing, % of communication"}
    labels["y_label"] = "step / its longer half"
    plots.draw(path, panels, **labels)


def main() -> int:
    """Exit code 1 if a target was missed."""
    options = parse()
    rows = measure_all(options)
    print_table(rows)
    targets = targets_of(rows)
    print(report(targets), end="\n\n")
    print(f"results: {write_json('overlap', {'rows': rows}, targets)}")
    draw(rows, options.plot)
    return int(any(target.verdict != "pass" for target in targets))


if __name__ == "__main__":
    sys.exit(main())
