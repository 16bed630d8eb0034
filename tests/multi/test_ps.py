# SPDX-License-Identifier: BSD-3-Clause
"""``distlite ps`` of ranks stopped, late or dead, and what failures write."""

from __future__ import annotations

from recorder_ranks import look_at_a_stopped_rank, lose_a_rank, miss_a_message
from workers import rank_outcomes, run_ranks

from distlite.tools.recording import read
from distlite.tools.trace import trace_of

HEAD = "saw an operation fail; the ranks at that moment:"


def test_a_stopped_rank_is_seen_and_named(tmp_path):
    _, looked, _ = run_ranks(look_at_a_stopped_rank, 3, folder=str(tmp_path))
    facts, table, dumped = looked
    assert facts["size"] == 3 and facts["unseen"] == []
    assert [rank["rank"] for rank in facts["ranks"]] == [0, 1, 2]
    assert [rank["state"] for rank in facts["ranks"]] == [
        "running",
        "running",
        "stopped",
    ]
    (waiting,) = facts["ranks"][0]["current"]
    assert waiting["text"] == "all_reduce(10 x float32, SUM) #3"
    assert waiting["waits_for"] == [
        {"rank": 1, "group_rank": 1, "state": "running"},
        {"rank": 2, "group_rank": 2, "state": "stopped"},
    ]
    assert waiting["file"].endswith("recorder_ranks.py")
    assert waiting["function"] == "look_at_a_stopped_rank"
    assert facts["ranks"][2]["current"] == []
    assert facts["ranks"][2]["last"]["op"] == "all_gather"
    assert facts["ranks"][2]["groups"][0]["begun"] == 2
    assert "rank 1, rank 2 (stopped)" in table
    assert "in look_at_a_stopped_rank" in table
    # Dumps of all ranks, also of those that cannot help, make one trace.
    paths = [str(tmp_path / f"dump-{rank}") for rank in range(3)]
    assert set(paths) <= set(dumped.split())
    events = trace_of([read(path) for path in paths])["traceEvents"]
    running = [e for e in events if e["ph"] == "X" and e["args"]["state"] == "running"]
    assert [(e["pid"], e["name"]) for e in running] == [(0, "all_reduce")]
    assert {e["pid"] for e in events} == {0, 1, 2}


def test_the_first_to_notice_writes_the_table():
    outcomes = rank_outcomes(lose_a_rank, 3)
    assert "rank 2" in outcomes[0].value and "rank 2" in outcomes[1].value
    text = outcomes[0].output + outcomes[1].output
    assert text.count(HEAD) == 1
    (dead,) = [line for line in text.splitlines() if line.startswith("2  ")]
    assert " gone " in dead and "none since barrier() #1" in dead


def test_a_timeout_writes_the_table_and_what_was_asked_for(tmp_path):
    prefix = str(tmp_path / "fr-")
    outcomes = rank_outcomes(miss_a_message, 2, env={"TORCH_FR_DUMP_TEMP_FILE": prefix})
    assert all(outcome.is_good for outcome in outcomes), outcomes
    text = outcomes[0].output
    assert text.count(HEAD) == 1
    assert "recv(3 x float64, from rank 1) (timeout)" in text
    assert f"wrote the recording of rank 0 to {prefix}0" in text
    assert outcomes[1].output == ""
    recording = read(f"{prefix}0")
    assert (recording.rank, recording.size) == (0, 2)
    last = recording.last_ended()
    assert last is not None and (last.op, last.status) == ("recv", "timeout")
    assert last.site is not None and last.site.function == "miss_a_message"


def test_a_recording_that_cannot_be_written_keeps_nothing_else_back(tmp_path):
    prefix = str(tmp_path / "missing" / "fr-")
    outcomes = rank_outcomes(miss_a_message, 2, env={"TORCH_FR_DUMP_TEMP_FILE": prefix})
    assert all(outcome.is_good for outcome in outcomes), outcomes
    text = outcomes[0].output
    assert "cannot write the recording of rank 0: [Errno 2] No such file" in text
    assert prefix in text and text.count(HEAD) == 1
