# SPDX-License-Identifier: BSD-3-Clause
"""``distlite ps`` of ranks stopped, late or dead, and what failures write."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import pytest
from recorder_ranks import (
    die_all,
    fail_beside_another_job,
    hold_job,
    look_at_a_joining_rank,
    look_at_a_locked_file,
    look_at_a_stopped_rank,
    look_at_a_wait,
    look_at_a_window,
    lose_a_rank,
    miss_a_message,
    raise_before_the_table,
    time_out_beside_a_wait,
)
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


def test_one_of_those_who_notice_writes_the_table(tmp_path):
    runtime = {"DISTLITE_RUNTIME_DIR": str(tmp_path)}
    outcomes = rank_outcomes(lose_a_rank, 5, env=runtime)
    survivors = [outcome for outcome in outcomes if outcome.rank != 2]
    assert all("rank 2" in outcome.value for outcome in survivors)
    text = "".join(outcome.output for outcome in survivors)
    assert text.count(HEAD) == 1
    (dead,) = [line for line in text.splitlines() if line.startswith("2  ")]
    assert " gone " in dead and "none since barrier() #1" in dead
    # The last to leave took away what the dead rank left.
    assert os.listdir(tmp_path) == []


def test_the_exception_does_not_wait_for_the_table():
    outcomes = rank_outcomes(raise_before_the_table, 2)
    assert outcomes[0].is_good, outcomes
    assert outcomes[0].value.count(HEAD) == 1


def test_a_failure_opens_nothing_of_another_job(tmp_path):
    runtime, signs = tmp_path / "runtime", tmp_path / "signs"
    runtime.mkdir(mode=0o700)
    signs.mkdir()
    held = hold_job(runtime / "job-other", 20)
    try:
        outcomes = rank_outcomes(
            fail_beside_another_job,
            3,
            env={"DISTLITE_RUNTIME_DIR": str(runtime)},
            runtime=str(runtime),
            folder=str(signs),
        )
    finally:
        os.close(held)
    assert outcomes[0].is_good and outcomes[1].is_good, outcomes
    assert set(outcomes[0].value) == {"job-own"}
    text = outcomes[0].output + outcomes[1].output
    assert text.count(HEAD) == 1 and "3 of 3 ranks" in text


def test_the_launcher_takes_away_what_a_dead_job_left(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import os\nimport recorder_ranks\n"
        "recorder_ranks.die_all(int(os.environ['RANK']), 2, 'env://')\n"
    )
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    environment = {
        **os.environ,
        "DISTLITE_RUNTIME_DIR": str(runtime),
        "PYTHONPATH": os.path.dirname(__file__),
    }
    command = [sys.executable, "-m", "distlite.run", "--nproc-per-node=2", str(program)]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=60)
    assert done.returncode == 137, done.stderr
    assert os.listdir(runtime) == []


def test_the_launcher_lets_the_table_be_written(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import os\nimport recorder_ranks\n"
        "recorder_ranks.lose_a_rank(int(os.environ['RANK']), 3, 'env://')\n"
        "import time; time.sleep(60)\n"
    )
    command = [sys.executable, "-m", "distlite.run", "--nproc-per-node=3", str(program)]
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(__file__)}
    done = subprocess.run(command, env=environment, capture_output=True, timeout=60)
    assert done.returncode == 137, done.stderr
    assert done.stderr.decode().count(HEAD) == 1, done.stderr


def test_the_next_job_takes_away_what_a_dead_one_left(tmp_path):
    runtime = {"DISTLITE_RUNTIME_DIR": str(tmp_path)}
    rank_outcomes(die_all, 2, env=runtime)
    assert len(os.listdir(tmp_path)) == 1
    rank_outcomes(lose_a_rank, 3, env=runtime)
    assert os.listdir(tmp_path) == []


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


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("get", "store.get('never\\x0aset')"),
        ("wait", "store.wait('first' and 2 more)"),
        ("probe", "probe(from rank 1, tag 5)"),
        ("group", "joining group own as rank 0 of 2"),
        ("monitored", "monitored_barrier()"),
        ("lock", "Window.lock(1)"),
        ("store lock", "store.wait('held/released')"),
        ("future", "Future.wait()"),
    ],
)
def test_a_wait_is_shown_with_its_line(tmp_path, kind, text):
    runtime = {"DISTLITE_RUNTIME_DIR": str(tmp_path)}
    (_, after), ((rank, table), others) = run_ranks(
        look_at_a_wait, 2, env=runtime, kind=kind
    )
    (wait,) = rank["waits"]
    assert wait["text"] == text
    assert wait["file"].endswith("recorder_ranks.py")
    assert wait["function"] == "_block" and 0 <= wait["since"] < 60
    (row,) = [line for line in table.splitlines() if text in line]
    assert " in _block" in row and "none since" not in row
    assert after == others == []


@pytest.mark.parametrize(
    ("kind", "text", "group"),
    [("object", "all_gather_object() #1", "1"), ("fence", "barrier() #5", "0")],
)
def test_an_operation_within_another_call_has_the_line_of_that(
    tmp_path, kind, text, group
):
    runtime = {"DISTLITE_RUNTIME_DIR": str(tmp_path)}
    _, ((rank, _), _) = run_ranks(look_at_a_wait, 2, env=runtime, kind=kind)
    (running,) = rank["current"]
    assert running["text"] == text
    assert running["group"] == group and running["function"] == "_block"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("new", "FileStore('own')"),
        ("clone", "store.clone()"),
        ("read", "store.get('key')"),
        ("write", "store.set('key')"),
        ("contains", "store.check('key')"),
        ("delete", "store.delete_key('key')"),
    ],
)
def test_a_wait_for_a_file_is_shown_with_its_line(tmp_path, kind, text):
    (tmp_path / "runtime").mkdir(mode=0o700)
    runtime = {"DISTLITE_RUNTIME_DIR": str(tmp_path / "runtime")}
    _, (rank, _) = run_ranks(
        look_at_a_locked_file, 2, env=runtime, kind=kind, folder=str(tmp_path)
    )
    (wait,) = rank["waits"]
    assert (wait["text"], wait["function"]) == (text, "_use_file")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("get", "Window.get(2)"),
        ("swap", "Window.compare_and_swap(2)"),
        ("lock", "Window.lock(2)"),
        ("flush", "Window.flush(2)"),
        ("fence", "Window.flush()"),
    ],
)
def test_a_wait_for_a_stopped_owner_of_a_window_is_shown(tmp_path, kind, text):
    runtime = {"DISTLITE_RUNTIME_DIR": str(tmp_path)}
    _, (rank, _), _ = run_ranks(look_at_a_window, 3, env=runtime, kind=kind)
    (wait,) = rank["waits"]
    assert (wait["text"], wait["function"]) == (text, "_reach")


def test_a_joining_rank_is_shown(tmp_path):
    runtime = {"DISTLITE_RUNTIME_DIR": str(tmp_path)}
    _, (rank, table) = run_ranks(look_at_a_joining_rank, 2, env=runtime)
    (wait,) = rank["waits"]
    assert wait["text"] == "init_process_group()"
    assert wait["function"] == "init"
    assert " in init" in table


def test_a_timeout_says_what_the_late_rank_waits_for(tmp_path):
    runtime = {"DISTLITE_RUNTIME_DIR": str(tmp_path)}
    outcomes = rank_outcomes(time_out_beside_a_wait, 2, env=runtime)
    assert all(outcome.is_good for outcome in outcomes), outcomes
    wait = "is in store.get('failed'), called at recorder_ranks.py:"
    assert (
        wait in outcomes[1].value
        and "in time_out_beside_a_wait" in (outcomes[1].value.partition(wait)[2])
    )


ALONE = """
import distlite
distlite.init_process_group("gloo", store=distlite.HashStore(), rank=0, world_size=1)
distlite.barrier()
print(flush=True)
input()
"""


def test_trace_asks_which_of_several_jobs(tmp_path):
    env = os.environ | {"DISTLITE_RUNTIME_DIR": str(tmp_path / "runtime")}
    (tmp_path / "runtime").mkdir(mode=0o700)
    output = str(tmp_path / "trace.json")

    def trace(*options: str) -> subprocess.CompletedProcess[str]:
        script = (
            "import sys; from distlite.launch.command import main; sys.exit(main())"
        )
        command = [sys.executable, "-c", script, "trace", "-o", output]
        return subprocess.run(
            [*command, *options],
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
        )

    with contextlib.ExitStack() as stack:
        jobs = []
        for _ in range(2):
            job = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", ALONE],
                    env=env,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            stack.callback(job.kill)
            assert job.stdout is not None and job.stdout.readline() == b"\n"
            jobs.append(job)
        asked = trace()
        assert asked.returncode != 0
        assert "there are 2 jobs here; choose one with --job" in asked.stderr
        assert all(f"pid {job.pid} " in asked.stderr for job in jobs)
        assert not os.path.exists(output)
        (name,) = [
            line.split()[0]
            for line in asked.stderr.splitlines()
            if f"pid {jobs[0].pid} " in line
        ]
        for options in (["--job", name], ["--pid", str(jobs[0].pid)]):
            assert trace(*options).returncode == 0
            with open(output, encoding="utf-8") as file:
                assert f"pid {jobs[0].pid}," in file.read()
            os.remove(output)
        assert "is not a rank of a job here" in trace("--pid", "1").stderr
