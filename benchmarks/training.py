# SPDX-License-Identifier: BSD-3-Clause
"""A training step with GradientReducer beside torch's DistributedDataParallel on gloo.

    python benchmarks/training.py --torch venv/bin/python      # --quick: fewer rounds

Ranks train the same model with the same batch, with one thread each: wide layers, a
small network, and a large table with a small network.  The ways take turns,
GradientReducer's with buckets of several sizes; the median of the steps counts.  The
targets are for models of which communication is more than half of gloo's step.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from measure import Target, find_torch_python, median, ratio, report, table, write_json
from ranks import Runner

SECONDS = 900.0
MODELS = ("wide", "small", "table")
BUCKETS = (1, 4, 8, 25)  # MiB
# The default of GradientReducer and DistributedDataParallel.
DEFAULT = 25.0
PEER = "torch DDP, gloo"
ALONE = "torch DDP, communication left out"
LIMIT = 0.5
# Communication dominates where computing alone takes at most this share of gloo's step.
COMPUTING = 0.5


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Training steps, beside gloo.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--torch", help="an interpreter with torch and distlite")
    parser.add_argument("--models", nargs="*", choices=MODELS, default=MODELS)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--trace", default="-", help="file for a step's, to look at")
    parser.add_argument("--buckets", type=float, nargs="*", default=BUCKETS, help="MiB")
    return parser.parse_args()


def measure(
    options: argparse.Namespace, python: str, model: str
) -> tuple[list[dict[str, Any]], list[Target]]:
    """Prints the table of a model."""
    trace = options.trace if model == options.models[0] else "-"
    rounds = "3" if options.quick else "15"
    words = [model, rounds, trace, *map(str, options.buckets)]
    lines = Runner("torch", python).run(
        "training_peer.py", options.ranks, words, SECONDS
    )
    told = [{"model": model, **json.loads(line)} for line in lines]
    steps = {row["way"]: median(row["seconds"]) for row in told}
    gloo = steps.get(PEER)
    rows = [
        [
            row["way"],
            row["bucket"],
            (median(row["seconds"]) or 0) * 1e3,
            ratio(median(row["seconds"]), gloo),
        ]
        for row in told
    ]
    header = [model, "bucket, MiB", "step, ms", "of gloo's"]
    print(table(header, rows), end="\n\n", flush=True)
    if (ratio(steps.get(ALONE), gloo) or 0) > COMPUTING:
        return told, []
    targets = [
        Target(f"{model}: {way}, buckets of {bucket:g} MiB", LIMIT, times)
        for way, bucket, _, times in rows
        if way.startswith("GradientReducer") and bucket == DEFAULT
    ]
    return told, targets


def main() -> int:
    """0 unless a target was missed, or nothing was measured."""
    options = parse()
    python = find_torch_python(options.torch)
    if python is None:
        print("torch is not installed: nothing to measure")
        return 0
    told: list[dict[str, Any]] = []
    targets: list[Target] = []
    for model in options.models:
        ways, found = measure(options, python, model)
        told += ways
        targets += found
    print(report(targets))
    print(f"results: {write_json('training', {'ways': told}, targets)}")
    is_bad = not told or any(target.verdict == "FAIL" for target in targets)
    return 1 if is_bad else 0


if __name__ == "__main__":
    sys.exit(main())
