# SPDX-License-Identifier: BSD-3-Clause
"""What a rank warns of reaches its handlers, and these alone."""

from __future__ import annotations

from logging_ranks import wait_for_each_other
from workers import check_outcomes, rank_outcomes


def test_a_deadlock_and_the_table_of_its_failure_are_records(tmp_path):
    outcomes = rank_outcomes(
        wait_for_each_other,
        2,
        path=str(tmp_path / "store"),
        folder=str(tmp_path),
        env={"DISTLITE_DEADLOCK_SECONDS": "0.2"},
    )
    check_outcomes(wait_for_each_other, outcomes)
    logs = [(tmp_path / f"rank{rank}.log").read_text() for rank in range(2)]
    for rank, (outcome, log) in enumerate(zip(outcomes, logs, strict=True)):
        assert outcome.output == "", outcome.describe()
        warning = (
            f"WARNING|distlite|{rank}|deadlock: these ranks wait for each other:\n"
        )
        assert log.startswith(warning), log
        assert log.count(f"\nERROR|program|{rank}|caught\n") == 1, log
    tables = [
        f"\nERROR|distlite|{rank}|rank {rank} saw an operation fail; the ranks at that "
        "moment:\njob "
        for rank in range(2)
    ]
    found = [log.count(table) for table, log in zip(tables, logs, strict=True)]
    assert sorted(found) == [0, 1], logs  # one rank of a host writes it
