# SPDX-License-Identifier: BSD-3-Clause
"""Runs the launcher for tests of it.

Every run has a token in its environment, which all that it starts inherits: this is how
`processes_of` finds the processes that a run has left, whatever their parent is.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ports import reserve_port

LIMIT = 60.0
TOKEN = "LAUNCH_TEST_TOKEN"
port_outside_the_ephemeral_range = reserve_port
RUN = [sys.executable, "-m", "distlite.run"]
# A job that is told to end has this long to obey in tests that do not set it.
GRACE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"


def write_script(folder: Path, source: str, name: str = "script.py") -> str:
    """A script whose ranks have `rank` and `world_size`; its path."""
    prelude = """\
    import os, sys, time
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    """
    path = folder / name
    path.write_text(textwrap.dedent(prelude) + textwrap.dedent(source))
    return str(path)


def launch_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The tests' environment with a fresh token and `extra`."""
    # The launcher chooses OMP_NUM_THREADS, unless a test sets it.
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    return {**environment, TOKEN: uuid.uuid4().hex, GRACE: "10", **(extra or {})}


def launch(
    arguments: Sequence[str | int],
    *,
    command: Sequence[str] = RUN,
    env: Mapping[str, str] | None = None,
    timeout: float = LIMIT,
    **settings: Any,
) -> subprocess.CompletedProcess[str]:
    """Runs the launcher to its end; no process of the run outlives the call."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    settings = {"text": True, **pipes, **settings}
    environment = launch_environment(env)
    words = [*command, *map(str, arguments)]
    if "input" not in settings:
        settings.setdefault("stdin", subprocess.DEVNULL)
    try:
        return subprocess.run(words, env=environment, timeout=timeout, **settings)
    finally:
        kill_all(environment[TOKEN])


@contextmanager
def launched(
    arguments: Sequence[str | int],
    *,
    command: Sequence[str] = RUN,
    env: Mapping[str, str] | None = None,
    **settings: Any,
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yields a run in progress and its token, and kills it at the end of the block."""
    settings = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
        "preexec_fn": _default_signals,
        **settings,
    }
    environment = launch_environment(env)
    words = [*command, *map(str, arguments)]
    process = subprocess.Popen(words, env=environment, **settings)
    with process:
        try:
            yield process, environment[TOKEN]
        finally:
            process.kill()
            kill_all(environment[TOKEN])


def _default_signals() -> None:
    # pytest may itself have been started in the background of a script.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def processes_of(token: str) -> dict[int, str]:
    """Living processes of a run, with their command lines."""
    mark = f"{TOKEN}={token}".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark not in (folder / "environ").read_bytes().split(b"\0"):
                continue
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            if state not in "ZX":
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(folder.name)] = command.decode()
    return found


def kill_all(token: str) -> None:
    """Kill what is left of a run."""
    while left := processes_of(token):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def wait_until(holds: Callable[[], Any], seconds: float = LIMIT) -> Any:
    """Returns the first true value of `holds()`."""
    deadline = time.monotonic() + seconds
    while not (value := holds()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
    return value
