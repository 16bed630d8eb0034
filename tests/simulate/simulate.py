#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Builds the simulator and runs seeds of a stage: store, damage, join, collectives, or
elastic, which is in Python.

simulate.py --stage store --seeds 0:1000
simulate.py --stage store --seed 123 [--trace]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from c_build import Builder
from simulate_build import HERE, simulator


def seed_range(text: str) -> tuple[int, int]:
    first, last = text.split(":")
    return int(first), int(last)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stage", default="store")
    parser.add_argument("--seeds", type=seed_range, default=(0, 1000))
    parser.add_argument("--seed", type=int)
    parser.add_argument("--trace", action="store_true", help="print every call")
    parser.add_argument("--faults", default="0xffff", help="a mask of those to keep")
    arguments = parser.parse_args()
    stage, seed = arguments.stage, arguments.seed
    first, last = arguments.seeds if seed is None else (seed, seed + 1)
    if stage == "elastic":
        command = [sys.executable, HERE / "elastic_world.py", str(first), str(last)]
    elif seed is not None and arguments.trace:
        command = [simulator(Builder()), "--trace", stage, str(seed), arguments.faults]
    else:
        command = [simulator(Builder()), stage, str(first), str(last)]
    sys.exit(subprocess.run(command).returncode)


if __name__ == "__main__":
    main()
