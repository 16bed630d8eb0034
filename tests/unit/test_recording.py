# SPDX-License-Identifier: BSD-3-Clause
"""What is recorded of one process, and what the tools make of it."""

from __future__ import annotations

import functools
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import distlite as dist
from distlite import _C
from distlite.launch.command import main
from distlite.tools import failure, recording, trace
from distlite.tools.job import Job, jobs_of
from distlite.tools.table import table_of


@pytest.fixture
def world():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def own() -> recording.Recording:
    mine = recording.own()
    assert mine is not None
    return mine


def last() -> recording.Operation:
    return own().operations[-1]


def test_an_operation_is_recorded_with_its_line(world):
    array = np.ones((2, 3), np.float32)
    line = inspect.currentframe().f_lineno + 1
    dist.all_reduce(array, op=dist.ReduceOp.MAX)
    operation = last()
    assert operation.describe() == "all_reduce(6 x float32, MAX) #1"
    assert (operation.state, operation.status) == ("ended", "ok")
    assert operation.group is not None and operation.group.name == "0"
    assert 0 < operation.started <= operation.ended <= own().taken
    assert operation.queued == 0
    site = operation.site
    assert site is not None
    assert (site.line, site.file) == (line, __file__[-175:])
    assert site.function == "test_an_operation_is_recorded_with_its_line"


def test_each_line_is_told_from_the_next(world):
    array = np.ones(1)
    first = inspect.currentframe().f_lineno
    for _ in range(3):
        dist.all_reduce(array)
        dist.broadcast(array, 0)
    lines = [o.site.line - first for o in own().operations[-6:]]
    assert lines == [2, 3] * 3
    assert last().describe() == "broadcast(1 x float64, from rank 0) #6"


def test_the_line_is_the_users_also_through_the_package(world):
    for call in (dist.all_reduce_coalesced, functools.partial(dist.all_reduce)):
        argument = [np.ones(2)] if call is dist.all_reduce_coalesced else np.ones(2)
        for _ in range(2):
            call(argument)
            site = last().site
            assert site is not None and site.function.startswith("test_the_line")


def test_each_line_is_told_from_the_next_through_the_package(world):
    array = np.ones(1)
    first = inspect.currentframe().f_lineno
    for _ in range(3):
        dist.functional.all_reduce(array)
        dist.all_reduce_coalesced([array])
        dist.functional.all_reduce(array)
    found = [o.site.line - first for o in own().operations if o.site is not None]
    lines = [line for line in found if line > 0][-9:]
    assert lines == [2, 3, 4] * 3


def test_what_waits_for_its_turn(world):
    work = dist.barrier(async_op=True)
    work.wait()
    operation = last()
    assert operation.describe() == "barrier() #1"
    assert 0 < operation.queued <= operation.started <= operation.ended


def test_a_group_that_was_left_is_closed(world):
    group = dist.new_group([0])
    dist.barrier(group=group)
    assert own().groups[-1].is_open
    dist.destroy_process_group(group)
    assert not own().groups[-1].is_open
    assert last().group is not None


def test_the_ring_goes_round(world):
    array = np.ones(1)
    for _ in range(600):
        dist.all_reduce(array)
    operations = own().operations
    assert len(operations) == 512
    numbers = [o.sequence for o in operations]
    assert numbers == list(range(89, 601))


def test_this_process_finds_its_own_file(world):
    mine = [r for r in recording.read_all() if r.pid == os.getpid()]
    assert len(mine) == 1
    assert mine[0].process_state() == "running"
    assert (mine[0].rank, mine[0].size, mine[0].job) == (0, 1, own().job)
    assert len(mine[0].job) == 12


def test_what_is_no_recording_is_refused(tmp_path):
    for content in (b"", b"x" * 1000):
        path = tmp_path / "file"
        path.write_bytes(content)
        with pytest.raises((ValueError, OSError)):
            recording.read(str(path))
    with pytest.raises(FileNotFoundError):
        recording.read(str(tmp_path / "none"))


