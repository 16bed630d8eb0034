# SPDX-License-Identifier: BSD-3-Clause
"""torch.distributed on the backend "distlite" beside gloo, called from torch.

    python benchmarks/torch_backend.py            # --quick: fewer sizes and rounds

Two ranks have a group of each backend, and call `torch.distributed.all_reduce`, and a
step of DistributedDataParallel whose gradients take longer to sum up than to compute,
on one and the other by turns.  The median of the rounds counts.
"""

from __future__ import annotations

import argparse
import json
import sys
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
DDP_LIMIT = 0.4


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="torch on distlite, beside gloo.")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and rounds")
    parser.add_argument("--torch", help="an interpreter with torch and distlite")
    plots.add_option(parser, "torch_backend")
    return parser.parse_args()


def row_of(told: dict[str, Any]) -> dict[str, Any]:
    """The medians of a cell."""
    times = {name: median(each) for name, each in told["microseconds"].items()}
    part = ratio(times["distlite"], times["gloo"])
    return {"what": told["what"], "bytes": told["bytes"], **times, "ratio": part}


def targets_of(rows: list[dict[str, Any]]) -> list[Target]:
    """Those cells of which something is asked."""
    found = []
    for row in rows:
        limit = LIMITS.get((row["what"], row["bytes"]))
        if row["what"] == "DDP step":
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
    header = ["", "bytes", "gloo, us", "distlite, us", "ratio"]
    print(table(header, [list(row.values()) for row in rows]))
    targets = targets_of(rows)
    print(report(targets))
    print(f"results: {write_json('torch_backend', {'cells': told}, targets)}")
    draw(rows, options.plot)
    is_bad = not rows or any(target.verdict == "FAIL" for target in targets)
    return 1 if is_bad else 0


if __name__ == "__main__":
    sys.exit(main())
