# SPDX-License-Identifier: BSD-3-Clause
"""torch.distributed on the backend "distlite" beside gloo, called from torch.

    python benchmarks/torch_backend.py            # --quick: fewer sizes and rounds

Two ranks have a group of each backend, and take turns with torch's `all_reduce` and
with steps of training: DistributedDataParallel trains three models that compute little,
one of which uses a part of its parameters in each step, and one that computes about as
long as the all_reduce of its gradients takes; FSDP2 trains the latter.  A step is also
taken without communication, which no backend makes faster: alone, and by DDP with a
hook that leaves each bucket as it is, the floor.  The median of the rounds counts.
Each row says whether the ranks' cores share a cache (placement.py).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import plots
from measure import (
    Target,
    find_torch_python,
    median,
    ratio,
    report,
    table,
    write_json,
)
from ranks import Runner

RANKS = 2
SECONDS = 900.0
SIZES = (8, 64, 1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 23, 100 << 20)
LIMITS = {("all_reduce", 8): 0.1, ("all_reduce", 1 << 20): 0.15}
LIMITS[("all_reduce", 100 << 20)] = 0.4
# Of a step of DDP, of which computing is no more than this part of gloo's time.
DDP_LIMIT, MOST_COMPUTING = 0.4, 0.2
SIDES = ("gloo", "distlite", "alone", "floor")
HEADER = (
    "",
    "bytes",
    "gloo, us",
    "distlite, us",
    "alone, us",
    "floor, us",
    "alone",
    "ratio",
    "cores",
)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="torch on distlite, beside gloo.")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and rounds")
    parser.add_argument("--torch", help="an interpreter with torch and distlite")
    plots.add_option(parser, "torch_backend")
    return parser.parse_args()


def cores_text(placements: list[str]) -> str:
    """How the ranks' cores lay: near, or 12/21 near."""
    most, count = Counter(placements).most_common(1)[0]
    return most if count == len(placements) else f"{count}/{len(placements)} {most}"


def row_of(told: dict[str, Any]) -> dict[str, Any]:
    """The medians of a cell, and of gloo's time the part that is computing."""
    times = {name: median(told["microseconds"].get(name, ())) for name in SIDES}
    return {
        "what": told["what"],
        "bytes": told["bytes"],
        **times,
        "computing": ratio(times["alone"], times["gloo"]),
        "ratio": ratio(times["distlite"], times["gloo"]),
        "cores": cores_text(told["placements"]),
    }


def targets_of(rows: list[dict[str, Any]]) -> list[Target]:
    """Returns the targets of the cells that have one."""
    found = []
    for row in rows:
        limit = LIMITS.get((row["what"], row["bytes"]))
        if row["what"].startswith("DDP") and row["computing"] <= MOST_COMPUTING:
            limit = DDP_LIMIT
        if limit is not None:
            what = f"{row['what']} of {row['bytes']} bytes, of gloo's time"
            found.append(Target(what, limit, row["ratio"]))
    return found


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """all_reduce by size."""
    lines = {
        name: {row["bytes"]: row[name] for row in rows if row["what"] == "all_reduce"}
        for name in ("gloo", "distlite")
    }
    title = f"torch.distributed.all_reduce, {RANKS} ranks"
    plots.draw_sizes(path, {title: lines})


def main() -> int:
    """0 unless a target was missed, or nothing was measured."""
    options = parse()
    python = find_torch_python(options.torch)
    if python is None:
        print("torch is not installed: nothing to measure")
        return 0
    sizes = (8, 1 << 20, 100 << 20) if options.quick else SIZES
    words = ["7" if options.quick else "21", *map(str, sizes)]
    runner = Runner("torch", python)
    lines = runner.run("torch_backend_peer.py", RANKS, words, SECONDS)
    told = [json.loads(line) for line in lines]
    rows = [row_of(each) for each in told]
    print(table(HEADER, [list(row.values()) for row in rows]))
    targets = targets_of(rows)
    print(report(targets))
    print(f"results: {write_json('torch_backend', {'cells': told}, targets)}")
    draw(rows, options.plot)
    is_bad = not rows or any(target.verdict == "FAIL" for target in targets)
    return 1 if is_bad else 0


if __name__ == "__main__":
    sys.exit(main())