def test_ps_lists_it(world, capsys):
    dist.barrier()
    assert main(["ps", "--job", own().job]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].startswith(f"job {own().job} on ")
    assert table[1].split()[:3] == ["rank", "pid", "process"]
    assert table[2].startswith(f"0     {os.getpid()}")
    assert "none since barrier() #1" in table[2]
    assert main(["ps", "--json", "--job", "no such"]) == 0
    assert json.loads(capsys.readouterr().out) == {"jobs": []}


def test_what_is_not_there_is_told(world, tmp_path, capsys, monkeypatch):
    dist.barrier()
    for words, code in (["ps"], 0), (["ps", "--dump", "x"], 1), (["trace"], 1):
        assert main([*words, "--job", "no such"]) == code
        said = capsys.readouterr().err
        assert "no job here has a name that begins with 'no such'; jobs are: " in said
        assert own().job in said
    monkeypatch.setenv("DISTLITE_RUNTIME_DIR", str(tmp_path))
    for command in "ps", "trace":
        main([command])
        said = capsys.readouterr().err
        assert f"no ranks of this user run on this host (looked in {tmp_path})" in said


@pytest.mark.parametrize(
    "words", [["ps", "--dump"], ["trace", "-o"], ["doctor", "--nproc-per-node=1", "-o"]]
)
def test_a_file_that_cannot_be_written_is_named(tmp_path, capsys, request, words):
    if words[0] != "doctor":  # which makes a group itself
        request.getfixturevalue("world")
        dist.barrier()
    path = str(tmp_path / "missing" / "file")
    assert main([*words, path]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"distlite {words[0]}: [Errno 2]") and path in said


def test_a_file_that_is_no_recording_is_named(tmp_path, capsys):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1000)
    assert main(["trace", str(path)]) == 1
    said = capsys.readouterr().err
    assert said == f"distlite trace: {path}: not a recording of this version\n"


