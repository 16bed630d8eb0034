# SPDX-License-Identifier: BSD-3-Clause
"""Ranks as processes of a program of one's own."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import spawned_ranks

import distlite.multiprocessing
import distlite.spawn
from distlite.launch import errors
from distlite.spawn import (
    ProcessContext,
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

LIMIT = 60


def test_the_group_of_a_spawned_program(tmp_path):
    assert spawn(spawned_ranks.all_reduce, (f"file://{tmp_path}/meet", 2), 2) is None


def test_the_module_is_called_as_its_function(tmp_path):
    # A program has the module by `import distlite as dist`.
    call: Callable[..., None] = distlite.spawn
    assert callable(call) and not isinstance(call, type(spawn))
    assert call(spawned_ranks.all_reduce, (f"file://{tmp_path}/meet", 1)) is None
    with pytest.raises(TypeError, match="args must be a tuple"):
        call(spawned_ranks.all_reduce, 5, nprocs=1)
    assert distlite.spawn.spawn is spawn


# The first with new interpreters, the others cheaply.
@pytest.mark.parametrize(
    ("how", "method", "kind"),
    [
        ("raise", "spawn", ProcessRaisedException),
        ("exit", "fork", ProcessExitedException),
        ("kill", "fork", ProcessExitedException),
    ],
)
def test_the_first_failure_ends_the_others_and_is_raised(tmp_path, how, method, kind):
    with pytest.raises(kind) as caught:
        start_processes(spawned_ranks.end, (str(tmp_path), how), 2, start_method=method)
    error = caught.value
    pids = [int((tmp_path / str(i)).read_text().split()[1]) for i in range(2)]
    assert (error.error_index, error.error_pid, error.pid) == (1, pids[1], pids[1])
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert isinstance(error, ProcessException) and not isinstance(error, RuntimeError)
    if how == "raise":
        start = "\n\n-- Process 1 terminated with the following error:\nTraceback (most"
        assert str(error).startswith(start)
        assert str(error).endswith("KeyError: 'the reason'\n")
    else:
        word, code, name = {
            "exit": ("exit code 7", 7, None),
            "kill": ("signal SIGKILL", -9, "SIGKILL"),
        }[how]
        assert str(error) == f"process 1 terminated with {word}"
        assert (error.exit_code, error.signal_name) == (code, name)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (kind, str(error), vars(error))


@pytest.mark.parametrize(("reason", "index"), [("the reason", 0), ("", 1)])
def test_the_cause_counts_more_than_what_follows_from_it(tmp_path, reason, index):
    arguments = (str(tmp_path), reason)
    with pytest.raises(ProcessRaisedException) as caught:
        start_processes(spawned_ranks.follow, arguments, 2, start_method="fork")
    assert caught.value.error_index == index
    assert (reason or "rank 0 (pid 7 on host a) has ended") in str(caught.value)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_others_write_the_table_of_a_failure_before_they_are_ended(
    tmp_path, capfd, monkeypatch, method
):
    # The moment that they have is too short on a busy machine.
    monkeypatch.setattr(errors, "NOTICE_TIME", LIMIT)
    monkeypatch.setattr(errors, "WRITE_TIME", LIMIT)
    with pytest.raises(ProcessException):
        start_processes(
            spawned_ranks.lose_a_peer,
            (f"file://{tmp_path}/meet", 3),
            3,
            start_method=method,
        )
    said = capfd.readouterr().err
    assert said.count("saw an operation fail; the ranks at that moment:\n") == 1, said
    assert " 3 of 3 ranks: " in said or " 2 of 3 ranks: " in said, said


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_traceback_may_be_longer_than_a_pipe(method):
    word = "\udcff" + "x" * 300_000
    context = start_processes(
        spawned_ranks.complain, (word,), 1, join=False, start_method=method
    )
    (process,) = context.processes
    process.join(LIMIT)  # its end waits for no reader
    try:
        assert process.exitcode == 1
        with pytest.raises(ProcessRaisedException) as caught:
            context.join()
    finally:
        process.kill()
    assert str(caught.value).endswith(f"ValueError: {word}\n")


def test_a_fork_server_of_a_program_that_blocks_signals_sees_ranks_end(tmp_path):
    # A program of its own, because a fork server keeps the mask that it started with.
    script = tmp_path / "blocks.py"
    script.write_text(BLOCKS_SIGNALS)
    subprocess.run([sys.executable, script], check=True, timeout=LIMIT)


BLOCKS_SIGNALS = """
import signal
from distlite.spawn import start_processes

def needs_the_end_of_children(rank):
    assert signal.SIGCHLD not in signal.pthread_sigmask(signal.SIG_BLOCK, [])

if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    context = start_processes(
        needs_the_end_of_children, nprocs=2, join=False, start_method="forkserver"
    )
    try:
        assert context.join(20)
    finally:
        for process in context.processes:
            process.kill()
    assert signal.SIGCHLD in signal.pthread_sigmask(signal.SIG_BLOCK, [])
