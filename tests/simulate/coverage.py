#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints which share of the lines of the core's files the seeds of each stage reach.

coverage.py [--seeds N] [STAGE ...]
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ["DISTLITE_COVERAGE"] = "1"

from c_build import ROOT, Builder
from simulate_build import SOURCES, WRAPPED

STAGES = ("store", "join", "collectives")

# What the stages are about; the rest of the core has tests of other kinds.
LAYERS = ("store/", "net/", "pg/cpu/", "pg/agree/", "pg/group", "pg/lane", "pg/work")


def outside_library(builder: Builder) -> Path:
    """Returns gcov's library, whose own calls go to the real system."""
    command = [*builder.compiler, "-print-file-name=libgcov.a"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    target = builder.folder / "libgcov_outside.a"
    renames = [f"--redefine-sym={name}=__real_{name}" for name in WRAPPED]
    subprocess.run(["objcopy", *renames, found.stdout.strip(), target], check=True)
    return target


def build() -> tuple[Builder, Path]:
    builder = Builder()
    builder.flags.append("-DDL_COVERAGE")
    builder.folder.mkdir(parents=True, exist_ok=True)
    builder.libraries.insert(0, str(outside_library(builder)))
    return builder, builder.program(*SOURCES, wraps=WRAPPED, named="simulate")


def run_stage(builder: Builder, program: Path, stage: str, seeds: int) -> None:
    for old in builder.folder.rglob("*.gcda"):
        old.unlink()
    subprocess.run([program, stage, "0", str(seeds)], cwd=ROOT, check=True)


Lines = dict[int, bool]


def reached(builder: Builder) -> dict[str, Lines]:
    """Returns by file of the core whether each of its lines was reached."""
    files: dict[str, Lines] = defaultdict(dict)
    counts = sorted((builder.folder / "csrc").rglob("*.gcda"))
    for data in counts:
        command = ["gcov", "--json-format", "--stdout", data]
        done = subprocess.run(command, capture_output=True, cwd=ROOT, check=True)
        text = done.stdout
        text = gzip.decompress(text) if text[:2] == b"\x1f\x8b" else text
        for file in json.loads(text)["files"]:
            name = file["file"].removeprefix(f"{ROOT}/")
            for line in file["lines"] if name.endswith(".c") else ():
                number = line["line_number"]
                seen = files[name].get(number, False)
                files[name][number] = seen or line["count"] > 0
    return files


def percent(lines: Lines | None) -> str:
    return f"{100 * sum(lines.values()) / len(lines):.0f}" if lines else ""


def in_layers(name: str) -> bool:
    return name.removeprefix("csrc/").startswith(LAYERS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--missing", action="store_true", help="list the lines")
    parser.add_argument("stages", nargs="*", default=STAGES)
    arguments = parser.parse_args()
    builder, program = build()
    found = {}
    for stage in arguments.stages:
        run_stage(builder, program, stage, arguments.seeds)
        found[stage] = reached(builder)
    names = {name for files in found.values() for name in files if in_layers(name)}
    print("| file | lines |", " | ".join(found), "| any |")
    for name in sorted(names):
        every: Lines = {}
        for files in found.values():
            for number, seen in files.get(name, {}).items():
                every[number] = every.get(number, False) or seen
        parts = [percent(files.get(name)) for files in found.values()]
        title = name.removeprefix("csrc/")
        print(f"| {title} | {len(every)} |", " | ".join([*parts, percent(every)]), "|")
        if arguments.missing:
            print("   ", [number for number in sorted(every) if not every[number]])


if __name__ == "__main__":
    main()
