# SPDX-License-Identifier: BSD-3-Clause
"""The tools of the other tests here."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from launching import wait_until
from workers import RanksFailed, rank_outcomes, run_ranks

from distlite.testing import Job, mark, start_ranks

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def give_back(rank, world_size, **kwargs):
    return rank, world_size, kwargs, os.environ["RANK"]


def test_results_come_back_by_rank():
    results = run_ranks(give_back, 3, text="x")
    assert results == [(rank, 3, {"text": "x"}, str(rank)) for rank in range(3)]


def return_much(rank, world_size):
    return bytes([rank]) * (4 << 20)


def test_large_results_fit():
    results = run_ranks(return_much, 2)
    assert [(len(result), result[-1]) for result in results] == [
        (4 << 20, 0),
        (4 << 20, 1),
    ]


def meet(rank, world_size, init_method):
    assert init_method.startswith("file:///")
    return init_method


def test_ranks_of_one_run_share_an_address_of_their_own():
    first, second = run_ranks(meet, 2)
    assert first == second
    assert run_ranks(meet, 1) != [first]


def fail_on_one(rank, world_size):
    print(f"output of {rank}")
    if rank == 1:
        raise KeyError("which one")
    time.sleep(60)


def test_a_failure_ends_the_run_and_is_labelled():
    start = time.monotonic()
    with pytest.raises(RanksFailed) as caught:
        run_ranks(fail_on_one, 3)
    assert time.monotonic() - start < 40  # not until the others have slept
    text = str(caught.value)
    assert text.startswith("3 of 3 ranks of fail_on_one failed\nrank 1: failed")
    assert "rank 1: KeyError: 'which one'" in text
    assert "rank 1: output of 1" in text
    assert "rank 2: did not end in time and was killed" in text
    assert "time.sleep(60)" not in text.split("rank 2:")[0]


def fail_in_different_ways(rank, world_size):
    if rank == 1:
        raise ValueError("mine")
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 3:
        os._exit(7)
    return "fine"


def test_outcomes_tell_the_ways_apart():
    fine, error, killed, left = rank_outcomes(fail_in_different_ways, 4)
    assert (fine.is_good, fine.value) == (True, "fine")
    assert isinstance(error.exception, ValueError)
    assert "ValueError: mine" in error.traceback
    assert killed.returncode == -signal.SIGKILL
    assert "killed by SIGKILL" in killed.describe()
    assert left.returncode == 7


def hang_deep(rank, world_size, mark):
    def the_place_where_it_hangs():
        open(mark, "w").close()
        time.sleep(600)

    the_place_where_it_hangs()


def test_a_late_rank_shows_where_it_was(tmp_path, monkeypatch):
    mark = tmp_path / "mark"
    wait = Job.wait

    def wait_from_there(run, timeout, **rest):
        wait_until(mark.exists)
        return wait(run, timeout, **rest)

    # Whatever the start of an interpreter takes.
    monkeypatch.setattr(Job, "wait", wait_from_there)
    with pytest.raises(RanksFailed, match="the_place_where_it_hangs"):
        run_ranks(hang_deep, 1, timeout=0.2, mark=str(mark))


def wait_for_file(rank, world_size, path):
    mark("here")
    while not os.path.exists(path):
        time.sleep(0.01)
    return rank


def test_ranks_outlive_the_thread_that_started_them(tmp_path):
    path, jobs = tmp_path / "go on", []

    def start():
        job = start_ranks(wait_for_file, 2, backend=None, path=str(path))
        jobs.append(job)
        # From here on they would be told of the end of their parent.
        for rank in range(2):
            job.wait_for_mark(rank, "here")

    starter = threading.Thread(target=start)
    starter.start()
    starter.join()
    (job,) = jobs
    with job:
        path.touch()
        assert [outcome.value for outcome in job.wait(60.0)] == [0, 1]


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def wait_until_dead(pids):
    wait_until(lambda: not [pid for pid in pids if is_alive(pid)])


def leave_a_child(rank, world_size):
    return subprocess.Popen(SLEEP).pid


def test_what_a_rank_started_dies_with_the_run():
    wait_until_dead(run_ranks(leave_a_child, 2))


def tell_and_hang(rank, world_size, path):
    with open(f"{path}/{rank}", "w") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(600)


def pids_noted(folder):
    """Of both ranks, once both are there."""
    texts = [path.read_text() for path in folder.iterdir()]
    pids = [int(text) for text in texts if text.endswith("\n")]
    return pids if len(pids) == 2 else None


RUNNER = """
import sys
sys.path[:0] = {path!r}
import test_workers, workers
workers.run_ranks(test_workers.tell_and_hang, 2, path=sys.argv[1])
"""


def test_ranks_die_with_the_runner(tmp_path):
    here = os.path.dirname(__file__)
    code = RUNNER.format(path=[here, os.path.dirname(here)])
    notes, left = tmp_path / "notes", tmp_path / "left"
    notes.mkdir()
    left.mkdir()
    words = [sys.executable, "-c", code, str(notes)]
    # What it has no time to remove goes with the test.
    environment = {**os.environ, "TMPDIR": str(left)}
    with subprocess.Popen(words, env=environment) as runner:
        try:
            pids = wait_until(lambda: pids_noted(notes))
        finally:
            runner.kill()
    wait_until_dead(pids)
