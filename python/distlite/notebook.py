# SPDX-License-Identifier: BSD-3-Clause
"""Ranks as processes of a notebook, whose functions no new interpreter could import."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

from ._C import DistError, TCPStore
from .groups.world import world
from .spawn import ProcessException, check_arguments, start_processes

__all__ = ["notebook_launcher"]

ADDRESS = "127.0.0.1"
# Seconds from SIGTERM to SIGKILL for the ranks of a cell that is interrupted.
GRACE = 3.0


def notebook_launcher(
    function: Callable[..., object],
    args: tuple[Any, ...] = (),
    num_processes: int | None = None,
    *,
    use_port: int | str = 0,
) -> None:
    """Calls a function of a notebook on several ranks, and returns when all have ended.

    The ranks are processes, forked from the notebook's: they have copies of its
    variables, and their output appears below the cell. Their environment has the
    variables that `distlite run` sets, so `init_process_group()` and `process_group()`
    need no arguments. The function's result is lost with its process; save it, or use
    `testing.world`, whose ranks are threads.

    Args:
        function: The function, which is called as `function(*args)`.
        args: The arguments, a tuple.
        num_processes: The number of ranks; None is one per usable core.
        use_port: The port of the job's store; 0 is any free one.

    Raises:
        TypeError: `args` is no tuple, or `num_processes` no integer.
        ValueError: The notebook itself is in a process group, the number of ranks is
            less than 1, or the port is out of range.
        OSError: The port is in use.
        ProcessRaisedException: The function raised an exception on a rank, whose
            traceback is quoted. The other ranks have been ended.
        ProcessExitedException: A rank failed without an exception.

    Example:
        >>> def work(step):
        ...     with dist.process_group():
        ...         x = np.array([dist.get_rank() + step])
        ...         dist.all_reduce(x)
        ...         assert x[0] == 21
        >>> dist.notebook_launcher(work, args=(10,), num_processes=2)
    """
    wanted = 1 if num_processes is None else num_processes
    check_arguments(args, wanted, "num_processes")
    count, port = _count(num_processes), _port(use_port)
    if world.default is not None:
        raise ValueError(
            "notebook_launcher: this process is in a process group, which forked ranks "
            "cannot share; call destroy_process_group() first"
        )
    ranks = None
    try:
        with _serve(port) as store:
            variables = {
                "WORLD_SIZE": str(count),
                "LOCAL_WORLD_SIZE": str(count),
                "MASTER_ADDR": ADDRESS,
                "MASTER_PORT": str(store.port),
                "TORCHELASTIC_USE_AGENT_STORE": "True",
            }
            words = (function, args, variables)
            with warnings.catch_warnings():
                # Python warns of a fork beside threads, which every notebook has.
                warnings.simplefilter("ignore", DeprecationWarning)
                ranks = start_processes(_work, words, count, False, start_method="fork")
            assert ranks is not None
            while not ranks.join():
                pass
    except ProcessException:
        raise
    except BaseException:  # the cell was interrupted
        if ranks is not None:
            ranks.end(GRACE)
        raise


def _count(given: int | None) -> int:
    if given is None:
        from .launch.cores import usable_cores

        return usable_cores()
    if given < 1:
        raise ValueError(f"num_processes must be 1 or more, not {given}")
    return given


def _port(given: int | str) -> int:
    # The C library takes 65536 for 0 without an error.
    try:
        port = int(given)
    except ValueError:
        port = -1
    if not 0 <= port <= 65535:
        raise ValueError(f"use_port must be 0 to 65535, not {given!r}")
    return port


def _serve(port: int) -> TCPStore:
    try:
        return TCPStore(ADDRESS, port, is_master=True, wait_for_workers=False)
    except DistError as error:
        raise OSError(f"cannot listen on {ADDRESS}:{port}: {error}") from None


def _work(
    rank: int,
    function: Callable[..., object],
    args: tuple[Any, ...],
    variables: dict[str, str],
) -> None:
    """Runs a rank in the new process."""
    # Of a launcher that started the notebook, about other ranks.
    os.environ.pop("TORCHELASTIC_RUN_ID", None)
    os.environ.update(variables, RANK=str(rank), LOCAL_RANK=str(rank))
    function(*args)