@pytest.mark.parametrize("words", [["ps"], ["ps", "--json"], ["trace", "-o", "-"]])
def test_a_reader_may_have_enough(world, words):
    dist.barrier()
    code = "from distlite.launch.command import main; raise SystemExit(main())"
    command = [sys.executable, "-c", code, *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def validate(document: dict) -> None:
    """What Chrome's trace-event format asks for, and what makes tracks readable."""
    assert set(document) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert document["displayTimeUnit"] in ("ms", "ns")
    ends: dict[tuple[int, int], float] = {}
    named = set()
    for event in document["traceEvents"]:
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        place = event["pid"], event["tid"]
        if event["ph"] == "M":
            named.add((event["name"], *place))
            continue
        assert event["ph"] == "X" and event["name"] and event["cat"]
        assert event["ts"] >= 0 and event["dur"] >= 0
        assert event["ts"] >= ends.get(place, 0) - 1e-3  # no overlap
        ends[place] = event["ts"] + event["dur"]
        assert ("thread_name", *place) in named
        assert ("process_name", event["pid"], 0) in named


def test_the_trace_is_one(world, tmp_path, capsys):
    works = [dist.all_reduce(np.ones(1000), async_op=True) for _ in range(3)]
    dist.wait_all(works)
    group = dist.new_group([0])
    dist.barrier(group=group)
    path = str(tmp_path / "trace.json")
    assert main(["trace", "-o", path, "--job", own().job]) == 0
    assert "operations of 1 ranks" in capsys.readouterr().out
    document = json.loads(Path(path).read_text())
    validate(document)
    events = [e for e in document["traceEvents"] if e["ph"] == "X"]
    events = sorted(events, key=lambda e: e["ts"])[-4:]
    assert [e["name"] for e in events] == ["all_reduce"] * 3 + ["barrier"]
    assert events[0]["args"]["bytes"] == 8000
    assert events[0]["args"]["queued for us"] >= 0
    tracks = [e for e in document["traceEvents"] if e["name"] == "thread_name"]
    assert next(e["args"]["name"] for e in tracks) == "group 0"
    assert main(["trace", "--job", "no such"]) == 1


def made_up(rank: int, begun: int, *operations: recording.Operation):
    group = recording.Group(1, "0", "cpu", rank, 3, True, begun, 0)
    for operation in operations:
        operation.group = group
    space = recording._pid_namespace()
    head = (
        "",
        os.getpid(),
        0,
        space,
        0,
        0,
        10**9,
        0,
        rank,
        3,
        "job",
        "host",
        "x.py",
    )
    return recording.Recording(*head, groups=[group], operations=list(operations))


def running(op: str, sequence: int, start: int = 1, end: int = 0):
    is_message = op in recording.MESSAGES
    return recording.Operation(
        op=op,
        group=None,
        state="ended" if end else "running",
        status="ok",
        sequence=None if is_message else sequence,
        tag=sequence if is_message else None,
        root=2 if is_message else None,
        count=3,
        dtype="int8",
        item_size=1,
        reduce_op=None,
        queued=0,
        started=start,
        ended=end,
        site=None,
    )


def test_who_waits_for_whom():
    collective, message = running("barrier", 5), running("recv", 7)
    job = Job([made_up(1, 4), made_up(0, 5, collective, message)])
    assert [str(a) for a in job.waits_for(collective)] == ["rank 1 (gone)"]
    assert [str(a) for a in job.waits_for(message)] == ["rank 2 of the group (unseen)"]
    assert job.unseen() == [2] and job.name == "job"
    text = table_of(job)
    assert "2 of 3 ranks; not here: 2" in text
    assert "recv(3 x int8, from rank 2, tag 7)" in text


def test_jobs_are_told_apart():
    first, second = made_up(0, 0), made_up(0, 0)
    second.job, second.created = "other", -1
    assert [job.name for job in jobs_of([first, second])] == ["other", "job"]


def test_messages_at_one_time_get_tracks_of_their_own():
    spans = [(10, 50), (20, 30), (35, 60), (55, 70)]
    messages = [running("send", 0, start, end) for start, end in spans]
    document = trace.trace_of([made_up(0, 0, *messages)])
    validate(document)
    tracks = [e for e in document["traceEvents"] if e["name"] == "thread_name"]
    names = [track["args"]["name"] for track in tracks]
    assert names == ["group 0: messages", "group 0: messages (2)"]


def test_a_report_tells_what_is_current(world, caplog):
    dist.capture_log()
    for _ in range(3):
        dist.barrier()
    data = _C._recording()
    failure.report([(own().path, data)], True, False)
    dist.capture_log(False)
    (record,) = caplog.records
    assert (record.name, record.levelname, record.rank) == ("distlite", "ERROR", 0)
    written = record.getMessage()
    assert written.startswith(
        "rank 0 saw an operation fail; the ranks at that moment:\n"
    )
    assert "none since barrier() #3" in written


def test_a_rank_that_left_in_good_order_lived_when_it_failed(tmp_path):
    there, left = made_up(0, 5), made_up(1, 5)
    there.path, left.path = str(tmp_path), str(tmp_path / "none")
    assert [failure._state_then(r) for r in (there, left)] == ["gone", "running"]


def test_a_process_that_ended_is_gone_before_its_parent_asks_for_it():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        assert stat[0] == "Z"
        assert recording._process_state(pid, int(stat[19])) == "gone"
    finally:
        os.waitpid(pid, 0)


def test_a_forked_child_finds_its_lines_anew():
    code = """
import os
import distlite as d
from distlite.tools import recording

def lines():
    d.init_process_group("gloo", store=d.HashStore(), rank=0, world_size=1)
    d.barrier()
    found = [o.site.line if o.site else 0 for o in recording.own().operations]
    d.destroy_process_group()
    return found

assert lines() == [8]
pid = os.fork()
if pid == 0:
    os._exit(lines() != [8])
assert os.waitpid(pid, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_zero_turns_the_recorder_off():
    code = (
        "import distlite as d\n"
        "d.init_process_group('gloo', store=d.HashStore(), rank=0, world_size=1)\n"
        "d.barrier()\n"
        "assert d._C._recording() is None\n"
    )
    environment = {**os.environ, "TORCH_FR_BUFFER_SIZE": "0"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_folders_follow_the_environment(monkeypatch):
    monkeypatch.setenv("DISTLITE_RUNTIME_DIR", "/somewhere")
    assert _C._recording_folders() == ["/somewhere"]
    monkeypatch.delenv("DISTLITE_RUNTIME_DIR")
    user = os.geteuid()
    assert _C._recording_folders() == [
        f"/dev/shm/distlite-{user}",
        f"/tmp/distlite-{user}",
    ]
