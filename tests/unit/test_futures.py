# SPDX-License-Identifier: BSD-3-Clause
"""Callbacks of a Future where something goes wrong around them."""

import asyncio
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import distlite
from distlite import Future, futures
from distlite.launch import rank_process

LONG = 60.0


@pytest.fixture
def group():
    return distlite.ProcessGroup(distlite.HashStore(), 0, 1, timeout=LONG)


@pytest.fixture
def no_thread(monkeypatch):
    """Threads cannot be started, until it is called."""

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        yield patched.undo


def is_called(group) -> bool:
    """Whether a callback of a Work is called."""
    seen = threading.Event()
    work = group.allreduce(np.ones(1))
    work.get_future().add_done_callback(lambda _: seen.set())
    return seen.wait(LONG / 6)


def test_callbacks_in_a_forked_child(group):
    assert is_called(group)
    child = os.fork()
    if not child:
        status = 1
        try:
            store = distlite.HashStore()
            own = distlite.ProcessGroup(store, 0, 1, timeout=LONG)
            status = 0 if is_called(own) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert is_called(group)


def test_a_thread_of_callbacks_that_cannot_start(group, no_thread, monkeypatch):
    monkeypatch.setattr(futures, "_thread", None)
    with pytest.raises(RuntimeError, match="new thread"):
        is_called(group)
    assert futures._thread is None


def test_a_thread_that_starts_children_and_cannot_start(no_thread, monkeypatch):
    monkeypatch.setattr(rank_process, "_threads", {})
    monkeypatch.setattr(threading, "main_thread", lambda: None)
    with pytest.raises(RuntimeError, match="new thread"):
        rank_process.call_lastingly(int)
    no_thread()
    assert rank_process.call_lastingly(int) == 0


AT_EXIT = """
import atexit
import numpy as np
import distlite
from distlite import futures

group = distlite.ProcessGroup(distlite.HashStore(), 0, 1)
work = group.allreduce(np.ones(1))

def late():
    try:
        work.get_future().add_done_callback(print)
    except RuntimeError:
        pass  # no thread starts any more
    if futures._thread is not None:
        futures._thread.join(30)
        assert not futures._thread.is_alive()
    print("over")

atexit.register(late)
"""


def test_a_first_callback_at_exit_leaves_no_thread():
    done = subprocess.run(
        [sys.executable, "-c", AT_EXIT], capture_output=True, text=True, timeout=LONG
    )
    assert (done.stdout, done.stderr) == ("over\n", "")


def test_a_wait_sleeps_until_the_end(monkeypatch):
    future, limits = Future(), []
    wait = future._condition.wait

    def note(timeout=None):
        limits.append(timeout)
        if len(limits) == 1:
            threading.Timer(0.2, future.set_result, [3]).start()
        return wait(timeout)

    monkeypatch.setattr(future._condition, "wait", note)
    assert future.wait() == 3
    assert limits == [None]


def test_a_signal_interrupts_a_wait():
    def interrupted(number, frame):
        raise InterruptedError

    former = signal.signal(signal.SIGALRM, interrupted)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(InterruptedError):
            Future().wait()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


def interrupt(_):
    raise KeyboardInterrupt


@pytest.mark.parametrize("is_done", [False, True])
def test_ctrl_c_in_a_callback(is_done, capfd):
    """It goes on, after the other callbacks."""
    future, seen = Future(), []
    if is_done:
        future.set_result(3)
        with pytest.raises(KeyboardInterrupt):
            future.add_done_callback(interrupt)
    else:
        future.add_done_callback(interrupt)
        following = future.then(interrupt)
        future.add_done_callback(lambda done: seen.append(done.value()))
        with pytest.raises(KeyboardInterrupt):
            future.set_result(3)
        assert seen == [3]
        with pytest.raises(KeyboardInterrupt):
            following.value()
    assert future.value() == 3
    assert capfd.readouterr().err == ""


def test_an_interrupt_on_another_thread_is_told_of(capfd):
    """It is no Ctrl-C."""
    future = Future()
    future.add_done_callback(interrupt)
    thread = threading.Thread(target=future.set_result, args=(3,))
    thread.start()
    thread.join()
    assert "KeyboardInterrupt" in capfd.readouterr().err


def test_a_task_that_has_given_up_is_not_told_of_in_the_log(capfd):
    future = Future()
    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(asyncio.wait_for(future, 0.01))
    future.set_result(3)
    assert future.value() == 3
    assert capfd.readouterr().err == ""
