# SPDX-License-Identifier: BSD-3-Clause
"""What a change of members costs, in time; elastic_beside.py has what others take.

    python benchmarks/elastic.py            8 and 64 ranks, 16 pretended hosts, 1 GiB
    python benchmarks/elastic.py --quick    3 ranks, one round

A world loses a member that is killed in a step, without and with a spare, or gains one
that has imported all it needs; the time ends with the first step that all of them have
finished.  Rounds have each cell once.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from measure import REPOSITORY, Target, median, report, table, write_json
from processes import FOLDER

sys.path.insert(0, str(REPOSITORY / "tests"))
from launching import TOKEN, kill_all

PEER = str(FOLDER / "elastic_peer.py")
PATIENCE = 300
LOSE, SPARE, GAIN, COPY, PAY = "lose", "spare", "gain", "copy", "pay"
# Milliseconds from the event to the first step, by kind, ranks and hosts; and of pause.
LIMITS = {(LOSE, 8, 1): 30, (LOSE, 64, 1): 150, (LOSE, 16, 16): 1500, (SPARE, 8, 1): 50}
PAUSE_LIMIT = 20


class Cell(NamedTuple):
    """What is measured."""

    kind: str
    ranks: int
    hosts: int = 1
    others: int = 0
    mib: int = 0


# By name, the numbers of each round.
Found = dict[Cell, dict[str, list[float]]]


def run_all(
    words: list[str],
    settings: Mapping[str, str] | None = None,
    patience: float = PATIENCE,
) -> str:
    """Returns the output; none of the processes is left running."""
    token = uuid.uuid4().hex
    try:
        return subprocess.run(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **(settings or {}), TOKEN: token},
            timeout=patience,
        ).stdout
    finally:
        # torchrun and mpirun start their ranks in sessions of their own.
        kill_all(token)


def run_once(cell: Cell) -> dict[str, float]:
    """One round; says so if it could not be measured."""
    kind = LOSE if cell.kind == SPARE else cell.kind
    words = [kind, *map(str, cell[1:])]
    try:
        said = run_all([sys.executable, PEER, *words])
        return numbers_of(cell.kind, json.loads(said.splitlines()[-1]))
    except (subprocess.TimeoutExpired, IndexError, ValueError):
        print(f"{cell}: no result", file=sys.stderr)
        return {}


def numbers_of(kind: str, told: list[dict[str, Any]]) -> dict[str, float]:
    """Of what the members saw."""

    def all_of(name: str) -> list[float]:
        return [each[name] for each in told if each.get(name) is not None]

    if kind == PAY:
        return {
            "us of a step": min(all_of("step")) * 1e6,
            "us of its all_reduce": min(all_of("bare")) * 1e6,
        }
    if kind == COPY:
        return {
            "ms of restore": max(all_of("restore")) * 1e3,
            "ms of a message": max(all_of("message")) * 1e3,
        }
    [event] = all_of("event")
    return {
        "ms to the first step": (max(all_of("first")) - event) * 1e3,
        "ms of pause": max(all_of("pause")) * 1e3,
    }


def cells_of(is_quick: bool) -> list[Cell]:
    """In the order of the table."""
    if is_quick:
        few = [Cell(LOSE, 3), Cell(SPARE, 3, others=1), Cell(GAIN, 3, others=1)]
        return [*few, Cell(COPY, 2, 1, 1, 16), Cell(PAY, 3)]
    return [
        *(Cell(LOSE, 8), Cell(LOSE, 64), Cell(LOSE, 16, 16), Cell(SPARE, 8, others=1)),
        Cell(GAIN, 8, others=1),
        *(Cell(COPY, 2, 1, newcomers, 1024) for newcomers in (1, 3)),
        *(Cell(PAY, 2), Cell(PAY, 8)),
    ]


def measure(cells: list[Cell], rounds: int) -> Found:
    """Round after round, of which each has every cell once."""
    found: Found = {}
    for number in range(rounds):
        print(f"round {number + 1}", file=sys.stderr)
        results = [(cell, run_once(cell)) for cell in cells]
        for cell, result in results:
            found.setdefault(cell, {})
            for name, value in result.items():
                found[cell].setdefault(name, []).append(value)
    return found


def targets_of(found: Found) -> list[Target]:
    """What must be reached."""
    targets = []
    for cell, limit in LIMITS.items():
        match = next((found[each] for each in found if each[:3] == cell), None)
        if match is not None:
            what = f"{cell[0]}, {cell[1]} ranks, {cell[2]} host(s)"
            times = match.get("ms to the first step") or [math.inf]
            targets.append(Target(what, limit, median(times), "ms"))
    for cell, numbers in found.items():
        if cell.kind == GAIN:
            pauses = numbers.get("ms of pause") or [math.inf]
            targets.append(Target("gain: pause", PAUSE_LIMIT, median(pauses), "ms"))
    return targets


def main() -> int:
    """Exit code 1 if a target was missed."""
    parser = argparse.ArgumentParser(description="Changes of members.")
    parser.add_argument("--quick", action="store_true", help="see that it works")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--kinds", nargs="+", choices=[LOSE, SPARE, GAIN, COPY, PAY])
    options = parser.parse_args()
    cells = [
        each
        for each in cells_of(options.quick)
        if options.kinds is None or each.kind in options.kinds
    ]
    rounds = options.rounds or (1 if options.quick else 5)
    found = measure(cells, rounds)
    rows = [
        [*cell, name, len(values), median(values), min(values), max(values)]
        for cell, numbers in found.items()
        for name, values in numbers.items()
    ]
    header = [*Cell._fields, "what", "rounds", "median", "least", "largest"]
    print(table(header, rows), end="\n\n")
    targets = targets_of(found)
    print(report(targets), end="\n\n")
    told = [{**cell._asdict(), **numbers} for cell, numbers in found.items()]
    print(f"results: {write_json('elastic', {'cells': told}, targets)}")
    return int(any(target.verdict == "FAIL" for target in targets))


if __name__ == "__main__":
    sys.exit(main())
