# SPDX-License-Identifier: BSD-3-Clause
"""Some seeds of each stage, their traces, and planted faults."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import mutants
from c_build import Builder, emulated, sanitizer
from simulate_build import simulator

# Coroutines are not known to ThreadSanitizer, and not to QEMU's helper threads.
pytestmark = [
    pytest.mark.skipif(
        "thread" in sanitizer() or bool(emulated()),
        reason="the simulator has coroutines",
    ),
    # The first one builds the core, or waits until another run has built it.
    pytest.mark.limit(600),
]


def run(*arguments: str, program: Path | None = None) -> str:
    builder = Builder()
    done = subprocess.run(
        [program or simulator(builder), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env=builder.environment(),
    )
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr
    return done.stdout


def test_the_store_passes_some_seeds() -> None:
    assert "500 seeds, 0 failed" in run("store", "0", "500")


# The server's host loses changes that a client knows of, or all of a new journal (346);
# the server is killed while it starts; a disk is still slow when that fault has ended.
# A rank that failed because of another one is itself named to a third; a rank that is
# started twice is in two lists with different processes, or takes the connection of its
# twin; a rank that has timed out is named by those that lose it; two ranks are started
# twice; the ranks that have lost a killed one are absent to those beside a twin; a rank
# that has left in order is told as lost before its connection has arrived; ranks that
# have left lose what they sent (114, 195, 282); an operation is waited for long after
# its end; a name has a capital. A leader that has too few descriptors tells the others
# that they have; it times out a moment after those that wait for it. A leader whose
# member takes no messages leaves in the store whom it has lost; what ranks left there
# when they waited for each other is not followed round and round (4322, 4566, 4730). An
# operation that times out names whom an earlier one waits for, which has timed out a
# moment before (4394); a rank that has failed closes its window (690); the lock of a
# window is not awaited for more than a second longer when its host has crashed (2439).
# A member that has not answered its leader yet finds in the store why that has ended
# (6626); marks of the leaders that have come are looked at before one of them may clear
# them (29409); what a rank has left, and deletes, is not awaited for a second (93953).
# The world itself: a server that a fault kills while it stops has ended, too (61429),
# and so has one whose host crashes then (238289); each call of a window has a deadline
# of its own (924). A server that has no descriptor for the folder of its journal does
# not replace that (204143); one that starts with less than the whole of a damaged
# journal may replace it at once (738), and its disk is not full any more (4451).
# The thread that tells other hosts ends when its last two wake-ups are read as one
# (20677).
@pytest.mark.parametrize(
    ("stage", "seed"),
    [
        *(
            ("store", seed)
            for seed in (163, 210, 346, 1848, 36854, 41075, 60328, 61429)
        ),
        *(("store", seed) for seed in (204143, 238289)),
        *(
            ("join-apart", seed)
            for seed in (72, 114, 263, 288, 449, 452, 1276, 1758, 3682)
        ),
        *(("join-apart", seed) for seed in (3815, 4988)),
        *(("collectives-apart", seed) for seed in (56, 97, 114, 195, 282, 690, 1352)),
        *(("join", seed) for seed in (1877, 3649, 4322, 4566, 4730, 6626)),
        *(("join", seed) for seed in (29409, 93953)),
        *(("damage", seed) for seed in (738, 4451)),
        *(("collectives", seed) for seed in (353, 924, 2439, 4394, 20677)),
    ],
)
def test_a_seed_that_failed_once_passes(stage: str, seed: int) -> None:
    assert "1 seeds, 0 failed" in run(stage, str(seed), str(seed + 1))


@pytest.mark.parametrize(
    ("stage", "count"),
    [("store", 20), ("damage", 5), ("join", 5), ("collectives", 5)],
)
def test_a_seed_has_one_trace(stage: str, count: int) -> None:
    assert f"{count} seeds, 0 failed" in run("--twice", stage, "0", str(count))


def test_a_damaged_journal_is_named_in_some_seeds() -> None:
    assert "50 seeds, 0 failed" in run("damage", "0", "50")


def test_ranks_join_in_some_seeds() -> None:
    assert "20 seeds, 0 failed" in run("join", "0", "20")


def test_collectives_pass_some_seeds() -> None:
    assert "30 seeds, 0 failed" in run("collectives", "0", "30")


# Whether they are found takes minutes: make mutants.
@pytest.mark.parametrize("name", mutants.MUTANTS)
def test_a_planted_fault_has_a_place(name: str) -> None:
    assert mutants.changed_text(name)
