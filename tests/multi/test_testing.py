# SPDX-License-Identifier: BSD-3-Clause
"""distlite.testing: ranks as processes that have a group, and can be disturbed."""

import functools
import os
import re
import select
import signal
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import distlite as dist
from distlite import testing
from distlite.launch import record

STARTS = pytest.mark.parametrize("start", ["spawn", "forkserver"])


def total(rank, world_size, factor):
    values = np.array([float(rank)])
    dist.all_reduce(values)
    return float(values[0]) * factor, world_size


def test_a_group_is_there():
    assert testing.run_ranks(total, 3, factor=2) == [(6.0, 3)] * 3


def no_names():
    return dist.get_rank()


def test_only_what_a_function_takes_is_given():
    assert testing.run_ranks(no_names, 2) == [0, 1]


def wait_for_one(rank):
    if rank == 1:
        testing.mark("here")
        signal.pause()
    dist.barrier()


def test_kill_at_a_mark():
    with testing.start_ranks(wait_for_one, 3) as job:
        job.wait_for_mark(1, "here")
        job.kill(1)
        outcomes = job.wait()
    assert outcomes[1].returncode == -signal.SIGKILL
    for outcome in (outcomes[0], outcomes[2]):
        assert "rank 1" in str(outcome.exception)


def meet_twice(rank):
    dist.barrier()
    testing.mark("met")
    dist.barrier()
    return os.getpid()


def test_a_rank_that_was_stopped_goes_on():
    with testing.start_ranks(meet_twice, 2) as job:
        job.stop(1)
        job.go_on(1)
        job.delay(0, 0.1)
        assert [outcome.value for outcome in job.wait()] == [job.pid(0), job.pid(1)]


def fail(rank):
    raise KeyError("before the mark")


def test_a_mark_that_does_not_come():
    fails = pytest.raises(testing.RanksFailed, match="KeyError: 'before the mark'")
    with testing.start_ranks(fail, 1) as job, fails:
        job.wait_for_mark(0, "never")


def absent(rank):
    if rank == 0:
        signal.pause()
    dist.barrier()


def test_a_late_rank_is_named_by_the_others():
    late, waiting = testing.rank_outcomes(absent, 2, timeout=8)
    assert (late.is_late and "signal.pause" in late.output) or "absent" in late.output
    assert "waiting for rank 0" in str(waiting.exception)


def test_functions_that_cannot_be_imported():
    with pytest.raises(ValueError, match="world.. runs any function, as threads"):
        testing.run_ranks(lambda: 0, 1)


@pytest.mark.parametrize("function", [max, functools.partial(total), str.upper])
def test_what_is_no_function_of_a_file(function):
    with pytest.raises(ValueError, match="other processes cannot import it"):
        testing.run_ranks(function, 1)


top = lambda: 0  # noqa: E731


def test_a_lambda_at_the_top():
    with pytest.raises(ValueError, match="<lambda>: other processes cannot import it"):
        testing.run_ranks(top, 1)
    with pytest.raises(ValueError, match="a world needs at least one rank, not 0"):
        testing.run_ranks(total, 0, factor=1)


@record
def decorated(rank):
    return rank


def test_a_decorator_of_another_file():
    assert testing.run_ranks(decorated, 2, backend=None) == [0, 1]


def kill_itself(number):
    os.kill(os.getpid(), number)


def test_a_signal_without_a_name():
    number = signal.SIGRTMIN + 2
    fails = pytest.raises(testing.RanksFailed, match=f"was killed by signal {number}$")
    with fails:
        testing.run_ranks(kill_itself, 1, backend=None, number=int(number))


def test_a_wrapper_may_be_the_parent():
    def wrap(command):
        return ["sh", "-c", '"$@"; exit', "sh", *command]

    assert testing.run_ranks(total, 2, wrap=[wrap] * 2, factor=1) == [(1.0, 2)] * 2


SCRIPT = """
from dataclasses import dataclass
from multiprocessing import get_context
from distlite import testing

@dataclass
class Own:
    number: int

class OwnError(Exception):
    def __init__(self, text, more):
        super().__init__(text)

def total(own, rank):
    with get_context("spawn").Pool(1) as pool:
        return pool.map(Own, [own.number + rank])

def fail():
    raise OwnError("the reason", 0)

if __name__ == "__main__":
    print(testing.run_ranks(total, 2, backend=None, own=Own(3)))
    try:
        testing.run_ranks(fail, 1, backend=None)
    except testing.RanksFailed as error:
        print(str(error).splitlines()[-1])
"""


