# SPDX-License-Identifier: BSD-3-Clause
"""Three ranks at DETAIL: what differs, who is missing, and stopping one of them."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
from typing import Any

import pytest
from debug_ranks import debug
from workers import Outcome, rank_outcomes

RANKS = 3


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    environment = {"TORCH_DISTRIBUTED_DEBUG": "detail", "TORCH_CPP_LOG_LEVEL": "INFO"}
    outcomes = rank_outcomes(debug, RANKS, env=environment)
    assert all(each.is_good for each in outcomes), "\n".join(
        each.describe() for each in outcomes
    )
    return outcomes


@pytest.fixture
def reports(outcomes) -> list[dict[str, Any]]:
    return [outcome.value for outcome in outcomes]


HEAD = (
    "Detected mismatch between collectives on ranks. "
    "Ranks 0, 2 are running collective: "
)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (
            "operation",
            "all_reduce(float32[4], SUM), but Rank 1 is running collective: "
            "broadcast(float32[4], root 0). Collectives differ in the following "
            "aspects: Op type: all_reduce vs broadcast; Reduce op: SUM vs none; Root "
            "rank: none vs 0.",
        ),
        ("size", "Tensor shapes: [4] vs [3]."),
        ("shape", "Tensor shapes: [4] vs [2, 2]."),
        ("dtype", "Tensor dtypes: float32 vs int32."),
        ("reduction", "Reduce op: SUM vs MAX."),
        ("root", "Root rank: 0 vs 1."),
        ("queued", "Tensor shapes: [2] vs [3]."),
    ],
)
def test_a_difference_is_named_on_every_rank(reports, what, said):
    for report in reports:
        assert report[what].startswith(HEAD), report[what]
        assert said in report[what]
        lines = re.findall(
            r"\n  rank (\d) \(pid \d+ on host \S+\) called \w+\(.*\) "
            r"at .*debug_ranks.py:\d+ in \S+",  # the folder may have a blank
            report[what],
        )
        assert lines == ["0", "1", "2"]


def test_the_lines_are_the_callers(reports):
    # Rank 1 calls from another line than the others, before them in the file.
    found = re.findall(r"debug_ranks.py:(\d+)", reports[0]["operation"])
    assert found[0] == found[2] and int(found[1]) < int(found[0])


def test_ranks_that_do_not_come_are_named(reports):
    text = reports[0]["barrier"]
    assert text.startswith(
        "[Rank 0]: Ranks 1 failed to pass monitoredBarrier in 1000 ms"
    )
    assert re.search(r"rank 0 .* called barrier\(\) at .*debug_ranks.py:\d+", text)
    assert "\n  rank 1 has not called it" in text
    # Whoever comes too late learns that at once, and from whom.
    assert "Ranks 1 failed to pass" in reports[1]["barrier"]
    assert re.match(r"barrier #1 in group \d+: rank [02] \(pid", reports[1]["barrier"])


def test_a_monitored_barrier_names_the_first(reports):
    own = (
        "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 1000 ms\n"
        " Original exception: \nranks of group 0 have not called it: 1"
    )
    assert reports[0]["monitored"].startswith(own)
    for rank in 1, 2:
        assert reports[rank]["monitored"].startswith(
            f"Rank {rank} successfully reached monitoredBarrier, but received errors "
            "while waiting for send/recv from rank 0. Please check rank 0 logs for "
            "faulty rank.\n Original exception: \n" + own
        )


def test_a_monitored_barrier_names_all(reports):
    own = "[Rank 0]: Ranks 1 failed to pass monitoredBarrier in 1000 ms"
    assert reports[0]["monitored all"] == own
    for rank in 1, 2:
        assert reports[rank]["monitored all"].endswith(own)


def test_a_monitored_barrier_without_time_blames_nobody(reports):
    assert reports[0]["monitored at once"].startswith(
        "[Rank 0]: Rank 0 timed out in monitoredBarrier after 0 ms\nranks of group "
    )


def test_one_rank_stops_and_the_others_wait(outcomes, reports):
    assert [report["stopped"] for report in reports] == [["1:00:00", "1:00:00"]] * 3
    stopped = outcomes[2].output
    assert "Type 'up' to get to the frame that called distlite.breakpoint(rank=2)" in (
        stopped
    )
    assert "standard input is not a terminal" in stopped
    assert "[rank2] (Pdb) ('the answer is', 42)" in stopped
    assert "[rank2]: no more input: going on" in stopped
    assert "distlite.breakpoint(rank=2) continues without stopping" in stopped
    assert "(Pdb)" not in outcomes[0].output + outcomes[1].output


def test_skipped_stops_say_so(outcomes):
    for rank, outcome in enumerate(outcomes):
        assert outcome.output.count("Skip the breakpoint") == 1
        assert f"[rank{rank}]: Skip the breakpoint, counter=1" in outcome.output


def test_the_log_tells_each_collective(outcomes):
    assert re.search(
        r"\[rank0\]:\[I\S+ \S+ distlite\] "
        r"all_reduce\(float32\[4\], SUM\) #1 of group \d",
        outcomes[0].output,
    )
    assert re.search(
        r"\[I\S+ \S+ distlite\] group 0: backend cpu, rank 0 of 3 "
        r"\(pid \d+ on host \S+\); 1 host by number of ranks: \S+ \(3\); "
        r"transport: shared memory; address: ",
        outcomes[0].output,
    )


STOP = """
import distlite as dist
dist.init_process_group()
answer = 40 + dist.get_rank()
dist.breakpoint(rank=1)
print("went on", flush=True)
dist.destroy_process_group()
"""


def test_under_the_launcher_the_debugger_has_the_terminal(tmp_path):
    script = tmp_path / "stop.py"
    script.write_text(STOP)
    outer, inner = os.openpty()
    job = subprocess.Popen(
        [sys.executable, "-m", "distlite.run", "--nproc-per-node", "2", str(script)],
        stdin=inner,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    os.close(inner)
    shown = b""
    try:
        for words in b"up\n", b"p 'the answer is', answer\n", b"c\n":
            before = shown.count(b"(Pdb) ")
            while shown.count(b"(Pdb) ") == before:
                assert select.select([outer], [], [], 60)[0], shown
                shown += os.read(outer, 4096)
            os.write(outer, words)
        output, _ = job.communicate(timeout=60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        os.close(outer)
    assert b"('the answer is', 41)" in shown
    assert b"Type 'up' to get to the frame" in shown
    assert job.returncode == 0, output
    assert output.count(b"went on") == 2 and b"(Pdb)" not in output
