# SPDX-License-Identifier: BSD-3-Clause
"""distlite.elastic: every call ends by its deadline, and may be repeated."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import elastic_deadline_ranks as deadlines
import pytest
from elastic_deadline_ranks import timed
from elastic_ranks import LIMIT, one_sum
from test_elastic import close, in_threads, members_of

import distlite as dist
from distlite import elastic
from distlite.testing import start_ranks

# Seconds that a call may take longer: a busy machine, and a store that does not answer.
GRACE = 5.0


def run_with_stop(function: Any, **options: Any) -> list[Any]:
    """The values of three processes, one of which stops itself and goes on when the two
    others have tried in vain."""
    with dist.TCPStore("127.0.0.1", 0, is_master=True) as store:
        options = {"port": store.port, "backend": None, **options}
        with start_ranks(function, 3, **options) as job:
            victim = int(store.get("stopped", timeout=LIMIT))
            store.get("both tried", timeout=LIMIT)
            job.go_on(victim)
            outcomes = job.wait(LIMIT)
        for each in outcomes:
            assert each.is_good, each.describe()
        return [each.value for each in outcomes]


def check_calls(found: list[dict[str, Any]], name: str, limit: float) -> list[str]:
    """Checks that calls have ended in time, and that `next` has named who was stopped;
    returns the errors of the first call."""
    [stopped] = [each["pid"] for each in found if each["pid"]]
    others = [each for each in found if not each["pid"]]
    for each in others:
        assert each[name][1] < limit + GRACE
        text, seconds = each["next"]
        assert seconds < deadlines.SHORT + GRACE
        if each[name][0]:
            assert f"waiting for pid {stopped} on host" in text
            assert "Nobody is evicted by it" in text
            assert str(stopped) in each[name][0]
    return [each[name][0] for each in others]


@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("hosts", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_step_with_a_stopped_member(hosts, commits):
    """Its end takes two timeouts: the flags of all, and the next epoch."""
    found = run_with_stop(deadlines.stop_in_step, hosts=hosts, commits=commits)
    kind, limit = "DistBackendError", deadlines.TIMEOUT
    if commits:
        kind, limit = "DistStoreError", 2 * limit
    errors = check_calls(found, "step", limit)
    assert all(text.startswith(kind) for text in errors)
    # All of them are in the next epoch, and the step was not committed.
    assert all(each["views"] == (True, 1, 2) for each in found)


@pytest.mark.parametrize("call", ["broadcast", "send_object_list", "all_reduce"])
def test_a_restore_whose_source_stops(call):
    found = run_with_stop(deadlines.stop_in_restore, call=call)
    errors = check_calls(found, "restore", deadlines.TIMEOUT)
    # Who needs nothing more of the other source has finished.
    assert errors.count("") == (call == "send_object_list")


SERVER = """
import sys, time
import distlite as dist
store = dist.TCPStore("127.0.0.1", 0, is_master=True)
print(store.port, flush=True)
sys.stdin.read()
"""


@contextmanager
def server() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A store in a process of its own, which can be stopped."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", SERVER], **pipes) as process:
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def fails_on_the_first(member: elastic.Member) -> None:
    with member.step(1001) as view:
        if view.rank == 0:
            raise OSError("as an example")


def test_a_store_that_does_not_answer():
    with server() as (process, port):
        with dist.TCPStore("127.0.0.1", port, timeout=LIMIT) as store:
            members = members_of(store, 2, deadlines.TIMEOUT)
        in_threads(elastic.Member.next, members)
        process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        for step in range(500):
            assert in_threads(lambda m, n=step: one_sum(m, n), members) == [2.0] * 2
            time.sleep(0.001)
        assert time.monotonic() - began < GRACE
        for call in (
            fails_on_the_first,
            elastic.Member.next,
            lambda member: member.next(deadlines.SHORT),
        ):
            for text, seconds in in_threads(lambda m, c=call: timed(c, m), members):
                assert seconds < deadlines.TIMEOUT + 2 * GRACE
                assert "does not answer" in text or "as an example" in text
        process.send_signal(signal.SIGCONT)
        # It stops while a member waits for the other one: neither is named for that.
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(timed, members[0].next)
            time.sleep(1)
            process.send_signal(signal.SIGSTOP)
            text, seconds = waiting.result(LIMIT)
        assert "does not answer" in text
        assert seconds < deadlines.TIMEOUT + 2 * GRACE
        process.send_signal(signal.SIGCONT)
        views = in_threads(lambda member: member.next(LIMIT), members)
        assert {(view.size, view.done) for view in views} == {(2, 499)}
        in_threads(lambda member: one_sum(member, 500), members)
        close(members)