def test_classes_of_a_script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    ended = subprocess.run(
        [sys.executable, path],
        capture_output=True,
        text=True,
    )
    assert ended.stderr == ""
    assert ended.stdout == (
        "[[Own(number=3)], [Own(number=4)]]\nrank 0: __mp_main__.OwnError: the reason\n"
    )


def missing_here():
    module = types.ModuleType("missing_here")
    sys.modules[module.__name__] = module
    exec("class Missing(Exception): pass", vars(module))
    raise module.Missing("the reason")


def test_an_exception_that_does_not_load_keeps_its_traceback():
    [outcome] = testing.rank_outcomes(missing_here, 1, backend=None)
    assert outcome.exception is None
    assert outcome.traceback.endswith("missing_here.Missing: the reason\n")


MANY = """
import calendar, os, resource
from distlite import testing
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
kept = [os.open(os.devnull, os.O_RDONLY) for _ in range(1024)]
print(testing.run_ranks(calendar.isleap, 2, backend=None, year=2024))
"""


def test_descriptors_beyond_those_of_select():
    ended = subprocess.run(
        [sys.executable, "-c", MANY],
        capture_output=True,
        text=True,
    )
    assert (ended.stdout, ended.stderr) == ("[True, True]\n", "")


def test_marks_are_for_ranks():
    with pytest.raises(RuntimeError, match="for ranks of distlite.testing.start_ranks"):
        testing.mark("here")


def surroundings():
    here = (os.getcwd(), os.getsid(0), os.environ.get("COLOUR"), os.environ.get("KEEP"))
    print("said", flush=True)
    # Nothing but what a process opens itself, and the folder that this lists.
    descriptors = sorted(os.listdir("/proc/self/fd"), key=int)
    return here, os.getpid(), os.getppid(), float(np.random.rand()), descriptors


@STARTS
def test_what_a_rank_finds(start, monkeypatch, tmp_path):
    monkeypatch.setenv("DISTLITE_TESTS_START", start)
    monkeypatch.setenv("KEEP", "kept")
    monkeypatch.chdir(tmp_path)
    outcomes = testing.rank_outcomes(
        surroundings, 2, backend=None, env={"COLOUR": "blue"}
    )
    assert all(outcome.is_good for outcome in outcomes), outcomes
    numbers = set()
    for outcome in outcomes:
        here, pid, parent, number, descriptors = outcome.value
        assert here == (str(tmp_path), pid, "blue", "kept")
        assert (parent == os.getpid()) == (start == "spawn")
        assert outcome.output == "said\n"
        assert len(descriptors) <= 5, descriptors  # 0, 1, 2, the result, the folder
        numbers.add(number)
    assert len(numbers) == 2


def hash_of_a_word():
    return hash("word"), os.getppid()


def test_what_is_read_at_the_start_is_read(monkeypatch):
    monkeypatch.setenv("DISTLITE_TESTS_START", "forkserver")
    env = {"PYTHONHASHSEED": "7"}
    first, second = testing.run_ranks(hash_of_a_word, 2, backend=None, env=env)
    assert first == second and first[1] == os.getpid()


def mark_and_pause():
    testing.mark("here")
    signal.pause()


def test_ranks_end_with_the_fork_server_and_another_one_starts(monkeypatch):
    monkeypatch.setenv("DISTLITE_TESTS_START", "forkserver")
    [(_, server)] = testing.run_ranks(hash_of_a_word, 1, backend=None)
    with testing.start_ranks(mark_and_pause, 1, backend=None) as job:
        job.wait_for_mark(0, "here")
        os.kill(server, signal.SIGKILL)
        [outcome] = job.wait(timeout=30)
    assert outcome.returncode == -signal.SIGKILL and not outcome.is_late
    [(_, other)] = testing.run_ranks(hash_of_a_word, 1, backend=None)
    assert other not in (server, os.getpid())


PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
import test_testing
from distlite import testing

print(testing.run_ranks(test_testing.total, 2, factor=1))
"""


def test_nothing_is_left_open():
    program = PROGRAM.format(folder=str(Path(__file__).parent))
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program],
        capture_output=True,
        text=True,
    )
    assert (ended.stdout, ended.stderr) == ("[(1.0, 2), (1.0, 2)]\n", "")


STARTER = """
import sys, time
sys.path.insert(0, {folder!r})
import test_testing
from distlite import testing

with testing.start_ranks(test_testing.mark_and_pause, 2, backend=None) as job:
    job.wait_for_mark(0, "here")
    job.wait_for_mark(1, "here")
    print(job.pid(0), job.pid(1), flush=True)
    time.sleep(600)
"""


def test_ranks_end_with_the_process_that_started_them():
    program = STARTER.format(folder=str(Path(__file__).parent))
    starter = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert starter.stdout is not None
    with starter, starter.stdout:
        ranks = [int(pid) for pid in starter.stdout.readline().split()]
        fds = [os.pidfd_open(pid) for pid in ranks]
        starter.kill()
        for fd in fds:
            assert select.select([fd], [], [], 30)[0]
            os.close(fd)
    assert len(ranks) == 2


PLUGIN_TESTS = """
import os
import re
import numpy as np
import pytest
import distlite as dist

@pytest.mark.ranks(2)
def test_good(rank, world_size, tmp_path):
    values = np.array([rank])
    dist.all_reduce(values)
    print("hello", rank)
    assert (values[0], world_size, tmp_path.is_dir()) == (1, 2, True)

@pytest.mark.ranks(2)
def test_wrong(rank):
    found = 7 + rank
    assert found == 7

@pytest.mark.ranks(2, threads=True)
@pytest.mark.parametrize("factor", [1, 2])
def test_threads(rank, factor):
    values = np.array([rank * factor])
    dist.all_reduce(values)
    assert values[0] == 1

@pytest.mark.ranks(2)
def test_skipped(rank):
    if rank == 0:
        pytest.skip("not today")
    dist.barrier()

class TestClass:
    @pytest.mark.ranks(2)
    def test_method(self, rank):
        dist.barrier()

@pytest.mark.ranks(2, env={"COLOUR": "blue"}, backend=None)
def test_environment():
    assert os.environ["COLOUR"] == "blue" and not dist.is_initialized()

@pytest.mark.ranks("two", bogus=1)
def test_mark():
    pass

@pytest.mark.ranks(2, threads=True)
async def test_coroutine(rank):
    assert rank == 2

def test_alone(rank, world_size):
    assert (rank, world_size) == (0, 1)
"""


def test_the_mark_of_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_ranks.py").write_text(PLUGIN_TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    words = ["-m", "pytest", "-p", "pytest_distlite", "-p", "no:cacheprovider", "-rA"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [sys.executable, *words, "test_ranks.py"],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    text = done.stdout
    for name in ("good", "threads[1]", "environment", "alone"):
        assert f"PASSED test_ranks.py::test_{name}\n" in text, text
    assert "PASSED test_ranks.py::TestClass::test_method\n" in text, text
    assert "rank 1: hello 1\n" in text
    assert "FAILED test_ranks.py::test_wrong" in text
    assert "rank 1: AssertionError: assert 8 == 7\n" in text
    assert "FAILED test_ranks.py::test_threads[2]" in text
    assert "SKIPPED [1] " in text and "not today" in text
    assert (
        "takes the number of ranks, then keyword options: timeout, backend, env" in text
    )
    assert "FAILED test_ranks.py::test_coroutine" in text
    assert "write a function that calls asyncio.run()" in text
    assert "4 failed, 5 passed, 1 skipped" in text


def test_the_page_of_the_manual(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "testing.md"
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.M)
    marked, threads, processes, faults = blocks
    (tmp_path / "test_marked.py").write_text(marked)
    (tmp_path / "test_others.py").write_text(
        f"def test_threads():\n    exec({threads!r}, {{}})\n\n{processes}"
    )
    (tmp_path / "test_faults.py").write_text(faults)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "pytest_distlite", tmp_path],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert "7 passed" in done.stdout, done.stdout
