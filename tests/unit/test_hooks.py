# SPDX-License-Identifier: BSD-3-Clause
"""Functions of the program that are called around operations."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest
from workers import SOON

import distlite as dist
from distlite import testing

LONG = 60.0


class Log:
    """What the hooks of one rank, which is a thread, have seen."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.lines: list[str] = []
        self.group = group
        self.ended = threading.Event()

    def before(self, operation: dist.Operation) -> None:
        if operation.group is self.group:
            operation.data["thread"] = threading.get_ident()
            self.lines.append(f"before {operation!r}")

    def after(self, operation: dist.Operation) -> None:
        if operation.group is self.group:
            assert "thread" in operation.data
            error = type(operation.error).__name__
            self.lines.append(f"after {operation.name} {error}")
            self.ended.set()

    def abort(self, group: dist.ProcessGroup, reason: str) -> None:
        if group is self.group:
            self.lines.append(f"abort {reason}")

    def register(self) -> Any:
        return dist.register_hooks(self.before, self.after, self.abort)


def each_operation(rank: int) -> list[str]:
    x, peer = np.ones(2), 1 - rank
    pair = [np.zeros(2), np.zeros(2)]
    log = Log(dist.new_group())
    group = log.group
    dist.barrier()
    with log.register():
        dist.all_reduce(x, group=group)
        dist.barrier(group)
        dist.all_gather(pair, x, group)
        dist.scatter(pair[0], [x, x + 1] if rank == 0 else None, 0, group)
        dist.all_to_all_single(pair[0], x, group=group)
        if rank == 0:
            dist.send(x, peer, group)
        else:
            dist.recv(x, group=group)
        dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, x, peer, group)]
            if rank == 0
            else [dist.P2POp(dist.irecv, x, peer, group)]
        )[0].wait()
        group.allreduce(x).wait()
    dist.all_reduce(x, group=group)  # unseen
    dist.barrier()
    return log.lines


def test_collectives_and_messages_are_seen():
    with testing.world(2, timeout=LONG) as ranks:
        found = ranks.run(each_operation)
    for rank, lines in enumerate(found):
        message = ["send", "recv"][rank]
        names = ["all_reduce", "barrier", "all_gather", "scatter", "all_to_all"]
        names += [message, message, "all_reduce"]
        begun = [line.split()[1][1:] for line in lines if line.startswith("before")]
        ended = [line.split()[1:] for line in lines if line.startswith("after")]
        assert begun == names
        assert ended == [[name, "NoneType"] for name in names]
        assert lines[0] == "before <all_reduce in group 1>"


def failing(rank: int) -> list[str]:
    log = Log(dist.new_group())
    dist.barrier()
    if rank == 0:
        log.group._abort("the test ends it")
        return []
    with log.register():
        work = dist.all_reduce(np.ones(2), group=log.group, async_op=True)
        with pytest.raises(dist.DistBackendError):
            work.wait()
        assert log.ended.wait(LONG)
        with pytest.raises(dist.DistBackendError):
            dist.all_reduce(np.ones(2), group=log.group)
        log.group.abort()
    return log.lines


def test_errors_and_aborts_are_seen():
    with testing.world(2, timeout=LONG) as ranks:
        _, lines = ranks.run(failing)
    assert lines == [
        "before <all_reduce in group 1>",
        "after all_reduce DistBackendError",
        "before <all_reduce in group 1>",
        "after all_reduce DistBackendError",
        "abort abort() was called",
    ]


@pytest.fixture
def group():
    made = dist.ProcessGroup(dist.HashStore(), 0, 1, timeout=LONG)
    yield made
    made.shutdown()


def test_a_work_that_nobody_waits_for_is_seen(group):
    log = Log(group)
    with log.register():
        dist.all_reduce(np.ones(2), group=group, async_op=True)
    assert log.ended.wait(LONG)
    assert log.lines[-1] == "after all_reduce NoneType"


def test_several_hooks_and_their_end(group):
    logs = [Log(group), Log(group)]
    first, second = [log.register() for log in logs]
    dist.barrier(group)
    first.remove()
    first.remove()
    dist.barrier(group)
    second.remove()
    dist.barrier(group)
    assert [len(log.lines) for log in logs] == [2, 4]


def test_an_error_of_a_hook_is_printed_and_goes_no_further(group, capsys):
    def fail(_: object) -> None:
        raise KeyError("of the hook")

    log, x = Log(group), np.ones(2)
    with dist.register_hooks(fail, fail), log.register():
        dist.all_reduce(x, group=group)
    assert len(log.lines) == 2
    printed = capsys.readouterr().err
    assert printed.count("exception in a hook of distlite.register_hooks:") == 2
    assert "KeyError: 'of the hook'" in printed


def test_hooks_keep_nothing(group):
    class Array(np.ndarray):
        """One that can be referred to weakly."""

    x = np.ones(2).view(Array)
    with dist.register_hooks(lambda _: None, lambda _: None):
        dist.all_reduce(x, group=group)
        dist.all_reduce(x, group=group, async_op=True).wait()
    seen = weakref.ref(x)
    del x
    deadline = time.monotonic() + SOON
    while seen() is not None and time.monotonic() < deadline:
        time.sleep(0.01)  # the thread of callbacks may still have it
    assert seen() is None


def test_what_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match="after must be a function, not 5"):
        dist.register_hooks(after=5)


@pytest.mark.parametrize("when", ["before", "after"])
def test_ctrl_c_in_a_hook_reaches_the_program(when: str) -> None:
    def interrupt(operation: dist.Operation) -> None:
        raise KeyboardInterrupt

    group = dist.ProcessGroup(dist.HashStore(), 0, 1, backend="gloo")
    with dist.register_hooks(**{when: interrupt}), pytest.raises(KeyboardInterrupt):
        dist.barrier(group)
        for _ in range(1000):
            """The interpreter looks for signals here."""
