# SPDX-License-Identifier: BSD-3-Clause
"""What every Python test gets: a hard limit of time, and no process left behind.

A test may last DEFAULT_SECONDS, SLOW_SECONDS when marked slow, or what its own mark
`limit(seconds)` says.  At the limit SIGALRM, which belongs to this file, fails the
test; if that is not enough, all stacks are dumped and pytest ends.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import fork_server
import pytest
from own_folder import own_folder

DEFAULT_SECONDS = 120.0
SLOW_SECONDS = 600.0
# Seconds from SIGALRM to the end of pytest; blocking calls check for signals every 50
# ms.
HARD_GRACE = 20.0
# Sanitizers and valgrind slow everything down.
TOOL_FACTOR = 4.0

# Python itself starts the first two, once per process, for programs that share memory.
FORK_SERVER = "tests/fork_server.py"
ALLOWED_CHILDREN = (
    *("multiprocessing.resource_tracker", "multiprocessing.forkserver"),
    FORK_SERVER,
    "/tests/c/test_",  # cases in C that run ahead of pytest
)

# Its cases are imported by the files that run them.
pytest.register_assert_rewrite("store_conformance")

_stderr = pytest.StashKey[int]()
# How long the tests of each file took, for tests/parts.py.
_durations: dict[str, float] = {}


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell's background job ignores Ctrl-C, and so would all that tests start.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Some supervisors start programs with signals blocked.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    config.addinivalue_line("markers", "limit(seconds): may last this long")
    # The threads of NumPy's library spin when they start, a third of NumPy's import.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Unbuffered, a line and its end are two writes, between which another process's may
    # fall.
    os.environ.pop("PYTHONUNBUFFERED", None)
    # What processes that tests kill leave behind, as recordings and the output of a
    # launcher's ranks, goes with the folder.
    stack = contextlib.ExitStack()
    folder = stack.enter_context(own_folder("distlite-tests-"))
    os.environ["DISTLITE_RUNTIME_DIR"] = os.environ["TMPDIR"] = folder
    config.add_cleanup(stack.close)
    # The original stderr, which pytest does not capture.
    config.stash[_stderr] = os.dup(2)


def pytest_collection_finish(session: pytest.Session) -> None:
    # Forks take a quarter of the processor time of fresh processes.
    if "distlite.testing.processes" in sys.modules:
        fork_server.install()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    file = report.location[0]
    _durations[file] = _durations.get(file, 0.0) + report.duration


def pytest_sessionfinish() -> None:
    folder = os.environ.get("DISTLITE_TESTS_DURATIONS")
    if folder and _durations:
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, f"{os.getpid()}.json").write_text(json.dumps(_durations))


def _limit_of(item: pytest.Item) -> float:
    mark = item.get_closest_marker("limit")
    is_slow = item.get_closest_marker("slow") is not None
    seconds = SLOW_SECONDS if is_slow else DEFAULT_SECONDS
    if mark is not None:
        seconds = float(mark.args[0])
    return seconds * (TOOL_FACTOR if os.environ.get("DISTLITE_SANITIZE") else 1)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    # From here to the end of the teardown: every try of a test has the whole time.
    if isinstance(item, pytest.Function):
        seconds = _limit_of(item)

        def give_up(_number: int, _frame: FrameType | None) -> None:
            pytest.fail(f"lasted longer than {seconds:g} s", pytrace=True)

        signal.signal(signal.SIGALRM, give_up)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        faulthandler.dump_traceback_later(
            seconds + HARD_GRACE, exit=True, file=item.config.stash[_stderr]
        )
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Iterator[pytest.TestReport]:
    # An alarm here would end the session and not the test.
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _children_of(parent: int) -> dict[int, str]:
    """Children of a process, with their command lines: empty of one that has ended, or
    is being started at this moment."""
    found = {}
    with contextlib.suppress(OSError):  # it has just ended
        for task in Path(f"/proc/{parent}/task").iterdir():
            for pid in map(int, (task / "children").read_text().split()):
                with contextlib.suppress(OSError):
                    command = Path(f"/proc/{pid}/cmdline").read_bytes()
                    found[pid] = command.replace(b"\0", b" ").decode(errors="replace")
    return found


def _children() -> dict[int, str]:
    """Returns the processes that the test has to end: children of this process and of
    its fork server."""
    children = _children_of(os.getpid())
    found = {
        pid: command
        for pid, command in children.items()
        if not any(allowed in command for allowed in ALLOWED_CHILDREN)
    }
    for pid, command in children.items():
        if FORK_SERVER in command:
            found |= _children_of(pid)
    return found


@pytest.fixture(autouse=True)
def no_process_left() -> Iterator[None]:
    """The test ends all that it starts; what it forgot is killed and fails it."""
    before = _children()
    yield
    # One that was killed a moment ago may still be on its way out.
    deadline = time.monotonic() + 10.0
    while left := {p: c for p, c in _children().items() if c and p not in before}:
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
    assert not left, f"processes left behind: {sorted(left.values())}"
