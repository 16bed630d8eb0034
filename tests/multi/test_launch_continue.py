# SPDX-License-Identifier: BSD-3-Clause
"""`--on-failure continue`: a failed rank is started again while the others go on."""

import os
import re
import signal
from functools import partial

import pytest
from launching import LIMIT, launch, launched, processes_of, wait_until, write_script

# The worlds that these ranks make end by themselves, long before LIMIT.
WORLD = """
import numpy as np, signal
import distlite as dist
from distlite import elastic
life = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
steps, die_at = map(int, sys.argv[1:3])
state = {"sums": np.zeros(0)}
loads = []

def load(loaded):
    loads.append(len(loaded["sums"]))
    state.update(loaded)

print(f"life {life} is {os.getpid()}", flush=True)
with elastic.join(timeout=40) as member:
    while True:
        try:
            view = member.next()
            member.restore(view, load, lambda: state)
            if (member.done or 0) >= steps:
                break
            x = np.ones(1)
            with member.step((member.done or 0) + 1):
                if rank == 1 and life == 0 and member.done == die_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                dist.all_reduce(x, group=view.group)
            state["sums"] = np.append(state["sums"], x)
            time.sleep(float((sys.argv + ["0"])[3]))
        except dist.DistBackendError:
            continue
    print(f"life {life}, epoch {view.epoch}, loads {loads}, sums {state['sums']}")
    member.finish()
"""


def pid_of(path, rank, life):
    return lives(path.read_text()).get(rank, {}).get(life)


def lives(text):
    """The process ids of each rank's lives, in their order."""
    found = {}
    for rank, life, pid in re.findall(r"\[rank(\d)\]: life (\d) is (\d+)", text):
        found.setdefault(int(rank), {})[int(life)] = int(pid)
    return found


def test_a_rank_that_dies_is_admitted_by_the_others(tmp_path):
    script = write_script(tmp_path, WORLD)
    done = launch(["-n", 3, "--on-failure", "continue", script, 8, 3])
    assert done.returncode == 0, done.stderr
    assert {rank: sorted(each) for rank, each in lives(done.stdout).items()} == {
        0: [0],
        1: [0, 1],
        2: [0],
    }
    sums = f"sums [{' '.join(8 * ['3.'])}]"
    for rank, life, loads in ((0, 0, []), (1, 1, [3]), (2, 0, [])):
        text = f"[rank{rank}]: life {life}, epoch 2, loads {loads}, {sums}"
        assert text in done.stdout, done.stdout + done.stderr
    told = (
        "distlite: rank 1: killed by SIGKILL; started again, while the others go on; "
    )
    assert told + "2 restart(s) of it left\n" in done.stderr


def test_ranks_that_are_killed_one_after_the_other(tmp_path):
    """At last no process is left of those that began."""
    script = write_script(tmp_path, WORLD)
    words = ["-n", 3, "--on-failure", "continue", script, 100000, -1, 0.01]
    files = {"stdout": (tmp_path / "out").open("w"), "bufsize": 0}
    with launched(words, **files) as (process, token):
        first = []
        for rank in range(3):
            first.append(wait_until(partial(pid_of, tmp_path / "out", rank, 0)))
            os.kill(first[-1], signal.SIGKILL)
            wait_until(partial(pid_of, tmp_path / "out", rank, 1))
        assert not {*first} & {*processes_of(token)}
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=LIMIT)
        assert process.returncode == 128 + signal.SIGTERM
        assert errors.count("started again") == 3
        assert not processes_of(token)


def test_a_rank_that_comes_when_the_work_is_done_ends(tmp_path):
    """It neither waits for the others nor does their work anew."""
    source = """
    import pathlib, signal
    from distlite import elastic
    others = pathlib.Path(sys.argv[1])
    if rank == 0:
        with elastic.join(min_size=1, timeout=40) as member:
            member.next()
            member.finish()
        others.touch()
    elif os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        while not others.exists():
            time.sleep(0.01)
        with elastic.join(min_size=1, timeout=40) as member:
            member.next()
            print("joined")
        print("nothing to do")
    """
    script = write_script(tmp_path, source)
    done = launch(["-n", 2, "--on-failure=continue", script, tmp_path / "over"])
    assert (done.returncode, done.stdout) == (0, "[rank1]: nothing to do\n")


def test_a_rank_that_always_fails_ends_the_job(tmp_path):
    source = """
    print("begins")
    if rank == 1:
        sys.exit(7)
    time.sleep(600)
    """
    script = write_script(tmp_path, source)
    words = ["-n", 2, "--on-failure", "continue", "--max-restarts", 2, script]
    done = launch([*words, script])
    assert done.returncode == 7
    assert done.stdout.count("[rank1]: begins") == 3
    assert done.stderr.count("started again") == 2
    assert "rank 1 failed first: exit code 7" in done.stderr
    # One line of each rank, and not of each process.
    assert re.findall(r"^rank \d: .*", done.stderr, re.M) == [
        "rank 0: killed by SIGTERM (ended by the launcher)"
    ]


def test_a_program_that_is_gone_ends_the_job(tmp_path):
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nrm -- $0\nexit 3\n")
    program.chmod(0o755)
    done = launch(["--on-failure", "continue", "--no-python", program])
    assert done.returncode == 3
    assert "distlite: rank 0: No such file or directory" in done.stderr
    assert "rank 0 failed first: exit code 3" in done.stderr


CHILD = """
import signal, subprocess
life = os.environ["TORCHELASTIC_RESTART_COUNT"]
if life == "0":
    child = subprocess.Popen(["sleep", "600"])
    print(f"child {child.pid}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
child = int(sys.stdin.readline())
while os.path.exists(f"/proc/{child}"):
    time.sleep(0.01)
print("life", life)
"""


def test_what_a_failed_rank_has_started_is_ended(tmp_path):
    script = write_script(tmp_path, CHILD)
    words = ["--on-failure", "continue", "--log-dir", tmp_path / "logs", "-t", 3]
    run = launched([*words, script], stdin=-1)
    with run as (process, _):
        child = re.match(r"\[rank0\]: child (\d+)", process.stdout.readline())
        out, errors = process.communicate(child[1] + "\n", timeout=LIMIT)
        assert process.returncode == 0, errors
    assert out == "[rank0]: life 1\n"
    # Each life has files of its own.
    [folder] = (tmp_path / "logs").iterdir()
    assert (folder / "attempt_0/0/stdout.log").read_text() == f"child {child[1]}\n"
    assert (folder / "attempt_1/0/stdout.log").read_text() == "life 1\n"


def test_a_launcher_that_is_killed_leaves_none_of_the_ranks(tmp_path):
    source = """
    import signal
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    print("ready", flush=True)
    time.sleep(600)
    """
    script = write_script(tmp_path, source)
    run = launched(["-n", 2, "--on-failure", "continue", script])
    with run as (process, token):
        for _ in range(2):
            assert "ready" in process.stdout.readline()
        process.kill()
        process.wait(LIMIT)
        wait_until(lambda: not processes_of(token))


@pytest.mark.parametrize("words", [["--on-failure", "stop"], []])
def test_without_it_a_failure_ends_all(tmp_path, words):
    source = "time.sleep(600) if rank else sys.exit(5)"
    done = launch(["-n", 2, *words, write_script(tmp_path, source)])
    assert done.returncode == 5
    assert "rank 0 failed first: exit code 5" in done.stderr
    assert "restart" not in done.stderr