"""


def test_the_deaf_are_killed_after_the_grace(tmp_path):
    context = start_processes(
        spawned_ranks.stay, (str(tmp_path),), 2, join=False, start_method="fork"
    )
    start = time.monotonic()
    with pytest.raises(ProcessExitedException, match="exit code 3"):
        context.join(grace_period=0.2)
    assert 0.2 <= time.monotonic() - start < 40  # not until the deaf have slept
    assert context.processes[0].exitcode == -signal.SIGKILL


def test_join_waits_as_long_as_it_is_told(tmp_path):
    mark = tmp_path / "mark"
    context = start_processes(
        spawned_ranks.wait_for, (str(mark),), 2, join=False, start_method="fork"
    )
    assert isinstance(context, ProcessContext)
    assert context.pids() == [process.pid for process in context.processes]
    assert context.join(timeout=0.05) is False
    mark.touch()
    assert context.join(timeout=LIMIT) is True
    assert context.join() is True


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_ranks_outlive_the_thread_that_started_them(tmp_path, method):
    mark, contexts = tmp_path / "mark", []

    def start():
        contexts.append(
            start_processes(
                spawned_ranks.wait_and_note,
                (str(tmp_path), str(mark)),
                2,
                join=False,
                start_method=method,
            )
        )

    starter = threading.Thread(target=start)
    starter.start()
    starter.join()
    (context,) = contexts
    assert context.join(timeout=0.3) is False
    mark.touch()
    assert context.join(timeout=LIMIT) is True
    assert all((tmp_path / str(i)).read_text().startswith("done ") for i in range(2))


def test_what_cannot_be_started_is_raised_on_the_thread_that_asked(tmp_path):
    caught = []

    def start():
        try:
            spawn(lambda index: None, nprocs=1)  # no pickle
        except Exception as error:
            caught.append(error)

    starter = threading.Thread(target=start)
    starter.start()
    starter.join()
    assert "lambda" in str(caught[0])


def test_an_interrupted_rank_has_not_ended_well():
    with pytest.raises(ProcessExitedException, match="exit code 130"):
        start_processes(spawned_ranks.interrupt, (), 1, start_method="fork")


def test_processes_end_with_their_parent(tmp_path):
    source = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import spawned_ranks
from distlite.spawn import start_processes
start_processes(spawned_ranks.wait_for, ("{tmp_path}/never",), 2, join=False,
                start_method="fork")
start_processes(spawned_ranks.note, ("{tmp_path}", "x"), 1, start_method="fork")
context = start_processes(spawned_ranks.wait_for, ("{tmp_path}/never",), 1, join=False,
                          start_method="fork")
print(*context.pids(), flush=True)
context.join()
"""
    words = [sys.executable, "-c", source]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + LIMIT
    while _lives(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _lives(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_another_start_method_is_a_warning(tmp_path):
    with pytest.warns(FutureWarning, match="start_method='fork'"):
        spawn(spawned_ranks.note, (str(tmp_path), "ran"), start_method="fork")
    assert (tmp_path / "0").read_text().startswith("ran ")


def test_the_names_of_torch():
    assert SpawnContext is ProcessContext
    for name in distlite.multiprocessing.__all__:
        assert getattr(distlite.multiprocessing, name) is getattr(distlite.spawn, name)
    assert distlite.multiprocessing.Process is multiprocessing.Process
    assert not hasattr(distlite.multiprocessing, "nothing")


ASK = "import sys, functools\nfrom distlite.spawn import spawn, start_processes\n"


@pytest.mark.parametrize("call", ["spawn(work)", "start_processes(partial)"])
def test_a_function_that_no_interpreter_could_import_is_explained(call):
    """As in a notebook; multiprocessing would say so once per process, on stderr."""
    code = ASK + "def work(i): pass\npartial = functools.partial(work)\n" + call
    for how in ["-c", code], ["-"]:
        words = [sys.executable, *how]
        done = subprocess.run(
            words, input=code, capture_output=True, text=True, timeout=LIMIT
        )
        assert done.returncode == 1
        assert done.stderr.count("Traceback") == 1, done.stderr
        said = done.stderr.splitlines()[-1]
        assert said.startswith("AttributeError: Can't get attribute 'work' on <module ")
        assert "distlite.notebook_launcher(work, args, num_processes)" in said
        assert "start_method='fork'" in said


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_function_within_a_function_is_explained(method):
    def local(index):
        pass

    for function in local, lambda index: None:
        with pytest.raises(AttributeError, match="^Can't pickle local object ") as told:
            start_processes(function, start_method=method)
        assert "Define it at the top of a module" in str(told.value)


def test_what_is_forked_needs_no_import():
    start_processes(lambda index: None, nprocs=2, start_method="fork")


def test_end_ends_what_is_running(tmp_path):
    folder = str(tmp_path)
    context = start_processes(
        spawned_ranks.wait_for, (f"{folder}/mark",), 2, join=False, start_method="fork"
    )
    context.end(LIMIT)
    assert [each.exitcode for each in context.processes] == [-signal.SIGTERM] * 2
    assert context.join() is True
    context.end()
