# SPDX-License-Identifier: BSD-3-Clause
"""A training step with GradientReducer beside torch's DistributedDataParallel on gloo.

    python benchmarks/training.py --torch venv/bin/python      # --quick: fewer rounds

Ranks train the same model with the same batch, with one thread each.  The ways take
turns, GradientReducer's with buckets of several sizes; the median of the steps counts,
and "hidden" is the share of the communication that was beside other work.
"""

from __future__ import annotations

import argparse
import json
import sys

from measure import Target, find_torch_python, median, ratio, report, table, write_json
from ranks import Runner

SECONDS = 900.0
BUCKETS = (1, 4, 8, 25)  # MiB
# What GradientReducer and DistributedDataParallel take if nobody chooses.
DEFAULT = 25.0
PEER = "torch DDP, gloo"
LIMIT = 0.5


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Training steps, beside gloo.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--torch", help="an interpreter with torch and distlite")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--trace", default="-", help="file for a step's, to look at")
    parser.add_argument("--buckets", type=float, nargs="*", default=BUCKETS, help="MiB")
    return parser.parse_args()


def main() -> int:
    """0 unless a target was missed, or nothing was measured."""
    options = parse()
    python = find_torch_python(options.torch)
    if python is None:
        print("torch is not installed: nothing to measure")
        return 0
    rounds = "3" if options.quick else "15"
    words = [rounds, options.trace, *map(str, options.buckets)]
    lines = Runner("torch", python).run(
        "training_peer.py", options.ranks, words, SECONDS
    )
    told = [json.loads(line) for line in lines]
    gloo = next((median(row["seconds"]) for row in told if row["way"] == PEER), None)
    rows = [
        [
            row["way"],
            row["bucket"],
            (median(row["seconds"]) or 0) * 1e3,
            ratio(median(row["seconds"]), gloo),
            median(row["hidden"]),
        ]
        for row in told
    ]
    header = ["", "bucket, MiB", "step, ms", "of gloo's", "hidden"]
    print(table(header, rows), end="\n\n")
    targets = [
        Target(f"{way}, buckets of {bucket:g} MiB", LIMIT, times)
        for way, bucket, _, times, _ in rows
        if way.startswith("GradientReducer") and bucket == DEFAULT
    ]
    print(report(targets))
    print(f"results: {write_json('training', {'ways': told}, targets)}")
    is_bad = not rows or any(target.verdict == "FAIL" for target in targets)
    return 1 if is_bad else 0


if __name__ == "__main__":
    sys.exit(main())
